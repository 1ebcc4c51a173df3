//! Where the runs take place: on the CPUs of one NUMA node, with one thread a core.
//!
//! Both are settings of the machine whose effect H. Ingo and D. Daly measured. A node is chosen by the affinity of this
//! process, which ends with it. Threads of cores go offline by the kernel's switch, through the journal: whatever ends
//! emu, they come back. Programs that are bound to a CPU which goes offline may lose that binding, as the kernel moves
//! them away.

use std::path::PathBuf;

use emu_bench::workload::confine;
use emu_core::{CpuList, Error, Host, Journal, Result, control_file};

const METHOD: &str = "noise";

/// What is asked of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Setting {
    /// The NUMA node on whose CPUs everything runs.
    pub node: Option<usize>,
    /// One thread a core: the others go offline meanwhile.
    pub smt_off: bool,
}

impl Setting {
    /// The CPUs on which everything will run, of those that this process may use. Reads only.
    ///
    /// # Errors
    /// Usage, for a node that is not there. Unavailable, where no CPU of it may be used, or SMT cannot be turned off.
    pub fn cpus(&self, host: &Host) -> Result<CpuList> {
        let mut cpus = host.allowed.clone();
        if let Some(node) = self.node {
            cpus = of_node(host, node)?.intersection(&cpus);
            if cpus.is_empty() {
                return Err(Error::unavailable(format!(
                    "cannot measure on node {node}: emu may use none of its CPUs"
                ))
                .hint("run it with an affinity and a cpuset that have CPUs of the node"));
            }
        }
        if self.smt_off {
            check_switch(host)?;
            // The kernel keeps the first thread of each core.
            let is_first = |id: &usize| {
                host.cpu(*id).is_none_or(|cpu| cpu.siblings.iter().next().is_none_or(|first| first == *id))
            };
            cpus = cpus.iter().filter(is_first).collect();
            if cpus.is_empty() {
                return Err(Error::unavailable(
                    "cannot turn SMT off: emu may use none of the threads that would stay",
                )
                .hint("run it with an affinity and a cpuset that have the first thread of a core"));
            }
        }
        Ok(cpus)
    }

    /// Makes it so, for this thread and the processes that it starts, until the journal of what is changed is undone or
    /// dropped; there is none where nothing is. After an error everything is as it was.
    pub fn hold(&self, host: &Host) -> Result<Option<Journal>> {
        let cpus = self.cpus(host)?;
        let mut changed = None;
        if self.smt_off {
            let journal = Journal::open(&host.roots, &CpuList::default(), METHOD, "this machine")?;
            let switch = switch(host);
            changed.insert(journal).write_file(&switch, "off")?;
            let reads = control_file::read(&switch)?;
            if reads != "off" {
                return Err(Error::unavailable(format!(
                    "{} reads `{reads}` after `off` was written",
                    switch.display()
                )));
            }
        }
        if *self != Self::default() {
            confine(&cpus)?;
        }
        Ok(changed)
    }
}

/// The kernel's switch (Documentation/ABI/testing/sysfs-devices-system-cpu).
fn switch(host: &Host) -> PathBuf {
    host.roots.cpus().join("smt/control")
}

fn check_switch(host: &Host) -> Result<()> {
    let path = switch(host);
    let why = match control_file::read_if_present(&path)?.as_deref() {
        Some("on" | "off") => return Ok(()),
        Some("forceoff") => "it was turned off for good when the system started".to_owned(),
        Some(other) => format!("{} reads `{other}`", path.display()),
        None => format!("the kernel has no {}", path.display()),
    };
    Err(Error::unavailable(format!("cannot turn SMT off: {why}"))
        .hint("leave it out: cores here have one thread, or the host of this guest decides"))
}

/// The CPUs of a node (Documentation/ABI/stable/sysfs-devices-node).
fn of_node(host: &Host, node: usize) -> Result<CpuList> {
    let nodes = host.roots.sys.join("devices/system/node");
    let missing = |there: &str| {
        Error::usage(format!("there is no NUMA node {node}"))
            .hint(format!("this host has {there}; see `lscpu`"))
    };
    let Some(online) = control_file::probe_cpus(&nodes.join("online")) else {
        return Err(missing("none that the kernel tells of"));
    };
    if !online.contains(node) {
        return Err(missing(&format!("node {online}")));
    }
    let path = nodes.join(format!("node{node}/cpulist"));
    control_file::probe_cpus(&path).ok_or_else(|| {
        Error::unavailable(format!("cannot tell the CPUs of node {node} from {}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::testing::host_of;
    use emu_core::{ErrorKind, Roots};

    /// A host of two cores with two threads each, every core on a node of its own.
    fn host(control: &str) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        let mut host = host_of(&["0,2", "1,3"], "0-3");
        host.roots = Roots::below(dir.path());
        let node = "sys/devices/system/node";
        for (path, text) in [
            ("sys/devices/system/cpu/smt/control".to_owned(), control),
            (format!("{node}/online"), "0-1\n"),
            (format!("{node}/node0/cpulist"), "0,2\n"),
            (format!("{node}/node1/cpulist"), "1,3\n"),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        (dir, host)
    }

    fn cpus(host: &Host, node: Option<usize>, smt_off: bool) -> Result<String> {
        Setting { node, smt_off }.cpus(host).map(|cpus| cpus.to_string())
    }

    #[test]
    fn cpus_are_those_of_the_node_and_one_a_core() {
        let (_dir, mut host) = host("on\n");
        for (node, smt_off, is) in
            [(None, false, "0-3"), (Some(1), false, "1,3"), (None, true, "0-1"), (Some(0), true, "0")]
        {
            assert_eq!(cpus(&host, node, smt_off).unwrap(), is);
        }
        host.allowed = "3".parse().unwrap();
        assert_eq!(cpus(&host, Some(0), false).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(cpus(&host, None, true).unwrap_err().kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn what_the_host_does_not_have_is_refused() {
        let (dir, host) = host("notsupported\n");
        let error = cpus(&host, Some(2), false).unwrap_err();
        assert!(error.hint_text().unwrap().contains("node 0-1"), "{error:?}");
        assert!(cpus(&host, None, true).unwrap_err().to_string().contains("reads `notsupported`"));
        fs::remove_dir_all(dir.path().join("sys")).unwrap();
        assert!(cpus(&host, None, true).unwrap_err().to_string().contains("the kernel has no"));
        assert_eq!(cpus(&host, Some(0), false).unwrap_err().kind(), ErrorKind::Usage);
    }

    #[test]
    fn the_switch_is_put_back_at_the_end_and_when_dropped() {
        let (dir, mut host) = host("on\n");
        // The journal needs a process to write down; CPUs have to be such as this test may really use.
        std::os::unix::fs::symlink("/proc", dir.path().join("proc")).unwrap();
        host.allowed = Host::detect(&Roots::system()).unwrap().allowed;
        let reads = || fs::read_to_string(dir.path().join("sys/devices/system/cpu/smt/control")).unwrap();
        // On a thread of its own, whose affinity may change.
        std::thread::scope(|scope| {
            let held = scope.spawn(|| {
                let setting = Setting { node: None, smt_off: true };
                let held = setting.hold(&host).unwrap();
                assert_eq!(reads(), "off");
                held.unwrap().undo_all().unwrap();
                assert_eq!(reads().trim(), "on");
                drop(setting.hold(&host).unwrap());
                assert_eq!(reads().trim(), "on");
            });
            held.join().unwrap();
        });
    }
}

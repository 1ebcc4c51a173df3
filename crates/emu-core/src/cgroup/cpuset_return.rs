//! Watches the cpuset of a zone, and restores its CPUs when they come online again.
//!
//! Version 1 removes a CPU that goes offline from every cpuset and does not restore it; version 2 does (cgroups-v1/cpusets.rst,
//! "Modifying"; cgroup-v2.rst, `cpuset.cpus.effective`).

use std::path::PathBuf;

use super::confine;
use super::cpuset_repair::CpusetRepair;
use super::folder::Folder;
use crate::control_file;
use crate::cpu_list::CpuList;
use crate::duty::{Command, DutyThread};
use crate::error::Result;
use crate::notes::Notes;
use crate::sys::time::{self, Nanos};

const EVERY: Nanos = 500_000_000;

const EVICTED: &str = "all CPUs of the zone were offline: the kernel let its tasks run elsewhere until one was back, which a \
                       method that slows CPUs does not reach";

#[derive(Debug)]
pub(crate) struct CpusetReturn {
    /// Lists the CPUs which the group's tasks can use.
    file: PathBuf,
    version: u8,
    cpus: CpuList,
    has: CpuList,
    /// CPUs that the kernel has removed from a cpuset of another owner; not needed for emu's own.
    lost: Option<CpuList>,
    /// CPUs of the zone that are online and were missing at the last look.
    missing: CpuList,
    notes: Notes,
}

impl CpusetReturn {
    /// CPUs that another owner of the group removes stay removed.
    pub(crate) fn new(folder: &Folder, cpus: CpuList, is_theirs: bool, notes: &Notes) -> Self {
        let file = folder.path.join(confine::in_force(folder.version));
        let (has, missing, notes) = (cpus.clone(), CpuList::default(), notes.clone());
        let lost = is_theirs.then(CpuList::default);
        Self { file, version: folder.version, has, cpus, lost, missing, notes }
    }

    /// The CPUs at the last look, restored ones included.
    pub(crate) fn has(&self) -> &CpuList {
        &self.has
    }

    /// Watches the cpuset and its tasks until the thread is dropped. Notes tasks that were moved out and tasks that may use
    /// other CPUs.
    pub(crate) fn start(mut self, online_file: PathBuf, mut tasks: CpusetRepair) -> Result<DutyThread<()>> {
        DutyThread::spawn(
            "emu-cpuset",
            (),
            || Ok(()),
            move |(), wait| {
                loop {
                    let (Command::Run(()), generation) = wait.command() else { return Ok(()) };
                    let online = control_file::probe_cpus(&online_file);
                    // The owner may give back CPUs that he has removed.
                    let is_ours = online.is_none_or(|online| self.renew(&online).is_some());
                    let followed = if !is_ours || self.version == 2 {
                        Ok(())
                    } else if self.has.is_empty() {
                        self.notes.add_problem(EVICTED.into());
                        tasks.follow()
                    } else {
                        tasks.bring_back().and_then(|()| tasks.remember())
                    };
                    if let Err(error) = followed {
                        self.notes.add_problem(format!(
                            "tasks that were moved out of the cpuset are not all back: {}",
                            error.in_words()
                        ));
                    }
                    wait.until(time::now() + EVERY, generation);
                }
            },
        )
    }

    /// Restores CPUs that have come back, and returns whether there were any; `None` when the cpuset is no longer to be
    /// restored: it was removed, or its owner gave it other CPUs.
    pub(crate) fn renew(&mut self, online: &CpuList) -> Option<bool> {
        let Ok(text) = control_file::read_if_present(&self.file) else { return Some(false) };
        let Some(text) = text else {
            if self.file.parent().is_some_and(std::path::Path::exists) {
                self.notes.add_problem(format!(
                    "{} is gone: a group above has withdrawn the controller `cpuset`, and tasks may leave CPUs {}",
                    self.file.display(),
                    self.cpus
                ));
            }
            return None;
        };
        let has = CpuList::from_kernel(&text)?;
        let before = std::mem::replace(&mut self.has, has.intersection(&self.cpus));
        if self.has != has {
            self.notes.add_problem(format!(
                "{} is `{has}`: tasks may use CPUs {}, which are not in the zone",
                self.file.display(),
                has.difference(&self.cpus)
            ));
            return None;
        }
        if self.version == 2 {
            self.tell_missing(online);
            return Some(false);
        }
        let lost = match &mut self.lost {
            None => &self.cpus,
            Some(lost) => {
                *lost = lost.difference(&has).union(&before.difference(online));
                lost
            }
        };
        let back = lost.intersection(online).difference(&has);
        // The kernel refuses CPUs that the parent group lacks, perhaps only some of them; these are retried.
        let each = back.iter().map(|cpu| [cpu].into_iter().collect());
        for more in std::iter::once(back.clone()).filter(|back| !back.is_empty()).chain(each) {
            let all = self.has.union(&more);
            if all != self.has && control_file::write(&self.file, &all.to_string()).is_ok() {
                self.has = all;
            }
        }
        self.tell_missing(online);
        Some(self.has != has)
    }

    /// Reports CPUs that are missing for the second time: the kernel restores them after a while.
    fn tell_missing(&mut self, online: &CpuList) {
        let missing = self.cpus.intersection(online).difference(&self.has);
        let still = missing.intersection(&self.missing);
        if !still.is_empty() {
            self.notes.add_problem(format!(
                "{} is `{}`: tasks cannot use CPUs {still} of the zone",
                self.file.display(),
                self.has
            ));
        }
        self.missing = missing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::tree;
    use std::fs;
    use std::path::Path;

    fn folder(path: &Path, version: u8) -> Folder {
        Folder { version, path: path.to_owned() }
    }

    /// The final contents of the cpuset of a zone of CPUs 0 to 3; each step sets the online CPUs
    /// and the cpuset.
    fn renewed(is_theirs: bool, steps: &[(&str, &str)]) -> String {
        let root = tree(&[("cpuset.cpus", "")]);
        let file = root.path().join("cpuset.cpus");
        let (folder, notes) = (folder(root.path(), 1), Notes::default());
        let mut returning = CpusetReturn::new(&folder, (0..4).collect(), is_theirs, &notes);
        for (online, has) in steps {
            fs::write(&file, has).unwrap();
            let put_back = returning.renew(&online.parse().unwrap()).unwrap();
            let now = fs::read_to_string(&file).unwrap();
            assert_eq!((put_back, returning.has().to_string()), (now != *has, now), "{steps:?}");
        }
        fs::read_to_string(file).unwrap()
    }

    #[test]
    fn a_cpu_that_comes_back_is_given_back() {
        for is_theirs in [false, true] {
            let steps = [("0-7", "0-3"), ("0-1,4-7", "0-1")];
            assert_eq!(renewed(is_theirs, &steps), "0-1");
            assert_eq!(renewed(is_theirs, &[&steps[..], &[("0-2,4-7", "0-1")]].concat()), "0-2");
            assert_eq!(renewed(is_theirs, &[&steps[..], &[("0-7", "0-1")]].concat()), "0-3");
        }
    }

    #[test]
    fn what_the_owner_of_a_group_takes_out_stays_out() {
        assert_eq!(renewed(true, &[("0-7", "0-3"), ("0-7", "0-1")]), "0-1");
        // Restored once, and removed afterwards.
        let steps = [("0-2", "0-2"), ("0-3", "0-2"), ("0-3", "0-3"), ("0-3", "0-2")];
        assert_eq!(renewed(true, &steps), "0-2");
        // Removed before it went offline.
        assert_eq!(renewed(true, &[("0-3", "0-2"), ("0-2", "0-2"), ("0-3", "0-2")]), "0-2");
        // In emu's own group, a CPU went offline and came back between two looks.
        assert_eq!(renewed(false, &[("0-7", "0-3"), ("0-7", "0-1")]), "0-3");
    }

    #[test]
    fn a_removed_group_or_one_with_other_cpus_gets_none_back() {
        let root = tree(&[("cpuset.cpus", "4-5")]);
        let notes = Notes::default();
        let mut returning = CpusetReturn::new(&folder(root.path(), 1), (0..4).collect(), true, &notes);
        assert_eq!((returning.renew(&(0..3).collect()), returning.has()), (None, &CpuList::default()));
        assert!(notes.problems()[0].contains("`4-5`: tasks may use CPUs 4-5"), "{:?}", notes.problems());
        fs::remove_file(root.path().join("cpuset.cpus")).unwrap();
        assert_eq!(returning.renew(&(0..3).collect()), None);
    }

    #[test]
    fn too_many_or_too_few_cpus_in_version_2_are_reported() {
        let root = tree(&[("cpuset.cpus", "0-3\n"), ("cpuset.cpus.effective", "0-3\n")]);
        let (notes, online) = (Notes::default(), (0..4).collect());
        let mut returning = CpusetReturn::new(&folder(root.path(), 2), (0..4).collect(), false, &notes);
        let mut look = |effective: &str, online: &CpuList| {
            fs::write(root.path().join("cpuset.cpus.effective"), effective).unwrap();
            (returning.renew(online), notes.problems().len())
        };
        assert_eq!(look("0-3\n", &online), (Some(false), 0));
        // CPU 3 goes offline and comes back, a little before the kernel restores it.
        assert_eq!(look("0-2\n", &(0..3).collect()), (Some(false), 0));
        assert_eq!(look("0-2\n", &online), (Some(false), 0));
        assert_eq!(look("0-3\n", &online), (Some(false), 0));
        // The parent group loses one.
        assert_eq!(look("0-2\n", &online), (Some(false), 0));
        assert_eq!(look("0-2\n", &online), (Some(false), 1));
        assert_eq!(look("0-5\n", &online), (None, 2));
        assert!(notes.problems()[1].contains("tasks may use CPUs 4-5"), "{:?}", notes.problems());
        assert_eq!(
            fs::read_to_string(root.path().join("cpuset.cpus")).unwrap(),
            "0-3\n",
            "it is only looked at"
        );
    }

    #[test]
    fn a_cpuset_changed_and_changed_back_is_watched_all_the_time() {
        let root = tree(&[("cpuset.cpus", "0-3"), ("cgroup.procs", ""), ("online", "0-7")]);
        let write = |has: &str| fs::write(root.path().join("cpuset.cpus"), has).unwrap();
        let notes = Notes::default();
        let returning = CpusetReturn::new(&folder(root.path(), 1), (0..4).collect(), true, &notes);
        let host = crate::host::testing::host();
        let tasks = CpusetRepair::new(&host.roots.proc, &host.cgroups.hierarchies[0], root.path());
        let _thread = returning.start(root.path().join("online"), tasks).unwrap();
        for other in ["0-5", "0-6"] {
            write(other);
            let told = || notes.problems().iter().any(|problem| problem.contains(&format!("`{other}`")));
            crate::cgroup::testing::wait_until(told);
            write("0-3");
        }
    }
}

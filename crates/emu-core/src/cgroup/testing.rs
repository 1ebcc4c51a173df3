//! Programs and groups on the real kernel, for tests.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use super::{TaskGroup, place};
use crate::cpu_list::CpuList;
use crate::host::{Controller, Host};
use crate::process::{Descendants, Stat};
use crate::roots::Roots;
use crate::speed::Target;
use crate::sys::Pid;
use crate::sys::time::{self, Nanos};
use crate::sys::times::process_cpu_time;
pub(crate) use crate::testing::{skip, wait_until};
use crate::undo::Journal;
use crate::zone::{Demand, Tasks, Zone};

pub(crate) const PROC: &str = "/proc";

/// This host with a temporary state folder, if groups can be made in a hierarchy of `version` that
/// has the controller; only such hierarchies are left in it. Otherwise prints that the test is
/// skipped.
pub(crate) fn host_with(version: u8, controller: Controller, dir: &Path) -> Option<Host> {
    let roots = Roots { state: dir.join("state"), ..Roots::system() };
    let mut host = Host::detect(&roots).unwrap();
    host.cgroups.hierarchies.retain(|hierarchy| hierarchy.version == version && hierarchy.writable);
    if TaskGroup::check(&host, &[controller]).is_err()
        || super::hierarchies::hierarchy_for(&host, controller).is_none()
    {
        println!("skipped: no writable version {version} hierarchy has `{}`", controller.as_str());
        return None;
    }
    Some(host)
}

pub(crate) fn zone(cpus: &CpuList, tasks: Tasks) -> Zone {
    let targets = cpus.iter().map(|cpu| (cpu, Target { share: 0.5, clock: None })).collect();
    Zone { name: "test".into(), demand: Demand::new(targets), tasks, is_new: true, memory: None }
}

pub(crate) fn processes(pids: &[Pid]) -> Tasks {
    Tasks::Processes(pids.to_vec())
}

pub(crate) fn journal(host: &Host) -> Journal {
    Journal::open(&host.roots, &host.allowed, "test", "test").unwrap()
}

/// A program with its children; killed when dropped.
pub(crate) struct Program(pub(crate) Child);

impl Program {
    pub(crate) fn shell(script: &str) -> Self {
        Self(Command::new("sh").args(["-c", script]).spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> Pid {
        self.0.id() as Pid
    }

    pub(crate) fn signal(&self, signal: i32) {
        self::signal(self.pid(), signal);
    }

    pub(crate) fn descendants(&self) -> Descendants {
        Descendants::of(Path::new(PROC), &[self.pid()]).unwrap()
    }

    /// Waits until the program has `count` processes, itself included.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Pid> {
        let mut descendants = self.descendants();
        wait_until(|| {
            descendants.look().unwrap();
            descendants.members().len() == count
        });
        descendants.members().keys().copied().collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Ok(mut descendants) = Descendants::of(Path::new(PROC), &[self.pid()]) {
            for _ in 0..20 {
                let _ = descendants.look();
                descendants.members().keys().for_each(|&pid| signal(pid, libc::SIGKILL));
            }
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn signal(pid: Pid, signal: i32) {
    let signal = nix::sys::signal::Signal::try_from(signal).unwrap();
    let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
}

pub(crate) fn state(pid: Pid) -> Option<u8> {
    Stat::read(Path::new(PROC), pid).map(|stat| stat.state)
}

pub(crate) fn home(host: &Host, pid: Pid, controller: Controller) -> PathBuf {
    place::home(Path::new(PROC), pid, super::hierarchies::hierarchy_for(host, controller).unwrap()).unwrap()
}

/// Runs a test for every version of a controller that this host has.
pub(crate) fn for_each_version(controller: Controller, test: impl Fn(&Host)) {
    for version in [1, 2] {
        let dir = tempfile::tempdir().unwrap();
        if let Some(host) = host_with(version, controller, dir.path()) {
            test(&host);
        }
    }
}

/// The CPU time of a process.
pub(crate) fn cpu_time(pid: Pid) -> Nanos {
    time::nanos(process_cpu_time(pid).unwrap())
}

//! Groups of the cpu controller for tools that are compared, made for a sample and removed after it.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use emu_core::{Controller, Error, Host, Pid, Result};
use nix::sys::signal::{Signal, kill};

use crate::verify::with_descendants;

/// Groups are named `emu-<process that made it>-peer-<what for>`.
const PREFIX: &str = "emu-";
const PEER: &str = "-peer-";

pub(super) const BURNERS: &str = "burners";

/// How often the removal of a group whose processes are about to end is tried, and after what time.
const TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

pub(super) struct Group {
    /// Of cgroups.
    pub(super) version: u8,
    folder: PathBuf,
    home: PathBuf,
}

impl Group {
    pub(super) fn create(host: &Host, name: &str) -> Result<Self> {
        let hierarchy = host
            .cgroups
            .with(Controller::Cpu)
            .ok_or_else(|| Error::unavailable("there is no cgroup with a cpu controller"))?;
        let home = hierarchy.own.clone();
        let folder = home.join(format!("{PREFIX}{}{PEER}{name}", std::process::id()));
        fs::create_dir(&folder).map_err(|cause| Error::file("make", &folder, cause))?;
        let group = Self { version: hierarchy.version, folder, home };
        let control = group.folder.join(if group.version == 2 { "cpu.max" } else { "cpu.cfs_quota_us" });
        if control.exists() {
            return Ok(group);
        }
        Err(Error::unavailable(format!("a new group in {} has no cpu controller", group.home.display())))
    }

    pub(super) fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, value).map_err(|cause| Error::file(&format!("write {value} to"), &path, cause))
    }

    pub(super) fn take(&self, host: &Host, pid: Pid) -> Result<()> {
        let members = with_descendants(&host.roots.proc, pid)?;
        members.iter().try_for_each(|one| self.write("cgroup.procs", &one.pid.to_string()))
    }

    pub(super) fn remove(&self) -> Result<()> {
        let mut last = Ok(());
        for _ in 0..TRIES {
            for pid in self.processes() {
                let _ = fs::write(self.home.join("cgroup.procs"), pid.to_string());
            }
            match fs::remove_dir(&self.folder) {
                Err(cause) if cause.kind() != ErrorKind::NotFound => {
                    last = Err(Error::file("remove", &self.folder, cause));
                    thread::sleep(BETWEEN_TRIES);
                }
                _ => return Ok(()),
            }
        }
        last
    }

    fn processes(&self) -> Vec<Pid> {
        let text = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|pid| pid.parse().ok()).collect()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

/// Removes the groups of processes that are gone, with the burners in them.
pub fn sweep(host: &Host) {
    let Some(hierarchy) = host.cgroups.with(Controller::Cpu) else { return };
    for entry in fs::read_dir(&hierarchy.own).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((pid, kind)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once(PEER)) else {
            continue;
        };
        if pid.parse::<u32>().map_or(true, |pid| host.roots.proc.join(pid.to_string()).exists()) {
            continue;
        }
        let group = Group { version: hierarchy.version, folder: entry.path(), home: hierarchy.own.clone() };
        if kind == BURNERS {
            for pid in group.processes() {
                let _ = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

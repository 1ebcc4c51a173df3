//! How much memory the tasks of one cgroup may use together, in the files of v1 and of v2.
//!
//! Memory is what the kernel charges a group with, the page cache of the files that its tasks read included. Swap is not
//! limited. References: Documentation/admin-guide/cgroup-v1/memory.rst, cgroup-v2.rst ("Memory").

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::TaskGroup;
use super::folder::Folder;
use super::hierarchies::hierarchy_for;
use crate::control_file;
use crate::error::{Error, ErrorKind, Result};
use crate::host::{Controller, Host};
use crate::unavailable::Reason;

/// The least that can be asked for, in bytes: a shell begins in it.
const LEAST: u64 = 1 << 20;

/// The memory of a group of tasks, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Memory {
    /// How much they may use together: what was asked for, in whole pages.
    pub limit: u64,
    /// How much they use, what the kernel keeps for them included.
    pub used: u64,
    /// How many processes the kernel has killed for want of it; `None` where it does not count them (before Linux 4.13).
    pub killed: Option<u64>,
}

/// Whether a size can be a limit of memory here, as far as `host` tells.
pub(crate) fn check_memory(host: &Host, bytes: u64) -> Result<()> {
    if bytes < LEAST {
        return Err(Error::usage(format!("{bytes} bytes of memory are too few: nothing could run in them"))
            .hint(format!("give at least {LEAST} bytes")));
    }
    TaskGroup::check(host, &[Controller::Memory]).map_err(|why| {
        let is_denied = why.reason == Reason::NoPrivilege;
        let kind = if is_denied { ErrorKind::NotPermitted } else { ErrorKind::Unavailable };
        let hint = match hierarchy_for(host, Controller::Memory) {
            Some(_) => why.hint,
            None => "start the kernel with `cgroup_enable=memory`, or do not limit the memory".into(),
        };
        Error::new(kind, format!("cannot limit memory: {}", why.detail)).hint(hint)
    })?;
    let total = total(&host.roots.proc)?;
    if bytes > total {
        return Err(more_than("this host has", bytes, total));
    }
    Ok(())
}

fn more_than(who: &str, bytes: u64, most: u64) -> Error {
    Error::unavailable(format!("{bytes} bytes of memory are more than {who}: {most} bytes"))
        .hint("ask for less, or leave the memory as it is")
}

/// The memory of the host in bytes (`proc_meminfo(5)`).
fn total(proc: &Path) -> Result<u64> {
    let path = proc.join("meminfo");
    let text = control_file::read(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    let kib = line.trim().strip_suffix("kB").and_then(|number| number.trim().parse::<u64>().ok());
    kib.and_then(|kib| kib.checked_mul(1024)).ok_or_else(|| control_file::unexpected(line, &path))
}

#[derive(Debug)]
pub(crate) struct MemoryLimit {
    folder: Folder,
}

impl MemoryLimit {
    pub(crate) fn of(folder: &Folder) -> Self {
        Self { folder: folder.clone() }
    }

    /// Where the tasks use more, the kernel takes back first what it can; it kills none of them. After an error the limit is as
    /// before.
    pub(crate) fn set(&self, bytes: u64) -> Result<()> {
        for group in self.folder.path.ancestors().skip(1) {
            match control_file::probe::<u64>(&group.join(self.limit_name())) {
                Some(most) if most < bytes => {
                    let who = format!("the cgroup {} allows", group.display());
                    return Err(more_than(&who, bytes, most));
                }
                _ => {}
            }
        }
        if self.folder.version == 2 { self.set_v2(bytes) } else { self.set_v1(bytes) }
    }

    fn set_v1(&self, bytes: u64) -> Result<()> {
        // Before Linux 5.11, groups below this one would not count towards it otherwise.
        let nested = self.file("memory.use_hierarchy");
        if control_file::read_if_present(&nested)?.is_some_and(|is_on| is_on == "0") {
            control_file::write(&nested, "1")?;
        }
        control_file::write(&self.file(self.limit_name()), &bytes.to_string()).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EBUSY) => self.uses_more(bytes),
                _ => error,
            }
        })
    }

    /// `memory.max` below what is used would have tasks killed. `memory.high` has the kernel take back what it can.
    fn set_v2(&self, bytes: u64) -> Result<()> {
        let high = self.file("memory.high");
        let is_lowered = self.read().is_ok_and(|now| now.used > bytes);
        if is_lowered {
            control_file::write(&high, &bytes.to_string())?;
        }
        let used = if is_lowered { self.used() } else { Ok(0) };
        let set = used.and_then(|used| {
            if used > bytes {
                return Err(self.uses_more(bytes));
            }
            control_file::write(&self.file(self.limit_name()), &bytes.to_string())
        });
        if is_lowered {
            control_file::write(&high, "max")?;
        }
        set
    }

    fn uses_more(&self, bytes: u64) -> Error {
        let used = self.used().map_or_else(|_| "more".into(), |used| format!("{used} bytes"));
        Error::unavailable(format!("the tasks use {used} of memory, and cannot do with {bytes} bytes"))
            .hint("ask for more, or end some of them")
    }

    /// Fails where the group was removed, or somebody else has lifted the limit.
    pub(crate) fn read(&self) -> Result<Memory> {
        let limit = self.number(self.limit_name())?;
        Ok(Memory { limit, used: self.used()?, killed: self.killed() })
    }

    fn used(&self) -> Result<u64> {
        self.number(if self.folder.version == 2 { "memory.current" } else { "memory.usage_in_bytes" })
    }

    fn killed(&self) -> Option<u64> {
        let name = if self.folder.version == 2 { "memory.events" } else { "memory.oom_control" };
        let text = control_file::read(&self.file(name)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.parse().ok()
    }

    fn number(&self, name: &str) -> Result<u64> {
        let path = self.file(name);
        let text = control_file::read(&path)?;
        text.parse().map_err(|_| control_file::unexpected(&text, &path))
    }

    fn limit_name(&self) -> &'static str {
        if self.folder.version == 2 { "memory.max" } else { "memory.limit_in_bytes" }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path.join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::testing::{Program, for_each_version, journal, processes, zone};
    use crate::host::testing::{tree, write};

    fn limit(root: &tempfile::TempDir, version: u8) -> MemoryLimit {
        MemoryLimit::of(&Folder { version, path: root.path().join("a/emu") })
    }

    #[test]
    fn a_limit_is_written_for_each_version_and_read_back() {
        for (version, max, used, events) in [
            (1, "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control"),
            (2, "memory.max", "memory.current", "memory.events"),
        ] {
            let file = |name: &str| format!("a/emu/{name}");
            let root = tree(&[
                (&file(max), "max\n"),
                (&file(used), "4096\n"),
                (&file(events), "under_oom 0\noom_kill 2\n"),
                (&format!("a/{max}"), "8388608\n"),
            ]);
            let limit = limit(&root, version);
            assert!(limit.read().is_err(), "no limit is none to be told");
            limit.set(4 << 20).unwrap();
            assert_eq!(limit.read().unwrap(), Memory { limit: 4 << 20, used: 4096, killed: Some(2) });
            let above = limit.set(9 << 20).unwrap_err();
            assert_eq!(above.kind(), ErrorKind::Unavailable);
            assert!(above.to_string().contains("8388608"), "{above}");
            assert_eq!(limit.read().unwrap().limit, 4 << 20);
        }
    }

    #[test]
    fn groups_nested_in_it_count_on_old_kernels_too() {
        let root = tree(&[("a/emu/memory.limit_in_bytes", "-1"), ("a/emu/memory.use_hierarchy", "0\n")]);
        limit(&root, 1).set(1 << 20).unwrap();
        assert_eq!(control_file::read(&root.path().join("a/emu/memory.use_hierarchy")).unwrap(), "1");
    }

    #[test]
    fn on_v2_nothing_is_killed_by_a_limit_below_what_is_used() {
        let root = tree(&[
            ("a/emu/memory.max", "8388608\n"),
            ("a/emu/memory.high", "max\n"),
            ("a/emu/memory.current", "4194304\n"),
        ]);
        let (limit, text) = (limit(&root, 2), |name: &str| {
            control_file::read(&root.path().join("a/emu").join(name)).unwrap()
        });
        let error = limit.set(2 << 20).unwrap_err();
        assert!(error.to_string().contains("4194304 bytes"), "{error}");
        assert_eq!((text("memory.max"), text("memory.high")), ("8388608".into(), "max".into()));
        write(root.path(), "a/emu/memory.current", b"1048576\n");
        limit.set(2 << 20).unwrap();
        assert_eq!(text("memory.max"), "2097152");
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        let mut host = crate::host::testing::host();
        let root = tree(&[("meminfo", "MemTotal:  2097152 kB\n")]);
        host.roots.proc = root.path().to_owned();
        assert_eq!(check_memory(&host, 4095).unwrap_err().kind(), ErrorKind::Usage);
        host.cgroups.hierarchies.clear();
        let error = check_memory(&host, 1 << 30).unwrap_err();
        assert!(error.in_words().contains("`memory`") && error.hint_text().is_some(), "{error:?}");
    }

    #[test]
    fn a_zone_is_limited_on_the_real_kernel() {
        for_each_version(Controller::Memory, |host| {
            let journal = journal(host);
            let program = Program::shell("exec sleep 60");
            let mut zone = zone(&host.allowed, processes(&[program.pid()]));
            zone.memory = Some(16 << 20);
            let group = TaskGroup::create(host, &zone, &[], &journal).unwrap();
            let folder = group.folder(Controller::Memory).unwrap().clone();
            let limit = MemoryLimit::of(&folder);
            assert_eq!(limit.read().unwrap().limit, 16 << 20);
            limit.set(8 << 20).unwrap();
            assert_eq!(limit.read().unwrap().limit, 8 << 20);
            assert!(check_memory(host, 1 << 60).is_err());
            drop(program);
            journal.undo_all().unwrap();
            assert!(!folder.path.exists());
        });
    }
}

//! The CPU time that a group has used.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::folder::Folder;
use crate::sys::time::Nanos;

/// The CPU time of all tasks of a group, including nested groups and tasks that have ended. The kernel updates it when a task
/// leaves its CPU and at each tick, so it is exact while no task of the group runs.
#[derive(Debug)]
pub(crate) struct Usage {
    file: File,
    version: u8,
}

impl Usage {
    pub(crate) fn open(folder: &Folder) -> Option<Self> {
        let name = if folder.version == 2 { "cpu.stat" } else { "cpuacct.usage" };
        let usage = Self { file: File::open(folder.path.join(name)).ok()?, version: folder.version };
        usage.read().map(|_| usage)
    }

    /// Nanoseconds since the group was made; `None` when the group is gone.
    pub(crate) fn read(&self) -> Option<Nanos> {
        let mut buffer = [0; 512];
        let length = self.file.read_at(&mut buffer, 0).ok()?;
        parse(std::str::from_utf8(buffer.get(..length)?).ok()?, self.version)
    }
}

pub(super) fn parse(text: &str, version: u8) -> Option<Nanos> {
    if version == 1 {
        return text.trim().parse().ok();
    }
    let micros: Nanos =
        text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok()?;
    micros.checked_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read_in_nanoseconds() {
        assert_eq!(parse("12345678\n", 1), Some(12_345_678));
        assert_eq!(parse("usage_usec 123\nuser_usec 100\nsystem_usec 23\n", 2), Some(123_000));
        for (text, version) in [("", 1), ("x", 1), ("", 2), ("user_usec 1\n", 2), ("usage_usec x\n", 2)] {
            assert_eq!(parse(text, version), None);
        }
    }
}

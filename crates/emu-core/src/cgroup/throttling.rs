//! How often and for how long a quota has throttled a cgroup, from its `cpu.stat`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::control_file;
use crate::error::{Error, Result};
use crate::sys::time::{self, Nanos};

const STAT: &str = "cpu.stat";

/// Counts since the group was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Throttling {
    /// Periods in which the group had runnable tasks.
    pub(crate) periods: u64,
    /// Periods in which its quota was used up.
    pub(crate) throttled: u64,
    /// In nanoseconds, summed over CPUs. The kernel adds a stall at its end.
    pub(crate) stalled: Nanos,
}

impl Throttling {
    pub(crate) fn of(group: &Path) -> Option<Self> {
        Self::parse(&control_file::read(&group.join(STAT)).ok()?)
    }

    /// The two versions report the time in different units.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let v1 = || field(text, "throttled_time");
        let v2 = || field(text, "throttled_usec")?.checked_mul(1_000);
        let stalled = v1().or_else(v2)?.try_into().ok()?;
        Some(Self { periods: field(text, "nr_periods")?, throttled: field(text, "nr_throttled")?, stalled })
    }
}

/// How long a quota has throttled the tasks of the cgroup in the folder `group` since it was made, summed over CPUs
/// (Documentation/scheduler/sched-bwc.rst; Documentation/admin-guide/cgroup-v2.rst, "cpu.stat"). `None` where the kernel does
/// not report it: at the root of version 2 and without the `cpu` controller.
pub fn throttled_time(group: &Path) -> Option<Duration> {
    Throttling::of(group).map(|of| time::span(of.stalled))
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[derive(Debug)]
pub(super) struct ThrottlingFile {
    file: File,
    path: PathBuf,
}

impl ThrottlingFile {
    pub(super) fn open(group: &Path) -> Result<Self> {
        let path = group.join(STAT);
        let file = File::open(&path).map_err(|e| Error::file("open", &path, e))?;
        Ok(Self { file, path })
    }

    /// Without allocating: the file has a few hundred bytes.
    pub(super) fn read(&self) -> Result<Throttling> {
        let mut buffer = [0; 4096];
        let read = self.file.read_at(&mut buffer, 0);
        let length = read.map_err(|e| Error::file("read", &self.path, e))?;
        let text = std::str::from_utf8(buffer.get(..length).unwrap_or_default()).unwrap_or_default();
        Throttling::parse(text).ok_or_else(|| control_file::unexpected(text, &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = Throttling::parse(&text);
        }
    }
}

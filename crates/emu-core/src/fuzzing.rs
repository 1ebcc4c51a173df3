//! Parsers of what others may have written, for the targets in `fuzz/`.

use crate::{cgroup, process, undo};

/// The lines of a journal, and a copy of them.
pub fn journal(bytes: &[u8]) {
    undo::fuzz(bytes);
}

/// `/proc/<pid>/stat` and `schedstat`.
pub fn stat(bytes: &[u8]) {
    let _ = process::Stat::parse(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = process::times_in_schedstat(text);
    }
}

/// Files of a cgroup.
pub fn cgroup(text: &str) {
    cgroup::fuzz(text);
}

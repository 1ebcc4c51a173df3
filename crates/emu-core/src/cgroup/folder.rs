//! A group's folder in one hierarchy.

use std::path::PathBuf;

/// How often a list of tasks is read until it has nothing new. A fork storm ends within a few passes, because the children of
/// moved processes are born in the group.
pub(crate) const PASSES: u32 = 1_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folder {
    /// The version of its hierarchy, 1 or 2.
    pub(crate) version: u8,
    pub(crate) path: PathBuf,
}

impl Folder {
    pub(crate) fn threads_name(&self) -> &'static str {
        if self.version == 2 { "cgroup.threads" } else { "tasks" }
    }

    pub(crate) fn threads_file(&self) -> PathBuf {
        self.path.join(self.threads_name())
    }
}

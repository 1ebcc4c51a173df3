//! A group's folder in one hierarchy.

use std::path::PathBuf;

/// How often a list is gone through until nothing new is in it. A fork storm is caught within a few passes, as
/// whatever has been caught has its children in the group.
pub(crate) const PASSES: u32 = 1_000;

/// A group's folder in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folder {
    /// The version of its hierarchy, 1 or 2.
    pub(crate) version: u8,
    /// Where it is.
    pub(crate) path: PathBuf,
}

impl Folder {
    /// The name of the file that lists the threads in it.
    pub(crate) fn threads_name(&self) -> &'static str {
        if self.version == 2 { "cgroup.threads" } else { "tasks" }
    }

    /// That file.
    pub(crate) fn threads_file(&self) -> PathBuf {
        self.path.join(self.threads_name())
    }
}

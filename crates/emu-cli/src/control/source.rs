//! From which file the speed of an emulation comes, as other emus are told.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A trace, or the profile of a machine: equal ones mean the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// The file.
    pub(crate) file: PathBuf,
    /// What comes after the end of a trace; by what a machine is compared with this one.
    pub(crate) how: String,
    /// Of what it had in it.
    digest: String,
}

impl Source {
    /// A file with this text.
    pub(crate) fn new(file: PathBuf, how: &str, text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self { file, how: how.into(), digest: format!("{:016x}", hasher.finish()) }
    }
}

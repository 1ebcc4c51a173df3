//! Which trace an emulation follows, as other emus are told.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which trace: equal ones are followed alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// The file.
    pub(crate) file: PathBuf,
    /// What comes after its end.
    pub(crate) at_end: String,
    /// Of what it had in it.
    digest: String,
}

impl Source {
    /// A file with this text.
    pub(crate) fn new(file: PathBuf, at_end: &str, text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self { file, at_end: at_end.into(), digest: format!("{:016x}", hasher.finish()) }
    }
}

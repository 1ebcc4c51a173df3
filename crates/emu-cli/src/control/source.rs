//! From which file the speed of an emulation comes, as other emus are told.

use std::fs;
use std::path::{Path, PathBuf};

use emu_core::{Error, ErrorKind, Result, input_file};
use serde::{Deserialize, Serialize};

/// A trace, or the profile of a machine: equal ones mean the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct Source {
    /// The file.
    pub(crate) file: PathBuf,
    /// What comes after the end of a trace; by what a machine is compared with this one.
    pub(crate) how: String,
    /// Of what it had in it.
    digest: String,
}

impl Source {
    /// Returns the text, too, of at most so many bytes; `hint` says what to name where the file cannot be read.
    pub(crate) fn read(path: &Path, how: &str, most: u64, hint: &'static str) -> Result<(Self, String)> {
        let unreadable = |e| Error::file("read", path, e).with_kind(ErrorKind::Usage).hint(hint);
        let file = fs::canonicalize(path).map_err(unreadable)?;
        let text = input_file::read(&file, most).map_err(unreadable)?;
        Ok((Self { file, how: how.into(), digest: format!("{:016x}", digest(&text)) }, text))
    }
}

/// FNV-1a: a node outlives the emu that it is compared by, so that an emu of any build has to find the same.
fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_build_has_the_same_digest() {
        assert_eq!([digest(""), digest("a")], [0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c]);
    }
}

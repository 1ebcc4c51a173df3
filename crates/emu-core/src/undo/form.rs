//! How control files show what is in force.

use crate::control_file;

/// How a control file shows what is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// It reads as it was written.
    Plain,
    /// It reads as all choices with the one in force in brackets: `always [madvise] never`.
    Choice,
}

impl Form {
    /// The value in force, in the text of a file. A list of choices with none in brackets is taken whole.
    pub(super) fn value(self, text: &[u8]) -> &[u8] {
        match self {
            Self::Plain => text,
            Self::Choice => control_file::chosen(text).unwrap_or(text),
        }
    }

    /// As [`value`](Self::value), of a text.
    pub(super) fn value_of(self, text: &str) -> &str {
        let value = self.value(text.as_bytes());
        // Brackets are ASCII, so what is between them is text where the whole is.
        std::str::from_utf8(value).unwrap_or(text)
    }
}

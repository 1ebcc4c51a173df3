//! How control files show their current value.

use crate::control_file;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The file reads as it was written.
    Plain,
    /// The file reads as all choices with the current one in brackets: `always [madvise] never`.
    Choice,
}

impl Form {
    /// The current value in the text of a file. A list of choices without brackets is returned whole.
    pub(super) fn value(self, text: &[u8]) -> &[u8] {
        match self {
            Self::Plain => text,
            Self::Choice => control_file::chosen(text).unwrap_or(text),
        }
    }

    pub(super) fn value_of(self, text: &str) -> &str {
        let value = self.value(text.as_bytes());
        // Brackets are ASCII, so what is between them is text where the whole is.
        std::str::from_utf8(value).unwrap_or(text)
    }
}

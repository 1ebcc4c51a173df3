//! The one error type: what was done, to what, with which value, why it failed, and what to do next.

use std::fmt;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::hint::Hint;

/// What kind of failure it is; the command turns it into its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// What was asked for makes no sense on any host (`140%`, a reversed CPU list).
    Usage,
    /// It makes sense, but not on this host or with this method (no cpufreq, `5GHz` on a slower host).
    Unavailable,
    /// It would work with more privilege; the hint names the one that is missing.
    NotPermitted,
    /// Something was left changed on the machine because undoing it failed.
    RestoreIncomplete,
    /// What was computed, copied or stored is not what it must be: the CPU, the memory or the disk has erred.
    WrongResult,
    /// The kernel or the system failed in an unexpected way.
    Failed,
}

/// A failure with its cause and a hint. The message is a lowercase fragment naming operation, object and value. The cause is
/// [`source`] and is not repeated in the message; the hint is separate, to be printed last.
///
/// [`source`]: std::error::Error::source
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync + 'static>>,
    hint: Option<Hint>,
}

/// Shorthand used across the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A failure of the given kind, without a cause.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None, hint: None }
    }

    /// The request itself is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// The request cannot be met on this host.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// The caller lacks a privilege.
    pub fn not_permitted(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotPermitted, message)
    }

    /// An operating-system call failed. The kind follows from the cause: `EPERM`, `EACCES` and `EROFS` are
    /// [`ErrorKind::NotPermitted`], `ENOSYS` and `EOPNOTSUPP` are [`ErrorKind::Unavailable`], everything else
    /// [`ErrorKind::Failed`].
    pub fn io(message: impl Into<String>, cause: io::Error) -> Self {
        let kind = match cause.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::NotPermitted,
            io::ErrorKind::Unsupported => ErrorKind::Unavailable,
            _ => ErrorKind::Failed,
        };
        Self { kind, message: message.into(), source: Some(Box::new(cause)), hint: None }
    }

    /// `cannot <operation> <path>` with its cause.
    pub fn file(operation: &str, path: &Path, cause: io::Error) -> Self {
        Self::io(format!("cannot {operation} {}", path.display()), cause)
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Hint>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds it where the cause is a system call that has failed with one of these numbers: it helps against no other.
    #[must_use]
    pub fn hint_on(self, errnos: &[i32], hint: impl Into<Hint>) -> Self {
        if self.raw_os_error().is_some_and(|errno| errnos.contains(&errno)) { self.hint(hint) } else { self }
    }

    /// Adds the failure that led to this one.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync + 'static>>) -> Self {
        self.source = Some(cause.into());
        self
    }

    /// The same failure as that of a larger operation: kind and hint stay.
    #[must_use]
    pub fn during(mut self, message: impl Into<String>) -> Self {
        let (kind, hint) = (self.kind, self.hint.take());
        Self { kind, message: message.into(), source: Some(Box::new(self)), hint }
    }

    /// The same failure seen as another kind.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What the user can do about it, if anything is known.
    pub fn typed_hint(&self) -> Option<&Hint> {
        self.hint.as_ref()
    }

    /// The same in the library's words.
    pub fn hint_text(&self) -> Option<String> {
        self.hint.as_ref().map(Hint::to_string)
    }

    /// The error and its causes on one line, each said once; without the hint.
    pub fn in_words(&self) -> String {
        let mut text = self.message.clone();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let words = error.to_string();
            if !text.contains(&words) {
                text = format!("{text}: {words}");
            }
            cause = error.source();
        }
        text
    }

    /// The raw OS error number of the cause, if the cause was a system call.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.source.as_ref()?.downcast_ref::<io::Error>()?.raw_os_error()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|cause| cause as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_words_it_says_each_cause_once() {
        let cause = Error::unavailable("no quota").caused_by(io::Error::other("gone"));
        assert_eq!(Error::usage("no zone").caused_by(cause).in_words(), "no zone: no quota: gone");
        let said = Error::usage("no zone, as it is gone").caused_by(io::Error::other("gone"));
        assert_eq!(said.in_words(), "no zone, as it is gone");
    }

    #[test]
    fn kind_of_an_io_error_follows_its_cause() {
        let denied = Error::file("write", Path::new("/x"), io::Error::from_raw_os_error(libc::EACCES));
        assert_eq!(denied.kind(), ErrorKind::NotPermitted);
        let busy = Error::file("write", Path::new("/x"), io::Error::from_raw_os_error(libc::EBUSY));
        assert_eq!(busy.kind(), ErrorKind::Failed);
        assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
    }

    #[test]
    fn a_hint_against_one_failure_is_none_against_another() {
        let of = |errno| Error::io("cannot do it", io::Error::from_raw_os_error(errno));
        let hinted = |errno| of(errno).hint_on(&[libc::EMFILE, libc::ENFILE], "ulimit -n").hint_text();
        assert_eq!(hinted(libc::ENFILE).as_deref(), Some("ulimit -n"));
        assert_eq!(hinted(libc::EPERM), None);
        assert_eq!(Error::usage("no").hint_on(&[libc::EMFILE], "ulimit -n").hint_text(), None);
    }

    #[test]
    fn message_does_not_repeat_the_cause() {
        let error = Error::file("write `1` to", Path::new("/x"), io::Error::from_raw_os_error(libc::EBUSY));
        assert_eq!(error.to_string(), "cannot write `1` to /x");
        assert!(std::error::Error::source(&error).is_some());
    }
}

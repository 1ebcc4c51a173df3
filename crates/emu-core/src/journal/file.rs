//! Giving control files their old values back. Nothing here allocates.

use std::time::Instant;

use rustix::io::Errno;

use super::field::{Field, Values};
use super::group::{PATIENCE, pause};
use super::places::{Cause, FixedText, Located, VALUE_MAX};
use super::undo::Undoer;

/// The file of a version 2 group that lists controllers and takes `+name` and `-name`.
const SWITCHES: &[u8] = b"cgroup.subtree_control";

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
        let chosen = || {
            let mut parts = text.splitn(2, |&byte| byte == b'[').skip(1);
            parts.next()?.splitn(2, |&byte| byte == b']').next()
        };
        match self {
            Self::Plain => text,
            Self::Choice => chosen().unwrap_or(text),
        }
    }

    /// As [`value`](Self::value), of a text.
    pub(super) fn value_of(self, text: &str) -> &str {
        let value = self.value(text.as_bytes());
        // Brackets are ASCII, so what is between them is text where the whole is.
        std::str::from_utf8(value).unwrap_or(text)
    }
}

impl Undoer<'_, '_> {
    pub(super) fn restore_file(
        &mut self,
        path: Field<'_>,
        form: Form,
        old: Field<'_>,
        new: Values<'_>,
    ) -> bool {
        let Some(file) = self.places.locate(path) else { return false };
        let mut current = [0; VALUE_MAX];
        let current = match file.read(&mut current) {
            Ok(current) => form.value(current),
            // It went with its group or its device, and its value with it.
            Err(Errno::NOENT | Errno::NODEV) => return true,
            Err(cause) => return self.failed(format_args!("cannot read {path}: {}", Cause(cause))),
        };
        if old.is(current) || (new.is_empty() && !self.newest) {
            return true;
        }
        if file.path.name() == SWITCHES {
            return self.switch_off(path, &file, current, old, new);
        }
        if !new.is_empty() && !new.contains(current) {
            return self.note(format_args!(
                "left {path} at `{}`: somebody else has changed it since; it was `{old}` before",
                Field::from(current)
            ));
        }
        let mut wanted = FixedText::new();
        let written = wanted.extend(old.bytes()).ok_or(Errno::NAMETOOLONG);
        if let Err(cause) = written.and_then(|()| file.write(wanted.as_bytes())) {
            return self.failed(format_args!("cannot write `{old}` to {path}: {}", Cause(cause)));
        }
        // A limit of cpufreq is put into force by a worker of the kernel, which may come later than this.
        let end = Instant::now() + PATIENCE;
        loop {
            match file.read(&mut [0; VALUE_MAX]) {
                Ok(now) if old.is(form.value(now)) => return true,
                Ok(_) if Instant::now() < end => pause(),
                Ok(now) => {
                    return self
                        .failed(format_args!("{path} holds `{}` instead of `{old}`", Field::from(now)));
                }
                Err(cause) => return self.failed(format_args!("cannot read {path}: {}", Cause(cause))),
            }
        }
    }

    /// Switches off the controllers that we have switched on, whatever others have switched since.
    fn switch_off(
        &mut self,
        path: Field<'_>,
        file: &Located<'_>,
        current: &[u8],
        old: Field<'_>,
        new: Values<'_>,
    ) -> bool {
        let is_ours = |name: &[u8]| !old.has_word(name) && (new.is_empty() || new.has_word(name));
        let mut off = FixedText::new();
        for name in words(current).filter(|name| is_ours(name)) {
            if off.extend(b" -".iter().chain(name).copied()).is_none() {
                return self.failed(format_args!("cannot write to {path}: too many names"));
            }
        }
        let asked = off.as_bytes().trim_ascii();
        if asked.is_empty() {
            return true;
        }
        let asked_text = Field::from(asked);
        match file.write(asked).and_then(|()| Ok(words(file.read(&mut [0; VALUE_MAX])?).any(is_ours))) {
            Ok(false) => true,
            Ok(true) => self.failed(format_args!("{path} does not do `{asked_text}`")),
            Err(cause) => {
                self.failed(format_args!("cannot write `{asked_text}` to {path}: {}", Cause(cause)))
            }
        }
    }
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

//! Restoring the old values of control files. Nothing here allocates.

use std::time::Instant;

use rustix::io::Errno;

use super::field::{Field, Values};
use super::form::Form;
use super::peers::Peers;
use super::places::{Cause, FixedText, Located, VALUE_MAX};
use super::undoer::{PATIENCE, Undoer, pause};

/// The file of a version 2 group that lists controllers and takes `+name` and `-name`.
pub(super) const SWITCHES: &[u8] = b"cgroup.subtree_control";

impl Undoer<'_, '_> {
    pub(super) fn restore_file(
        &mut self,
        path: Field<'_>,
        form: Form,
        old: Field<'_>,
        new: Values<'_>,
    ) -> bool {
        let Some(file) = self.places.locate(path) else { return false };
        // A lock that cannot be had must not prevent the undo.
        let _lock = self.peers.and_then(|peers| peers.lock(PATIENCE).ok());
        let mut current = [0; VALUE_MAX];
        let current = match file.read(&mut current) {
            Ok(current) => form.value(current),
            // The file was removed with its group or device, and its value with it.
            Err(Errno::NOENT | Errno::NODEV) => return true,
            Err(cause) => return self.failed(format_args!("cannot read {path}: {}", Cause(cause))),
        };
        if old.is(current) || (new.is_empty() && !self.newest) {
            return true;
        }
        if file.path.name() == SWITCHES {
            return self.switch_off(path, &file, current, old, new);
        }
        let mut wanted = FixedText::new();
        let mut fits = wanted.extend(old.bytes());
        let is_theirs = is_any(self.peers, path, false, &mut |_old, theirs| {
            // `theirs` is empty while that session writes a value, whose result is not known yet.
            let is_theirs = theirs.is_empty() || theirs.contains(current);
            if !is_theirs && let Some(last) = theirs.fields().last() {
                wanted = FixedText::new();
                fits = wanted.extend(last.bytes());
            }
            is_theirs
        });
        if is_theirs {
            return true;
        }
        if !new.is_empty() && !new.contains(current) {
            if self.left.is_new(path) {
                self.note(format_args!(
                    "left {path} at `{}`: somebody else has changed it since; it was `{old}` before",
                    Field::from(current)
                ));
            }
            return true;
        }
        let wanted_text = Field::from(wanted.as_bytes());
        if let Err(cause) = fits.ok_or(Errno::NAMETOOLONG).and_then(|()| file.write(wanted.as_bytes())) {
            return self.failed(format_args!("cannot write `{wanted_text}` to {path}: {}", Cause(cause)));
        }
        // The kernel applies limits of cpufreq in a worker thread, which may run later than this.
        let end = Instant::now() + PATIENCE;
        loop {
            match file.read(&mut [0; VALUE_MAX]) {
                Ok(now) if wanted.as_bytes() == form.value(now) => return true,
                Ok(_) if Instant::now() < end => pause(),
                Ok(now) => {
                    return self.failed(format_args!(
                        "{path} holds `{}` instead of `{wanted_text}`",
                        Field::from(now)
                    ));
                }
                Err(cause) => return self.failed(format_args!("cannot read {path}: {}", Cause(cause))),
            }
        }
    }

    /// Disables the controllers that this session has enabled, except those that another live session relies on.
    fn switch_off(
        &mut self,
        path: Field<'_>,
        file: &Located<'_>,
        current: &[u8],
        old: Field<'_>,
        new: Values<'_>,
    ) -> bool {
        let peers = self.peers;
        let is_ours = |name: &[u8]| {
            !old.has_word(name)
                && (new.is_empty() || new.has_word(name))
                && !is_any(peers, path, true, &mut |old, new| is_claimed(old, new, name))
        };
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
        let done = file.write(asked).and_then(|()| Ok(words(file.read(&mut [0; VALUE_MAX])?).any(is_ours)));
        match done {
            Ok(false) => true,
            Ok(true) => self.failed(format_args!("{path} does not do `{asked_text}`")),
            Err(cause) => {
                self.failed(format_args!("cannot write `{asked_text}` to {path}: {}", Cause(cause)))
            }
        }
    }
}

fn is_any(
    peers: Option<Peers<'_>>,
    path: Field<'_>,
    all: bool,
    is_it: &mut dyn FnMut(Field<'_>, Values<'_>) -> bool,
) -> bool {
    peers.is_some_and(|peers| peers.any(path, all, is_it))
}

/// Whether a record of a list of controllers tells that its session has enabled `name` or relies on it.
pub(super) fn is_claimed(old: Field<'_>, new: Values<'_>, name: &[u8]) -> bool {
    new.has_word(name) && !old.has_word(name)
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

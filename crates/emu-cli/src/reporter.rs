//! What emu says while a command runs: on stderr, each line marked as emu's.

use std::io::Write;

/// What each line begins with.
pub(crate) const PREFIX: &str = "emu: ";

/// Says things on stderr, or nothing when it is to be quiet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reporter {
    quiet: bool,
}

impl Reporter {
    /// One that speaks unless `quiet`.
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// Says one line. That nobody can read it (a closed pipe, a full disk) must not end the command.
    pub(crate) fn say(self, line: &str) {
        if !self.quiet {
            let _ = writeln!(anstream::stderr(), "{PREFIX}{line}");
        }
    }

    /// Says what is to be known beside the result.
    pub(crate) fn note(self, note: &str) {
        self.say(&format!("note: {note}"));
    }
}

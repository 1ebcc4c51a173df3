//! What emu says while a command runs: on stderr, each line marked as emu's.

use emu_bench::table::marked;

use crate::output::PREFIX;
use crate::output::stderr::say_in_time;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reporter {
    quiet: bool,
}

impl Reporter {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// Says one line, as it is: what it names can be copied whole. That nobody can read it (a closed pipe, a full disk)
    /// must not end the command.
    pub(crate) fn say(self, line: &str) {
        self.write(&format!("{PREFIX}{line}\n"));
    }

    /// Says a sentence, in lines of the usual width.
    pub(crate) fn tell(self, sentence: &str) {
        self.write(&marked(PREFIX, sentence));
    }

    pub(crate) fn note(self, note: &str) {
        self.tell(&format!("note: {note}"));
    }

    fn write(self, text: &str) {
        if !self.quiet {
            say_in_time(text);
        }
    }
}

//! Notices that threads are born, soon and at little cost.

use std::path::Path;

use crate::process::LastPid;
use crate::sys::Pid;
use crate::sys::time::Nanos;

/// How often births are looked for. A look reads one number, in some 10 µs. With looks at the threads every 20 ms and none of
/// these, 60 jobs of `xargs -P2` were 25 % too slow at 50 %; with them 8 %, as under `cpu-freeze`.
const EVERY: Nanos = 2_000_000;

/// For how long after a start, and after threads have come or gone.
const EXPECTED: Nanos = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Births {
    given_out: LastPid,
    /// The number of the last process at the last look, and whether it was another one before: a process that has its number
    /// may not be listed yet.
    last: Option<Pid>,
    is_new: bool,
    next: Nanos,
    until: Nanos,
}

impl Births {
    pub(super) fn new(procfs: &Path) -> Self {
        Self { given_out: LastPid::of(procfs), last: None, is_new: false, next: 0, until: 0 }
    }

    /// Looks for births for a while.
    pub(super) fn expect(&mut self, now: Nanos) {
        self.until = now + EXPECTED;
    }

    pub(super) fn stop(&mut self) {
        self.until = 0;
    }

    pub(super) fn are_expected(&self, now: Nanos) -> bool {
        now < self.until
    }

    /// When the next look is due, as long as births are expected and a look would show them.
    pub(super) fn next(&self) -> Option<Nanos> {
        (self.given_out.is_believed() && self.are_expected(self.next)).then_some(self.next)
    }

    /// Puts off the next look until `earliest` at least.
    pub(super) fn rest(&mut self, now: Nanos, earliest: Nanos) {
        self.next = (now + EVERY).max(earliest);
    }

    /// Whether there may be new threads since the last look, here or elsewhere on the machine.
    pub(super) fn look(&mut self) -> bool {
        let last = self.given_out.read();
        let is_new = std::mem::replace(&mut self.last, last) != last;
        std::mem::replace(&mut self.is_new, is_new) || is_new
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_birth_is_noticed_and_looked_for_once_more() {
        let mut births = Births::new(Path::new("/proc"));
        births.look();
        thread::spawn(|| {}).join().unwrap();
        assert!(births.look());
        assert!(births.look(), "it may not have been listed yet");
    }

    #[test]
    fn none_is_looked_for_where_no_look_would_show_it() {
        let mut births = Births::new(Path::new("/nowhere"));
        births.expect(0);
        births.rest(0, 0);
        assert_eq!((births.next(), births.are_expected(0)), (None, true));
    }

    #[test]
    fn looks_end_when_no_more_births_are_expected() {
        let mut births = Births::new(Path::new("/proc"));
        assert_eq!(births.next(), None);
        births.expect(0);
        births.rest(0, 0);
        assert_eq!(births.next(), Some(EVERY));
        births.rest(EVERY, 5 * EVERY);
        assert_eq!(births.next(), Some(5 * EVERY));
        births.rest(EXPECTED, 0);
        assert_eq!(births.next(), None);
    }
}

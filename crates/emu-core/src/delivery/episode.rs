//! The time for which tasks are too fast or too slow.

use super::window::Window;
use crate::sys::time::Nanos;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Episode {
    /// Such time at a stretch until now, and the longest stretch.
    now: Nanos,
    pub(super) longest: Nanos,
    /// All such time, and what was got and asked for in it.
    pub(super) total: Nanos,
    got: f64,
    asked: f64,
    /// The part of it in which most was used by threads that began or ended between two looks.
    passing: Nanos,
    pub(super) reason: Option<String>,
}

impl Episode {
    pub(super) fn window(&mut self, is_off: bool, window: &Window, got: f64, asked: f64) {
        if !is_off {
            self.now = 0;
            return;
        }
        let length = window.length;
        self.passing += if window.is_of_passers() { length } else { 0 };
        self.now += length;
        self.longest = self.longest.max(self.now);
        self.total += length;
        self.got += got;
        self.asked += asked;
    }

    /// Why: what was found, else what holds for most of the time.
    pub(super) fn reason(&self) -> Option<&str> {
        let passers = (self.total > 0 && self.passing >= self.total / 2)
            .then_some("most is used by threads that began or ended between two looks");
        self.reason.as_deref().or(passers)
    }

    /// What was delivered, as a part of what was asked for.
    pub(super) fn ratio(&self) -> f64 {
        self.got / self.asked
    }
}

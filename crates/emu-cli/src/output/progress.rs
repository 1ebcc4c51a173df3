//! How far a run is.

use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use emu_bench::numbers::span;

/// One line on a terminal that tells how far a run is. It is written between samples only.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
    left: Duration,
}

impl Progress {
    /// Progress of a run that takes about `total`; shown where stderr is a terminal.
    pub(crate) fn new(total: Duration) -> Self {
        Self { shown: std::io::stderr().is_terminal(), left: total }
    }

    /// Something that was expected to take `expected` has taken `taken`; what is left is expected to do alike.
    pub(crate) fn advance(&mut self, expected: Duration, taken: Duration) {
        let left = self.left.saturating_sub(expected);
        // One slow sample does not make all others slow.
        let factor = (taken.as_secs_f64() / expected.as_secs_f64().max(1e-3)).clamp(0.9, 1.1);
        self.left = left.mul_f64(1.0 + (factor - 1.0) * 0.1);
    }

    pub(crate) fn expect(&mut self, left: Duration) {
        self.left = left;
    }

    pub(crate) fn show(&self, what: &str) {
        self.show_alone(&format!("{what}, {} left in all", whole_seconds(self.left)));
    }

    /// Shows what is being done before it is known how long all will take.
    pub(crate) fn show_alone(&self, what: &str) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", what.chars().take(79).collect::<String>());
        }
    }

    pub(crate) fn clear(&self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// A span without digits that change faster than they can be read.
fn whole_seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) { "0s".into() } else { span(Duration::from_secs(time.as_secs())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_shrinks_as_expected_and_learns_slowly() {
        let mut progress = Progress { shown: false, left: Duration::from_secs(10) };
        progress.advance(Duration::from_secs(1), Duration::from_secs(1));
        assert_eq!(progress.left.as_secs(), 9);
        progress.advance(Duration::from_secs(1), Duration::from_secs(5));
        assert!(progress.left > Duration::from_secs(8) && progress.left < Duration::from_secs(9));
    }
}

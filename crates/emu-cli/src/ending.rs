//! A measurement that a signal ends.

use emu_core::{Error, ErrorKind, Result};
use nix::sys::signal::Signal;

use crate::signals::Signals;

/// Whether a signal has asked to end.
pub(crate) struct Ending {
    signals: Signals,
    signal: Option<Signal>,
}

impl Ending {
    /// No signal has come yet.
    pub(crate) fn new(signals: Signals) -> Self {
        Self { signals, signal: None }
    }

    /// The signal that asks to end, if one has come. A terminal sends it to the workers as well, so that one of them may
    /// be gone before this is called.
    pub(crate) fn signal(&mut self) -> Option<Signal> {
        while let Ok(Some(received)) = self.signals.next() {
            if received.is_ending() {
                self.signal = Some(received.signal);
            }
        }
        self.signal
    }

    /// Ends what is under way when a signal asks for that.
    ///
    /// # Errors
    /// One has come.
    pub(crate) fn go_on(&mut self) -> Result<()> {
        match self.signal() {
            Some(signal) => Err(Error::new(ErrorKind::Failed, format!("ended by {signal}"))),
            None => Ok(()),
        }
    }
}

//! A measurement that a signal ends.

use emu_core::{Error, ErrorKind, Result};
use nix::sys::signal::Signal;

use crate::exit::Failure;
use crate::signals::{self, Signals};

pub(crate) struct Ending {
    signals: Signals,
    signal: Option<Signal>,
}

impl Ending {
    pub(crate) fn new(signals: Signals) -> Self {
        Self { signals, signal: None }
    }

    /// The signal that asks to end, if one has come. A terminal sends it to the workers as well, so that one of them may
    /// be gone before this is called. One that asks to stop is followed; to be called between samples only.
    pub(crate) fn signal(&mut self) -> Option<Signal> {
        while let Ok(Some(received)) = self.signals.next() {
            if received.signal == Signal::SIGTSTP {
                signals::stop_self(Signal::SIGTSTP);
            } else if self.signals.is_ending(received) {
                self.signal = Some(received.signal);
            }
        }
        self.signal
    }

    /// Fails with the signal that has come, if one has, unless `failed` has left something changed: that matters more.
    pub(crate) fn by_signal(&mut self, failed: Option<&Error>) -> Result<(), Failure> {
        let is_left = failed.is_some_and(|why| why.kind() == ErrorKind::RestoreIncomplete);
        match self.signal() {
            Some(signal) if !is_left => Err(Failure::interrupted(signal)),
            _ => Ok(()),
        }
    }

    /// Fails where a signal asks to end.
    pub(crate) fn go_on(&mut self) -> Result<()> {
        match self.signal() {
            Some(signal) => Err(Error::new(ErrorKind::Failed, format!("ended by {signal}"))),
            None => Ok(()),
        }
    }
}

//! A measurement that a signal ends or stops.

use std::borrow::Borrow;
use std::mem;

use emu_core::{Error, ErrorKind, Result};
use nix::sys::signal::Signal;

use crate::exit::Failure;
use crate::signals::{Signals, stop_self};

pub(crate) struct Ending<S> {
    signals: S,
    signal: Option<Signal>,
    is_to_stop: bool,
}

impl<S: Borrow<Signals>> Ending<S> {
    pub(crate) fn new(signals: S) -> Self {
        Self { signals, signal: None, is_to_stop: false }
    }

    /// Fails where a signal asks to end. One that asks to stop waits: a stop would spoil what is being measured.
    pub(crate) fn look(&mut self) -> Result<()> {
        let signals = self.signals.borrow();
        while let Some(received) = signals.next()? {
            self.is_to_stop |= received.signal == Signal::SIGTSTP;
            if signals.is_ending(received) {
                self.signal = Some(received.signal);
            }
        }
        match self.signal {
            Some(signal) => Err(Error::new(ErrorKind::Failed, format!("ended by {signal}"))),
            None => Ok(()),
        }
    }

    /// The same between samples, where a signal that asks to stop is followed.
    pub(crate) fn go_on(&mut self) -> Result<()> {
        self.look()?;
        if mem::take(&mut self.is_to_stop) {
            stop_self(Signal::SIGTSTP);
            self.look()?;
        }
        Ok(())
    }

    /// Fails with the signal that has come, if one has, unless `failed` has left something changed: that matters more. A
    /// terminal sends it to the workers as well, so that one of them may be gone before this is called.
    pub(crate) fn by_signal(&mut self, failed: Option<&Error>) -> Result<(), Failure> {
        let is_left = failed.is_some_and(|why| why.kind() == ErrorKind::RestoreIncomplete);
        let looked = self.go_on();
        match self.signal {
            Some(signal) if !is_left => Err(Failure::interrupted(signal)),
            Some(_) => Ok(()),
            None => Ok(looked?),
        }
    }
}

//! A thread that alternates the two neighbouring frequencies of a policy on the grid.

use std::sync::Arc;

use super::{Control, Mix};
use crate::duty::{Command, Controller, Counters, Grid, Ledger, Wait};
use crate::sys::time::{self, Nanos};
use crate::{Hertz, Result};

/// What an alternator is to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Settings {
    /// The periods, the same for all policies of the zone.
    pub(crate) grid: Grid,
    /// The levels and their shares.
    pub(crate) mix: Mix,
}

/// An alternator at work; dropping it stops it.
#[derive(Debug)]
pub(crate) struct Alternator {
    controller: Controller<Settings>,
    counters: Arc<Counters>,
}

impl Alternator {
    /// Starts with levels that [`Control::announce`] has announced; the first one is set on return.
    ///
    /// # Errors
    /// The kernel refuses the first frequency, or the thread cannot be made.
    pub(crate) fn start(name: &str, mut control: Control, settings: Settings) -> Result<Self> {
        let counters = Arc::new(Counters::default());
        let theirs = Arc::clone(&counters);
        let controller = Controller::spawn(
            name,
            settings,
            move || {
                control.set(settings.mix.low)?;
                Ok(control)
            },
            move |control, wait| Loop { control, ledger: Ledger::new(), counters: &theirs }.run(wait),
        )?;
        Ok(Self { controller, counters })
    }

    /// New settings; their levels must be announced.
    pub(crate) fn set(&self, settings: Settings) {
        self.controller.set(settings);
    }

    /// What it has done; "held" is time at the low level.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether it has ended, which it only does by itself when the kernel refuses a frequency.
    pub(crate) fn has_failed(&self) -> bool {
        self.controller.is_finished()
    }

    /// Ends it.
    ///
    /// # Errors
    /// The kernel had refused a frequency on the way.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.controller.stop()
    }
}

struct Loop<'a> {
    control: Control,
    ledger: Ledger,
    counters: &'a Counters,
}

impl Loop<'_> {
    fn run(mut self, wait: &Wait<Settings>) -> Result<()> {
        let (mut command, mut generation) = wait.command();
        let mut begun = time::now();
        while let Command::Run(settings) = command {
            if settings.mix.low == settings.mix.high {
                // One level is the mean itself.
                self.control.set(settings.mix.low)?;
                wait.until(Nanos::MAX, generation);
            } else {
                begun = self.one_period(settings, begun, wait, generation)?;
            }
            if wait.generation() != generation {
                (command, generation) = wait.command();
                self.counters.restart();
                self.ledger = Ledger::new();
                begun = time::now();
            }
        }
        Ok(())
    }

    /// Low level first, then the high one until the period ends. `begun` is when the low level was set.
    fn one_period(
        &mut self,
        settings: Settings,
        begun: Nanos,
        wait: &Wait<Settings>,
        generation: u32,
    ) -> Result<Nanos> {
        let grid = settings.grid;
        let index = grid.index(begun);
        let end = grid.begin(index + 1);
        // The account is over the time that really passed, from one change to the low level to the next.
        let low = self.ledger.charge((end - begun) as f64, settings.mix.high_share);
        wait.until(begun + low.clamp(0.0, (end - begun) as f64) as Nanos, generation);
        let raised = self.change(settings.mix.high)?;
        wait.until(end, generation);
        let lowered = self.change(settings.mix.low)?;
        self.ledger.settle((raised - begun) as f64);
        // A late end gave the high level more time than was charged for.
        self.ledger.settle(-(1.0 - settings.mix.high_share) * (lowered - end) as f64);
        self.counters.add_hold(raised - begun, 0);
        self.counters.add_elapsed(lowered - begun);
        let late = (grid.index(lowered) - index - 1).max(0);
        self.counters.add_periods(1, late as u64);
        self.counters.set_cpu(time::thread_cpu());
        Ok(lowered)
    }

    /// Sets a level; the moment at which it took effect is taken as the middle of the write.
    fn change(&mut self, level: Hertz) -> Result<Nanos> {
        let before = time::now();
        self.control.set(level)?;
        Ok(before + (time::now() - before) / 2)
    }
}

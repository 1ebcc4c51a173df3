//! The machinery that all on/off methods share: an absolute grid, the account of held time, a controller
//! thread.

pub(crate) mod burner;
mod controller;
mod grid;
mod hold;
pub(crate) mod hold_cost;
pub(crate) mod holder;
mod ledger;
mod notes;
pub(crate) mod others;
mod own_time;
pub(crate) mod parting;
mod probe;
pub(crate) mod sleepers;
pub(crate) mod waker;

pub(crate) use controller::{Command, Controller, Counters, Wait};
pub(crate) use grid::{Grid, detuned};
pub(crate) use holder::Holder;
pub(crate) use ledger::Ledger;
pub(crate) use notes::Notes;

use std::time::Duration;

use crate::{Reason, Unavailable};

/// The shortest period that on/off methods accept: below, switching costs more than it gives.
pub const PERIOD_MIN: Duration = Duration::from_micros(500);
/// The longest period: above, no program would take the result for a slow CPU.
pub const PERIOD_MAX: Duration = Duration::from_secs(1);

/// Checks a period against the limits of a method.
pub(crate) fn check_period(period: Duration, lowest: Duration) -> Result<Duration, Unavailable> {
    if (lowest..=PERIOD_MAX).contains(&period) {
        return Ok(period);
    }
    Err(Unavailable::new(
        Reason::PeriodOutOfReach,
        format!("a period of {period:?} is outside {lowest:?} to {PERIOD_MAX:?}"),
        format!("pass --period with a value from {lowest:?} to {PERIOD_MAX:?}, or leave it out"),
    ))
}

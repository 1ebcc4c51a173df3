//! What the methods share that let tasks run for only a part (the duty) of each period.
//!
//! [`DutyThread`] is the control thread of a method, [`Grid`] places its periods, [`Ledger`] accounts for stopped time.
//! [`DutyLoop`] puts them together for methods that stop all tasks of a zone at once; each brings an implementation of
//! [`Stop`]. The other files measure and reduce what stopping and resuming costs the tasks.

mod duty_loop;
mod duty_thread;
mod grid;
pub(crate) mod idle_pusher;
pub(crate) mod kept;
mod ledger;
mod own_time;
mod pin_apart;
pub(crate) mod plan;
mod probe;
pub(crate) mod status;
mod stop;
pub(crate) mod stop_cost;
pub(crate) mod task_sampler;

pub(crate) use duty_loop::DutyLoop;
pub(crate) use duty_thread::{Command, Counters, DutyThread, Wait, settle_duty_thread};
pub(crate) use grid::{Grid, detuned};
pub(crate) use ledger::Ledger;
pub(crate) use stop::{Census, Stop, Stopped};

use std::time::Duration;

use crate::hint::Hint;
use crate::unavailable::{Reason, Unavailable};

/// The shortest period that duty methods accept: below it, switching costs more than it gives.
pub const PERIOD_MIN: Duration = Duration::from_micros(500);
/// The longest period: above it, programs see pauses instead of a slow CPU.
pub const PERIOD_MAX: Duration = Duration::from_secs(1);

pub(crate) fn check_period(period: Duration, lowest: Duration) -> Result<Duration, Unavailable> {
    if (lowest..=PERIOD_MAX).contains(&period) {
        return Ok(period);
    }
    Err(Unavailable::new(
        Reason::PeriodOutOfReach,
        format!("a period of {period:?} is outside {lowest:?} to {PERIOD_MAX:?}"),
        Hint::Period(lowest..=PERIOD_MAX),
    ))
}

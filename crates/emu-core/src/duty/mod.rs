//! The machinery that all on/off methods share: an absolute grid, the account of held time, a controller
//! thread.

pub(crate) mod duty_loop;
mod duty_thread;
mod grid;
pub(crate) mod idle_pusher;
pub(crate) mod kept;
mod ledger;
mod own_time;
mod pin_apart;
mod probe;
mod stop;
pub(crate) mod stop_cost;
pub(crate) mod task_sampler;

pub(crate) use duty_loop::DutyLoop;
pub(crate) use duty_thread::{Command, Counters, DutyThread, Wait, settle_duty_thread};
pub(crate) use grid::{Grid, detuned};
pub(crate) use ledger::Ledger;
pub(crate) use stop::{Census, Stop, Stopped};

use std::time::Duration;

use crate::unavailable::{Reason, Unavailable};

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

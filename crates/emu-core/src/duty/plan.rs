//! What the methods that stop all tasks of a zone together work out before they begin.

use std::time::Duration;

use crate::speed::{self, Speed, Targets};
use crate::unavailable::{Reason, Unavailable};

/// Stopping all tasks gives each CPU of a zone the same share.
pub(crate) fn uniform_share(targets: &Targets) -> Result<f64, Unavailable> {
    speed::uniform_share(targets).ok_or_else(|| {
        Unavailable::new(
            Reason::UnequalSpeeds,
            "it stops all tasks at once, so it cannot give different speeds to different CPUs",
            "use cpu-hogs or fracas, or one zone for each speed",
        )
    })
}

/// The part of [`expected_error`] that no speed is without.
const LEAST_ERROR: f64 = 0.01;

/// The relative error to expect of CPU-bound work that is stopped in each period.
///
/// The constants were measured on a virtual machine with noisy neighbours: 1 % in any case, 15 µs for each stop, whose cost
/// varies, and a further loss of 0.06 % of a CPU. On several CPUs this loss is 0.5 %, because two tasks may resume on the same
/// one.
pub(crate) fn expected_error(period: Duration, share: f64, cpus: usize) -> f64 {
    let taken = if cpus > 1 { 0.005 } else { 0.000_6 };
    LEAST_ERROR + taken / share + 15e-6 / (period.as_secs_f64() * share)
}

/// The share of all CPUs, and the error to expect of it. A speed that would be missed by more than all of it is refused.
pub(crate) fn share_with_error(period: Duration, targets: &Targets) -> Result<(f64, f64), Unavailable> {
    let share = uniform_share(targets)?;
    let error = expected_error(period, share, targets.len());
    if error <= 1.0 {
        return Ok((share, error));
    }
    // What a stop takes is the same at any speed.
    let lowest = share * (error - LEAST_ERROR) / (1.0 - LEAST_ERROR);
    Err(Unavailable::new(
        Reason::SpeedOutOfReach,
        format!(
            "{} is too low: its error is expected to be {:.0} % of that",
            Speed::Share(share),
            100.0 * error
        ),
        format!("ask for {} or more", Speed::Share((lowest * 1e4).ceil() / 1e4)),
    ))
}

pub(crate) fn notes_on(targets: &Targets) -> Vec<String> {
    let has_clock = targets.values().any(|target| target.clock.is_some());
    let note =
        "the frequency is kept as a share of the clock measured at the start; it moves as the real one does";
    if has_clock { vec![note.into()] } else { vec![] }
}

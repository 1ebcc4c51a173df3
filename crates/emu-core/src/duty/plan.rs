//! What the methods that stop all tasks of a zone together work out before they begin.

use std::time::Duration;

use crate::speed::Targets;
use crate::unavailable::{Reason, Unavailable};

/// Stopping all tasks gives each CPU of a zone the same share.
pub(crate) fn uniform_share(targets: &Targets) -> Result<f64, Unavailable> {
    let mut shares = targets.values().map(|target| target.share);
    let first = shares.next().unwrap_or(1.0);
    if shares.all(|share| (share - first).abs() < 1e-12) {
        return Ok(first);
    }
    Err(Unavailable::new(
        Reason::UnequalSpeeds,
        "it stops all tasks at once, so it cannot give different speeds to different CPUs",
        "use cpu-hogs or fracas, or one zone for each speed",
    ))
}

/// The relative error to expect of CPU-bound work that is stopped in each period.
///
/// The constants were measured on a virtual machine with noisy neighbours: 1 % in any case, 15 µs for each stop, whose cost
/// varies, and a further loss of 0.06 % of a CPU. On several CPUs this loss is 0.5 %, because two tasks may resume on the same
/// one.
pub(crate) fn expected_error(period: Duration, share: f64, cpus: usize) -> f64 {
    let taken = if cpus > 1 { 0.005 } else { 0.000_6 };
    0.01 + taken / share + 15e-6 / (period.as_secs_f64() * share)
}

pub(crate) fn notes_on(targets: &Targets) -> Vec<String> {
    let has_clock = targets.values().any(|target| target.clock.is_some());
    let note =
        "the frequency is kept as a share of the clock measured at the start; it moves as the real one does";
    if has_clock { vec![note.into()] } else { vec![] }
}

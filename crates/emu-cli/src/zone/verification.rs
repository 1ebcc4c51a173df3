//! `--verify`: whether the speed is delivered in a zone like the command's, measured before the command starts.

use std::time::Duration;

use emu_bench::numbers::percent;
use emu_bench::verify::{Delivered, Pair, SessionEmulated, delivered};
use emu_core::{AsNs, Error, ErrorKind};
use serde::Serialize;

use crate::ending::Ending;
use crate::exit::{Exit, Failure};
use crate::signals::Signals;
use crate::zone::plan::Plan;

/// What was measured.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub(crate) struct Verification {
    /// Length of a window inside the zone.
    #[serde(rename = "window_ns", with = "AsNs")]
    window: Duration,
    /// Each CPU of the zone.
    pub(crate) cpus: Vec<Delivered>,
}

impl Verification {
    /// Fails where a CPU is off by more than `tolerance`, or was too busy to tell; `otherwise` says what is then not done.
    pub(crate) fn judge(&self, tolerance: f64, otherwise: &str) -> Result<(), Failure> {
        let failed = |exit, message: String, hint: &'static str| {
            Err(Failure::new(exit, Error::new(ErrorKind::Failed, message).hint(hint)))
        };
        let busiest = self.cpus.iter().min_by(|a, b| a.free.total_cmp(&b.free));
        let busiest = busiest.filter(|seen| seen.free < 1.0 - tolerance);
        let disturbed = self.cpus.iter().find(|seen| seen.error.is_nan());
        let why = match (busiest, disturbed) {
            (Some(seen), _) => {
                Some(format!("other tasks take {} of CPU {}", percent(1.0 - seen.free), seen.cpu))
            }
            (None, seen) => seen.map(|seen| format!("others disturbed every window on CPU {}", seen.cpu)),
        };
        if let Some(why) = why {
            let hint = "wait until the machine is calm, choose other CPUs with --cpus, or leave out --verify";
            return failed(Exit::Undecided, format!("cannot verify: {why}"), hint);
        }
        let worst = self.cpus.iter().max_by(|a, b| a.error.abs().total_cmp(&b.error.abs()));
        let message = |seen: &Delivered| {
            let [asked, delivered] = [seen.asked, seen.delivered].map(percent);
            format!("CPU {} delivers {delivered} instead of {asked}", seen.cpu)
        };
        match worst.filter(|seen| seen.error.abs() > tolerance) {
            Some(seen) if may_be_within(seen, tolerance) => {
                let [low, high] = seen.between.map(percent);
                let message = format!("cannot verify: {}, or between {low} and {high}", message(seen));
                let hint =
                    "the machine changes its speed; try again when it is calmer, or leave out --verify";
                failed(Exit::Undecided, message, hint)
            }
            Some(seen) => {
                let hint = "try again on a calmer machine, with a longer --period or with another --method";
                failed(Exit::NotVerified, format!("{}; {otherwise}", message(seen)), hint)
            }
            None => Ok(()),
        }
    }
}

pub(crate) fn verify(plan: &Plan, signals: &Signals) -> Result<Verification, Failure> {
    let prepared = &plan.prepared;
    let mut emulated = SessionEmulated::named(prepared.host(), prepared.demand(), prepared.method().id())?;
    let mut ending = Ending::new(signals);
    let measured = delivered(&mut emulated, prepared.demand(), &mut |_: Option<&Pair>| ending.go_on());
    ending.by_signal(measured.as_ref().err())?;
    let (window, cpus) = measured?;
    Ok(Verification { window, cpus })
}

/// Whether some of what was measured is within the tolerance.
fn may_be_within(seen: &Delivered, tolerance: f64) -> bool {
    let [low, high] = seen.between.map(|share| share / seen.asked - 1.0);
    low <= tolerance && high >= -tolerance
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(error: f64) -> Delivered {
        Delivered {
            cpu: 0,
            asked: 0.4,
            delivered: 0.4 * (1.0 + error),
            between: [0.4 * (0.99 + error), 0.4 * (1.01 + error)],
            error,
            native_clock: None,
            delivered_clock: None,
            free: 0.99,
            longest_stall: Duration::ZERO,
        }
    }

    #[test]
    fn the_tolerance_is_for_the_worst_cpu() {
        let judge = |errors: &[f64]| {
            Verification { window: Duration::ZERO, cpus: errors.iter().map(|error| seen(*error)).collect() }
                .judge(0.05, "nothing was slowed down")
        };
        assert!(judge(&[0.049, -0.049]).is_ok());
        for errors in [&[0.0, 0.065][..], &[-0.065, 0.0]] {
            let failure = judge(errors).unwrap_err();
            assert_eq!(failure.exit, Exit::NotVerified, "{errors:?}");
            assert!(failure.error.unwrap().to_string().ends_with("; nothing was slowed down"), "{errors:?}");
        }
    }

    #[test]
    fn pairs_that_differ_too_much_or_are_all_disturbed_show_nothing() {
        let disturbed = Verification { window: Duration::ZERO, cpus: vec![seen(0.0), seen(f64::NAN)] };
        let failure = disturbed.judge(0.95, "").unwrap_err();
        assert_eq!(failure.exit, Exit::Undecided);
        let told = failure.error.unwrap().to_string();
        assert_eq!(told, "cannot verify: others disturbed every window on CPU 0");
        let failure = Verification { window: Duration::ZERO, cpus: vec![seen(0.0), seen(-0.055)] }
            .judge(0.05, "")
            .unwrap_err();
        assert_eq!(failure.exit, Exit::Undecided);
        let told = failure.error.unwrap().to_string();
        assert_eq!(told, "cannot verify: CPU 0 delivers 37.8% instead of 40%, or between 37.4% and 38.2%");
    }

    #[test]
    fn a_busy_cpu_can_show_nothing() {
        let busy = Delivered { free: 0.8, ..seen(0.0) };
        let failure =
            Verification { window: Duration::ZERO, cpus: vec![seen(0.0), busy] }.judge(0.05, "").unwrap_err();
        assert_eq!(failure.exit, Exit::Undecided);
        assert_eq!(failure.error.unwrap().to_string(), "cannot verify: other tasks take 20% of CPU 0");
    }
}

//! `--verify`: a probe in a zone like the command's measures that the speed is delivered.

pub(crate) mod probe;

use std::time::Duration;

use emu_core::{CpuId, Error, ErrorKind, Hertz, Host, Result, Session, Tasks, clock};
use nix::sys::signal::Signal;
use serde::Serialize;

use crate::exit::{Exit, Failure};
use crate::output::nanos;
use crate::output::numbers::percent;
use crate::plan::Plan;
use crate::signals::{self, Signals};
use probe::{Probe, Seen};

/// The largest relative error that counts as delivered.
pub(crate) const TOLERANCE: f64 = 0.05;

/// Periods that the probe runs for, so that a part of one more or less does not count.
const PERIODS: u32 = 30;

/// Periods that a method is given to settle.
const SETTLING: u32 = 5;

/// The shortest measurement: the clock of a virtual machine wanders by some percent within less.
const SHORTEST: Duration = Duration::from_millis(300);

/// What the probe found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Verification {
    /// Length of the measurement inside the zone.
    window_ns: u64,
    /// Each CPU of the zone.
    pub(crate) cpus: Vec<Verified>,
}

/// What the probe found on one CPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Verified {
    /// Which CPU.
    pub(crate) cpu: CpuId,
    /// The share that was asked for; of a clock, what it is of the native clock at this moment.
    pub(crate) asked: f64,
    /// The share delivered: clock inside the zone by the mean of the native clocks just before and after.
    pub(crate) delivered: f64,
    /// `delivered / asked - 1`.
    pub(crate) error: f64,
    /// The mean of the native clocks just before and after.
    #[serde(rename = "native_clock_hz")]
    pub(crate) native_clock: Hertz,
    /// The clock perceived inside the zone.
    #[serde(rename = "delivered_clock_hz")]
    delivered_clock: Hertz,
    /// The longest time without progress inside the zone.
    longest_stall_ns: u64,
    /// Share of the core clock that the probe was given outside the zone; the rest went to other tasks.
    free: f64,
}

impl Verification {
    /// Whether every CPU delivers what was asked for; `otherwise` says what is not done when one does not.
    ///
    /// # Errors
    /// The CPU that is off the most, or one that was too busy to tell.
    pub(crate) fn judge(&self, otherwise: &str) -> Result<(), Failure> {
        let busiest = self.cpus.iter().min_by(|a, b| a.free.total_cmp(&b.free));
        if let Some(seen) = busiest.filter(|seen| seen.free < 1.0 - TOLERANCE) {
            let message =
                format!("cannot verify: other tasks take {} of CPU {}", percent(1.0 - seen.free), seen.cpu);
            let error = Error::new(ErrorKind::Failed, message)
                .hint("wait until the machine is calm, choose other CPUs with --cpus, or leave out --verify");
            return Err(Failure::new(Exit::NotVerified, error));
        }
        let worst = self.cpus.iter().max_by(|a, b| a.error.abs().total_cmp(&b.error.abs()));
        match worst {
            Some(seen) if seen.error.is_nan() || seen.error.abs() > TOLERANCE => {
                let error = Error::new(
                    ErrorKind::Failed,
                    format!(
                        "CPU {} delivers {} instead of {}; {otherwise}",
                        seen.cpu,
                        percent(seen.delivered),
                        percent(seen.asked)
                    ),
                )
                .hint("try again on a calmer machine, with a longer --period or with another --method");
                Err(Failure::new(Exit::NotVerified, error))
            }
            _ => Ok(()),
        }
    }
}

/// Runs the probe outside, inside and outside of a zone like the plan's.
///
/// # Errors
/// The zone cannot be made, the probe fails, or a signal asked emu to end.
pub(crate) fn verify(host: &Host, plan: &Plan, signals: &Signals) -> Result<Verification, Failure> {
    let cpus = plan.demand.cpus();
    let period = plan.expected.period;
    let window = (period * PERIODS).max(SHORTEST);
    // Whole periods: in a steady cycle the phase at which the probe begins does not matter then.
    let window =
        if period.is_zero() { window } else { period * window.div_duration_f64(period).ceil() as u32 };
    let mut probe = Probe::start(host)?;
    let before = probe.measure(&cpus, Duration::ZERO, SHORTEST, signals)?;
    let zone = plan.zone("verification".into(), Tasks::Processes(vec![probe.pid()]));
    let session = Session::engage(host, &zone, plan.method)?;
    let inside = probe.measure(&cpus, period * SETTLING, window, signals)?;
    session.release().1?;
    let after = probe.measure(&cpus, Duration::ZERO, SHORTEST, signals)?;
    if probe.is_to_stop {
        // With the command, which is not there yet.
        signals::put_back(Signal::SIGTSTP);
    }
    drop(probe);
    let clocks = clock::measure_all(&cpus, clock::BUDGET)?;
    let seen = plan.demand.targets.iter().zip(&clocks).map(|((&cpu, target), core)| {
        let native = f64::midpoint(clock_of(cpu, &before), clock_of(cpu, &after));
        let asked = target.clock.map_or(target.share, |clock| clock.as_f64() / native);
        let clock = clock_of(cpu, &inside);
        let stalls = inside.iter().filter(|(at, _)| *at == cpu).map(|(_, seen)| seen.longest_stall);
        Verified {
            cpu,
            asked,
            delivered: clock / native,
            error: clock / native / asked - 1.0,
            native_clock: Hertz(native as u64),
            delivered_clock: Hertz(clock as u64),
            longest_stall_ns: nanos(stalls.max().unwrap_or(window)),
            free: native / core.clock.as_f64(),
        }
    });
    Ok(Verification { window_ns: nanos(window), cpus: seen.collect() })
}

/// What the threads of a CPU were given in all; nothing, where a method has put none there.
fn clock_of(cpu: CpuId, seen: &[Seen]) -> f64 {
    // Not `sum`, which is -0 of nothing.
    seen.iter().filter(|(at, _)| *at == cpu).fold(0.0, |sum, (_, seen)| sum + seen.clock.as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(error: f64) -> Verified {
        Verified {
            cpu: 0,
            asked: 0.4,
            delivered: 0.4 * (1.0 + error),
            error,
            native_clock: Hertz(3_000_000_000),
            delivered_clock: Hertz(1_200_000_000),
            longest_stall_ns: 0,
            free: 0.99,
        }
    }

    #[test]
    fn five_percent_is_the_limit_on_the_worst_cpu() {
        let judge = |errors: &[f64]| {
            Verification { window_ns: 0, cpus: errors.iter().map(|error| seen(*error)).collect() }
                .judge("nothing was slowed down")
        };
        assert!(judge(&[0.049, -0.049]).is_ok());
        for errors in [&[0.0, 0.06][..], &[-0.06, 0.0], &[f64::NAN, 0.0]] {
            let failure = judge(errors).unwrap_err();
            assert_eq!(failure.exit, Exit::NotVerified, "{errors:?}");
            assert!(failure.error.unwrap().to_string().ends_with("; nothing was slowed down"), "{errors:?}");
        }
    }

    #[test]
    fn a_busy_cpu_can_show_nothing() {
        let busy = Verified { free: 0.8, ..seen(0.0) };
        let failure = Verification { window_ns: 0, cpus: vec![seen(0.0), busy] }.judge("").unwrap_err();
        assert_eq!(failure.error.unwrap().to_string(), "cannot verify: other tasks take 20% of CPU 0");
    }
}

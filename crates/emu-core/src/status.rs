//! What an emulation tells of itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::as_ns::AsNs;
use crate::cpu_list::CpuId;
use crate::method_id::MethodId;
use crate::notes::Notes;
use crate::speed::{Hertz, Target};

/// Whether the limit that was asked for is in force, as far as the method can know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Health {
    /// It is, and nothing is known to have escaped it.
    #[default]
    Holding,
    /// Some tasks or CPUs escape it or have escaped it, or it is not what was asked for: see [`Status::problems`].
    Degraded,
    /// What kept it up has ended: the tasks run freely.
    Ended,
}

/// What an emulation asks, does and costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Status {
    /// The method at work.
    pub method: MethodId,
    /// Length of one on/off cycle, with many tasks of the present one; zero for methods without one.
    #[serde(rename = "period_ns", with = "AsNs")]
    pub period: Duration,
    /// Cycles since the start.
    pub periods: u64,
    /// Cycles that were skipped because the controller came too late.
    pub missed: u64,
    /// The longest time for which tasks were stopped at a stretch.
    #[serde(rename = "longest_stall_ns", with = "AsNs")]
    pub longest_stall: Duration,
    /// CPU time used by emu itself, beyond what it burns on purpose.
    #[serde(rename = "own_cpu_ns", with = "AsNs")]
    pub own_cpu: Duration,
    /// CPU time burned on purpose, summed over CPUs.
    #[serde(rename = "burned_ns", with = "AsNs")]
    pub burned: Duration,
    /// The background load as a share of the zone's CPUs, where it is excluded: other shares are of the rest.
    #[serde(rename = "others_share")]
    pub background: Option<f64>,
    /// What the zone's tasks were given by the kernel's account while they wanted all that they could get; `None` where
    /// that cannot be told, because they did not.
    pub delivered: Option<Delivered>,
    /// CPU time of all tasks of the zone in CPUs, whether they wanted more or not; `None` before the first look.
    #[serde(rename = "used_cpus")]
    pub used: Option<f64>,
    /// Each CPU of the zone.
    pub cpus: Vec<CpuStatus>,
    /// Whether what was asked for is in force.
    pub health: Health,
    /// What is wrong, or was at some time since the start, in words; empty while the limit holds.
    pub problems: Vec<String>,
    /// What else the user should know, in words: all may be well.
    pub notes: Vec<String>,
}

impl Status {
    /// Of a method that has counted nothing yet, and tells of no CPU.
    pub fn new(method: MethodId, period: Duration) -> Self {
        Self {
            method,
            period,
            periods: 0,
            missed: 0,
            longest_stall: Duration::ZERO,
            own_cpu: Duration::ZERO,
            burned: Duration::ZERO,
            background: None,
            delivered: None,
            used: None,
            cpus: Vec::new(),
            health: Health::default(),
            problems: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// All that there is to tell: the problems, then the notes.
    pub fn messages(&self) -> Vec<String> {
        [&self.problems[..], &self.notes].concat()
    }

    /// Adds something that keeps the limit from being in force as asked.
    pub fn add_problem(&mut self, problem: String) {
        if self.health == Health::Holding {
            self.health = Health::Degraded;
        }
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    pub(crate) fn add_all(&mut self, notes: &Notes) {
        notes.problems().into_iter().for_each(|problem| self.add_problem(problem));
        self.notes.extend(notes.list());
    }

    pub(crate) fn end(&mut self, why: String) {
        self.add_problem(why);
        self.health = Health::Ended;
        for cpu in &mut self.cpus {
            (cpu.set, cpu.duty) = (1.0, 1.0);
        }
    }
}

/// A share that was seen to be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Delivered {
    /// What it was worked out from.
    pub basis: Basis,
    /// Of the reference clock, in the time that was observed.
    pub share: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// What was asked for on the same CPUs in the same time.
    pub asked: f64,
    /// Relative error: `share / asked − 1`.
    pub error: f64,
    /// For how long tasks wanted all that they could get; only then can it be told.
    #[serde(rename = "observed_ns", with = "AsNs")]
    pub observed: Duration,
}

impl Delivered {
    pub(crate) fn new(basis: Basis, interval: [f64; 3], asked: f64, observed: Duration) -> Self {
        let [low, share, high] = interval;
        Self { basis, share, low, high, asked, error: share / asked - 1.0, observed }
    }

    /// The mean over the time that was observed; `None` of none.
    pub fn mean(all: &[Self]) -> Option<Self> {
        let sum = |of: &dyn Fn(&Self) -> f64| -> f64 {
            all.iter().map(|one| of(one) * one.observed.as_secs_f64()).sum()
        };
        let observed = all.iter().map(|one| one.observed).sum::<Duration>();
        let mean = |of: &dyn Fn(&Self) -> f64| sum(of) / observed.as_secs_f64();
        let square = |one: &Self| ((one.high - one.low) / 2.0 * one.observed.as_secs_f64()).powi(2);
        let half = all.iter().map(square).sum::<f64>().sqrt() / observed.as_secs_f64();
        let (share, asked) = (mean(&|one| one.share), mean(&|one| one.asked));
        Some(Self::new(all.first()?.basis, [share - half, share, share + half], asked, observed))
    }

    /// As a share of something that is `scale` of the reference, which is known but for the part `unsure` of it.
    pub(crate) fn times(self, basis: Basis, (scale, unsure): (f64, f64), asked: f64) -> Self {
        let Self { share, low, high, observed, .. } = self;
        let end = |by: f64| (share + by.signum() * by.hypot(share * unsure)).max(0.0) * scale;
        Self::new(basis, [end(low - share), share * scale, end(high - share)], asked, observed)
    }
}

/// What a delivered share was worked out from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Basis {
    /// The CPU time of the zone's tasks by the kernel's account.
    CpuTime,
    /// That, times the core clock as it was measured.
    CpuTimeAndClock,
}

/// A target among what else is told of a CPU.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(remote = "Target")]
pub(crate) struct Asked {
    /// What was asked for, as a share of the reference clock.
    #[serde(rename = "asked_share")]
    share: f64,
    /// The clock, where one was asked for.
    #[serde(rename = "asked_clock_hz")]
    clock: Option<Hertz>,
}

/// What is asked, set and delivered on one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct CpuStatus {
    /// Which CPU.
    pub cpu: CpuId,
    /// What was asked for.
    #[serde(flatten, with = "Asked")]
    pub asked: Target,
    /// The share that the method has set by its own account, averaged since the last change of target.
    pub set: f64,
    /// What tasks were given by the kernel's account; `None` where it cannot be told for this CPU alone.
    pub delivered: Option<Delivered>,
    /// The share of time in which tasks may run; differs from `set` where costs are compensated.
    pub duty: f64,
    /// The core clock as it was measured; `None` where it is not, or not yet.
    #[serde(rename = "clock_hz")]
    pub clock: Option<Hertz>,
    /// The core clock that the method has set, as the kernel tells it; `None` where it sets none.
    #[serde(rename = "set_clock_hz")]
    pub set_clock: Option<Hertz>,
    /// Whether the CPU is still online.
    pub online: bool,
}

impl CpuStatus {
    /// Of a CPU that is online and has what was asked for.
    pub fn new(cpu: CpuId, asked: Target) -> Self {
        let (set, duty) = (asked.share, asked.share);
        Self { cpu, asked, set, delivered: None, duty, clock: None, set_clock: None, online: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stretch;
    use serde_json::{from_value, json, to_value};

    #[test]
    fn what_is_told_has_its_units_and_comes_back() {
        let target = Target { share: 0.5, clock: Some(Hertz(1_200_000_000)) };
        let mut status = Status::new(MethodId::new("cpu-freeze"), Duration::from_millis(100));
        let second = Duration::from_secs(1);
        status.delivered = Some(Delivered::new(Basis::CpuTimeAndClock, [0.24, 0.25, 0.26], 0.5, second));
        status.cpus.push(CpuStatus { clock: Some(Hertz(7)), ..CpuStatus::new(3, target) });
        let json = to_value(&status).unwrap();
        assert_eq!(json["period_ns"], 100_000_000);
        let delivered = json!({
            "basis": "cpu-time-and-clock", "share": 0.25, "low": 0.24, "high": 0.26, "asked": 0.5, "error": -0.5,
            "observed_ns": 1_000_000_000,
        });
        assert_eq!(json["delivered"], delivered);
        let cpu = json!({
            "cpu": 3, "asked_share": 0.5, "asked_clock_hz": 1_200_000_000, "set": 0.5, "delivered": null,
            "duty": 0.5, "clock_hz": 7, "set_clock_hz": null, "online": true,
        });
        assert_eq!(json["cpus"][0], cpu);
        assert_eq!(from_value::<Status>(json).unwrap(), status);
    }

    #[test]
    fn a_problem_is_told_once() {
        let mut status = Status::new(MethodId::new("fracas"), Duration::from_millis(20));
        (0..2).for_each(|_| status.add_problem("a group has gone".into()));
        assert_eq!((status.problems.len(), status.health), (1, Health::Degraded));
    }

    #[test]
    fn a_stretch_of_earlier_records_is_read() {
        let cpus = json!([{"cpu": 0, "asked_share": 0.5, "delivered": null}]);
        let stretch = json!({"from_ns": 1, "until_ns": 2, "delivered": null, "cpus": cpus});
        let stretch: Stretch = from_value(stretch).unwrap();
        assert_eq!((stretch.until, stretch.cpus[0].asked.share), (Duration::from_nanos(2), 0.5));
    }

    #[test]
    fn the_mean_is_weighted_by_what_was_observed() {
        let one = |share: f64, seconds: u64| {
            let interval = [share - 0.1, share, share + 0.1];
            Delivered::new(Basis::CpuTime, interval, 0.4, Duration::from_secs(seconds))
        };
        let mean = Delivered::mean(&[one(0.4, 3), one(0.8, 1)]).unwrap();
        assert!((mean.share - 0.5).abs() < 1e-12 && (mean.error - 0.25).abs() < 1e-12, "{mean:?}");
        assert!((mean.high - mean.share - 10f64.sqrt() / 40.0).abs() < 1e-12, "{mean:?}");
        assert_eq!((mean.observed, Delivered::mean(&[])), (Duration::from_secs(4), None));
    }
}

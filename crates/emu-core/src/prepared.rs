//! What a method has worked out for a demand, before anything is changed.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use crate::clock;
use crate::cpu_list::CpuList;
use crate::cpufreq::{HeldClock, HoldPlan};
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::host::Host;
use crate::method::{self, Emulation, Expected, METHODS, Method, Plan, Trait};
use crate::method_id::MethodId;
use crate::speed::{Speed, SpeedSpec};
use crate::sys::refused;
use crate::unavailable::Unavailable;
use crate::undo::Journal;
use crate::zone::{Demand, Zone};

impl Demand {
    /// The CPUs of a zone of this speed: those given, else those that it names, else all that are allowed.
    pub fn cpus_of(host: &Host, speed: &SpeedSpec, cpus: Option<&CpuList>) -> CpuList {
        cpus.cloned().or_else(|| speed.cpus()).unwrap_or_else(|| host.allowed.clone())
    }

    /// What a speed means here, with the method's defaults, on [these CPUs](Self::cpus_of). For a frequency, the CPU's own
    /// clock is measured, for [`clock::BUDGET`].
    ///
    /// # Errors
    /// A CPU cannot be used, or a frequency is above the CPU's own clock, or that cannot be measured.
    pub fn measured(host: &Host, speed: &SpeedSpec, cpus: Option<&CpuList>) -> Result<Self> {
        let cpus = Self::cpus_of(host, speed, cpus);
        host.check_cpus(&cpus)?;
        let speeds = speed.for_cpus(&cpus)?;
        let clocked = speeds.iter().filter(|(_, speed)| matches!(speed, Speed::Clock(_)));
        let readings = clock::measure_all(&clocked.map(|(&cpu, _)| cpu).collect(), clock::BUDGET)?;
        let targets = speeds.into_iter().map(|(cpu, speed)| {
            let reference = readings.iter().find(|reading| reading.cpu == cpu).map(|reading| reading.clock);
            Ok((cpu, speed.target(cpu, reference)?))
        });
        Ok(Self::new(targets.collect::<Result<_>>()?))
    }
}

/// A method that can meet a demand on a host, with all that it has worked out: what a session begins with.
pub struct Prepared {
    method: &'static dyn Method,
    host: Host,
    demand: Demand,
    plan: Plan,
    hold: HoldPlan,
}

impl Prepared {
    /// Has the method judge the demand. Changes nothing.
    ///
    /// # Errors
    /// It cannot meet it here, and why.
    pub fn new(method: &'static dyn Method, host: &Host, demand: &Demand) -> Result<Self, Unavailable> {
        host.check_calls(&refused::NEEDED_BY_ALL)?;
        let mut plan = method.check(host, demand)?;
        let leaves_idle = method.about().has(Trait::LeavesIdle);
        let hold = if leaves_idle { HoldPlan::of(host, demand) } else { HoldPlan::default() };
        let expected = plan.expected_mut();
        expected.error += hold.loss;
        expected.notes.extend_from_slice(&hold.notes);
        if let Some(step) = demand.shortest_step {
            expect_of_step(expected, step, method.about().has(Trait::EndsAtTicks));
        }
        // On one that spreads tasks itself, they do not stay where they began.
        let isolated: CpuList = host.cpus.iter().filter(|cpu| cpu.isolated).map(|cpu| cpu.id).collect();
        let isolated = isolated.intersection(&demand.cpus());
        if demand.targets.len() > 1 && !isolated.is_empty() && !method.about().has(Trait::SplitsCpus) {
            expected.notes.push(format!(
                "{isolated:#} are isolated (isolcpus): the kernel does not spread tasks on them, which stay where they are unless \
                 they are bound"
            ));
        }
        Ok(Self { method, host: host.clone(), demand: demand.clone(), plan, hold })
    }

    /// As [`new`](Self::new), for a method of the registry.
    ///
    /// # Errors
    /// There is no such method, or it cannot meet the demand here, and why.
    pub fn named(id: MethodId, host: &Host, demand: &Demand) -> Result<Self> {
        Self::new(method::find(id.as_str())?, host, demand).map_err(|why| why.into_error(id))
    }

    /// The method.
    pub fn method(&self) -> &'static dyn Method {
        self.method
    }

    /// The host that it was judged for.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// What is asked for.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }

    /// What is to be expected.
    pub fn expected(&self) -> &Expected {
        self.plan.expected()
    }

    /// After an error, what had been changed is in the journal, to be undone by the caller.
    pub(crate) fn engage(&self, zone: &Zone, journal: &Journal) -> Result<(HeldClock, Box<dyn Emulation>)> {
        // First: costs are measured at the clock that they will have.
        let clock = self.hold.engage(journal);
        Ok((clock, self.plan.engage(&self.host, zone, journal)?))
    }

    fn is_improved(&self) -> bool {
        !self.method.about().has(Trait::Published)
    }

    fn by_faith(&self, other: &Self) -> Ordering {
        let (a, b) = (self.expected(), other.expected());
        // New processes run until signals reach them, and a group has them from the begin.
        let signals = |one: &Self| one.method.about().has(Trait::SendsSignals);
        self.error_of_many()
            .total_cmp(&other.error_of_many())
            .then(a.longest_stall.cmp(&b.longest_stall))
            .then(signals(self).cmp(&signals(other)))
    }

    /// The expected error is one of programs that compute on each CPU by themselves.
    fn error_of_many(&self) -> f64 {
        let splits = self.demand.targets.len() > 1 && self.method.about().has(Trait::SplitsCpus);
        self.expected().error + if splits { SPLIT } else { 0.0 }
    }
}

/// What speeds that stay for `step` add: to a method of which a new one waits for the period under way to end, or to any where
/// they stay for less than [`STEP_PERIODS`].
fn expect_of_step(expected: &mut Expected, step: Duration, waits: bool) {
    let (period, part) = (expected.period, expected.period.div_duration_f64(step));
    if waits {
        expected.error += part / 2.0;
    }
    if waits && part > NOTED {
        expected.notes.push(format!(
            "a new speed waits for the period under way to end: one that stays for {step:?} is up to {:.0}% off",
            100.0 * part.min(1.0)
        ));
    } else if part * STEP_PERIODS > 1.01 {
        // Periods are a little longer than told, for their grid.
        expected.notes.push(format!(
            "speeds that stay for {step:?} alone are not exact: that is less than {STEP_PERIODS} periods of {period:?}"
        ));
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, demand, plan, .. } = self;
        let mut shown = f.debug_struct("Prepared");
        shown
            .field("method", &method.id())
            .field("demand", demand)
            .field("plan", plan)
            .finish_non_exhaustive()
    }
}

/// How many periods a speed must stay for, to be exact in the mean of them: within 3 % of what was asked for in a quiet guest
/// (docs/FIDELITY.md).
const STEP_PERIODS: f64 = 5.0;

/// From which part of a step on it is told that a new speed comes late.
const NOTED: f64 = 0.02;

/// What [`Trait::SplitsCpus`] adds to the error on several CPUs, where programs are judged that are no loops: at 25 % of 20 ms two
/// short processes at a time were 34 % too slow, and two threads that spin at barriers 25 % (docs/FIDELITY.md).
const SPLIT: f64 = 0.1;

/// What a method says to a demand.
#[derive(Debug)]
pub struct Judged {
    /// The method.
    pub method: MethodId,
    /// Whether it can meet the demand, or why not.
    pub result: Result<Prepared, Unavailable>,
}

/// What each method of the registry says to a demand, in the order in which they are listed.
pub fn judge(host: &Host, demand: &Demand) -> Vec<Judged> {
    let judged = |method: &&'static dyn Method| Judged {
        method: method.id(),
        result: Prepared::new(*method, host, demand),
    };
    METHODS.iter().map(judged).collect()
}

/// The most faithful of those that can: the least expected error, to which [`Trait::SplitsCpus`] adds on several CPUs; among
/// equals the shortest stall, and a group rather than signals. Those that are as they were [published](Trait::Published) are
/// left out.
pub fn best(judged: &[Judged]) -> Option<&Prepared> {
    let able = judged.iter().filter_map(|one| one.result.as_ref().ok());
    able.filter(|prepared| prepared.is_improved()).min_by(|a, b| a.by_faith(b))
}

/// Picks the [best] method for a demand.
///
/// # Errors
/// [`ErrorKind::Unavailable`](crate::error::ErrorKind::Unavailable) when no method can; each says why on a line of its own.
pub fn choose(host: &Host, demand: &Demand) -> Result<Prepared> {
    ranked(host, demand).map(|(best, _)| best)
}

/// The [best] method for a demand, and the others that can, in the order of their faith: for where the best cannot be engaged.
///
/// # Errors
/// As [`choose`].
pub fn ranked(host: &Host, demand: &Demand) -> Result<(Prepared, Vec<Prepared>)> {
    let (mut able, mut reasons) = (Vec::new(), Vec::new());
    for Judged { method, result } in judge(host, demand) {
        match result {
            Ok(prepared) => able.extend(prepared.is_improved().then_some(prepared)),
            Err(why) => reasons.push(format!("\n  {method}: {why}")),
        }
    }
    able.sort_by(Prepared::by_faith);
    let mut able = able.into_iter();
    let none =
        || Error::unavailable(format!("no method can do this here:{}", reasons.concat())).hint(Hint::Judge);
    let best = able.next().ok_or_else(none)?;
    Ok((best, able.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing;
    use crate::method::ids;
    use crate::speed::Target;
    use crate::unavailable::Reason;

    #[test]
    fn a_short_speed_is_for_methods_that_begin_it_at_once() {
        let host = testing::host();
        let mut demand = Demand::new([(0, Target { share: 0.5, clock: None })].into());
        let mut of = |method, step_ms: u64| {
            demand.shortest_step = Some(Duration::from_millis(step_ms));
            Prepared::new(method::method(method).unwrap(), &host, &demand).unwrap().expected().clone()
        };
        let [fracas, freeze] = [ids::FRACAS, ids::CPU_FREEZE].map(|method| of(method, 100));
        assert!(fracas.error > 0.1 && freeze.error < 0.02, "{} {}", fracas.error, freeze.error);
        assert!(of(ids::FRACAS, 100_000).error < 0.02, "half a period of 100 s is nothing");
        let told = |expected: Expected| expected.notes.iter().any(|note| note.contains("are not exact"));
        assert!(!told(freeze) && told(of(ids::CPU_FREEZE, 90)));
        let late = fracas.notes.iter().any(|note| note.contains("for 100ms is up to 20% off"));
        assert!(late, "{:?}", fracas.notes);
    }

    #[test]
    fn a_speed_that_would_be_missed_by_all_of_it_is_refused() {
        let host = testing::host();
        let prepared = |share| {
            let demand = Demand::new([(0, Target { share, clock: None })].into());
            let method = method::method(ids::CPU_FREEZE).unwrap();
            Prepared::new(method, &host, &demand)
        };
        let why = prepared(1e-6).unwrap_err();
        assert_eq!(why.reason, Reason::SpeedOutOfReach);
        assert!(why.detail.starts_with("0.0001% is too low"), "{why}");
        let hint = why.hint.to_string();
        let told: Speed =
            hint.strip_prefix("ask for ").unwrap().strip_suffix(" or more").unwrap().parse().unwrap();
        let Speed::Share(lowest) = told else { panic!("{told}") };
        assert!(prepared(lowest).is_ok() && prepared(lowest / 2.0).is_err(), "{lowest}");
    }

    #[test]
    fn a_method_that_splits_cpus_is_no_first_choice_on_several() {
        let host = testing::host();
        let better = |cpus: usize| {
            let targets = (0..cpus).map(|cpu| (cpu, Target { share: 0.5, clock: None }));
            let demand = Demand::new(targets.collect());
            let [fracas, freeze, lim] = [ids::FRACAS, ids::CPU_FREEZE, ids::CPU_LIM].map(|id| {
                let method = method::method(id).unwrap();
                Prepared::new(method, &host, &demand).unwrap()
            });
            (fracas.by_faith(&freeze), freeze.by_faith(&lim))
        };
        assert_eq!(better(1), (Ordering::Less, Ordering::Less));
        assert_eq!(better(2), (Ordering::Greater, Ordering::Less));
    }
}

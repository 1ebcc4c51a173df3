//! The methods and their registry. One folder for each; none imports from another method's.

mod cpu_freeze;
mod cpu_freq;
mod cpu_gov;
mod cpu_hogs;
mod cpu_lim;
mod fracas;
mod stopping;

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::as_ns::AsNs;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::method_id::MethodId;
use crate::nearest::nearest_hint;
use crate::speed::Targets;
use crate::status::Status;
use crate::unavailable::Unavailable;
use crate::undo::Journal;
use crate::zone::{Demand, Zone};

/// What a method is, the same on every host.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct About {
    /// What it does, in one line.
    pub summary: &'static str,
    /// What it acts on: `CPU`, `cgroup` or `processes`.
    pub acts_on: &'static str,
    /// Whether any speed can be had, not only those the hardware has.
    pub continuous: bool,
    /// How it is unlike other methods, where others have to know.
    pub traits: &'static [Trait],
    /// What it needs of the host and the caller.
    pub needs: &'static str,
    /// What it cannot do or gets wrong, known beforehand.
    pub limits: &'static [&'static str],
    /// Where it comes from.
    pub source: &'static str,
}

impl About {
    /// Of a method that can give any speed, and of which nothing more is told yet.
    pub const fn new(summary: &'static str) -> Self {
        Self {
            summary,
            acts_on: "processes",
            continuous: true,
            traits: &[],
            needs: "",
            limits: &[],
            source: "",
        }
    }

    /// Whether it is so.
    pub fn has(&self, what: Trait) -> bool {
        self.traits.contains(&what)
    }
}

/// How a method works, where the tasks, the measurement or the caller see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Trait {
    /// Gives each CPU of a zone a speed of its own.
    PerCpu,
    /// Takes all tasks of the zone off their CPUs for a part of each period.
    StopsTasks,
    /// Leaves CPUs idle while tasks want them: a governor that follows the load would lower the clock.
    LeavesIdle,
    /// Stops and continues processes by signals, as job control does.
    SendsSignals,
    /// Works by the core clock itself: a changed clock is its effect, not a disturbance.
    MovesClock,
    /// Has the tasks in a cgroup of their own, and cannot do without.
    NeedsGroup,
    /// Burns CPU time on purpose.
    Burns,
    /// Burns it in processes of their own, whose CPU time nobody can tell from a disturbance.
    HasHelpers,
    /// Shares out each CPU by itself. On several, threads that spin for each other get less than their shares, and so do
    /// short processes, which begin beside others and end before they are spread.
    SplitsCpus,
    /// Leaves it to the scheduler's tick to end a turn: what a window of time has differs by up to a tick.
    EndsAtTicks,
    /// Slows whatever else runs on the CPUs of the zone, too.
    SlowsOthers,
    /// Judges each process by its CPU time over its whole life, so that sleep becomes credit.
    JudgesLifetimes,
    /// Is as it was published, with its known errors: taken only by name, to compare.
    Published,
}

/// What can be expected of a method for a demand on a host.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Expected {
    /// Expected relative error of the perceived speed of CPU-bound work, e.g. 0.01: an estimate for CPU-bound work, from
    /// records on virtual machines; what it is on this host has to be measured.
    pub error: f64,
    /// Length of one on/off cycle that will be used; zero for methods without one.
    #[serde(rename = "period_ns", with = "AsNs")]
    pub period: Duration,
    /// The longest time that a task will be stopped: the granularity that a program can notice.
    #[serde(rename = "longest_stall_ns", with = "AsNs")]
    pub longest_stall: Duration,
    /// What the user should know about this demand on this host; not part of its JSON.
    #[serde(skip)]
    pub notes: Vec<String>,
}

impl Expected {
    /// Without notes.
    pub fn new(error: f64, period: Duration, longest_stall: Duration) -> Self {
        Self { error, period, longest_stall, notes: Vec::new() }
    }
}

/// One way of making tasks run as on a slower CPU.
///
/// Implementors keep to this contract:
/// - [`check`](Self::check) never changes the machine and reads nothing but `host` and `demand`;
/// - the plan records each change in the journal before it makes it, so that whatever interrupts it, the journal alone can
///   undo it; on error it may leave changes for the journal to undo;
/// - the emulation never lets tasks run at full speed in silence: what it cannot deliver is an error when it begins, or a
///   problem in its status.
pub trait Method: Sync {
    /// Its name.
    fn id(&self) -> MethodId;

    /// What it is.
    fn about(&self) -> &'static About;

    /// Whether it can do `demand` on `host`, how well, and all that was worked out to say so.
    ///
    /// # Errors
    /// The first thing that is missing, by name, with a hint.
    fn check(&self, host: &Host, demand: &Demand) -> Result<Plan, Unavailable>;
}

/// How a method will meet a demand on a host: worked out once, carried out any number of times.
pub struct Plan {
    expected: Expected,
    engage: Box<Engage>,
}

/// What begins an emulation of the zone, whose demand is the one that was checked.
type Engage = dyn Fn(&Host, &Zone, &Journal) -> Result<Box<dyn Emulation>> + Send + Sync;

impl Plan {
    /// What is to be expected, and what carries it out.
    pub fn new(
        expected: Expected,
        engage: impl Fn(&Host, &Zone, &Journal) -> Result<Box<dyn Emulation>> + Send + Sync + 'static,
    ) -> Self {
        Self { expected, engage: Box::new(engage) }
    }

    /// What is to be expected.
    pub fn expected(&self) -> &Expected {
        &self.expected
    }

    pub(crate) fn expected_mut(&mut self) -> &mut Expected {
        &mut self.expected
    }

    /// On error, what had been changed is in the journal, to be undone by the caller.
    pub(crate) fn engage(&self, host: &Host, zone: &Zone, journal: &Journal) -> Result<Box<dyn Emulation>> {
        (self.engage)(host, zone, journal)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("expected", &self.expected).finish_non_exhaustive()
    }
}

/// A method at work on a zone.
///
/// Dropping it ends it like [`release`](Self::release), with errors ignored: the journal still has them.
#[must_use = "dropping an emulation ends it"]
pub trait Emulation: Send {
    /// Changes the targets within two periods, without a gap at full speed. They are for the CPUs that the zone has.
    ///
    /// # Errors
    /// The targets are out of reach; then nothing changes.
    fn retarget(&mut self, targets: &Targets) -> Result<()>;

    /// Changes the targets to `free`, 100 % of each CPU, for a time in which the tasks are not slowed, up to the next
    /// [`retarget`](Self::retarget). The tasks outside of the zone are as without the emulation.
    ///
    /// # Errors
    /// As [`retarget`](Self::retarget).
    fn pause(&mut self, free: &Targets) -> Result<()> {
        self.retarget(free)
    }

    /// What is delivered now, as far as the method can know.
    fn status(&self) -> Status;

    /// The length of one on/off cycle, with the targets that were given last. Asked for at each change of them, so that a
    /// method whose status takes its time tells it without.
    fn period(&self) -> Duration {
        self.status().period
    }

    /// For which part of the time a method that moves the clock lets tasks run, with the targets that were given last.
    fn running(&self) -> f64 {
        1.0
    }

    /// Has the method look for tasks that others have moved into the zone's cgroup, or bound to its CPUs. It is as for tasks
    /// that were there before from the next period on.
    fn look(&self) {}

    /// Stops the controllers; tasks run freely afterwards. Files and groups are left to the journal.
    ///
    /// # Errors
    /// A controller had failed, or tasks could not be resumed.
    fn release(self: Box<Self>) -> Result<()>;
}

/// Every method, in the order in which they are listed.
pub static METHODS: &[&dyn Method] = &[
    &cpu_freq::CpuFreq,
    &cpu_gov::CpuGov,
    &cpu_hogs::CpuHogs,
    &fracas::Fracas::PER_CPU,
    &fracas::Fracas::PUBLISHED,
    &fracas::FracasShares,
    &cpu_lim::CpuLim,
    &cpu_lim::CpuLimPublished,
    &cpu_freeze::CpuFreeze,
];

/// The names of the methods, for code that tells of one, such as a table of what was published.
pub mod ids {
    use super::{cpu_freeze, cpu_freq, cpu_gov, cpu_hogs, cpu_lim, fracas};
    use crate::method_id::MethodId;

    /// `cpu-freq`
    pub const CPU_FREQ: MethodId = cpu_freq::ID;
    /// `cpu-gov`
    pub const CPU_GOV: MethodId = cpu_gov::ID;
    /// `cpu-hogs`
    pub const CPU_HOGS: MethodId = cpu_hogs::ID;
    /// `fracas`
    pub const FRACAS: MethodId = fracas::ID;
    /// `fracas:published`
    pub const FRACAS_PUBLISHED: MethodId = fracas::ID_PUBLISHED;
    /// `fracas:shares`
    pub const FRACAS_SHARES: MethodId = fracas::ID_SHARES;
    /// `cpu-lim`
    pub const CPU_LIM: MethodId = cpu_lim::ID;
    /// `cpu-lim:published`
    pub const CPU_LIM_PUBLISHED: MethodId = cpu_lim::ID_PUBLISHED;
    /// `cpu-freeze`
    pub const CPU_FREEZE: MethodId = cpu_freeze::ID;
}

/// The method of that name.
pub fn method(id: MethodId) -> Option<&'static dyn Method> {
    METHODS.iter().copied().find(|method| method.id() == id)
}

/// The method of that name, as somebody has typed it.
///
/// # Errors
/// Usage: there is none; the hint names the nearest, or all.
pub fn find(name: &str) -> Result<&'static dyn Method> {
    let names = || METHODS.iter().map(|method| method.id().as_str());
    METHODS.iter().copied().find(|method| method.id().as_str() == name).ok_or_else(|| {
        let hint = nearest_hint(name, names(), format!("one of {}", names().collect::<Vec<_>>().join(", ")));
        Error::usage(format!("there is no method `{name}`")).hint(hint)
    })
}

pub(crate) fn same_cpus(old: &Targets, new: &Targets) -> Result<()> {
    if old.keys().eq(new.keys()) {
        return Ok(());
    }
    Err(Error::usage("new speeds must be for the CPUs that the zone has")
        .hint("end the emulation and start another one to change the CPUs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing;
    use crate::speed::Target;

    #[test]
    fn every_method_has_a_name_of_its_own_and_says_what_it_is() {
        let mut names: Vec<_> = METHODS.iter().map(|method| method.id().as_str()).collect();
        for method in METHODS {
            let about = method.about();
            assert!(!about.summary.is_empty() && !about.needs.is_empty() && !about.source.is_empty());
            assert!(!about.limits.is_empty(), "{} has limits", method.id());
            assert_eq!(find(method.id().as_str()).unwrap().id(), method.id());
            assert_eq!(method.id().as_str().contains(':'), about.has(Trait::Published), "{}", method.id());
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METHODS.len());
    }

    #[test]
    fn the_expected_error_bounds_records_and_orders_methods() {
        let host = testing::host();
        let expected = |id: &str, share: f64, cpus: usize, period_ms: u64| {
            let targets = (0..cpus).map(|cpu| (cpu, Target { share, clock: None })).collect();
            let demand = Demand { period: Some(Duration::from_millis(period_ms)), ..Demand::new(targets) };
            find(id).unwrap().check(&host, &demand).unwrap().expected().error
        };
        // The largest medians of benches/results/*/summary.md for one thread on each CPU, in percent.
        for (id, percent, cpus, period_ms, seen) in [
            ("cpu-hogs", 5, 1, 10, 0.57),
            ("cpu-hogs", 10, 1, 1, 1.61),
            ("cpu-hogs", 75, 1, 10, 0.36),
            ("cpu-hogs", 10, 2, 10, 3.04),
            ("cpu-hogs", 25, 2, 10, 1.28),
            ("cpu-hogs", 50, 2, 10, 0.60),
            ("fracas", 5, 1, 100, 1.53),
            ("fracas", 10, 1, 20, 1.28),
            ("fracas", 25, 1, 100, 0.81),
            ("fracas", 25, 2, 20, 1.75),
            ("fracas", 5, 1, 20, 3.57),
            ("fracas", 75, 1, 20, 0.68),
            ("fracas", 75, 2, 20, 0.67),
            ("cpu-freeze", 5, 1, 20, 2.11),
            ("cpu-freeze", 5, 1, 100, 1.61),
            ("cpu-freeze", 25, 1, 100, 1.08),
            ("cpu-freeze", 25, 1, 20, 1.51),
            ("cpu-freeze", 50, 1, 20, 1.22),
            ("cpu-freeze", 25, 2, 20, 1.81),
        ] {
            let expected = 100.0 * expected(id, f64::from(percent) / 100.0, cpus, period_ms);
            assert!(expected >= seen, "{id} {percent}% on {cpus} CPUs, {period_ms} ms: {expected} < {seen}");
        }
        for (cpus, percent) in [1, 2].into_iter().flat_map(|cpus| (5..=95).step_by(5).map(move |p| (cpus, p)))
        {
            let error = |id| expected(id, f64::from(percent) / 100.0, cpus, 20);
            let ordered = ["cpu-hogs", "fracas", "cpu-freeze"].map(error);
            // Where hardly any time is left out of a period, fracas begins too slow.
            let is_fracas_apart = ordered[1] > 0.03;
            assert!(ordered[0] < ordered[2], "{percent}% on {cpus} CPUs: {ordered:?}");
            assert!(is_fracas_apart || ordered.is_sorted(), "{percent}% on {cpus} CPUs: {ordered:?}");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest() {
        let hint = |name: &str| find(name).err().unwrap().hint_text().unwrap();
        assert_eq!(hint("cpu-frog"), "did you mean `cpu-freq`?");
        assert_eq!(hint("fracas:publish"), "did you mean `fracas:published`?");
        assert!(hint("snail").starts_with("one of cpu-freq, cpu-gov,"));
    }
}

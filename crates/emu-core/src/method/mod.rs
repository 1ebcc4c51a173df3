//! The methods and their registry. One file for each; no file here imports another method.

mod cpu_freeze;
mod cpu_freq;
mod cpu_gov;
mod cpu_hogs;
mod cpu_lim;
mod fracas;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::host::Host;
use crate::method_id::MethodId;
use crate::speed::Targets;
use crate::status::Status;
use crate::unavailable::{Reason, Unavailable};
use crate::undo::Journal;
use crate::zone::{Demand, Variant, Zone};

/// What a method is, the same on every host.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct About {
    /// What it does, in one line.
    pub summary: &'static str,
    /// What it acts on: `CPU`, `cgroup` or `processes`.
    pub acts_on: &'static str,
    /// Whether any speed can be had, not only those the hardware has.
    pub continuous: bool,
    /// What it needs of the host and the caller.
    pub needs: &'static str,
    /// What it cannot do or gets wrong, known beforehand.
    pub limits: &'static [&'static str],
    /// Where it comes from.
    pub source: &'static str,
}

/// What can be expected of a method for a demand on a host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Expected {
    /// Expected relative error of the perceived speed of CPU-bound work, e.g. 0.01: an estimate for CPU-bound work, from
    /// records on virtual machines; `emu verify` measures this host.
    pub error: f64,
    /// Length of one on/off cycle that will be used; zero for methods without one.
    pub period: Duration,
    /// The longest time that a task will be held: the granularity that a program can notice.
    pub longest_stall: Duration,
    /// What the user should know about this demand on this host.
    pub notes: Vec<String>,
}

/// One way of making tasks run as on a slower CPU.
///
/// Implementors keep to this contract:
/// - [`check`](Self::check) never changes the machine and reads nothing but `host` and `demand`;
/// - [`engage`](Self::engage) records each change in the journal before it makes it, so that whatever
///   interrupts it, the journal alone can undo it; on error it may leave changes for the journal to undo;
/// - the emulation never lets tasks run at full speed in silence: what it cannot deliver is an error at
///   engage, or a problem in its status.
pub trait Method: Sync {
    /// Its name.
    fn id(&self) -> MethodId;

    /// What it is.
    fn about(&self) -> &'static About;

    /// Whether it can do `demand` on `host`, and how well.
    ///
    /// # Errors
    /// The first thing that is missing, by name, with a hint.
    fn check(&self, host: &Host, demand: &Demand) -> Result<Expected, Unavailable>;

    /// Starts emulating.
    ///
    /// # Errors
    /// The kernel refused a step. What had been changed is in the journal, to be undone by the caller.
    fn engage(&self, host: &Host, zone: &Zone, journal: &Journal) -> Result<Box<dyn Emulation>>;
}

/// A method at work on a zone.
///
/// Dropping it ends it like [`release`](Self::release), with errors ignored: the journal still has them.
#[must_use = "dropping an emulation ends it"]
pub trait Emulation: Send {
    /// Changes the targets of the zone's CPUs within two periods, without a gap at full speed.
    ///
    /// # Errors
    /// The targets are not for the zone's CPUs, or out of reach; then nothing changes.
    fn retarget(&mut self, targets: &Targets) -> Result<()>;

    /// What is delivered now, as far as the method can know.
    fn status(&self) -> Status;

    /// Stops the controllers; tasks run freely afterwards. Files and groups are left to the journal.
    ///
    /// # Errors
    /// A controller had failed, or tasks could not be let go.
    fn release(self: Box<Self>) -> Result<()>;
}

/// Every method, in the order in which they are listed.
pub static METHODS: &[&dyn Method] = &[
    &cpu_freq::CpuFreq,
    &cpu_gov::CpuGov,
    &cpu_hogs::CpuHogs,
    &fracas::Fracas,
    &cpu_lim::CpuLim,
    &cpu_freeze::CpuFreeze,
];

/// The method of that name.
pub fn method(id: MethodId) -> Option<&'static dyn Method> {
    METHODS.iter().copied().find(|method| method.id() == id)
}

/// Refuses variants other than the best, for methods that have just that one.
fn only_best(variant: Variant) -> Result<(), Unavailable> {
    match variant {
        Variant::Best => Ok(()),
        Variant::Published | Variant::Shares => Err(Unavailable::new(
            Reason::NoVariant,
            format!("it has no variant `{variant}`"),
            "leave out --variant; `published` is for cpu-lim and fracas, `shares` for fracas",
        )),
    }
}

/// Whether new targets are for the CPUs of the old ones, as retargeting demands.
fn same_cpus(old: &Targets, new: &Targets) -> Result<()> {
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
        assert!(METHODS.iter().map(|method| method.id()).eq(MethodId::ALL));
        let mut names = MethodId::ALL.map(MethodId::as_str).to_vec();
        for method in METHODS {
            let about = method.about();
            assert!(!about.summary.is_empty() && !about.needs.is_empty() && !about.source.is_empty());
            assert!(!about.limits.is_empty(), "{} has limits", method.id());
            assert_eq!(method.id().as_str().parse::<MethodId>().unwrap(), method.id());
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METHODS.len());
    }

    #[test]
    fn the_expected_error_bounds_what_records_show_and_orders_the_methods() {
        let host = testing::host();
        let expected = |id: MethodId, share: f64, cpus: usize, period_ms: u64| {
            let targets = (0..cpus).map(|cpu| (cpu, Target { share, clock: None })).collect();
            let demand = Demand { period: Some(Duration::from_millis(period_ms)), ..Demand::new(targets) };
            method(id).unwrap().check(&host, &demand).unwrap().error
        };
        // The largest medians of benches/results/*/summary.md for one thread on each CPU, in percent.
        for (id, percent, cpus, period_ms, seen) in [
            (MethodId::CpuHogs, 5, 1, 10, 0.57),
            (MethodId::CpuHogs, 10, 1, 1, 1.61),
            (MethodId::CpuHogs, 75, 1, 10, 0.36),
            (MethodId::CpuHogs, 10, 2, 10, 3.04),
            (MethodId::CpuHogs, 25, 2, 10, 1.28),
            (MethodId::CpuHogs, 50, 2, 10, 0.60),
            (MethodId::Fracas, 5, 1, 100, 1.53),
            (MethodId::Fracas, 10, 1, 20, 1.28),
            (MethodId::Fracas, 25, 1, 100, 0.81),
            (MethodId::Fracas, 25, 2, 20, 1.75),
            (MethodId::Fracas, 5, 1, 20, 3.57),
            (MethodId::Fracas, 75, 1, 20, 0.68),
            (MethodId::Fracas, 75, 2, 20, 0.67),
            (MethodId::CpuFreeze, 5, 1, 20, 2.11),
            (MethodId::CpuFreeze, 5, 1, 100, 1.61),
            (MethodId::CpuFreeze, 25, 1, 100, 1.08),
            (MethodId::CpuFreeze, 25, 1, 20, 1.51),
            (MethodId::CpuFreeze, 50, 1, 20, 1.22),
            (MethodId::CpuFreeze, 25, 2, 20, 1.81),
        ] {
            let expected = 100.0 * expected(id, f64::from(percent) / 100.0, cpus, period_ms);
            assert!(expected >= seen, "{id} {percent}% on {cpus} CPUs, {period_ms} ms: {expected} < {seen}");
        }
        for (cpus, percent) in [1, 2].into_iter().flat_map(|cpus| (5..=95).step_by(5).map(move |p| (cpus, p)))
        {
            let error = |id| expected(id, f64::from(percent) / 100.0, cpus, 20);
            let ordered = [MethodId::CpuHogs, MethodId::Fracas, MethodId::CpuFreeze].map(error);
            // Where hardly any time is left out of a period, fracas begins too slow.
            let is_fracas_apart = ordered[1] > 0.03;
            assert!(ordered[0] < ordered[2], "{percent}% on {cpus} CPUs: {ordered:?}");
            assert!(is_fracas_apart || ordered.is_sorted(), "{percent}% on {cpus} CPUs: {ordered:?}");
        }
    }

    #[test]
    fn an_unknown_method_is_refused_with_the_names_there_are() {
        let error = "cpu-frog".parse::<MethodId>().unwrap_err();
        assert!(error.hint_text().unwrap().contains("cpu-freq"));
    }
}

//! The methods and their registry. One file for each; no file here imports another method.

mod cpu_freeze;
mod cpu_freq;
mod cpu_gov;
mod cpu_hogs;
mod cpu_lim;
mod fracas;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Demand, Error, ErrorKind, Hertz, Host, Journal, Result, Target, Targets, Variant, Zone};

/// The name of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MethodId {
    /// Nearest hardware frequency.
    CpuFreq,
    /// Two neighbouring hardware frequencies in turn.
    CpuGov,
    /// Real-time burners.
    CpuHogs,
    /// Bandwidth of a cgroup.
    Fracas,
    /// Stop and continue signals.
    CpuLim,
    /// Cgroup freezer.
    CpuFreeze,
}

impl MethodId {
    /// The name as on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CpuFreq => "cpu-freq",
            Self::CpuGov => "cpu-gov",
            Self::CpuHogs => "cpu-hogs",
            Self::Fracas => "fracas",
            Self::CpuLim => "cpu-lim",
            Self::CpuFreeze => "cpu-freeze",
        }
    }
}

impl fmt::Display for MethodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for MethodId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        METHODS.iter().map(|method| method.id()).find(|id| id.as_str() == text).ok_or_else(|| {
            let names: Vec<_> = METHODS.iter().map(|method| method.id().as_str()).collect();
            Error::usage(format!("there is no method `{text}`"))
                .hint(format!("one of {}, auto", names.join(", ")))
        })
    }
}

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
    /// Expected relative error of the perceived speed of CPU-bound work, e.g. 0.01.
    pub error: f64,
    /// Length of one on/off cycle that will be used; zero for methods without one.
    pub period: Duration,
    /// The longest time that a task will be held: the granularity that a program can notice.
    pub longest_stall: Duration,
    /// What the user should know about this demand on this host.
    pub notes: Vec<String>,
}

/// Why a method cannot do what is asked, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// The kernel offers no control of the CPU frequency.
    NoCpufreq,
    /// A cgroup controller is missing or cannot be used by the caller.
    NoController,
    /// The caller lacks a capability or a file permission.
    NoPrivilege,
    /// The kernel's limit for real-time tasks is in the way.
    RealTimeLimit,
    /// The speed is out of the method's reach.
    SpeedOutOfReach,
    /// The period is out of the method's reach.
    PeriodOutOfReach,
    /// It cannot give different speeds to different CPUs.
    UnequalSpeeds,
    /// It has no such variant.
    NoVariant,
    /// It slows all tasks of a CPU, and was to spare those outside the zone.
    SlowsOthers,
    /// A kernel interface is missing, or too old.
    KernelTooOld,
}

/// A method's refusal: what is missing, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{detail}")]
pub struct Unavailable {
    /// The reason by name.
    pub reason: Reason,
    /// The reason in words, with the object and value concerned.
    pub detail: String,
    /// What to do about it.
    pub hint: String,
}

impl Unavailable {
    /// A refusal.
    pub fn new(reason: Reason, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), hint: hint.into() }
    }

    /// As an error of the method.
    pub fn into_error(self, method: MethodId) -> Error {
        let kind = match self.reason {
            Reason::NoPrivilege => ErrorKind::NotPermitted,
            Reason::PeriodOutOfReach | Reason::NoVariant => ErrorKind::Usage,
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, format!("{method} cannot do this here: {}", self.detail)).hint(self.hint)
    }
}

/// One way of making tasks run as on a slower CPU.
///
/// Implementors keep to this contract:
/// - [`check`](Self::check) never changes the machine and reads nothing but `host` and `demand`;
/// - [`engage`](Self::engage) records each change in the journal before it makes it, so that whatever
///   interrupts it, the journal alone can undo it; on error it may leave changes for the journal to undo;
/// - the emulation never lets tasks run at full speed in silence: what it cannot deliver is an error at
///   engage, or a note in its status.
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

/// What an emulation asks, does and costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The method at work.
    pub method: MethodId,
    /// Length of one on/off cycle, with many tasks of the present one; zero for methods without one.
    pub period: Duration,
    /// Cycles since the start.
    pub periods: u64,
    /// Cycles that were skipped because the controller came too late.
    pub missed: u64,
    /// The longest time for which tasks were held at a stretch.
    pub longest_stall: Duration,
    /// CPU time used by emu itself, beyond what it burns on purpose.
    pub own_cpu: Duration,
    /// CPU time burned on purpose, summed over CPUs.
    pub burned: Duration,
    /// Share of the zone's CPUs that tasks outside it had, where they are spared: other shares are of the rest.
    #[serde(default)]
    pub others: Option<f64>,
    /// Each CPU of the zone.
    pub cpus: Vec<CpuStatus>,
    /// What went otherwise than asked, in words; empty when all is well.
    pub notes: Vec<String>,
}

impl Status {
    /// Of a method that has counted nothing yet, and tells of no CPU.
    pub(crate) fn new(method: MethodId, period: Duration) -> Self {
        Self {
            method,
            period,
            periods: 0,
            missed: 0,
            longest_stall: Duration::ZERO,
            own_cpu: Duration::ZERO,
            burned: Duration::ZERO,
            others: None,
            cpus: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// What is asked and delivered on one CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuStatus {
    /// Which CPU.
    pub cpu: crate::CpuId,
    /// What was asked for.
    pub asked: Target,
    /// The share that the method delivers by its own account, averaged since the last change of target.
    pub effective: f64,
    /// The share of time in which tasks may run; differs from `effective` where costs are compensated.
    pub duty: f64,
    /// The core clock measured last, where the method measures it.
    pub clock: Option<Hertz>,
    /// Whether the CPU is still online.
    pub online: bool,
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

    #[test]
    fn every_method_has_a_name_of_its_own_and_says_what_it_is() {
        let mut names: Vec<_> = METHODS.iter().map(|method| method.id().as_str()).collect();
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
    fn an_unknown_method_is_refused_with_the_names_there_are() {
        let error = "cpu-frog".parse::<MethodId>().unwrap_err();
        assert!(error.hint_text().unwrap().contains("cpu-freq"));
    }
}

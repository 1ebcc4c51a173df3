//! Whether this machine gives the same result twice: what moves it, and holding that still.
//!
//! A *knob* is something of the machine that makes runs of the same work differ. [`examine`] tells what is found of
//! each and what would be better; [`Tuning`] changes those that can be changed while it lives, through the undo
//! journal.

mod finding;
mod knobs;
mod machine;
#[cfg(test)]
mod tests;
mod tuning;

pub use finding::{Change, Finding, State};
pub use knobs::throttling::throttled;
pub use machine::{Load, Machine};
pub use tuning::{Refused, Tuned, Tuning};

use serde::Serialize;

use crate::{Error, Result};

/// What a knob is, the same on every host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct About {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is better for repeatable runs.
    pub better: &'static str,
    /// Why that is better, and what it costs.
    pub why: &'static str,
    /// Who says so.
    pub source: &'static str,
    /// What it takes to change it.
    pub takes: Takes,
}

/// What it takes to change a knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Takes {
    /// A write to the running kernel, which [`Tuning`] makes and undoes.
    Tuning,
    /// Something that has to be done by hand, on the running system.
    Hand,
    /// A parameter of the kernel's command line, and so a reboot.
    Reboot,
    /// It cannot be changed from here.
    Nothing,
}

/// One knob. A new one is a file in `knobs` and a line in [`KNOBS`].
pub trait Knob: Sync {
    /// What it is.
    fn about(&self) -> &'static About;

    /// What is found of it, and which changes would make it better. Reads only, and never fails: what cannot be
    /// seen is a finding with its reason.
    fn look(&self, machine: &Machine) -> Finding;
}

/// All knobs, in the order in which they are changed. The preference for energy comes before the governor, which
/// may forbid to change it, and turbo after it, as some kernels allow turbo again with a new governor.
pub const KNOBS: &[&dyn Knob] = &[
    &knobs::driver::Driver,
    &knobs::epp::Epp,
    &knobs::governor::Governor,
    &knobs::turbo::Turbo,
    &knobs::clock::Clock,
    &knobs::throttling::Throttling,
    &knobs::smt::Smt,
    &knobs::c_states::CStates,
    &knobs::idle_driver::IdleDriver,
    &knobs::isolation::Isolation,
    &knobs::nohz_full::NohzFull,
    &knobs::irq_affinity::IrqAffinity,
    &knobs::aslr::Aslr,
    &knobs::swap::Swap,
    &knobs::thp::ENABLED,
    &knobs::thp::DEFRAG,
    &knobs::timer_slack::TimerSlack,
    &knobs::clocksource::Clocksource,
    &knobs::rt_limit::RtLimit,
    &knobs::cgroup::Cgroup,
    &knobs::load::OtherLoad,
    &knobs::load::Steal,
    &knobs::virtualisation::Virtualisation,
];

/// The knob of that name.
///
/// # Errors
/// There is none.
pub fn knob(name: &str) -> Result<&'static dyn Knob> {
    KNOBS.iter().find(|knob| knob.about().name == name).copied().ok_or_else(|| {
        let names: Vec<_> = KNOBS.iter().map(|knob| knob.about().name).collect();
        Error::usage(format!("there is no knob `{name}`")).hint(format!("one of {}", names.join(", ")))
    })
}

/// A knob as found on a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Examined {
    /// What it is.
    #[serde(flatten)]
    pub about: &'static About,
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// Why this process could not make the changes, where it could not.
    pub not_permitted: Option<String>,
}

impl Examined {
    /// Looks at one knob.
    pub fn new(knob: &dyn Knob, machine: &Machine) -> Self {
        let finding = knob.look(machine);
        let not_permitted = finding.changes.iter().find_map(Change::obstacle);
        Self { about: knob.about(), finding, not_permitted }
    }

    /// Whether a [`Tuning`] by this process would change it.
    pub fn is_tunable(&self) -> bool {
        !self.finding.changes.is_empty() && self.not_permitted.is_none()
    }
}

/// Looks at all knobs.
pub fn examine(machine: &Machine) -> Vec<Examined> {
    KNOBS.iter().map(|knob| Examined::new(*knob, machine)).collect()
}

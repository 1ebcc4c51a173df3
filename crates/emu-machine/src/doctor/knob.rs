//! What a knob is.

use schemars::JsonSchema;
use serde::Serialize;

use super::finding::Finding;
use super::machine::Machine;

/// One knob, the same on every host. A new one is a file in `knobs` and a line in [`KNOBS`](super::KNOBS).
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct Knob {
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
    /// What is found of it, and which changes would make it better. Reads only, and never fails: what cannot be seen is a
    /// finding with its reason.
    #[serde(skip)]
    pub look: fn(&Machine) -> Finding,
}

/// What it takes to change a knob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Takes {
    /// A write to the running kernel, which [`Tuning`](super::Tuning) makes and undoes.
    Tuning,
    /// Something that has to be done by hand, on the running system.
    Hand,
    /// A parameter of the kernel's command line, and so a reboot.
    Reboot,
    /// It cannot be changed from here.
    Nothing,
}

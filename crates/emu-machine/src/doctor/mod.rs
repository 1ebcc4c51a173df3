//! Whether this machine gives the same result twice: what moves it, and holding that still.
//!
//! A *knob* is something of the machine that makes runs of the same work differ. [`examine`] tells what is found of
//! each and what would be better; [`Tuning`] changes those that can be changed while it lives, through the undo
//! journal.

pub mod effects;
mod finding;
mod knob;
mod knobs;
mod machine;
#[cfg(test)]
mod tests;
mod tuning;

pub use finding::{Change, Finding, State};
pub use knob::{Knob, Takes};
pub use knobs::throttling::throttled;
pub use knobs::{KNOBS, knob};
pub use machine::{Load, Machine};
pub use tuning::{Refused, Tuned, Tuning};

use emu_core::Result;
use schemars::JsonSchema;
use serde::Serialize;

/// A knob as found on a machine.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Examined {
    /// What it is.
    #[serde(flatten)]
    pub about: &'static Knob,
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// Why this process could not make the changes, where it could not.
    pub not_permitted: Option<String>,
}

impl Examined {
    /// Looks at one knob.
    pub fn new(knob: &'static Knob, machine: &Machine) -> Self {
        let finding = (knob.look)(machine);
        let not_permitted = finding.changes.iter().find_map(Change::obstacle);
        Self { about: knob, finding, not_permitted }
    }
}

/// Looks at the knobs of these names, or at all where none is named, in the order in which they are changed.
///
/// # Errors
/// There is no knob of a name.
pub fn examine(machine: &Machine, names: &[String]) -> Result<Vec<Examined>> {
    names.iter().try_for_each(|name| knob(name).map(drop))?;
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    Ok(KNOBS.iter().filter(|knob| wanted(knob.name)).map(|knob| Examined::new(knob, machine)).collect())
}

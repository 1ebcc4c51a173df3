//! Measurements of the machine itself: whether it may be trusted, and what it can do.
//!
//! Each has a plan, a function that measures by it, and a result that holds every raw sample.

pub mod knobs;
pub mod noise;
mod process;
pub mod timers;

pub use process::answer;

use std::time::Duration;

use emu_core::{Error, ErrorKind, Result};
use serde::Serialize;

/// What a measurement tells whoever watches it, between samples.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    /// What comes next.
    Next {
        /// What is measured.
        what: &'a str,
        /// About how long the rest of the measurement takes.
        left: Duration,
    },
    /// A raw sample was taken.
    Sample {
        /// The row that it belongs to.
        row: &'a str,
        /// The sample, in the form of that row.
        sample: serde_json::Value,
    },
}

/// Watches a measurement; an error ends it.
pub type Watch<'a> = &'a mut dyn FnMut(Event<'_>) -> Result<()>;

/// Tells of a sample.
fn tell(watch: Watch<'_>, row: &str, sample: &impl Serialize) -> Result<()> {
    let sample = serde_json::to_value(sample)
        .map_err(|cause| Error::new(ErrorKind::Failed, "cannot write a sample as JSON").caused_by(cause))?;
    watch(Event::Sample { row, sample })
}

//! Measurements of the machine itself: whether it may be trusted, and what it can do.
//!
//! Each has a plan, a function that measures by it, and a result that holds every raw sample.

pub mod calibrate;
pub mod cpu;
pub mod disk;
pub mod hpcc;
pub mod knobs;
pub mod memory;
pub mod noise;
mod process;
pub mod series;
pub mod timers;

pub use process::answer;

use std::time::Duration;

use emu_core::{CpuList, Error, ErrorKind, Host, Result};
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

/// Where so many threads run: each on a CPU of its own, or on any where they are more than CPUs.
pub(crate) fn places(host: &Host, threads: usize) -> Vec<CpuList> {
    if threads > host.allowed.len() {
        return vec![host.allowed.clone(); threads];
    }
    host.allowed.iter().take(threads).map(|cpu| [cpu].into_iter().collect()).collect()
}

/// 1, 2, 4 … threads, as many as there are CPUs.
pub(crate) fn powers_of_two(host: &Host) -> Vec<usize> {
    std::iter::successors(Some(1), |count| Some(count * 2))
        .take_while(|count| *count <= host.allowed.len())
        .collect()
}

/// One thread, and as many as there are CPUs.
pub(crate) fn one_and_all(host: &Host) -> Vec<usize> {
    let all = host.allowed.len();
    if all > 1 { vec![1, all] } else { vec![1] }
}

/// The most threads that are measured.
const THREADS_MAX: usize = 256;

/// Whether numbers of threads make sense.
///
/// # Errors
/// Usage, where one does not, or there is none.
pub(crate) fn check_threads(threads: &[usize]) -> Result<()> {
    if !threads.is_empty() && threads.iter().all(|count| (1..=THREADS_MAX).contains(count)) {
        return Ok(());
    }
    Err(Error::usage("bad number of threads").hint(format!("give whole numbers from 1 to {THREADS_MAX}")))
}

/// What was measured in another order, in that of the numbers.
pub(crate) fn in_order<T>(mut numbered: Vec<(usize, T)>) -> Vec<T> {
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, one)| one).collect()
}

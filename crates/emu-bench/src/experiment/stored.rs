//! What an experiment writes while it runs, and how it is read back.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Experiment;
use super::blocks::UNTIL_DECIDED;
use super::matrix::REPETITIONS_MAX;
use crate::record::{About, Line, Lines, unusable};
use crate::verify::{Delivery, Pair, Spectrum, Window};
use crate::workload::workload;

pub(super) const TAKEN: &str = "pair";
pub(super) const SEEN: &str = "spectrum";
pub(super) const FAILURE: &str = "failure";
pub(super) const END: &str = "end";

/// No pair is planned to take longer.
const PAIR_TIME_MAX: Duration = Duration::from_secs(86_400);

/// A pair that was taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Taken {
    /// Its cell, by place.
    pub cell: usize,
    /// Which pair of the cell; one that is taken again keeps it.
    pub repetition: usize,
    /// Time of the pair beyond its windows and the time to settle before them, in nanoseconds.
    pub outside_ns: u64,
    /// The windows.
    pub pair: Pair,
}

/// How smoothly work progressed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Seen {
    /// Its cell, by place.
    pub cell: usize,
    /// The spectrum.
    pub spectrum: Spectrum,
}

/// What could not be measured after all; the cell is left out from then on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// Its cell, by place.
    pub cell: usize,
    /// What went wrong.
    pub why: String,
    /// What can be done about it.
    pub hint: Option<String>,
}

/// The run has come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// The blocks that were measured; fewer than planned where the budget was used up.
    pub blocks: usize,
}

/// All rows of an experiment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows {
    /// Every pair, disturbed ones included, in the order of time.
    pub taken: Vec<Taken>,
    /// The spectra.
    pub seen: Vec<Seen>,
    /// What failed.
    pub failures: Vec<Failure>,
    /// `None` while the run is not complete.
    pub end: Option<End>,
}

impl Experiment {
    /// The experiment of a record and its rows. Samples that cannot have been measured are refused: negative ones, those of a
    /// cell that is not planned, the same one twice.
    pub fn stored(folder: &Path, about: &About, lines: &Lines) -> Result<(Self, Rows)> {
        let experiment = about.experiment.clone().ok_or_else(|| {
            unusable(folder, "it is not one of `emu bench`")
                .hint("records of measurements have their tables and figures with them, those of cargo bench a summary.md")
        })?;
        experiment.check().map_err(|what| damaged(folder, &what))?;
        let mut rows = Rows::default();
        let mut kept = BTreeSet::new();
        for (number, line) in lines.lines.iter().enumerate() {
            rows.add(line, &experiment, &mut kept)
                .map_err(|what| damaged(folder, &format!("sample {}: {what}", number + 1)))?;
        }
        Ok((experiment, rows))
    }

    fn check(&self) -> Result<(), String> {
        let sound = self.tolerance > 0.0 && self.tolerance < 1.0 && self.reference.0 > 0;
        if !sound || self.cells.is_empty() || self.repetitions > REPETITIONS_MAX {
            return Err("the experiment has no cells, no clock, no tolerance or too many repetitions".into());
        }
        for (number, cell) in self.cells.iter().enumerate() {
            let shares = cell.trial.shares.iter().map(|(_, share)| *share);
            let targets = cell.demand.targets.values().map(|target| target.share);
            if !shares.chain(targets).all(|share| share > 0.0 && share <= 1.0) {
                return Err(format!("cell {number} has a speed that is not above 0 and at most 1"));
            }
            if workload(cell.workload()).is_err() {
                return Err(format!("cell {number} is of a workload that there is not: {}", cell.workload()));
            }
            if cell.repetitions > REPETITIONS_MAX || cell.pair_time > PAIR_TIME_MAX {
                return Err(format!("cell {number} takes too long to have been planned"));
            }
            if cell.trial.shares.is_empty() || cell.cores() != cell.trial.shares.len() {
                return Err(format!("cell {number} does not tell its CPUs"));
            }
        }
        Ok(())
    }
}

impl Rows {
    fn add(
        &mut self,
        line: &Line,
        experiment: &Experiment,
        kept: &mut BTreeSet<(usize, usize)>,
    ) -> Result<(), String> {
        let known =
            |cell: usize| experiment.cells.get(cell).ok_or_else(|| format!("there is no cell {cell}"));
        if self.end.is_some() {
            return Err("it comes after the end".into());
        }
        match line.row.as_str() {
            TAKEN => {
                let taken: Taken = parse(line)?;
                let cell = known(taken.cell)?;
                let most = if experiment.budget.is_zero() { 0 } else { UNTIL_DECIDED };
                let most = cell.repetitions.max(most);
                if taken.repetition >= most {
                    return Err(format!("cell {} has no repetition {}", taken.cell, taken.repetition));
                }
                taken.pair.windows.iter().try_for_each(check_window)?;
                if taken.pair.sides().is_none() {
                    return Err("a pair has one native and one emulated window".into());
                }
                let (cell, repetition) = (taken.cell, taken.repetition);
                if taken.pair.kept && !kept.insert((cell, repetition)) {
                    return Err(format!("repetition {repetition} of cell {cell} is there twice"));
                }
                self.taken.push(taken);
            }
            SEEN => {
                let seen: Seen = parse(line)?;
                if !known(seen.cell)?.spectrum || self.seen.iter().any(|other| other.cell == seen.cell) {
                    return Err(format!("cell {} has no spectrum, or one already", seen.cell));
                }
                self.seen.push(seen);
            }
            FAILURE => {
                let failure: Failure = parse(line)?;
                known(failure.cell)?;
                if self.failures.iter().any(|other| other.cell == failure.cell) {
                    return Err(format!("cell {} has failed already", failure.cell));
                }
                self.failures.push(failure);
            }
            END => self.end = Some(parse(line)?),
            other => return Err(format!("there is no row `{other}`")),
        }
        Ok(())
    }
}

fn parse<T: DeserializeOwned>(line: &Line) -> Result<T, String> {
    T::deserialize(&line.sample).map_err(|cause| cause.to_string())
}

fn check_window(window: &Window) -> Result<(), String> {
    let done = &window.done;
    if done.ended_ns <= done.begun_ns {
        return Err("a window has no length".into());
    }
    // Of parts that are sound the sum may not be.
    let own = [done.rate(), done.quantum_ns, window.steal, window.harness_cpu_s];
    let numbers = done.parts.iter().copied().chain(own);
    let clocks = window.clock.iter().flat_map(|clock| [clock.before_hz, clock.after_hz]);
    let of_delivery = |delivery: &Delivery| {
        [delivery.wall_s, delivery.own_cpu_s, delivery.process_cpu_s, delivery.longest_stall_s]
    };
    let delivered = window.delivery.iter().flat_map(of_delivery);
    let numbers = numbers.chain([window.settled_s, window.throttled]).chain(window.foreign);
    let mut numbers = numbers.chain(clocks).chain(delivered);
    if let Some(bad) = numbers.find(|value| !(value.is_finite() && *value >= 0.0)) {
        return Err(format!("{bad} cannot have been measured"));
    }
    if window.delivery.as_ref().is_some_and(|delivery| delivery.wall_s <= 0.0) {
        return Err("an emulation has no length".into());
    }
    if done.parts.is_empty() {
        return Err("a window has no work".into());
    }
    Ok(())
}

fn damaged(folder: &Path, what: &str) -> Error {
    unusable(folder, what).hint("it was changed or damaged; measure again")
}

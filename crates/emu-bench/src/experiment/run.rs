//! Measuring, step by step, into a record.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use emu_core::{CpuList, Error, ErrorKind, Host, Result};

use super::blocks::{Step, again_in_block, all_steps};
use super::harness::Harness;
use super::stored::{self, End, Failure, Rows, Seen, Taken};
use super::{Cell, Experiment, NONE, methods};
use crate::external::{external, sweep};
use crate::record::{About, Machine, Record, unusable};
use crate::verify::{self, Emulated, Pair, Plan, Window, spectrum_of_periods};
use crate::workload::Job;

/// How often a disturbed pair is taken again, and how often a cell may fail before it is left out.
const TAKEN_AGAIN: usize = 3;

/// A cell is decided early where its interval, widened by this factor, decides: stricter than at the end, and equally so at
/// each look (Pocock 1977, *Biometrika* 64: 1.3 for ten looks).
const EARLY: f64 = 1.5;

/// How much longer than its budget a run may take: the last block is often what an interval needs.
const OVERRUN: f64 = 1.05;

/// One disturbed pair in so many planned ones may be taken again. Where more are disturbed, so are those taken again.
const PAIRS_FOR_ONE_AGAIN: usize = 4;

/// An experiment under way.
#[derive(Debug)]
pub struct Run {
    host: Host,
    pub(crate) about: About,
    experiment: Experiment,
    record: Record,
    pub(crate) rows: Rows,
    /// Failures of each cell that may pass.
    failed_tries: BTreeMap<usize, usize>,
    began: Instant,
    expected: Duration,
    done: Duration,
}

/// How far a run is.
#[derive(Debug)]
pub struct Progress<'a> {
    /// What was just measured.
    pub cell: &'a Cell,
    /// Time that this is expected to take.
    pub time_left: Duration,
}

/// What is called before each step, while nothing is measured; its error ends the run, which may be resumed.
pub type Watch<'a> = &'a mut dyn FnMut(&Progress<'_>) -> Result<()>;

impl Run {
    /// A run that begins.
    pub fn new(host: &Host, about: About, experiment: Experiment, record: Record) -> Self {
        Self {
            host: host.clone(),
            about,
            experiment,
            record,
            rows: Rows::default(),
            failed_tries: BTreeMap::new(),
            began: Instant::now(),
            expected: Duration::ZERO,
            done: Duration::ZERO,
        }
    }

    /// A run that was cut short. The record must be of this machine and this emu: what they measure is not mixed.
    pub fn resume(host: &Host, folder: &Path) -> Result<Self> {
        let (record, about, lines) = Record::resume(folder)?;
        let (experiment, rows) = Experiment::stored(folder, &about, &lines)?;
        let here = Machine::of(host);
        if about.machine != here {
            let what = format!("it is of another machine ({})", about.machine.difference(&here));
            return Err(
                unusable(folder, what).hint("records of different machines are not mixed; begin a new one")
            );
        }
        if about.version != env!("CARGO_PKG_VERSION") {
            let what = format!("it is of emu {}, not {}", about.version, env!("CARGO_PKG_VERSION"));
            return Err(unusable(folder, what).hint("use the emu that began it, or begin a new record"));
        }
        Ok(Self { rows, ..Self::new(host, about, experiment, record) })
    }

    /// What is planned.
    pub fn experiment(&self) -> &Experiment {
        &self.experiment
    }

    /// Where the record is.
    pub fn folder(&self) -> &Path {
        self.record.folder()
    }

    /// Measures what has not been measured yet. A cell whose work has a wrong result, or that fails several times, is noted and
    /// left out.
    pub fn go(&mut self, watch: Watch<'_>) -> Result<()> {
        if self.rows.end.is_some() {
            return Ok(());
        }
        if self.experiment.cells.iter().any(|cell| external(cell.contender).is_some()) {
            sweep(&self.host);
        }
        let mut harness = Harness::new(&self.host);
        let kept = self.rows.taken.iter().filter(|taken| taken.pair.kept);
        let done: BTreeSet<_> = kept.map(|taken| (taken.cell, taken.repetition)).collect();
        let all = all_steps(&self.experiment);
        let mut todo: Vec<_> =
            all.into_iter().filter(|step| !done.contains(&(step.cell, step.repetition))).collect();
        let smooth: Vec<_> =
            (0..self.experiment.cells.len()).filter(|&cell| self.is_to_be_seen(cell)).collect();
        let seeing: Duration = smooth.iter().map(|&cell| self.seeing_time(cell)).sum();
        self.began = Instant::now();
        let planned = todo.iter().filter(|step| step.block < self.experiment.repetitions);
        self.expected = planned.map(|step| self.pair_time(step.cell)).sum::<Duration>() + seeing;
        let mut blocks = 0;
        let mut number = 0;
        while let Some(step) = todo.get(number).copied() {
            let is_new_block =
                number == 0 || todo.get(number - 1).is_some_and(|last| last.block < step.block);
            if is_new_block && step.block >= 2 {
                self.leave_out_decided(&mut todo, number)?;
                let Some(next) = todo.get(number) else { break };
                let of_block = todo.iter().skip(number).take_while(|step| step.block == next.block);
                let block_time: Duration = of_block.map(|step| self.pair_time(step.cell)).sum();
                if self.is_late(block_time + seeing) {
                    break;
                }
                if next.block > step.block {
                    continue;
                }
            }
            let Some(step) = todo.get(number).copied() else { break };
            blocks = step.block + 1;
            self.show(step.cell, watch)?;
            if !self.has_failed(step.cell) {
                harness.leave(&self.host, &step_cpus(&self.experiment, step.cell));
                if self.take(step, watch)? {
                    again_in_block(&mut todo, number);
                    number += 1;
                    continue;
                }
            }
            self.done += self.pair_time(step.cell);
            number += 1;
        }
        for cell in smooth {
            self.show(cell, watch)?;
            harness.leave(&self.host, &step_cpus(&self.experiment, cell));
            self.see(cell, watch)?;
            self.done += self.seeing_time(cell);
        }
        let end = End { blocks };
        self.record.sample(stored::END, &end)?;
        self.rows.end = Some(end);
        Ok(())
    }

    fn leave_out_decided(&self, todo: &mut Vec<Step>, from: usize) -> Result<()> {
        if self.experiment.budget.is_zero() {
            return Ok(());
        }
        let mut decided = BTreeSet::new();
        for cell in 0..self.experiment.cells.len() {
            if self.is_decided(cell)? {
                decided.insert(cell);
            }
        }
        let mut number = 0;
        todo.retain(|step| {
            number += 1;
            number <= from || !decided.contains(&step.cell)
        });
        Ok(())
    }

    /// Controls tell what can be decided at all, and so never do.
    fn is_decided(&self, number: usize) -> Result<bool> {
        let taken = self.rows.taken.iter().filter(|taken| taken.cell == number);
        let pairs: Vec<Pair> = taken.map(|taken| taken.pair.clone()).collect();
        let Some(cell) = self.cell(number) else { return Ok(true) };
        if cell.contender == NONE || pairs.iter().all(|pair| !pair.is_undisturbed()) {
            return Ok(false);
        }
        let plan = self.experiment.plan(cell, &self.host.roots.proc)?;
        let findings = verify::findings(&cell.trial, &pairs, &plan)?;
        Ok(findings.iter().all(|finding| finding.decides_widened(EARLY, plan.tolerance)))
    }

    /// Takes a pair, and tells whether it is to be taken again.
    fn take(&mut self, step: Step, watch: Watch<'_>) -> Result<bool> {
        let mut taken = match self.pair(step, watch) {
            Ok(taken) => taken,
            Err(why) => return self.fail(step.cell, why, watch),
        };
        taken.pair.kept = taken.pair.taints.is_empty() || !self.may_take_again(step);
        self.record.sample(stored::TAKEN, &taken)?;
        let is_to_be_taken_again = !taken.pair.kept;
        self.rows.taken.push(taken);
        Ok(is_to_be_taken_again)
    }

    fn pair(&self, step: Step, watch: Watch<'_>) -> Result<Taken> {
        let (cell, mut emulated, plan) = self.prepare(step.cell)?;
        let begin = Instant::now();
        let look = &mut || self.show(step.cell, watch);
        let pair = verify::take(&mut *emulated, &cell.trial, &plan, step.repetition, step.sides, look)?;
        let outside = begin.elapsed().saturating_sub(waited(&*emulated, &cell.trial.job, &plan, &pair));
        let outside_ns = outside.as_nanos() as u64;
        Ok(Taken { cell: step.cell, repetition: step.repetition, outside_ns, pair })
    }

    fn see(&mut self, number: usize, watch: Watch<'_>) -> Result<()> {
        loop {
            let seen = self.prepare(number).and_then(|(cell, mut emulated, mut plan)| {
                plan.repeats = TAKEN_AGAIN;
                let length = spectrum_of_periods(self.experiment.spectrum, cell.period);
                verify::spectrum(&mut *emulated, &cell.trial, &plan, length, &mut || self.show(number, watch))
            });
            match seen {
                Ok(spectrum) => {
                    let seen = Seen { cell: number, spectrum };
                    self.record.sample(stored::SEEN, &seen)?;
                    self.rows.seen.push(seen);
                    return Ok(());
                }
                Err(why) => {
                    if !self.fail(number, why, watch)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn prepare(&self, number: usize) -> Result<(&Cell, Box<dyn Emulated>, Plan)> {
        let cell = self.cell(number).ok_or_else(|| Error::usage(format!("there is no cell {number}")))?;
        let plan = self.experiment.plan(cell, &self.host.roots.proc)?;
        Ok((cell, methods::emulated(cell.contender, &self.host, &cell.demand)?, plan))
    }

    /// Whether a cell that failed is tried again: not after a wrong result, and otherwise only some times. The run itself ends
    /// where the machine is in disorder, or where it is to end anyway: a terminal sends its signals to the workers as well.
    fn fail(&mut self, cell: usize, why: Error, watch: Watch<'_>) -> Result<bool> {
        if why.kind() == ErrorKind::RestoreIncomplete {
            return Err(why);
        }
        self.show(cell, watch)?;
        let tries = self.failed_tries.entry(cell).or_default();
        *tries += 1;
        if may_be_tried_again(&why, *tries) {
            return Ok(true);
        }
        let failure = Failure { cell, why: why.in_words(), hint: why.hint_text() };
        self.record.sample(stored::FAILURE, &failure)?;
        self.rows.failures.push(failure);
        Ok(false)
    }

    fn show(&self, cell: usize, watch: Watch<'_>) -> Result<()> {
        let Some(cell) = self.cell(cell) else { return Ok(()) };
        let budget = self.experiment.budget;
        if !budget.is_zero() {
            let time_left = budget.saturating_sub(self.began.elapsed());
            return watch(&Progress { cell, time_left });
        }
        let left = self.expected.saturating_sub(self.done);
        // Until enough is done, the plan is the better guess.
        let pace = if self.done > Duration::from_secs(5) {
            self.began.elapsed().as_secs_f64() / self.done.as_secs_f64()
        } else {
            1.0
        };
        watch(&Progress { cell, time_left: left.mul_f64(pace) })
    }

    fn may_take_again(&self, step: Step) -> bool {
        let again = |taken: &&Taken| !taken.pair.kept;
        let of_step = |taken: &&Taken| (taken.cell, taken.repetition) == (step.cell, step.repetition);
        let all: usize = self.experiment.cells.iter().map(|cell| cell.repetitions).sum();
        let budget = all.div_ceil(PAIRS_FOR_ONE_AGAIN);
        !self.is_short_of_time()
            && self.rows.taken.iter().filter(again).count() < budget
            && self.rows.taken.iter().filter(again).filter(of_step).count() < TAKEN_AGAIN
    }

    fn is_short_of_time(&self) -> bool {
        let budget = self.experiment.budget;
        !budget.is_zero() && self.began.elapsed() + self.expected.saturating_sub(self.done) > budget
    }

    fn is_late(&self, more: Duration) -> bool {
        let budget = self.experiment.budget;
        !budget.is_zero() && self.began.elapsed() + more > budget.mul_f64(OVERRUN)
    }

    fn cell(&self, number: usize) -> Option<&Cell> {
        self.experiment.cells.get(number)
    }

    fn has_failed(&self, cell: usize) -> bool {
        self.rows.failures.iter().any(|failure| failure.cell == cell)
    }

    fn is_to_be_seen(&self, cell: usize) -> bool {
        self.cell(cell).is_some_and(|cell| cell.spectrum)
            && !self.has_failed(cell)
            && self.rows.seen.iter().all(|seen| seen.cell != cell)
    }

    fn pair_time(&self, cell: usize) -> Duration {
        self.cell(cell).map_or(Duration::ZERO, |cell| cell.pair_time)
    }

    fn seeing_time(&self, cell: usize) -> Duration {
        self.cell(cell).map_or(Duration::ZERO, |cell| self.experiment.seeing_time(cell))
    }
}

fn may_be_tried_again(why: &Error, tries: usize) -> bool {
    why.kind() != ErrorKind::WrongResult && tries <= TAKEN_AGAIN
}

fn step_cpus(experiment: &Experiment, cell: usize) -> CpuList {
    experiment.cells.get(cell).map(|cell| cell.trial.job.cpus.clone()).unwrap_or_default()
}

/// The planned time of a pair: its windows, and the lead and settling before them.
fn waited(emulated: &dyn Emulated, job: &Job, plan: &Plan, pair: &Pair) -> Duration {
    let of_window = |window: &Window| {
        let measured = Duration::from_secs_f64(window.done.wall_s() + window.settled_s);
        measured + plan.lead_of(window.side, emulated, job)
    };
    pair.windows.iter().map(of_window).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_result_ends_a_cell_a_passing_failure_is_retried() {
        let late = Error::new(ErrorKind::Failed, "the worker did not reply");
        let wrong = Error::new(ErrorKind::WrongResult, "wrong result");
        assert!(may_be_tried_again(&late, 1) && may_be_tried_again(&late, TAKEN_AGAIN));
        assert!(!may_be_tried_again(&late, TAKEN_AGAIN + 1) && !may_be_tried_again(&wrong, 1));
    }
}

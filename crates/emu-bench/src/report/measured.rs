//! Cells with their samples, and what is judged from them.

use std::path::Path;

use emu_core::{Error, Hertz, Result};

use super::results::{CellResult, Furthest, Ground, Judged, Rate};
use super::stored::Stored;
use crate::experiment::{Cell, Experiment, NONE, Taken, in_order};
use crate::stats::{self, Bootstrap, Fidelity, Interval, Level, LinearFit, PairedRatios, Sample, Verdict};
use crate::verify::{Pair, Plan, Side, Trial, Window, counting, findings, rates};

pub(super) struct Measured<'a> {
    experiment: &'a Experiment,
    pub(super) cell: &'a Cell,
    /// Each with the rounds of the records before its own.
    taken: Vec<(usize, &'a Taken)>,
}

impl Measured<'_> {
    fn pairs(&self) -> Vec<Pair> {
        let pair = |(before, taken): &(usize, &Taken)| Pair {
            number: before + taken.pair.number,
            ..taken.pair.clone()
        };
        self.taken.iter().map(pair).collect()
    }

    pub(super) fn rates(&self) -> Result<Vec<stats::Pair>> {
        Ok(self.numbered_rates()?.into_iter().map(|(_, pair)| pair).collect())
    }

    pub(super) fn numbered_rates(&self) -> Result<Vec<(usize, stats::Pair)>> {
        let plan = self.experiment.plan(self.cell, Path::new(""))?;
        rates(&self.cell.trial, &self.pairs(), &plan)
    }

    /// Those that figures are of.
    pub(super) fn windows(&self, side: Side) -> Vec<Window> {
        let pairs = self.pairs();
        let windows = counting(&pairs).into_iter().flat_map(|pair| &pair.windows);
        windows.filter(|window| window.side == side).cloned().collect()
    }

    pub(super) fn rates_of(&self, side: Side) -> Vec<f64> {
        self.windows(side).iter().map(|window| window.done.rate()).collect()
    }

    fn rate(&self, side: Side, seed: u64) -> Result<Rate> {
        let sample = Sample::new(self.rates_of(side))?;
        let per_cycle: Vec<f64> = self.windows(side).iter().filter_map(Window::work_per_cycle).collect();
        Ok(Rate {
            mean: Interval::of_mean(&sample, Level::P95).ok(),
            median: Interval::of_median(&sample, Level::P95, &Bootstrap::new(seed))?,
            mad: sample.mad(),
            per_cycle: Sample::new(per_cycle).ok().map(|sample| sample.median()),
        })
    }

    /// What was found, beside the controls of its ground.
    pub(super) fn result(&self, grounds: &[Ground]) -> Result<CellResult> {
        let (experiment, cell) = (self.experiment, self.cell);
        let plan: Plan = experiment.plan(cell, Path::new(""))?;
        let finding = findings(&cell.trial, &self.pairs(), &plan)?.into_iter().next();
        let mut finding = finding.ok_or_else(|| Error::usage("a cell has no CPU"))?;
        let ground = grounds.iter().find(|one| one.is_of(cell.workload(), cell.cores()));
        if let Some(controls) = ground.and_then(|ground| ground.aa).filter(|_| cell.contender != NONE) {
            finding = finding.with_controls(&controls, &plan)?;
        }
        Ok(CellResult {
            contender: cell.contender,
            workload: cell.workload().into(),
            cores: cell.cores(),
            share: cell.share(),
            emulated: Hertz((cell.share() * experiment.reference.as_f64()).round() as u64),
            period: cell.period,
            exclude_background: cell.demand.exclude_background,
            finding,
            native_rate: self.rate(Side::Native, experiment.seed)?,
            emulated_rate: self.rate(Side::Emulated, experiment.seed)?,
        })
    }
}

/// Cells with a pair that counts; equal cells of several records are taken together.
pub(super) fn measured(records: &[Stored]) -> Vec<Measured<'_>> {
    let mut all: Vec<Measured<'_>> = Vec::new();
    let mut before = 0;
    for record in records {
        for (number, cell) in record.experiment.cells.iter().enumerate() {
            let taken = record.rows.taken.iter().filter(|taken| taken.cell == number);
            let taken: Vec<_> = taken.map(|taken| (before, taken)).collect();
            if taken.iter().all(|(_, taken)| !taken.pair.kept) {
                continue;
            }
            let alike = |one: &&mut Measured<'_>| {
                one.cell.contender == cell.contender
                    && one.cell.demand == cell.demand
                    && what_was_done(one.cell) == what_was_done(cell)
            };
            match all.iter_mut().find(alike) {
                Some(one) => one.taken.extend(taken),
                None => all.push(Measured { experiment: &record.experiment, cell, taken }),
            }
        }
        before += record.rows.taken.iter().map(|taken| taken.pair.number + 1).max().unwrap_or(0);
    }
    all
}

/// Without the memory that was free when it was planned.
fn what_was_done(cell: &Cell) -> Trial {
    let mut trial = cell.trial.clone();
    if let Some(arrays) = &mut trial.job.arrays {
        arrays.available_bytes = None;
    }
    trial
}

pub(super) fn judged(
    measured: &[Measured<'_>],
    cells: &[CellResult],
    grounds: &[Ground],
    reference: Hertz,
) -> Result<Vec<Judged>> {
    let mut judged = Vec::new();
    let contenders = in_order(cells.iter().map(|cell| cell.contender));
    for ground in grounds {
        for &contender in &contenders {
            let of_both = || {
                let is_of_both = |cell: &CellResult| {
                    cell.contender == contender && ground.is_of(&cell.workload, cell.cores)
                };
                measured.iter().zip(cells).filter(move |(_, cell)| is_of_both(cell))
            };
            let (mut strata, mut x, mut y) = (Vec::new(), Vec::new(), Vec::new());
            for (one, cell) in of_both() {
                let pairs: Vec<stats::Pair> = one.rates()?;
                for pair in &pairs {
                    x.push(cell.emulated.as_f64() / 1e9);
                    y.push(pair.log_ratio().exp() * reference.as_f64() / 1e9);
                }
                if pairs.len() >= 2 {
                    let ratios = PairedRatios::new(&pairs)?;
                    strata.push(stats::Cell { target: cell.share, ideal: cell.finding.ideal, ratios });
                }
            }
            let verdict = Verdict::of_all(of_both().map(|(_, cell)| cell.finding.verdict));
            let Some(verdict) = verdict else { continue };
            let doubt = of_both().find_map(|(_, cell)| cell.finding.doubt.map(|doubt| (cell.share, doubt)));
            let floor = ground.aa.map_or(0.0, |aa| aa.floor);
            judged.push(Judged {
                contender,
                workload: ground.workload.clone(),
                cores: ground.cores,
                verdict,
                doubt: doubt.filter(|_| matches!(verdict, Verdict::NotEnoughData { .. })),
                furthest: Furthest::of(of_both().map(|(_, cell)| cell), verdict),
                fidelity: if strata.is_empty() {
                    None
                } else {
                    Some(Fidelity::of(&strata, floor, Level::P95)?)
                },
                line: if strata.len() < 2 { None } else { LinearFit::of(&x, &y, Level::P95).ok() },
            });
        }
    }
    Ok(judged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distinct;
    use crate::record;

    #[test]
    fn rounds_of_several_records_are_kept_apart() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../benches/results/buchert-2011-cpu-lim.intel-xeon.2026-11-22");
        let stored = || {
            let (about, lines) = record::read(&folder).unwrap();
            let (experiment, rows) = Experiment::stored(&folder, &about, &lines).unwrap();
            Stored { about, experiment, rows }
        };
        let rounds = |records: &[Stored]| {
            let rates = measured(records)[0].numbered_rates().unwrap();
            distinct(rates.into_iter().map(|(number, _)| number)).len()
        };
        let once = rounds(&[stored()]);
        assert!(once > 5);
        assert_eq!(rounds(&[stored(), stored()]), 2 * once);
    }
}

//! Records as they were read.

use std::collections::BTreeMap;

use super::results::{RunInfo, Smoothness, ground_name};
use crate::distinct;
use crate::experiment::{Experiment, Refusal, Rows, Seen};
use crate::numbers::percent;
use crate::record::About;
use crate::stats::Sample;

pub(super) struct Stored {
    pub(super) about: About,
    pub(super) experiment: Experiment,
    pub(super) rows: Rows,
}

impl Stored {
    pub(super) fn check_mixing(&self, about: &About, experiment: &Experiment) -> Result<(), String> {
        if self.about.machine != about.machine {
            let difference = about.machine.difference(&self.about.machine);
            return Err(format!("it is of another machine ({difference})"));
        }
        if self.about.version != about.version {
            return Err(format!("it is of emu {}, not {}", about.version, self.about.version));
        }
        let of = |one: &Experiment| (one.window, one.tolerance.to_bits(), one.preset.clone());
        if of(&self.experiment) != of(experiment) {
            return Err("its windows, tolerance or preset differ".into());
        }
        Ok(())
    }

    pub(super) fn info(&self) -> RunInfo {
        let taken = &self.rows.taken;
        let mut disturbances = BTreeMap::new();
        for taint in taken.iter().flat_map(|taken| &taken.pair.taints) {
            *disturbances.entry(taint.kind()).or_default() += 1;
        }
        let pairs_of =
            |number: usize| taken.iter().filter(|taken| taken.cell == number && taken.pair.kept).count();
        let cells = self.experiment.cells.iter().enumerate();
        // With a budget, cells that are decided have fewer, and others more.
        let is_fixed = self.experiment.budget.is_zero();
        let short_cells =
            cells.filter(|(number, cell)| is_fixed && pairs_of(*number) < cell.repetitions).count();
        let outside: Vec<f64> = taken.iter().map(|taken| taken.outside_ns as f64).collect();
        RunInfo {
            date: self.about.date.clone(),
            command: self.about.command.clone(),
            seed: self.about.seed,
            repetitions: self.experiment.repetitions,
            complete: self.rows.end.is_some(),
            short_cells,
            pairs: taken.iter().filter(|taken| taken.pair.kept).count(),
            retaken: taken.iter().filter(|taken| !taken.pair.kept).count(),
            tainted: taken.iter().filter(|taken| taken.pair.kept && !taken.pair.taints.is_empty()).count(),
            disturbances,
            outside_ns: Sample::new(outside).ok().map(|sample| sample.median()),
            own_costs: self.experiment.own_costs,
        }
    }
}

pub(super) fn smoothness(records: &[Stored]) -> Vec<Smoothness> {
    let all = records.iter().flat_map(|record| record.rows.seen.iter().map(move |seen| (record, seen)));
    let smoothness = |(record, seen): (&Stored, &Seen)| {
        let cell = record.experiment.cells.get(seen.cell)?;
        Some(Smoothness { contender: cell.contender, share: cell.share(), spectrum: seen.spectrum.clone() })
    };
    all.filter_map(smoothness).collect()
}

pub(super) fn unavailable(records: &[Stored]) -> Vec<Refusal> {
    let of = |record: &Stored| {
        let failures = record.rows.failures.iter().filter_map(|failure| {
            let cell = record.experiment.cells.get(failure.cell)?;
            let ground = ground_name(cell.workload(), cell.cores());
            let wanted = format!("{ground} at {}", percent(cell.share()));
            let (why, hint) = (failure.why.clone(), failure.hint.clone());
            Some(Refusal { contender: cell.contender, wanted, why, hint })
        });
        record.experiment.unavailable.iter().cloned().chain(failures).collect::<Vec<_>>()
    };
    distinct(records.iter().flat_map(of))
}

//! From records to results, from nothing but the records.

use std::path::Path;

use emu_core::{Error, ErrorKind, MethodId, Result};

use super::comparison::compare;
use super::conclusion;
use super::measured::{Measured, judged, measured};
use super::published::BUCHERT_2011;
use super::results::{CellResult, Ground, Judged, Results, SCHEMA, Total, ground_name, is_promised, missing};
use super::standing;
use super::stored::{Stored, smoothness, unavailable};
use crate::experiment::{Experiment, NONE, Run, in_order};
use crate::record::{self, unusable};
use crate::stats::{AaTest, Bootstrap, Centre, Interval, Level, Sample, Verdict};
use crate::verify::{SMOOTH, Side, Window};
use crate::workload::{Done, workload};

impl Results {
    /// The results of some records of one machine, emu and kind of measurement. One that was cut short is not complete.
    pub fn read(folders: &[impl AsRef<Path>]) -> Result<Self> {
        let mut records: Vec<Stored> = Vec::new();
        for folder in folders {
            let folder = folder.as_ref();
            let (about, lines) = record::read(folder)?;
            let (experiment, rows) = Experiment::stored(folder, &about, &lines)?;
            if records.iter().any(|one| one.about == about) {
                return Err(unusable(folder, "it is there twice").hint("name each record once"));
            }
            if let Some(first) = records.first() {
                first.check_mixing(&about, &experiment).map_err(|what| {
                    unusable(folder, format_args!("together with the first one: {what}"))
                        .hint("report records apart where they differ in that")
                })?;
            }
            records.push(Stored { about, experiment, rows });
        }
        Self::of(&records)
    }

    /// The results of a run that has been measured by this process.
    pub fn of_run(run: &Run) -> Result<Self> {
        Self::of(&[Stored {
            about: run.about.clone(),
            experiment: run.experiment().clone(),
            rows: run.rows.clone(),
        }])
    }

    fn of(records: &[Stored]) -> Result<Self> {
        let first =
            records.first().ok_or_else(|| Error::usage("no record is given").hint("name a folder"))?;
        let Experiment { reference, tolerance, window, preset, .. } = first.experiment.clone();
        let measured = measured(records);
        if measured.is_empty() {
            let failure = records.iter().find_map(|one| one.rows.failures.first());
            return Err(match failure {
                Some(failure) => {
                    Error::new(ErrorKind::Failed, format!("nothing could be measured: {}", failure.why))
                }
                None => Error::usage("nothing has been measured yet that could be shown")
                    .hint("complete the record by emu bench --resume"),
            });
        }
        let mut grounds: Vec<Ground> = Vec::new();
        for one in &measured {
            let (workload, cores) = (one.cell.workload(), one.cell.cores());
            if !grounds.iter().any(|ground| ground.is_of(workload, cores)) {
                grounds.push(Ground::of(workload, cores, &measured, first.experiment.seed)?);
            }
        }
        let cells = measured.iter().map(|one| one.result(&grounds)).collect::<Result<Vec<_>>>()?;
        let fidelity = judged(&measured, &cells, &grounds, reference)?;
        let beside = standing::beside(&measured, &cells, first.experiment.seed)?;
        let mut results = Self {
            schema: SCHEMA,
            runs: records.iter().map(Stored::info).collect(),
            machine: first.about.machine.clone(),
            version: first.about.version.clone(),
            reference,
            tolerance,
            window,
            preset,
            totals: totals(&fidelity, &cells),
            smoothness: smoothness(records),
            unavailable: unavailable(records),
            grounds,
            cells,
            fidelity,
            beside,
            published: Vec::new(),
            conclusion: String::new(),
        };
        if results.preset.as_deref() == Some(BUCHERT_2011) {
            results.published = compare(&results);
        }
        results.conclusion = conclusion::sentence(&results);
        Ok(results)
    }
}

impl Ground {
    fn of(workload: &str, cores: usize, measured: &[Measured<'_>], seed: u64) -> Result<Self> {
        let here =
            || measured.iter().filter(|one| (one.cell.workload(), one.cell.cores()) == (workload, cores));
        let native: Vec<f64> = here().flat_map(|one| one.rates_of(Side::Native)).collect();
        let centre = Bootstrap::new(seed);
        let windows: Vec<Window> = here().flat_map(|one| one.windows(Side::Native)).collect();
        let ideal = ideal(workload, windows.iter().map(|window| &window.done))?;
        let controls = here().filter(|one| one.cell.contender == NONE);
        let controls = controls.map(Measured::rates).collect::<Result<Vec<_>>>()?.concat();
        Ok(Self {
            workload: workload.into(),
            cores,
            native: Interval::of_median(&Sample::new(native)?, Level::P95, &centre)?,
            ideal,
            aa: AaTest::of(&controls, Centre::Median(centre), Level::P95).ok(),
            arrays: here().find_map(|one| one.cell.trial.job.arrays),
        })
    }
}

/// At each share the median over the native windows.
fn ideal<'a>(name: &str, native: impl Iterator<Item = &'a Done>) -> Result<Vec<(f64, f64)>> {
    let workload = workload(name)?;
    let native: Vec<_> = native.collect();
    (1..=20)
        .map(|step| {
            let share = f64::from(step) / 20.0;
            let ratios: Vec<f64> = native.iter().map(|done| workload.ideal(share, done)).collect();
            Ok((share, Sample::new(ratios)?.median()))
        })
        .collect()
}

fn totals(fidelity: &[Judged], cells: &[CellResult]) -> Vec<Total> {
    let total = |contender: MethodId| {
        let promised =
            || fidelity.iter().filter(|one| one.contender == contender && is_promised(&one.workload));
        let is_open = promised().any(|one| matches!(one.verdict, Verdict::NotEnoughData { .. }))
            || !missing(cells, contender, is_promised).is_empty();
        let (worst, score) = promised()
            .filter_map(|one| Some((one, one.fidelity?.score.estimate)))
            .min_by(|a, b| a.1.total_cmp(&b.1))?;
        let own = || cells.iter().filter(move |cell| cell.contender == contender);
        Some(Total {
            contender,
            score: (!is_open).then_some(score),
            worst: ground_name(&worst.workload, worst.cores),
            longest_stall_ns: own()
                .filter(|cell| cell.workload == SMOOTH)
                .map(|cell| cell.finding.longest_stall_ns)
                .max(),
            own_cpu: own().filter_map(|cell| cell.finding.own_cpu).reduce(f64::max),
        })
    };
    in_order(cells.iter().map(|cell| cell.contender)).into_iter().filter_map(total).collect()
}

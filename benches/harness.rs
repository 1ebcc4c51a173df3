//! What the harness finds where there is nothing to find, and what it costs itself.
//!
//! `cargo bench -p emu-bench --bench harness -- [--row aa|overhead|aa-WORKLOAD|…]… [--pairs 15] [--seed N] [--out benches/results]`
//!
//! Needs a machine on which nothing else runs.

mod common;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use common::{Line, Run, error, median};
use emu_bench::verify::{Nothing, Pair, Trial, verify};
use emu_bench::workload::WORKLOADS;
use emu_core::{CpuList, Demand, Result, Target};
use serde::Serialize;

/// A/A experiments with each workload.
const EXPERIMENTS: u64 = 5;

const WINDOW: Duration = Duration::from_millis(200);

/// What a sample may take beyond its window and the time before it, in milliseconds.
const OVERHEAD_MS: f64 = 5.0;

/// Bytes of an array where it is about the harness: to fill long ones is the work's own start.
const ARRAY: u64 = 1 << 20;

/// Share of the window for which the harness may use a CPU meanwhile.
const HARNESS_CPU: f64 = 0.001;

fn main() -> ExitCode {
    common::main("harness", |run| {
        for (row, measure) in ROWS {
            for workload in WORKLOADS.iter().map(|workload| workload.name()) {
                if run.wants(&format!("{row}-{workload}")) {
                    measure(run, row, workload)?;
                }
            }
        }
        Ok(())
    })
}

type Measure = fn(&mut Run, &'static str, &'static str) -> Result<()>;

const ROWS: &[(&str, Measure)] = &[("aa", aa), ("overhead", overhead)];

/// A workload on one CPU at full speed.
fn trial(run: &Run, workload: &str) -> Result<Trial> {
    let demand = Demand::new([(first(run), Target { share: 1.0, clock: None })].into());
    Trial::of(workload, &demand, &run.plan(WINDOW).setting(&Nothing, &demand.targets))
}

fn first(run: &Run) -> usize {
    run.host.allowed.first().unwrap_or(0)
}

/// Native against native: the interval of the ratio must hold 1.
fn aa(run: &mut Run, row: &'static str, workload: &'static str) -> Result<()> {
    let trial = trial(run, workload)?;
    for experiment in 0..EXPERIMENTS {
        let mut plan = run.plan(WINDOW);
        plan.seed += experiment;
        let case = format!("{workload}, experiment {}", experiment + 1);
        let found = verify(&mut Nothing, &trial, &plan, &mut |pair| run.pair(row, &case, pair))?.findings;
        for finding in found {
            let line = Line {
                case: case.clone(),
                measured: format!("{}, {} disturbed", error(&finding.ratio), finding.tainted),
                must: "holds 0%".into(),
                met: finding.ratio.contains(1.0).into(),
            };
            run.line(row, line);
        }
    }
    Ok(())
}

/// Where the time of a pair goes, in milliseconds.
#[derive(Debug, Clone, Serialize)]
struct Spent {
    /// From its begin to its end, by the clock of the harness.
    pair_ms: f64,
    /// In windows and the time before them.
    windows_ms: f64,
}

/// What a pair takes beyond its two windows, halved; and what the harness computes during one.
fn overhead(run: &mut Run, row: &'static str, workload: &'static str) -> Result<()> {
    let (mut trial, plan) = (trial(run, workload)?, run.plan(WINDOW));
    if let Some(arrays) = &mut trial.job.arrays {
        arrays.array_bytes = ARRAY;
    }
    let mut spent = Vec::new();
    let mut begin = Instant::now();
    let outcome = verify(&mut Nothing, &trial, &plan, &mut |pair| {
        let pair_ms = begin.elapsed().as_secs_f64() * 1e3;
        let windows = pair.windows.iter().map(|window| window.done.wall_s() + plan.lead.as_secs_f64());
        let windows_ms = windows.sum::<f64>() * 1e3;
        spent.push(Spent { pair_ms, windows_ms });
        begin = Instant::now();
        Ok(())
    })?;
    for spent in &spent {
        run.sample(row, &(workload, spent))?;
    }
    let each: Vec<f64> = spent.iter().map(|one| (one.pair_ms - one.windows_ms) / 2.0).collect();
    let overhead = median(&each);
    run.line(
        row,
        Line {
            case: format!("{workload}, beyond a window"),
            measured: format!("{overhead:.2} ms"),
            must: format!("≤ {OVERHEAD_MS} ms"),
            met: (overhead <= OVERHEAD_MS).into(),
        },
    );
    let windows = outcome.pairs.iter().flat_map(|pair: &Pair| &pair.windows);
    let busy: Vec<f64> = windows.map(|window| window.harness_cpu_s / window.done.wall_s()).collect();
    let busy = median(&busy);
    let spare = run.host.allowed.difference(&[first(run)].into_iter().collect::<CpuList>());
    let at = if spare.is_empty() { "no spare CPU" } else { "spare CPU" };
    run.line(
        row,
        Line {
            case: format!("{workload}, own CPU, {at}"),
            measured: format!("{:.3}%", busy * 100.0),
            must: format!("≤ {}%", HARNESS_CPU * 100.0),
            met: (busy <= HARNESS_CPU).into(),
        },
    );
    Ok(())
}

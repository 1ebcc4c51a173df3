//! What the harness finds where there is nothing to find, and what it costs itself.
//!
//! `cargo bench -p emu-bench --bench harness -- [--row aa|overhead|aa-WORKLOAD|…]… [--pairs 15] [--seed N] [--out benches/results]`
//!
//! Needs a machine on which nothing else runs.

mod common;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use common::{Line, Met, Run, error, figure, median};
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
        let wanted = |run: &Run, row: &str| -> Vec<&'static str> {
            let names = WORKLOADS.iter().map(|workload| workload.name());
            names.filter(|name| run.wants(&format!("{row}-{name}"))).collect()
        };
        aa(run, &wanted(run, "aa"))?;
        for workload in wanted(run, "overhead") {
            overhead(run, "overhead", workload)?;
        }
        Ok(())
    })
}

/// A workload on one CPU at full speed.
fn trial(run: &Run, workload: &str) -> Result<Trial> {
    let demand = Demand::new([(first(run), Target { share: 1.0, clock: None })].into());
    Trial::of(workload, &demand, &run.plan(WINDOW).setting(&Nothing, &demand.targets))
}

fn first(run: &Run) -> usize {
    run.host.allowed.first().unwrap_or(0)
}

/// Native against native: an interval of 95 % leaves out 0 % in one of 20 experiments, so that only their number tells.
fn aa(run: &mut Run, workloads: &[&'static str]) -> Result<()> {
    const ROW: &str = "aa";
    let (mut all, mut out) = (0, Vec::new());
    for workload in workloads {
        let trial = trial(run, workload)?;
        for experiment in 0..EXPERIMENTS {
            let mut plan = run.plan(WINDOW);
            plan.seed += experiment;
            let case = format!("{workload}, experiment {}", experiment + 1);
            let found = verify(&mut Nothing, &trial, &plan, &mut |pair| run.pair(ROW, &case, pair))?.findings;
            for finding in found.iter().filter(|finding| !finding.is_disturbed()) {
                println!("{ROW}: {case}: {}, {} disturbed", error(&finding.ratio), finding.tainted);
                all += 1;
                out.extend(
                    (!finding.ratio.contains(1.0)).then(|| format!("{case} {}", error(&finding.ratio))),
                );
            }
        }
    }
    if all > 0 {
        let most = most_by_chance(all);
        let which = if out.is_empty() { String::new() } else { format!(": {}", out.join("; ")) };
        let line = Line {
            case: format!("{all} experiments without emulation"),
            measured: format!("{} leave out 0%{which}", out.len()),
            must: format!("at most {most} of {all}"),
            met: if out.len() <= most { Met::Yes } else { Met::No },
        };
        run.line(ROW, line);
    }
    Ok(())
}

/// So many of `all` intervals of 95 % leave out what is true, or fewer, but for once in twenty times (binomial).
fn most_by_chance(all: usize) -> usize {
    const OUT: f64 = 0.05;
    let mut exactly = (1.0 - OUT).powi(all as i32);
    let mut at_most = exactly;
    let mut count = 0;
    while at_most < 0.95 && count < all {
        exactly *= (all - count) as f64 / (count + 1) as f64 * OUT / (1.0 - OUT);
        at_most += exactly;
        count += 1;
    }
    count
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
            measured: figure(overhead, " ms"),
            must: format!("≤ {OVERHEAD_MS} ms"),
            met: Met::at_most(overhead, OVERHEAD_MS),
        },
    );
    let windows = outcome.pairs.iter().flat_map(|pair: &Pair| &pair.windows);
    let busy: Vec<f64> = windows.map(|window| window.harness_cpu_s / window.done.wall_s()).collect();
    let busy = median(&busy).map(|share| share * 100.0);
    let spare = run.host.allowed.difference(&[first(run)].into_iter().collect::<CpuList>());
    let at = if spare.is_empty() { "no spare CPU" } else { "spare CPU" };
    run.line(
        row,
        Line {
            case: format!("{workload}, own CPU, {at}"),
            measured: busy.map_or_else(|| "-".into(), |percent| format!("{percent:.3}%")),
            must: format!("≤ {}%", HARNESS_CPU * 100.0),
            met: Met::at_most(busy, HARNESS_CPU * 100.0),
        },
    );
    Ok(())
}

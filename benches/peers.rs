//! Other ways to slow programs down and emu's best method, side by side: each pair of one is followed by a pair
//! of the next, on the same workloads.
//!
//! `cargo bench -p emu-bench --bench peers -- [--row WORKLOAD]… [--case SPEED]… [--pairs 15] [--seed N] [--out benches/results]`
//!
//! Needs root, a machine on which nothing else runs, and, for what is to be compared, the packages `cpulimit`
//! and `stress-ng`.

mod common;
#[path = "peers/limiters.rs"]
mod limiters;

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use common::{Line, Met, Run, demand, error, median, remarks};
use emu_bench::stats::Bootstrap;
use emu_bench::verify::{Emulated, Finding, Outcome, Plan, SessionEmulated, Trial, compare, rates};
use emu_core::{Result, choose};
use limiters::{Cpulimit, Quota, Shares, sweep};

const MS: Duration = Duration::from_millis(1);
const SPEEDS: [&str; 4] = ["10%", "25%", "50%", "75%"];
const WORKLOADS: [(&str, usize); 4] =
    [("cpu-loop", 1), ("multithread", 2), ("multiprocess", 2), ("sleep-compute", 2)];

/// What every case must show: emu's best method is not behind any rival, and ahead of at least one.
const MUST: &str = "emu behind none, ahead of one";

/// A rival is not ahead where its median is nearer by less than this share, of which no program tells.
const MARGIN: f64 = 0.01;

fn main() -> ExitCode {
    common::main("peers", |run| {
        sweep(&run.host);
        for (workload, cpus) in WORKLOADS {
            if run.wants(workload) {
                for speed in SPEEDS.into_iter().filter(|speed| run.wants_case(speed)).collect::<Vec<_>>() {
                    if let Err(why) = side_by_side(run, workload, cpus, speed) {
                        if run.is_ended_by(&why) {
                            return Err(why);
                        }
                        // A rival that fails must not keep the rest from being compared.
                        let case = format!("{speed} on {cpus} CPUs");
                        run.line(workload, Line::refused(case, MUST, &why));
                    }
                }
            }
        }
        Ok(())
    })
}

fn side_by_side(run: &mut Run, workload: &'static str, cpus: usize, speed: &str) -> Result<()> {
    let cpus = run.cpus(cpus);
    let mut demand = demand(speed, &cpus, MS * 10)?;
    demand.period = None;
    // As the others do, which limit the tasks alone.
    demand.exclude_background = true;
    let share = demand.lowest_share();
    let mut emu = SessionEmulated::new(choose(&run.host, &demand)?);
    let best = emu.method().id();
    let (mut cpulimit, mut quota, mut shares) = (
        Cpulimit::new(&run.host, share, &cpus),
        Quota::new(&run.host, share, &cpus),
        Shares::new(&run.host, share, &cpus),
    );
    let plan = run.plan(MS * 1000);
    let mut trial = Trial::of(workload, &demand, &plan.setting(&emu, &demand.targets))?;
    if !trial.job.sleep.is_zero() {
        (trial.job.burst, trial.job.sleep, trial.job.cycles) = (MS * 200, MS * 100, 1);
    }
    let mut rivals: Vec<&mut dyn Emulated> = vec![&mut emu];
    let mut missing = Vec::new();
    for rival in [
        cpulimit.as_mut().map(|rival| rival as &mut dyn Emulated),
        quota.as_mut().map(|rival| rival as &mut dyn Emulated),
        shares.as_mut().map(|rival| rival as &mut dyn Emulated),
    ] {
        match rival {
            Ok(rival) => rivals.push(rival),
            Err(why) => missing.push(why.to_string()),
        }
    }
    let names: Vec<_> = rivals.iter().map(|rival| rival.name()).collect();
    let case = format!("{speed} on {} CPUs of {}", cpus.len(), names.join(", "));
    let outcomes = compare(&mut rivals, &trial, &plan, &mut |pair| run.pair(workload, &case, pair))?;
    drop(rivals);
    let Some((ours, others)) = outcomes.split_first() else { return Ok(()) };
    let mut measured = vec![format!("{best} {}", error_of(ours))];
    let mut standings = Vec::new();
    for (name, theirs) in names.iter().skip(1).zip(others) {
        let standing = standing(ours, theirs, &plan)?;
        measured.push(format!("{name} {} ({standing})", error_of(theirs)));
        standings.push(standing);
    }
    let met = met(&standings, &missing);
    measured.extend(missing);
    let case = format!("{speed} on {} CPUs", cpus.len());
    run.line(workload, Line { case, measured: measured.join(", "), must: MUST.into(), met });
    Ok(())
}

/// What the standings of a row come to. One with a rival that is not there shows nothing of that one.
fn met(standings: &[Standing], missing: &[String]) -> Met {
    let has = |standing| standings.contains(&standing);
    if has(Standing::Behind) {
        Met::No
    } else if !missing.is_empty() {
        Met::Not(missing.join(", "))
    } else if has(Standing::Untold) || !has(Standing::Ahead) {
        Met::Untold
    } else {
        Met::Yes
    }
}

fn error_of(outcome: &Outcome) -> String {
    let of = |finding: &Finding| format!("{}{}", error(&finding.relative), remarks(finding));
    outcome.findings.first().map_or_else(|| "-".into(), of)
}

/// How emu's error compares with another one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Ahead,
    /// The run cannot tell them apart, and emu is not behind by [`MARGIN`].
    Level,
    Behind,
    /// The run cannot tell whether emu is behind by more than that.
    Untold,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ahead => "emu ahead",
            Self::Level => "level",
            Self::Behind => "emu behind",
            Self::Untold => "cannot be told",
        })
    }
}

/// Compares the distances of both medians from what was asked. The interval of their difference is bootstrapped over
/// the rounds, in each of which both met the same machine; a round counts where both pairs were undisturbed.
fn standing(ours: &Outcome, theirs: &Outcome, plan: &Plan) -> Result<Standing> {
    let (ours, theirs) = (errors(ours, plan)?, errors(theirs, plan)?);
    let rounds: Vec<_> = ours.iter().filter_map(|(number, own)| Some((*own, *theirs.get(number)?))).collect();
    if rounds.len() < Bootstrap::UNITS_MIN {
        return Ok(Standing::Untold);
    }
    let distance = |errors: Vec<f64>| median(&errors).map_or(f64::NAN, f64::abs);
    let lead = Bootstrap::new(plan.seed).percentile(&rounds, plan.level, |rounds| {
        distance(rounds.iter().map(|round| round.1).collect())
            - distance(rounds.iter().map(|round| round.0).collect())
    })?;
    Ok(match lead {
        lead if lead.low > 0.0 => Standing::Ahead,
        lead if lead.high < 0.0 => Standing::Behind,
        lead if lead.low > -MARGIN => Standing::Level,
        _ => Standing::Untold,
    })
}

/// The error of each undisturbed pair, as a share, by the number of its round.
fn errors(outcome: &Outcome, plan: &Plan) -> Result<BTreeMap<usize, f64>> {
    let ideal = outcome.findings.first().map_or(1.0, |finding| finding.ideal);
    let rates = rates(&outcome.trial, &outcome.pairs, plan)?;
    Ok(rates.iter().map(|(number, pair)| (*number, pair.log_ratio().exp() / ideal - 1.0)).collect())
}

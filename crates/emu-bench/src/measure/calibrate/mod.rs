//! Calibration: how LINPACK's rate follows the CPU quota (Manner & Wirtz 2021, *Why many benchmarks might be
//! compromised*, SOSE), and whether the order of quotas matters (Luszczek et al. 2011, *Evaluation of the HPC Challenge
//! benchmarks in virtualized environments*, § 5).
//!
//! Orders are gone through in whole passes, as their meaning is what came before a sample, and in a balanced sequence of
//! these, so that a machine that drifts favours none; what drifts all the same is taken out by a regression over the time
//! between samples of the same quota. Both are told where they are made: `plan`, `orders`.

mod analysis;
mod map;
mod orders;
mod plan;
pub mod published;
mod solver;

pub use analysis::{Analysis, Residuals};
pub use map::{Equivalent, Other, equivalent};
pub use orders::OrderEffect;
pub use plan::{Order, Plan, STEP, Threads};
pub use solver::{SOLVER, serve};

use std::time::Instant;

use emu_core::{Host, MethodId, Result, Session, Tasks, Zone};
use serde::{Deserialize, Serialize};

use super::{Event, Watch, tell};
use crate::kernel::linpack;
use plan::Cell;
use solver::{GoOn, Solver};

/// LINPACK at one quota.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The order in whose turn it was taken.
    pub order: Order,
    /// The pass in whose turn it was taken, from 0.
    #[serde(default)]
    pub pass: usize,
    /// The quota in CPUs.
    pub quota: f64,
    /// Threads that solved.
    pub threads: usize,
    /// Solutions in a row.
    pub solutions: usize,
    /// When they began, in seconds from the begin of the measurement; 0 where that is not known.
    #[serde(default)]
    pub begin_seconds: f64,
    /// Wall time of them.
    pub seconds: f64,
    /// Billions of floating-point operations per second.
    pub gflops: f64,
    /// CPUs that the process had on average.
    pub cpus_used: f64,
    /// HPL's scaled residual, the largest of all solutions; `None` where one is not a number.
    pub residual: Option<f64>,
    /// Whether that is at most 16: every solution is right.
    pub passed: bool,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Every sample, in the order in which they were taken.
    pub samples: Vec<Sample>,
    /// CPUs of the largest quota.
    pub cpus: usize,
    /// Equations of LINPACK.
    pub equations: usize,
    /// What the samples say, for each number of threads.
    pub analyses: Vec<Analysis>,
    /// What went otherwise than asked while the quotas were in force, such as a limit of a group above; each once.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What it means, in words.
    pub verdict: String,
}

impl Measured {
    /// Whether all solutions are right.
    pub fn passed(&self) -> bool {
        self.samples.iter().all(|sample| sample.passed)
    }
}

/// Measures by the plan.
///
/// # Errors
/// A quota cannot be set or undone, the solving process fails, or `watch` ends it.
pub fn measure(host: &Host, plan: &Plan, watch: Watch<'_>) -> Result<Measured> {
    let start = Instant::now();
    let mut solver = Solver::start()?;
    let cells = plan.cells();
    let left = plan.expected_time(&cells, None);
    let mut go_on = || watch(Event::Next { what: "without a quota", left });
    go_on()?;
    // How often a system is solved at a quota follows from the rate of one CPU.
    solver.prepare(plan.equations, plan.seed, &plan.cpus, 1, 1, &mut go_on)?;
    let alone = solver.solve(&mut go_on)?.seconds;
    let (mut samples, mut notes) = (Vec::new(), Vec::new());
    for (number, cell) in cells.iter().enumerate() {
        let what = format!("quota {:.2}, threads {}, {}", cell.quota, cell.threads, cell.order.name());
        let left = plan.expected_time(cells.get(number..).unwrap_or_default(), Some(alone));
        let begin = Instant::now();
        let mut go_on = || watch(Event::Next { what: &what, left: left.saturating_sub(begin.elapsed()) });
        go_on()?;
        let (one, remarks) = sample(host, plan, &mut solver, cell, alone, start, &mut go_on)?;
        tell(watch, "sample", &one)?;
        samples.push(one);
        for note in remarks {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    let analyses = plan
        .threads
        .iter()
        .map(|&threads| Analysis::of(&samples, threads, plan.cpus.len()))
        .collect::<Result<Vec<_>>>()?;
    let verdict = analysis::verdict(&analyses, &samples, host);
    Ok(Measured { samples, cpus: plan.cpus.len(), equations: plan.equations, analyses, notes, verdict })
}

/// A sample of a measurement that began at `start`, and what went otherwise than asked.
fn sample(
    host: &Host,
    plan: &Plan,
    solver: &mut Solver,
    cell: &Cell,
    alone: f64,
    start: Instant,
    go_on: GoOn<'_>,
) -> Result<(Sample, Vec<String>)> {
    let solutions = plan.times(cell.quota, alone);
    let known = plan.check_quota(host, cell.quota)?;
    solver.prepare(plan.equations, plan.seed, &plan.cpus, cell.threads, solutions, go_on)?;
    let zone = Zone {
        name: "calibrate".into(),
        demand: plan.demand(cell.quota),
        tasks: Tasks::Processes(vec![solver.pid()]),
    };
    let session = Session::engage(host, &zone, MethodId::Fracas)?;
    let begin_seconds = start.elapsed().as_secs_f64();
    let done = solver.solve(go_on);
    if done.is_err() {
        // Nothing of it is wanted any more, least of all at full speed.
        solver.end();
    }
    let mut notes = session.release()?.map(|status| status.notes).unwrap_or_default();
    notes.retain(|note| !known.contains(note));
    let done = done?;
    let (residual, passed) = solver.check(go_on)?;
    let sample = Sample {
        order: cell.order,
        pass: cell.pass,
        quota: cell.quota,
        threads: cell.threads,
        solutions,
        begin_seconds,
        seconds: done.seconds,
        gflops: linpack::operations(plan.equations) * solutions as f64 / done.seconds / 1e9,
        cpus_used: done.cpu_seconds / done.seconds,
        residual,
        passed,
    };
    Ok((sample, notes))
}

//! Calibration: how LINPACK's rate follows the CPU quota (Manner & Wirtz 2021, *Why many benchmarks might be
//! compromised*, SOSE).

mod analysis;
mod map;
pub mod published;
mod solver;

pub use analysis::{Analysis, OrderEffect, Residuals};
pub use map::{Equivalent, Other, equivalent};
pub use solver::{SOLVER, serve};

use std::time::{Duration, Instant};

use emu_core::{
    CpuList, Demand, Error, ErrorKind, Host, MethodId, Reason, Result, Session, Target, Tasks, Variant, Zone,
    method,
};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use super::{Event, Watch, tell};
use crate::kernel::linpack;
use crate::memory::available;
use solver::{GoOn, Solver};

/// The period of Docker's quotas, in nanoseconds, as in the paper.
const PERIOD: Duration = Duration::from_millis(100);

/// The paper's step of quotas, in CPUs.
pub const STEP: f64 = 0.1;

/// How long a sample is to take: many periods, so that it does not matter within which one it ends.
const SAMPLE: Duration = Duration::from_secs(6);
const SAMPLE_QUICK: Duration = Duration::from_secs(2);

/// Equations: enough for the rate to be that of larger ones, few enough for some of them in a sample.
const ORDER: usize = 4000;
const ORDER_QUICK: usize = 2000;

/// Share of the available memory that systems may take.
const SHARE_MAX: f64 = 0.5;

/// What a sample costs besides: the systems, their checks, and engaging the quota.
const OVERHEAD: Duration = Duration::from_millis(400);

/// In which order quotas are gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// From the least quota up, as in the paper.
    Ascending,
    /// From the largest down.
    Descending,
    /// By chance: what drifts with time does not look like an effect of the quota.
    Random,
}

impl Order {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ascending => "ascending",
            Self::Descending => "descending",
            Self::Random => "random",
        }
    }
}

/// How many threads solve at a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Threads {
    /// As many as the quota fills: rounded up to whole CPUs.
    Ceiling,
    /// One for each CPU at every quota, as in the paper.
    All,
}

impl Threads {
    /// Both, in the order in which they are shown.
    pub const EVERY: [Self; 2] = [Self::Ceiling, Self::All];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ceiling => "ceil(quota)",
            Self::All => "all CPUs",
        }
    }

    /// How many these are at a quota.
    pub fn count(self, quota: f64, cpus: usize) -> usize {
        match self {
            // A tenth that is not one exactly is no reason for a thread.
            Self::Ceiling => ((quota - 1e-9).ceil() as usize).clamp(1, cpus),
            Self::All => cpus,
        }
    }
}

/// What will be measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Start of the random numbers.
    pub seed: u64,
    /// The CPUs that threads may run on.
    pub cpus: CpuList,
    /// Quotas in CPUs, ascending.
    pub quotas: Vec<f64>,
    /// Orders, one after the other.
    pub orders: Vec<Order>,
    /// Numbers of threads.
    pub threads: Vec<Threads>,
    /// Equations of LINPACK.
    pub equations: usize,
    /// The most solutions of a sample: each has a system of its own, and memory is limited.
    pub solutions_max: usize,
    /// About how long a sample takes, in seconds.
    pub sample_seconds: f64,
    /// Period of the quota, in seconds.
    pub period_seconds: f64,
}

impl Plan {
    /// Quotas from `step` to all CPUs that may be used, in steps of it.
    ///
    /// # Errors
    /// Usage, for a step that is no part of the CPUs. What memory or the kernel's least quota does not allow.
    pub fn new(host: &Host, quick: bool, seed: u64, step: f64) -> Result<Self> {
        let cpus = host.allowed.clone();
        let most = cpus.len() as f64;
        if !(step > 0.0 && step * 3.0 <= most * (1.0 + 1e-9)) {
            return Err(Error::usage(format!("cannot go to {most} CPUs in steps of {step}"))
                .hint("a line needs at least three quotas"));
        }
        let (orders, equations, sample) = if quick {
            (vec![Order::Random], ORDER_QUICK, SAMPLE_QUICK)
        } else {
            (vec![Order::Ascending, Order::Descending, Order::Random], ORDER, SAMPLE)
        };
        let mut plan = Self {
            seed,
            cpus,
            quotas: Vec::new(),
            orders,
            threads: Threads::EVERY.to_vec(),
            equations,
            solutions_max: solutions_max(host, equations),
            sample_seconds: sample.as_secs_f64(),
            period_seconds: PERIOD.as_secs_f64(),
        };
        // Before all are listed: steps below the kernel's least quota can be as many as fill the memory.
        plan.check_quota(host, step)?;
        let count = (most / step + 1e-9).floor() as u32;
        plan.quotas.extend((1..=count).map(|number| f64::from(number) * step));
        if plan.quotas.last().is_some_and(|last| most - last > 1e-9) {
            plan.quotas.push(most);
        }
        plan.check(host)?;
        Ok(plan)
    }

    /// The same as in the paper: systems of 10000 equations, each quota once, ascending, threads on all CPUs.
    ///
    /// # Errors
    /// Memory does not allow it.
    pub fn as_published(self, host: &Host) -> Result<Self> {
        let plan = Self {
            equations: published::EQUATIONS,
            solutions_max: solutions_max(host, published::EQUATIONS),
            orders: vec![Order::Ascending],
            threads: vec![Threads::All],
            ..self
        };
        plan.check(host)?;
        Ok(plan)
    }

    fn check(&self, host: &Host) -> Result<()> {
        let needed = linpack::bytes(self.equations);
        if let Some(bytes) = available(host)
            && needed as f64 > bytes as f64 * SHARE_MAX
        {
            let [needed, bytes] = [needed, bytes].map(|bytes| bytes >> 20);
            return Err(Error::unavailable(format!(
                "systems of {} equations take {needed} MiB, and {bytes} MiB are available",
                self.equations
            ))
            .hint("free memory, or use --quick"));
        }
        self.quotas.iter().try_for_each(|quota| self.check_quota(host, *quota).map(drop))
    }

    /// Whether a quota can be set; returns what is to be known of it beforehand.
    fn check_quota(&self, host: &Host, quota: f64) -> Result<Vec<String>> {
        let expected = fracas()?.check(host, &self.demand(quota)).map_err(|why| {
            let is_floor = matches!(why.reason, Reason::PeriodOutOfReach | Reason::SpeedOutOfReach);
            let error = why.into_error(MethodId::Fracas);
            if is_floor {
                error
                    .with_kind(ErrorKind::Usage)
                    .hint("take larger steps with --step: the period is Docker's, 100 ms")
            } else {
                error
            }
        })?;
        Ok(expected.notes)
    }

    /// One quota for the sum of all CPUs, as Docker's `--cpus` has it.
    fn demand(&self, quota: f64) -> Demand {
        let share = (quota / self.cpus.len() as f64).min(1.0);
        let targets = self.cpus.iter().map(|cpu| (cpu, Target { share, clock: None })).collect();
        Demand {
            period: Some(Duration::from_secs_f64(self.period_seconds)),
            variant: Variant::Published,
            ..Demand::new(targets)
        }
    }

    /// Every order with its quotas and numbers of threads, as they are gone through.
    fn cells(&self) -> Vec<Cell> {
        let mut random = Pcg64::seed_from_u64(self.seed);
        let mut all = Vec::new();
        for &order in &self.orders {
            let mut cells: Vec<_> = self
                .quotas
                .iter()
                .flat_map(|&quota| {
                    let mut counts: Vec<_> =
                        self.threads.iter().map(|threads| threads.count(quota, self.cpus.len())).collect();
                    // Where both are as many, one sample stands for both.
                    counts.dedup();
                    counts.into_iter().map(move |threads| Cell { order, quota, threads })
                })
                .collect();
            match order {
                Order::Ascending => {}
                Order::Descending => cells.reverse(),
                Order::Random => cells.shuffle(&mut random),
            }
            all.extend(cells);
        }
        all
    }
}

/// What one sample is taken of.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    order: Order,
    quota: f64,
    threads: usize,
}

/// LINPACK at one quota.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The order in whose turn it was taken.
    pub order: Order,
    /// The quota in CPUs.
    pub quota: f64,
    /// Threads that solved.
    pub threads: usize,
    /// Solutions in a row.
    pub solutions: usize,
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

/// How many systems fit the memory.
fn solutions_max(host: &Host, equations: usize) -> usize {
    let bytes = available(host).map_or(u64::MAX, |bytes| (bytes as f64 * SHARE_MAX) as u64);
    (bytes / linpack::bytes(equations).max(1)).max(1) as usize
}

fn fracas() -> Result<&'static dyn emu_core::Method> {
    method(MethodId::Fracas).ok_or_else(|| Error::unavailable("the method fracas is not built in"))
}

/// Measures by the plan.
///
/// # Errors
/// A quota cannot be set or undone, the solving process fails, or `watch` ends it.
pub fn measure(host: &Host, plan: &Plan, watch: Watch<'_>) -> Result<Measured> {
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
        let (one, remarks) = sample(host, plan, &mut solver, cell, alone, &mut go_on)?;
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

impl Plan {
    /// How often a system that takes a CPU `alone` seconds is solved at a quota.
    fn times(&self, quota: f64, alone: f64) -> usize {
        ((self.sample_seconds * quota / alone).ceil() as usize).clamp(1, self.solutions_max)
    }

    fn expected_time(&self, cells: &[Cell], alone: Option<f64>) -> Duration {
        let of = |cell: &Cell| {
            let solving = alone.map_or(self.sample_seconds, |alone| {
                self.times(cell.quota, alone) as f64 * alone / cell.quota
            });
            Duration::from_secs_f64(solving) + OVERHEAD
        };
        cells.iter().map(of).sum()
    }
}

/// A sample, and what went otherwise than asked.
fn sample(
    host: &Host,
    plan: &Plan,
    solver: &mut Solver,
    cell: &Cell,
    alone: f64,
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
        quota: cell.quota,
        threads: cell.threads,
        solutions,
        seconds: done.seconds,
        gflops: linpack::operations(plan.equations) * solutions as f64 / done.seconds / 1e9,
        cpus_used: done.cpu_seconds / done.seconds,
        residual,
        passed,
    };
    Ok((sample, notes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::Roots;

    fn plan(cpus: &str, orders: &[Order]) -> Plan {
        Plan {
            seed: 5,
            cpus: cpus.parse().unwrap(),
            quotas: vec![0.5, 1.0, 1.5, 2.0],
            orders: orders.to_vec(),
            threads: Threads::EVERY.to_vec(),
            equations: 100,
            solutions_max: 20,
            sample_seconds: 2.0,
            period_seconds: 0.1,
        }
    }

    #[test]
    fn every_order_goes_through_every_quota_and_number_of_threads_once() {
        let cells = plan("0-1", &[Order::Ascending, Order::Descending, Order::Random]).cells();
        let ascending = [(0.5, 1), (0.5, 2), (1.0, 1), (1.0, 2), (1.5, 2), (2.0, 2)];
        let of = |order| {
            let cells = cells.iter().filter(move |cell| cell.order == order);
            cells.map(|cell| (cell.quota, cell.threads)).collect::<Vec<_>>()
        };
        assert_eq!(of(Order::Ascending), ascending);
        assert_eq!(of(Order::Descending), ascending.into_iter().rev().collect::<Vec<_>>());
        let mut random = of(Order::Random);
        assert_ne!(random, ascending);
        random.sort_by(|a, b| a.partial_cmp(b).unwrap());
        assert_eq!(random, ascending);
    }

    #[test]
    fn threads_are_as_many_as_a_quota_fills() {
        for (quota, count) in [(0.1, 1), (1.0, 1), (0.1 * 10.0, 1), (1.1, 2), (2.0, 2), (3.0, 2)] {
            assert_eq!(Threads::Ceiling.count(quota, 2), count, "{quota}");
            assert_eq!(Threads::All.count(quota, 2), 2);
        }
    }

    #[test]
    fn a_quota_is_one_for_all_cpus() {
        let demand = plan("0-3", &[]).demand(1.0);
        assert_eq!((demand.variant, demand.uniform_share()), (Variant::Published, Some(0.25)));
        assert_eq!(demand.period, Some(Duration::from_millis(100)));
    }

    #[test]
    fn samples_are_long_enough_at_every_quota() {
        let plan = plan("0-1", &[]);
        assert_eq!((plan.times(0.1, 0.5), plan.times(2.0, 0.5), plan.times(0.1, 9.0)), (1, 8, 1));
        assert_eq!(plan.times(2.0, 1e-3), 20, "memory limits");
    }

    #[test]
    fn steps_that_make_no_line_are_refused() {
        let host = Host::detect(&Roots::system()).unwrap();
        for step in [0.0, -0.1, f64::NAN, f64::INFINITY, 1e6] {
            assert_eq!(Plan::new(&host, true, 1, step).unwrap_err().kind(), ErrorKind::Usage, "{step}");
        }
    }

    #[test]
    fn steps_below_the_kernels_least_quota_are_refused_before_they_are_listed() {
        let host = Host::detect(&Roots::system()).unwrap();
        for step in [1e-3, 1e-9, 1e-300] {
            assert!(Plan::new(&host, true, 1, step).is_err(), "{step}");
        }
    }
}

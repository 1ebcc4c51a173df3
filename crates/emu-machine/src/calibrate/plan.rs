//! What is measured, and in which order.
//!
//! A sample depends on what the samples before it have left behind: heat, caches, the budget of a burst, state of a
//! hypervisor (Luszczek et al. 2011, § 5). So the steps of an order follow each other in *passes* of their own. Single steps
//! of several orders in turn would give all of them the same past. Each order as one block would give each a time of its own,
//! and a machine that drifts would look as if the order mattered.
//!
//! Each order has two passes, and those of the second half come in the reverse of the first: a drift along a straight line
//! adds as much to every order. The two passes share the quotas, every other one each. At each quota an order comes before
//! another in one half and after it in the other, by which drift and order are told apart (see
//! [`OrderEffect`](super::OrderEffect)).

use std::time::Duration;

use emu_bench::memory::available;
use emu_core::{
    CpuList, Demand, Error, ErrorKind, Host, MethodId, Prepared, Reason, Result, Target, find, ids,
};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::published;
use super::sizes::solutions_max;
use crate::kernel::linpack;

/// One quota for the sum of all CPUs, as Docker's `--cpus` has it.
const METHOD: MethodId = ids::FRACAS_PUBLISHED;

/// The period of Docker's quotas, as in the paper.
const PERIOD: Duration = Duration::from_millis(100);

/// The paper's step of quotas, in CPUs.
const STEP: f64 = 0.1;

/// How long a sample is to take: many periods, so that it does not matter within which one it ends.
const SAMPLE: Duration = Duration::from_secs(6);
const SAMPLE_QUICK: Duration = Duration::from_secs(2);

/// Equations: enough for the rate to be that of larger ones, few enough for some of them in a sample.
const SIZES: &[usize] = &[4000];
const SIZES_QUICK: &[usize] = &[2000];

/// What a sample costs besides: the systems, their checks, the core clock, and engaging the quota.
const OVERHEAD: Duration = Duration::from_millis(400);

/// In which order quotas are gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Wanted {
    /// Few and short samples, for a first look.
    pub quick: bool,
    /// The published sizes, order, threads and repetitions.
    pub published: bool,
    /// Start of the random numbers.
    pub seed: u64,
    /// From one quota to the next, in CPUs. The paper's unless given; when it is to be quick, such as makes about 20 quotas.
    pub step: Option<f64>,
    /// How often all passes are gone through: as often as in the paper where that is asked for, else once.
    pub reps: Option<usize>,
    /// Equations of the systems of each sample, of which the last one counts; as usual where there is none.
    pub sizes: Vec<usize>,
}

/// What will be measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CalibrationPlan {
    /// Start of the random numbers.
    pub seed: u64,
    /// The CPUs that threads may run on.
    pub cpus: CpuList,
    /// Quotas in CPUs, ascending.
    pub quotas: Vec<f64>,
    /// The order of each pass, one pass after the other. Passes of the same order share the quotas among them.
    pub passes: Vec<Order>,
    /// How often all passes are gone through.
    pub reps: usize,
    /// Numbers of threads.
    pub threads: Vec<Threads>,
    /// Equations of the systems that a sample solves one after the other. The last one counts; those before it give the
    /// clock time to settle, as published.
    pub sizes: Vec<usize>,
    /// The most solutions of the last size in a sample: each has a system of its own, and memory is limited.
    pub solutions_max: usize,
    /// About how long a sample takes, in seconds.
    pub sample_seconds: f64,
    /// Period of the quota, in seconds.
    pub period_seconds: f64,
}

impl CalibrationPlan {
    /// Quotas up to all CPUs that may be used.
    pub fn new(host: &Host, wanted: &Wanted) -> Result<Self> {
        let mut plan = Self::without_quotas(host, wanted)?;
        let most = plan.cpus.len() as f64;
        let step =
            wanted.step.unwrap_or_else(|| if wanted.quick { quick_step(plan.cpus.len()) } else { STEP });
        if !(step > 0.0 && step * 3.0 <= most * (1.0 + 1e-9)) {
            return Err(Error::usage(format!("cannot go to {most} CPUs in steps of {step}"))
                .hint("a line needs at least three quotas"));
        }
        // Before all are listed: steps below the kernel's least quota can be as many as fill the memory.
        plan.prepare(host, step)?;
        let count = (most / step + 1e-9).floor() as u32;
        plan.quotas.extend((1..=count).map(|number| f64::from(number) * step));
        if plan.quotas.last().is_some_and(|last| most - last > 1e-9) {
            plan.quotas.push(most);
        }
        plan.quotas.iter().try_for_each(|quota| plan.prepare(host, *quota).map(drop))?;
        Ok(plan)
    }

    fn without_quotas(host: &Host, wanted: &Wanted) -> Result<Self> {
        let &Wanted { quick, published, seed, reps, .. } = wanted;
        if reps == Some(0) {
            return Err(Error::usage("cannot calibrate by 0 repetitions").hint("take one at least: --reps 1"));
        }
        let (passes, usual_sizes, usual_reps) = match (quick, published) {
            (true, _) => (vec![Order::Random], SIZES_QUICK, 1),
            (false, true) => (vec![Order::Ascending], published::SIZES, published::REPS),
            (false, false) => (balanced(seed), SIZES, 1),
        };
        let sizes = if wanted.sizes.is_empty() { usual_sizes.to_vec() } else { wanted.sizes.clone() };
        Ok(Self {
            seed,
            cpus: host.allowed.clone(),
            quotas: Vec::new(),
            passes,
            reps: reps.unwrap_or(usual_reps),
            threads: if published && !quick { vec![Threads::All] } else { Threads::EVERY.to_vec() },
            solutions_max: solutions_max(available(host), &sizes)?,
            sizes,
            sample_seconds: if quick { SAMPLE_QUICK } else { SAMPLE }.as_secs_f64(),
            period_seconds: PERIOD.as_secs_f64(),
        })
    }

    /// Equations of the size that counts.
    pub fn equations(&self) -> usize {
        self.sizes.last().copied().unwrap_or(0)
    }

    pub(super) fn prepare(&self, host: &Host, quota: f64) -> Result<Prepared> {
        Prepared::new(find(METHOD.as_str())?, host, &self.demand(quota)).map_err(|why| {
            let is_floor = matches!(why.reason, Reason::PeriodOutOfReach | Reason::SpeedOutOfReach);
            let error = why.into_error(METHOD);
            if is_floor {
                error
                    .with_kind(ErrorKind::Usage)
                    .hint("take larger steps with --step: the period is Docker's, 100 ms")
            } else {
                error
            }
        })
    }

    pub(super) fn demand(&self, quota: f64) -> Demand {
        let share = (quota / self.cpus.len() as f64).min(1.0);
        let targets = self.cpus.iter().map(|cpu| (cpu, Target { share, clock: None })).collect();
        Demand {
            period: Some(Duration::from_secs_f64(self.period_seconds)),
            // What the governor makes of a quota is part of what is measured.
            hold_clock: false,
            ..Demand::new(targets)
        }
    }

    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut random = Pcg64::seed_from_u64(self.seed);
        let mut all = Vec::new();
        let passes = || self.passes.iter().enumerate();
        for (rep, (pass, &order)) in (0..self.reps).flat_map(|rep| passes().map(move |pass| (rep, pass))) {
            let alike = |passes: &[Order]| passes.iter().filter(|other| **other == order).count();
            let (before, count) = (self.passes.get(..pass).map_or(0, alike), alike(&self.passes));
            // The next pass of the order has the quotas that this one leaves out.
            let quotas = self.quotas.iter().skip(before).step_by(count.max(1));
            let mut cells: Vec<_> = quotas
                .flat_map(|&quota| {
                    let mut counts: Vec<_> =
                        self.threads.iter().map(|threads| threads.count(quota, self.cpus.len())).collect();
                    // Where both are as many, one sample stands for both.
                    counts.dedup();
                    let pass = rep * self.passes.len() + pass;
                    counts.into_iter().map(move |threads| Cell { order, pass, quota, threads })
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

    /// How often a system that takes a CPU `alone` seconds is solved at a quota.
    pub(super) fn times(&self, quota: f64, alone: f64) -> usize {
        ((self.sample_seconds * quota / alone).ceil() as usize).clamp(1, self.solutions_max)
    }

    /// About how long these samples take; `alone` is how many seconds a CPU takes for a system, where that is known.
    pub(super) fn expected_time(&self, cells: &[Cell], alone: Option<f64>) -> Duration {
        // Of the sizes before the last one, in solutions of that.
        let all: f64 = self.sizes.iter().map(|size| linpack::operations(*size)).sum();
        let earlier = all / linpack::operations(self.equations()) - 1.0;
        let of = |cell: &Cell| {
            let solving = alone.map_or(self.sample_seconds, |alone| {
                (self.times(cell.quota, alone) as f64 + earlier) * alone / cell.quota
            });
            Duration::from_secs_f64(solving) + OVERHEAD
        };
        cells.iter().map(of).sum()
    }
}

/// Two passes of each order, the second ones in the reverse order of the first.
pub(super) fn balanced(seed: u64) -> Vec<Order> {
    let mut first = [Order::Ascending, Order::Descending, Order::Random];
    first.shuffle(&mut Pcg64::seed_from_u64(seed));
    first.iter().chain(first.iter().rev()).copied().collect()
}

/// The least multiple of the paper's step, a tenth of a CPU, that makes 20 quotas at most.
fn quick_step(cpus: usize) -> f64 {
    STEP * cpus.div_ceil(2) as f64
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub(super) order: Order,
    pub(super) pass: usize,
    /// The quota in CPUs.
    pub(super) quota: f64,
    pub(super) threads: usize,
}

#[cfg(test)]
mod tests;

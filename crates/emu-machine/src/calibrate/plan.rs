//! What is measured, and in which order.
//!
//! Whether the order of quotas matters is a question of what the samples before one have left behind: heat, caches, the
//! budget of a burst, state of a hypervisor (Luszczek et al. 2011, § 5). So the steps of an order follow each other in
//! *passes* of their own. Single steps of several orders in turn would give all of them the same past, and no effect
//! could be found. Each order as one block would give each a time of its own, and a machine that drifts would look as if
//! the order mattered.
//!
//! So each order has two passes, and those of the second half come in the reverse of the first: ascending, descending,
//! random, random, descending, ascending, or another start by the seed. What drifts along a straight line adds as much to
//! every order. The two passes share the quotas, every other one each, so that both go through the whole range and are no
//! longer than one through all of them. At each quota an order comes before another in one half and after it in the
//! other, by which drift and order are told apart (see [`OrderEffect`](super::OrderEffect)).

use std::time::Duration;

use emu_bench::memory::available;
use emu_core::{
    CpuList, Demand, Error, ErrorKind, Host, MethodId, Prepared, Reason, Result, Target, find, ids,
};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

use super::published;
use crate::kernel::linpack;

/// One quota for the sum of all CPUs, as containers have it.
const METHOD: MethodId = ids::FRACAS_PUBLISHED;

/// The period of Docker's quotas, as in the paper.
const PERIOD: Duration = Duration::from_millis(100);

/// The paper's step of quotas, in CPUs.
const STEP: f64 = 0.1;

/// How long a sample is to take: many periods, so that it does not matter within which one it ends.
const SAMPLE: Duration = Duration::from_secs(6);
const SAMPLE_QUICK: Duration = Duration::from_secs(2);

/// Equations: enough for the rate to be that of larger ones, few enough for some of them in a sample.
const ORDER: usize = 4000;
const ORDER_QUICK: usize = 2000;

/// Share of the available memory that systems may take.
const SHARE_MAX: f64 = 0.5;

/// What a sample costs besides: the systems, their checks, the core clock, and engaging the quota.
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
pub struct CalibrationPlan {
    /// Start of the random numbers.
    pub seed: u64,
    /// The CPUs that threads may run on.
    pub cpus: CpuList,
    /// Quotas in CPUs, ascending.
    pub quotas: Vec<f64>,
    /// The order of each pass, one pass after the other. Passes of the same order share the quotas among them.
    pub passes: Vec<Order>,
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

impl CalibrationPlan {
    /// Quotas from `step` to all CPUs that may be used, in steps of it; without one in the paper's, or, when it is to be
    /// quick, in such as make about 20 quotas.
    ///
    /// # Errors
    /// Usage, for a step that is no part of the CPUs. What memory or the kernel's least quota does not allow.
    pub fn new(host: &Host, quick: bool, seed: u64, step: Option<f64>) -> Result<Self> {
        let cpus = host.allowed.clone();
        let most = cpus.len() as f64;
        let step = step.unwrap_or_else(|| if quick { quick_step(cpus.len()) } else { STEP });
        if !(step > 0.0 && step * 3.0 <= most * (1.0 + 1e-9)) {
            return Err(Error::usage(format!("cannot go to {most} CPUs in steps of {step}"))
                .hint("a line needs at least three quotas"));
        }
        let (passes, equations, sample) = if quick {
            (vec![Order::Random], ORDER_QUICK, SAMPLE_QUICK)
        } else {
            (balanced(seed), ORDER, SAMPLE)
        };
        let mut plan = Self {
            seed,
            cpus,
            quotas: Vec::new(),
            passes,
            threads: Threads::EVERY.to_vec(),
            equations,
            solutions_max: solutions_max(host, equations),
            sample_seconds: sample.as_secs_f64(),
            period_seconds: PERIOD.as_secs_f64(),
        };
        // Before all are listed: steps below the kernel's least quota can be as many as fill the memory.
        plan.prepare(host, step)?;
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
            passes: vec![Order::Ascending],
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
        self.quotas.iter().try_for_each(|quota| self.prepare(host, *quota).map(drop))
    }

    /// What sets a quota, where it can be set.
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

    /// One quota for the sum of all CPUs, as Docker's `--cpus` has it.
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

    /// The passes with their quotas and numbers of threads, as they are gone through.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut random = Pcg64::seed_from_u64(self.seed);
        let mut all = Vec::new();
        for (pass, &order) in self.passes.iter().enumerate() {
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
        let of = |cell: &Cell| {
            let solving = alone.map_or(self.sample_seconds, |alone| {
                self.times(cell.quota, alone) as f64 * alone / cell.quota
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

/// The least multiple of the paper's step that makes 20 quotas at most.
fn quick_step(cpus: usize) -> f64 {
    // A twentieth of the CPUs, in tenths of one.
    STEP * cpus.div_ceil(2) as f64
}

/// How many systems fit the memory.
fn solutions_max(host: &Host, equations: usize) -> usize {
    let bytes = available(host).map_or(u64::MAX, |bytes| (bytes as f64 * SHARE_MAX) as u64);
    (bytes / linpack::bytes(equations).max(1)).max(1) as usize
}

/// What one sample is taken of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    /// The order that it is a step of.
    pub(super) order: Order,
    /// The pass, from 0.
    pub(super) pass: usize,
    /// The quota in CPUs.
    pub(super) quota: f64,
    /// Threads that solve.
    pub(super) threads: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::Roots;

    fn plan(cpus: &str, passes: &[Order]) -> CalibrationPlan {
        CalibrationPlan {
            seed: 5,
            cpus: cpus.parse().unwrap(),
            quotas: vec![0.5, 1.0, 1.5, 2.0],
            passes: passes.to_vec(),
            threads: Threads::EVERY.to_vec(),
            equations: 100,
            solutions_max: 20,
            sample_seconds: 2.0,
            period_seconds: 0.1,
        }
    }

    const ORDERS: [Order; 3] = [Order::Ascending, Order::Descending, Order::Random];

    /// What is measured in the passes that are meant, in order.
    fn steps(plan: &CalibrationPlan, is_meant: impl Fn(&Cell) -> bool) -> Vec<(f64, usize)> {
        let cells = plan.cells();
        cells.iter().filter(|&cell| is_meant(cell)).map(|cell| (cell.quota, cell.threads)).collect()
    }

    #[test]
    fn every_order_has_each_quota_and_number_of_threads_once() {
        let ascending = [(0.5, 1), (0.5, 2), (1.0, 1), (1.0, 2), (1.5, 2), (2.0, 2)];
        for passes in [ORDERS.to_vec(), balanced(7)] {
            let plan = plan("0-1", &passes);
            for order in ORDERS {
                let mut steps = steps(&plan, |cell| cell.order == order);
                steps.sort_by(|a, b| a.partial_cmp(b).unwrap());
                assert_eq!(steps, ascending, "{order:?}");
            }
        }
        let alone = plan("0-1", &ORDERS);
        assert_eq!(steps(&alone, |cell| cell.pass == 0), ascending);
        assert_eq!(steps(&alone, |cell| cell.pass == 1), ascending.into_iter().rev().collect::<Vec<_>>());
        assert_ne!(steps(&alone, |cell| cell.pass == 2), ascending);
    }

    #[test]
    fn a_pass_goes_up_or_down_through_its_share_of_the_quotas() {
        let [up, down, _] = ORDERS;
        let plan = plan("0-1", &[up, down, down, up]);
        let (odd, even) = ([(0.5, 1), (0.5, 2), (1.5, 2)], [(1.0, 1), (1.0, 2), (2.0, 2)]);
        let reversed = |steps: [(f64, usize); 3]| steps.into_iter().rev().collect::<Vec<_>>();
        assert_eq!(steps(&plan, |cell| cell.pass == 0), odd);
        assert_eq!(steps(&plan, |cell| cell.pass == 1), reversed(odd));
        assert_eq!(steps(&plan, |cell| cell.pass == 2), reversed(even));
        assert_eq!(steps(&plan, |cell| cell.pass == 3), even);
        let passes: Vec<_> = plan.cells().iter().map(|cell| cell.pass).collect();
        assert!(passes.is_sorted(), "one pass after the other: {passes:?}");
    }

    #[test]
    fn orders_are_balanced_in_time_and_the_seed_picks_the_first() {
        let mut first = Vec::new();
        for seed in 0..20 {
            let passes = balanced(seed);
            assert_eq!((passes.len(), &passes), (6, &balanced(seed)));
            for order in ORDERS {
                let places = passes.iter().enumerate().filter(|(_, other)| **other == order);
                assert_eq!(places.map(|(place, _)| place).sum::<usize>(), 5, "{order:?} in {passes:?}");
            }
            first.push(passes[0]);
        }
        assert!(ORDERS.iter().all(|order| first.contains(order)), "{first:?}");
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
        assert_eq!((demand.targets.len(), demand.uniform_share()), (4, Some(0.25)));
        assert_eq!(demand.period, Some(Duration::from_millis(100)));
    }

    #[test]
    fn samples_are_long_enough_at_every_quota() {
        let plan = plan("0-1", &[]);
        assert_eq!((plan.times(0.1, 0.5), plan.times(2.0, 0.5), plan.times(0.1, 9.0)), (1, 8, 1));
        assert_eq!(plan.times(2.0, 1e-3), 20, "memory limits");
    }

    #[test]
    fn a_quick_calibration_has_about_20_quotas_on_any_host() {
        for (cpus, step) in [(1, 0.1), (2, 0.1), (3, 0.2), (4, 0.2), (16, 0.8), (256, 12.8)] {
            assert!((quick_step(cpus) - step).abs() < 1e-9, "{cpus}");
        }
        for cpus in 1..=512 {
            let count = cpus as f64 / quick_step(cpus);
            assert!((10.0 - 1e-9..=20.0 + 1e-9).contains(&count), "{cpus}: {count}");
        }
    }

    #[test]
    fn steps_that_make_no_line_are_refused() {
        let host = Host::detect(&Roots::system()).unwrap();
        for step in [0.0, -0.1, f64::NAN, f64::INFINITY, 1e6] {
            assert_eq!(
                CalibrationPlan::new(&host, true, 1, Some(step)).unwrap_err().kind(),
                ErrorKind::Usage,
                "{step}"
            );
        }
    }

    #[test]
    fn steps_below_the_kernels_least_quota_are_refused_unlisted() {
        let host = Host::detect(&Roots::system()).unwrap();
        for step in [1e-3, 1e-9, 1e-300] {
            assert!(CalibrationPlan::new(&host, true, 1, Some(step)).is_err(), "{step}");
        }
    }
}

//! Calibration: how LINPACK's rate follows the CPU quota (Manner & Wirtz 2021, *Why many benchmarks might be
//! compromised*, SOSE), and whether the order of quotas matters (Luszczek et al. 2011, *Evaluation of the HPC Challenge
//! benchmarks in virtualized environments*, § 5).
//!
//! Orders are gone through in whole passes and in a balanced sequence of these, so that a machine that drifts favours none
//! (`plan`); what drifts all the same is taken out by a regression over the time between samples of a quota (`orders`).

mod analysis;
mod compare;
mod explain;
mod map;
mod meter;
mod model;
mod orders;
mod plan;
pub mod published;
mod sizes;
mod solver;
mod verdict;

pub use analysis::Analysis;
pub use compare::{Compared, Setting, compare};
pub use explain::{CAUSES, Explained, Tested, explain};
pub use map::{Doubt, Equivalent, Other, equivalent};
pub use model::{Band, Model, Residuals};
pub use orders::OrderEffect;
pub use plan::{CalibrationPlan, Order, Threads, Wanted};
pub use sizes::EQUATIONS;

use std::path::Path;
use std::time::Instant;

use emu_bench::ticks::Ticks;
use emu_bench::verify::{FOREIGN_MAX, STEAL_MAX};
use emu_bench::worker::{Kind, Look};
use emu_core::{Error, Host, Result, Session, Tasks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Event, Watch, tell};
use crate::kernel::linpack;
use analysis::{decisive, own};
use plan::Cell;
use solver::{Solver, Solving};

/// The task of the processes that solve; who calls [`measure`] serves it.
pub const TASK: Kind = Kind::of::<Solving>();

/// LINPACK at one quota.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Solutions of the size that counts, in a row.
    pub solutions: usize,
    /// When the sample began, in seconds from the begin of the measurement; 0 where that is not known.
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
    /// The mean core clock in Hz while the solutions were computed, where and when their threads ran; in records of older
    /// emus that before and after. `None` where it is not known.
    pub clock_hz: Option<f64>,
    /// Share of these CPUs' time that the hypervisor gave to others meanwhile; `None` where that is not known.
    pub stolen: Option<f64>,
    /// Share of it that other tasks had at least; `None` where that is not known.
    pub foreign: Option<f64>,
}

impl Sample {
    /// Whether others had more of the CPUs than a window of a verification may lose to them.
    pub fn is_disturbed(&self) -> bool {
        let above = |share: Option<f64>, most: f64| share.is_some_and(|share| share > most);
        above(self.stolen, STEAL_MAX) || above(self.foreign, FOREIGN_MAX)
    }

    fn disturbance(&self) -> f64 {
        self.stolen.unwrap_or(0.0) + self.foreign.unwrap_or(0.0)
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Every sample, in the order in which they were taken.
    pub samples: Vec<Sample>,
    /// CPUs of the largest quota.
    pub cpus: usize,
    /// Equations of LINPACK.
    pub equations: usize,
    /// Sizes that were solved in each sample, of which the last one counts; empty in records of older emus.
    #[serde(default)]
    pub sizes: Vec<usize>,
    /// What the samples say, for each number of threads.
    pub analyses: Vec<Analysis>,
    /// What went otherwise than asked while the quotas were in force, such as a limit of a group above; each once.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What it means, in words.
    pub verdict: String,
    /// Which knob makes what is off, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<Explained>,
}

impl Measured {
    /// Whether all solutions are right.
    pub fn passed(&self) -> bool {
        self.samples.iter().all(|sample| sample.passed)
    }

    /// The same with its samples analysed by the rules of this emu, whichever has measured them.
    pub fn analysed_again(mut self) -> Result<Self> {
        if self.cpus == 0 {
            return Err(Error::usage("it is of no CPU").hint("the record is damaged: calibrate again"));
        }
        let threads: Vec<Threads> = self.analyses.iter().map(|one| one.threads).collect();
        self.analyses = analyses(&self.samples, &threads, self.cpus)?;
        Ok(self)
    }

    /// The samples that others have disturbed: none of them decides where its quota has others.
    pub fn disturbed(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(|sample| sample.is_disturbed())
    }

    /// Those of them that decide nothing, as their quota has less disturbed ones.
    pub fn left_out(&self) -> impl Iterator<Item = &Sample> {
        let decide: Vec<Sample> = self
            .analyses
            .iter()
            .flat_map(|one| decisive(&own(&self.samples, one.threads, self.cpus)).0)
            .collect();
        self.disturbed().filter(move |sample| !decide.contains(sample))
    }

    /// Refuses a calibration with wrong solutions, whose rates say nothing; `record` is where it is from.
    pub fn check_solutions(&self, record: &Path) -> Result<()> {
        let wrong = self.samples.iter().filter(|sample| !sample.passed).count();
        if wrong == 0 {
            return Ok(());
        }
        Err(Error::usage(format!(
            "cannot use the calibration {}: {wrong} of its {} samples have a wrong solution",
            record.display(),
            self.samples.len()
        ))
        .hint(
            "memory, CPU or clock speed of that machine cannot be trusted; mend that, and calibrate it again",
        ))
    }

    /// The lowest and the highest core clock of the samples, in Hz; `None` where none is known.
    pub fn clock_range(&self) -> Option<(f64, f64)> {
        clock_range(&self.samples)
    }
}

fn analyses(samples: &[Sample], threads: &[Threads], cpus: usize) -> Result<Vec<Analysis>> {
    threads.iter().map(|&threads| Analysis::of(samples, threads, cpus)).collect()
}

fn clock_range(samples: &[Sample]) -> Option<(f64, f64)> {
    samples.iter().filter_map(|sample| sample.clock_hz).fold(None, |range, clock| {
        let (low, high) = range.unwrap_or((clock, clock));
        Some((clock.min(low), clock.max(high)))
    })
}

/// Measures by the plan.
pub fn measure(host: &Host, plan: &CalibrationPlan, watch: Watch<'_>) -> Result<Measured> {
    let start = Instant::now();
    let mut solver = Solver::start()?;
    let cells = plan.cells();
    let left = plan.expected_time(&cells, None);
    let mut go_on = || watch(Event::Next { what: "without a quota", left });
    go_on()?;
    // How often a system is solved at a quota follows from the rate of one CPU.
    solver.prepare(&[plan.equations()], plan.seed, &plan.cpus, 1, 1, &mut go_on)?;
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
    let analyses = analyses(&samples, &plan.threads, plan.cpus.len())?;
    let verdict = verdict::verdict(&analyses, &samples, host);
    Ok(Measured {
        samples,
        cpus: plan.cpus.len(),
        equations: plan.equations(),
        sizes: plan.sizes.clone(),
        analyses,
        notes,
        verdict,
        explained: None,
    })
}

fn sample(
    host: &Host,
    plan: &CalibrationPlan,
    solver: &mut Solver,
    cell: &Cell,
    alone: f64,
    start: Instant,
    go_on: Look<'_>,
) -> Result<(Sample, Vec<String>)> {
    let solutions = plan.times(cell.quota, alone);
    let prepared = plan.prepare(host, cell.quota)?;
    solver.prepare(&plan.sizes, plan.seed, &plan.cpus, cell.threads, solutions, go_on)?;
    let (ticks, begin) = (Ticks::now(&host.roots.proc, &plan.cpus)?, Instant::now());
    let session = Session::begin(&prepared, "calibrate", Tasks::Processes(vec![solver.pid()]))?;
    let begin_seconds = start.elapsed().as_secs_f64();
    let done = solver.solve(go_on);
    let (after, wall_s) = (Ticks::now(&host.roots.proc, &plan.cpus), begin.elapsed().as_secs_f64());
    if done.is_err() {
        // Nothing of it is wanted any more, least of all at full speed.
        solver.end();
    }
    let (status, released) = session.release();
    released?;
    let mut notes = status.messages();
    notes.retain(|note| !prepared.expected().notes.contains(note));
    let (done, ticks) = (done?, after?.since(ticks));
    let (residual, passed) = solver.check(go_on)?;
    let sample = Sample {
        order: cell.order,
        pass: cell.pass,
        quota: cell.quota,
        threads: cell.threads,
        solutions,
        begin_seconds,
        seconds: done.seconds,
        gflops: linpack::operations(plan.equations()) * solutions as f64 / done.seconds / 1e9,
        cpus_used: done.cpu_seconds / done.seconds,
        residual,
        passed,
        clock_hz: done.clock_hz,
        stolen: Some(ticks.stolen_share()),
        foreign: Some(ticks.foreign(wall_s, plan.cpus.len(), done.all_cpu_seconds)),
    };
    Ok((sample, notes))
}

#[cfg(test)]
mod testing {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    use super::plan::Cell;
    use super::{Analysis, CalibrationPlan, Measured, Order, Sample, Threads};

    /// A sample of a machine of which nothing else is known.
    pub(super) fn sample(order: Order, quota: f64, threads: usize, gflops: f64) -> Sample {
        Sample {
            order,
            pass: 0,
            quota,
            threads,
            solutions: 3,
            begin_seconds: 0.0,
            seconds: 2.0,
            gflops,
            cpus_used: quota,
            residual: Some(0.01),
            passed: true,
            clock_hz: None,
            stolen: None,
            foreign: None,
        }
    }

    /// A calibration by LINPACK of 1000 equations that took these samples.
    pub(super) fn measurement(samples: Vec<Sample>, threads: Threads, cpus: usize) -> Measured {
        let analyses = vec![Analysis::of(&samples, threads, cpus).unwrap()];
        Measured {
            samples,
            cpus,
            equations: 1000,
            sizes: vec![1000],
            analyses,
            notes: vec![],
            verdict: String::new(),
            explained: None,
        }
    }

    /// Each sample twice, once by this share above and once below.
    pub(super) fn twice(samples: &[Sample], share: f64) -> Vec<Sample> {
        let both = |one: &Sample| {
            [1.0, -1.0].map(|side| Sample { gflops: one.gflops * (1.0 + side * share), ..*one })
        };
        samples.iter().flat_map(both).collect()
    }

    /// Seconds from one sample to the next.
    const EVERY: f64 = 6.4;

    /// Samples by the plan of a calibration of two CPUs, of a machine of 60 GFLOPS per CPU. `factor` is what becomes of
    /// the rate by the step and the time, which is 0 at the first sample and 1 at the last.
    pub(super) fn measured(
        passes: Vec<Order>,
        seed: u64,
        noise: f64,
        mut factor: impl FnMut(&Cell, f64) -> f64,
    ) -> Vec<Sample> {
        let plan = CalibrationPlan {
            seed,
            cpus: "0-1".parse().unwrap(),
            quotas: (1..=20).map(|tenth| f64::from(tenth) / 10.0).collect(),
            passes,
            threads: vec![Threads::All],
            sizes: vec![100],
            reps: 1,
            solutions_max: 20,
            sample_seconds: 6.0,
            period_seconds: 0.1,
        };
        let cells = plan.cells();
        let last = (cells.len() - 1) as f64;
        let mut random = Pcg64::seed_from_u64(seed);
        // A standard normal number by Box and Muller.
        let mut normal = move || {
            let [size, angle] = [(); 2].map(|()| random.random_range(f64::EPSILON..1.0));
            (-2.0 * f64::ln(size)).sqrt() * f64::cos(std::f64::consts::TAU * angle)
        };
        let one = |(number, cell): (usize, &Cell)| {
            let noise = 1.0 + noise * normal();
            let rate = 60.0 * cell.quota * factor(cell, number as f64 / last) * noise;
            Sample {
                pass: cell.pass,
                begin_seconds: number as f64 * EVERY,
                seconds: 6.0,
                ..sample(cell.order, cell.quota, cell.threads, rate)
            }
        };
        cells.iter().enumerate().map(one).collect()
    }

    /// Samples of one order with two threads, at quotas up to two CPUs, from a rate for each.
    pub(super) fn sweep(order: Order, rate: impl Fn(f64) -> f64) -> Vec<Sample> {
        let quotas = (1..=20).map(|tenth| f64::from(tenth) / 10.0);
        quotas.map(|quota| sample(order, quota, 2, rate(quota))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{measurement, sweep};
    use super::*;

    #[test]
    fn wrong_solutions_are_refused_by_the_name_of_their_record() {
        let samples = sweep(Order::Random, |quota| 60.0 * quota);
        let mut measured = measurement(samples, Threads::All, 2);
        let record = Path::new("/a/record");
        measured.check_solutions(record).unwrap();
        measured.samples[3].passed = false;
        let refused = measured.check_solutions(record).unwrap_err().to_string();
        assert!(refused.contains("/a/record: 1 of its 20 samples"), "{refused}");
    }

    #[test]
    fn the_least_disturbed_sample_of_a_quota_is_not_left_out() {
        let mut samples = testing::twice(&sweep(Order::Random, |quota| 60.0 * quota), 0.01);
        for (number, sample) in samples.iter_mut().enumerate() {
            sample.stolen = Some(if number % 2 == 0 { 0.2 } else { 0.3 });
        }
        samples[1].stolen = None;
        let measured = measurement(samples, Threads::All, 2);
        let (all, left_out) = (measured.disturbed().count(), measured.left_out().count());
        assert_eq!((all, left_out), (39, 20));
    }

    #[test]
    fn the_range_of_the_clock_is_of_those_that_are_known() {
        let mut samples = sweep(Order::Random, |quota| 60.0 * quota);
        assert_eq!(clock_range(&samples), None);
        (samples[2].clock_hz, samples[9].clock_hz) = (Some(3.2e9), Some(2.8e9));
        assert_eq!(clock_range(&samples), Some((2.8e9, 3.2e9)));
    }
}

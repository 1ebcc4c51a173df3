//! How fast CPUs calculate: every operation by itself and mixed, many at a time and one after another, and what share
//! of the theoretical peak is reached.

pub(crate) mod batches;
mod units;

pub use units::Units;
pub(crate) use units::fact;

use std::time::{Duration, Instant};

use emu_bench::stats::{Interval, Level, Sample};
use emu_core::{CpuId, CpuList, Error, ErrorKind, Hertz, Host, Result, clock};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Event, Left, OPTIMISED, THREADS_MAX, Watch, check_threads, in_order, notes_of_build, or_usual, places,
    tell,
};
use crate::kernel::arithmetic::{Number, Operation, Work, instruction_set, is_fused};
use crate::witness::{Others, Witness};

/// No CPU has more vector units than this: a higher rate says that the compiler has left out work.
const UNITS_MAX: f64 = 6.0;

/// What is measured of the CPUs, and for how long.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CpuPlan {
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// How long a sample is.
    pub sample_ns: u64,
    /// Samples of each.
    pub rounds: usize,
    /// Start of the random numbers.
    pub seed: u64,
}

impl CpuPlan {
    /// Long samples with these numbers of threads, else with 1, 2, 4 … and all; or short ones, else with one and all.
    pub fn new(host: &Host, quick: bool, threads: &[usize], seed: u64) -> Self {
        let (sample_ns, rounds) = if quick { (30_000_000, 5) } else { (200_000_000, 9) };
        Self { threads: or_usual(threads, host, quick), sample_ns, rounds, seed }
    }

    fn sample(&self) -> Duration {
        Duration::from_nanos(self.sample_ns)
    }

    /// Whether it can be carried out.
    pub fn check(&self) -> Result<()> {
        check_threads(&self.threads, THREADS_MAX)?;
        if self.rounds == 0 || self.sample_ns == 0 {
            return Err(Error::usage("nothing is to be measured"));
        }
        Ok(())
    }
}

/// What the CPUs do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cpu {
    /// The instruction set that is used for many operations at a time.
    pub instruction_set: String,
    /// Doubles, or integers of 64 bits, in one of its vectors.
    pub lanes: usize,
    /// Whether emu was built with optimisation; figures mean little otherwise.
    pub optimised: bool,
    /// The core clock of the first CPU, the middle one of the readings before every part; `None` where none was good.
    pub clock: Option<Hertz>,
    /// Operations many at a time.
    pub rates: Vec<Rate>,
    /// Operations one after another, on one CPU.
    pub waits: Vec<Wait>,
    /// What could be reached, and what was, by number of threads; none where the clock is not known.
    pub peaks: Vec<Peak>,
    /// What is to be known of the figures, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Operations many at a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rate {
    /// What was done.
    #[serde(flatten)]
    pub work: Work,
    /// Threads.
    pub threads: usize,
    /// Median of the samples: operations each second of all threads.
    pub operations_per_s: f64,
    /// In the order they were taken.
    pub samples: Vec<f64>,
    /// Whether others had a part of the CPUs meanwhile.
    #[serde(default)]
    pub disturbed: bool,
}

/// Operations one after another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Wait {
    /// What was done.
    #[serde(flatten)]
    pub work: Work,
    /// Median of the samples: nanoseconds until the next one can begin. Of mixed operations the mean of the four.
    pub wait_ns: f64,
    /// The same in cycles of the core clock; `None` where that is not known.
    pub wait_cycles: Option<f64>,
    /// In the order they were taken.
    pub samples: Vec<f64>,
    /// Whether others had a part of the CPU meanwhile.
    #[serde(default)]
    pub disturbed: bool,
}

/// What could be reached, and what was: doubles multiplied and added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Peak {
    /// Threads.
    pub threads: usize,
    /// Cores that they run on: threads that share a core share its units.
    pub cores: usize,
    /// Whether all these CPUs are of the kind that the model names, as far as the host tells.
    pub alike: bool,
    /// Vectors multiplied and added in one cycle; never documented for CPUs that are not alike.
    pub units: Units,
    /// The highest reading of the core clock of the first CPU; of CPUs that are not alike, the mean of the cores'.
    pub clock: Hertz,
    /// Cores × clock × units × lanes × 2; `None` where the units follow from what was measured.
    pub theoretical_per_s: Option<f64>,
    /// The best sample: what disturbs a sample only takes from it.
    pub best_per_s: f64,
    /// Best / theoretical; `None` as for that.
    pub share: Option<f64>,
}

impl Cpu {
    /// How many times the work of one thread so many do at the peak operations; `None` where both were not measured
    /// undisturbed.
    pub fn growth(&self, threads: usize) -> Option<Interval> {
        let of = |threads: usize| {
            let is_meant = |rate: &&Rate| rate.work == Work::PEAK && rate.threads == threads;
            self.rates.iter().find(is_meant).filter(|rate| !rate.disturbed).map(|rate| &rate.samples)
        };
        // By rounds: both met the same machine in each.
        let logs = of(threads)?.iter().zip(of(1)?).map(|(many, one)| (many / one).ln());
        let mean = Interval::of_mean(&Sample::new(logs.collect::<Vec<_>>()).ok()?, Level::P95);
        Some(mean.ok()?.map(f64::exp))
    }
}

/// Measures the CPUs as planned, the parts in random order.
pub fn run(plan: &CpuPlan, host: &Host, watch: Watch<'_>) -> Result<Cpu> {
    plan.check()?;
    let first = host.allowed.first().ok_or_else(|| Error::unavailable("no CPU may be used"))?;
    let mut random = Pcg64::seed_from_u64(plan.seed);
    // Each work many at a time, and one after another.
    let parts = Work::ALL.into_iter().flat_map(|work| [(work, true), (work, false)]);
    let mut parts: Vec<_> = parts.enumerate().collect();
    parts.shuffle(&mut random);
    let all_places: Vec<_> = plan.threads.iter().map(|threads| places(host, *threads)).collect();
    let one: Vec<_> = Work::ALL.iter().map(|work| (*work, work.one())).collect();
    let one_of = |work: Work| one.iter().find(|(of, _)| *of == work).map_or(0, |(_, one)| *one);
    let (mut rates, mut waits, mut clocks) = (Vec::new(), Vec::new(), Vec::new());
    let samples = plan.rounds * (plan.threads.len() + 1) / 2;
    let mut left = Left::new(parts.len(), plan.sample() * samples as u32 + clock::BUDGET);
    let mut witness = Witness::new(host, parts.len(), Others::Count);
    for (number, (work, is_many)) in parts {
        let what = format!("{} {}", work.name(), if is_many { "at a time" } else { "one after another" });
        watch(Event::Next { what: &what, left: left.time() })?;
        let begin = Instant::now();
        // A guest may be refused a good reading for a while; operations are timed all the same.
        clocks.extend(clock::measure(first, clock::BUDGET).ok().map(|reading| reading.clock.as_f64()));
        if is_many {
            let take = || {
                let mut all = vec![Vec::new(); plan.threads.len()];
                // Each round has every number of threads: a machine that drifts favours none.
                for _ in 0..plan.rounds {
                    let mut round: Vec<_> = all.iter_mut().zip(&all_places).collect();
                    round.shuffle(&mut random);
                    for (samples, places) in round {
                        watch(Event::Next { what: &what, left: left.time() })?;
                        samples.push(batches::rate(work, one_of(work), places, plan.sample())?);
                    }
                }
                Ok(all)
            };
            let (all, disturbed) = witness.measure(&what, &all_places.concat(), take)?;
            for (samples, &threads) in all.into_iter().zip(&plan.threads) {
                let operations_per_s = Sample::new(samples.clone())?.median();
                let rate = Rate { work, threads, operations_per_s, samples, disturbed };
                tell(watch, "rate", &rate)?;
                rates.push((number, rate));
            }
        } else {
            let place = [first].into_iter().collect();
            let sample = |_| batches::wait_ns(work, one_of(work), &place, plan.sample());
            let take = || (0..plan.rounds).map(sample).collect::<Result<Vec<_>>>();
            let (samples, disturbed) = witness.measure(&what, std::slice::from_ref(&place), take)?;
            let wait_ns = Sample::new(samples.clone())?.median();
            let wait = Wait { work, wait_ns, wait_cycles: None, samples, disturbed };
            tell(watch, "wait", &wait)?;
            waits.push((number, wait));
        }
        left.through(begin.elapsed());
    }
    let clocks = Sample::new(clocks).ok();
    let clock = clocks.as_ref().map(Sample::median);
    let (rates, mut waits) = (in_order(rates), in_order(waits));
    for wait in &mut waits {
        wait.wait_cycles = clock.map(|clock| wait.wait_ns * clock / 1e9);
    }
    let (instruction_set, lanes) = instruction_set();
    let peaks = clocks.map_or_else(Vec::new, |clocks| peaks(host, &rates, clocks.max(), lanes));
    if let Some(clock) = clock {
        rates.iter().try_for_each(|rate| check_bound(rate, clock, lanes))?;
    }
    Ok(Cpu {
        instruction_set: instruction_set.into(),
        lanes,
        optimised: OPTIMISED,
        clock: clock.map(|clock| Hertz(clock as u64)),
        rates,
        waits,
        peaks,
        notes: witness.notes().into_iter().chain(notes_of_build()).collect(),
    })
}

fn check_bound(rate: &Rate, clock: f64, lanes: usize) -> Result<()> {
    let fused = if rate.work.operation == Operation::MultiplyAdd { 2.0 } else { 1.0 };
    let limit = rate.threads as f64 * clock * lanes as f64 * UNITS_MAX * fused;
    if rate.operations_per_s <= limit {
        return Ok(());
    }
    let (rate, work) = (rate.operations_per_s, rate.work.name());
    let what = format!("{rate} operations of {work} in a second are more than any CPU makes");
    Err(Error::new(ErrorKind::Failed, what))
}

/// `first` is the clock of the first CPU. There is no peak where one of several clocks cannot be measured.
fn peaks(host: &Host, rates: &[Rate], first: f64, lanes: usize) -> Vec<Peak> {
    let of_peak = rates.iter().filter(|rate| rate.work == Work::PEAK);
    let mut peaks: Vec<_> = of_peak
        .filter_map(|rate| {
            let cpus: CpuList = places(host, rate.threads).iter().flat_map(CpuList::iter).collect();
            let cores = cores(host, &cpus);
            let alike = units::are_alike(host, &cpus);
            let read = |cpu| Some(clock::measure(cpu, clock::BUDGET).ok()?.clock.as_f64());
            let clock = if alike { first } else { mean(&cores, read)? };
            let best_per_s = rate.samples.iter().copied().fold(0.0, f64::max);
            // What one unit in each of the cores makes in a second.
            let of_unit = cores.len() as f64 * clock * lanes as f64 * 2.0;
            let peak = Peak {
                threads: rate.threads,
                cores: cores.len(),
                alike,
                units: Units::measured(best_per_s / of_unit),
                clock: Hertz(clock as u64),
                theoretical_per_s: None,
                best_per_s,
                share: None,
            };
            Some((peak, of_unit))
        })
        .collect();
    // CPUs that are alike have the same units, however many are at work.
    let alike = peaks.iter().filter(|(peak, _)| peak.alike);
    let most = alike.map(|(peak, of_unit)| peak.best_per_s / of_unit).fold(0.0, f64::max);
    for (peak, of_unit) in peaks.iter_mut().filter(|(peak, _)| peak.alike) {
        peak.units = if is_fused() { Units::of(&host.roots, lanes, most) } else { Units::measured(most) };
        peak.theoretical_per_s = peak.units.documented.then_some(*of_unit * f64::from(peak.units.count));
        peak.share = peak.theoretical_per_s.map(|theoretical| peak.best_per_s / theoretical);
    }
    peaks.into_iter().map(|(peak, _)| peak).collect()
}

fn cores(host: &Host, cpus: &CpuList) -> CpuList {
    let first =
        |id: CpuId| host.cpu(id).and_then(|cpu| cpu.siblings.intersection(cpus).first()).unwrap_or(id);
    cpus.iter().map(first).collect()
}

fn mean(cpus: &CpuList, read: impl Fn(CpuId) -> Option<f64>) -> Option<f64> {
    let all = cpus.iter().map(read).collect::<Option<Vec<f64>>>()?;
    Some(Sample::new(all).ok()?.mean())
}

/// What a long series makes: mixed operations, always the same.
#[derive(Debug)]
pub struct Steady {
    work: Work,
    one: u64,
    places: Vec<CpuList>,
}

impl Steady {
    /// Mixed operations on these numbers by so many threads.
    pub fn new(host: &Host, number: Number, threads: usize) -> Self {
        let work = Work { number, operation: Operation::Mixed };
        Self { work, one: work.one(), places: places(host, threads) }
    }

    /// Operations each second of all threads over this time.
    pub fn rate(&self, length: Duration) -> Result<f64> {
        batches::rate(self.work, self.one, &self.places, length)
    }
}

#[cfg(test)]
mod tests;

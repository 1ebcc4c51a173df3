//! From what is asked for to the cells of an experiment.

use std::time::{Duration, Instant};

use emu_core::{CpuList, Demand, Error, Hertz, Hint, Host, MethodId, Result, Speed, Target, Targets, clock};

use super::{Cell, Experiment, NONE, OwnCosts, Refusal, methods};
use crate::stats::Band;
use crate::verify::{Plan, SMOOTH, Trial, spectrum_of_periods, window_for};
use crate::workload::{Job, Worker, Workload, workload};

/// The fewest and the most pairs of a cell: one alone cannot be judged.
const REPETITIONS: std::ops::RangeInclusive<usize> = 2..=REPETITIONS_MAX;
pub(super) const REPETITIONS_MAX: usize = 1000;

/// The fewest pairs with an interval of 95 % for their median.
const FEWEST: usize = 6;

/// Share of a budget that is planned with; the rest is for pairs that are taken again.
const PLANNED: f64 = 0.95;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// Who is compared; controls are added.
    pub contenders: Vec<MethodId>,
    /// The workloads.
    pub workloads: Vec<String>,
    /// The speeds.
    pub speeds: Vec<Speed>,
    /// More speeds for the work of one thread that computes.
    pub speeds_of_loop: Vec<Speed>,
    /// On how many CPUs.
    pub cores: Cores,
    /// How often.
    pub repetitions: Repetitions,
    /// Whether work that no method is promised to get right is measured no oftener than it must be.
    pub sparing: bool,
    /// Length of a window, at least.
    pub window: Duration,
    /// Length of the window of a granularity spectrum.
    pub spectrum: Duration,
    /// Length of the methods' on/off cycle; `None` is each method's own.
    pub period: Option<Duration>,
    /// How far from the ideal still passes.
    pub tolerance: Band,
    /// Whose published figures it is compared with.
    pub preset: Option<String>,
    /// Start of the random numbers.
    pub seed: u64,
}

/// On how many CPUs a workload runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cores {
    /// On each of these numbers of CPUs.
    Each(Vec<usize>),
    /// On as many as its threads or processes can fill.
    Filled,
}

/// How often each cell is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repetitions {
    /// So many pairs.
    Count(usize),
    /// As many as this time allows.
    Within(Duration),
}

impl Experiment {
    /// Plans what is asked for, on the first CPUs that may be used. Starts a worker of each kind to learn how long
    /// that takes, and measures the core clock; otherwise changes nothing. This takes some seconds: `watch` is called
    /// before each step, with what comes, while nothing is measured and no worker is there; its error ends the planning.
    ///
    /// What one method cannot do is in [`Experiment::unavailable`].
    ///
    /// # Errors
    /// Nothing at all can be measured, there are fewer CPUs than asked for, a number is out of range, the budget is too
    /// small, or `watch` wants to end.
    pub fn plan_for(
        host: &Host,
        request: &Request,
        watch: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Self> {
        let cpus = &host.allowed;
        let largest = largest_zone(host, request)?;
        watch("what measuring costs")?;
        let own_costs = cpus.first().map(OwnCosts::measure).unwrap_or_default();
        watch("the core clock")?;
        let mut experiment = Self {
            seed: request.seed,
            repetitions: 0,
            window: request.window,
            spectrum: request.spectrum,
            budget: Duration::ZERO,
            tolerance: request.tolerance.high() - 1.0,
            reference: reference(&cpus.iter().take(largest).collect())?,
            preset: request.preset.clone(),
            cells: Vec::new(),
            unavailable: Vec::new(),
            own_costs,
        };
        for name in &request.workloads {
            for zone in zones(host, name, &request.cores)? {
                watch(&format!("{name} on {}", cpus_in_words(zone.len())))?;
                experiment.add_group(host, request, name, &zone)?;
            }
        }
        experiment.refuse_once();
        let is_nothing = experiment.cells.is_empty();
        if experiment.cells.iter().all(|cell| cell.contender == NONE)
            && (is_nothing || request.contenders.iter().any(|one| *one != NONE))
        {
            let first = experiment.unavailable.first();
            let why = first.map_or("nothing is asked for", |refusal| refusal.why.as_str());
            return Err(
                Error::unavailable(format!("no method can do any of this here: {why}")).hint(Hint::Judge)
            );
        }
        for one in request.contenders.iter().filter(|one| **one != NONE) {
            let smooth = experiment
                .cells
                .iter_mut()
                .filter(|cell| cell.contender == *one && cell.workload() == SMOOTH)
                .min_by(|a, b| {
                    (a.cores(), a.share())
                        .partial_cmp(&(b.cores(), b.share()))
                        .unwrap_or(std::cmp::Ordering::Equal)
                });
            if let Some(cell) = smooth {
                cell.spectrum = true;
            }
        }
        experiment.repeat(request)?;
        Ok(experiment)
    }

    /// Adds every contender at every speed for a workload on some CPUs, and their controls.
    fn add_group(&mut self, host: &Host, request: &Request, name: &str, zone: &CpuList) -> Result<()> {
        let mut cells = Vec::new();
        let more = request.speeds_of_loop.iter().filter(|_| name == SMOOTH);
        for &speed in request.speeds.iter().chain(more) {
            for &one in request.contenders.iter().filter(|one| **one != NONE) {
                let mut demand = Demand::new(targets(zone, speed, self.reference)?);
                demand.period = request.period;
                match self.cell(host, one, name, demand, None) {
                    Ok(cell) => cells.push(cell),
                    Err(why) => {
                        let wanted = format!("{speed} on {}", cpus_in_words(zone.len()));
                        self.unavailable.push(Refusal::of(one, wanted, &why));
                    }
                }
            }
        }
        // The controls do what the slowest of the others does, but at full speed.
        let slowest = cells.iter().max_by_key(|cell| cell.pair_time).cloned();
        let native = Demand::new(targets(zone, Speed::share(1.0)?, self.reference)?);
        let mut control = self.cell(host, NONE, name, native, slowest.as_ref())?;
        // How much memory is free moves while this is planned; all are to have arrays of the same length.
        let arrays = cells.first().map_or(control.trial.job.arrays, |first| first.trial.job.arrays);
        for cell in cells.iter_mut().chain([&mut control]) {
            cell.trial.job.arrays = arrays;
        }
        match start_time(&control.trial.job) {
            Ok(start) => {
                cells.push(control);
                for cell in &mut cells {
                    let stopped = stopped_for_start(host, cell, start);
                    cell.pair_time += start + stopped;
                }
                self.cells.append(&mut cells);
            }
            // Nobody can be measured where the work itself cannot be done.
            Err(why) => {
                let wanted = format!("{name} on {}", cpus_in_words(zone.len()));
                let refuse = |&one: &MethodId| Refusal::of(one, wanted.clone(), &why);
                self.unavailable.extend(request.contenders.iter().map(refuse));
            }
        }
        Ok(())
    }

    /// A cell; one that is `like` another does the same for as long, at other shares.
    fn cell(
        &self,
        host: &Host,
        contender: MethodId,
        name: &str,
        demand: Demand,
        like: Option<&Cell>,
    ) -> Result<Cell> {
        let emulated = methods::emulated(contender, host, &demand)?;
        let period = emulated.cycle();
        let window = like
            .map_or_else(|| window_for(self.window, &*emulated, demand.lowest_share()), |like| like.window);
        let plan = Plan { window, ..Plan::new(self.seed) };
        let mut trial = Trial::of(name, &demand, &plan.setting(&*emulated, &demand.targets))?;
        if let Some(like) = like {
            trial.job = like.trial.job.clone();
        }
        // How long arrays take to be filled is measured.
        let mut light = trial.clone();
        light.job.arrays = None;
        let (pair_time, _) = plan.expected_times(&*emulated, &light);
        Ok(Cell { contender, demand, trial, period, window, repetitions: 0, spectrum: false, pair_time })
    }

    /// A method that can do nothing of what was asked for is told once.
    fn refuse_once(&mut self) {
        let (cells, mut told) = (&self.cells, Vec::new());
        for refusal in &mut self.unavailable {
            if cells.iter().all(|cell| cell.contender != refusal.contender) {
                refusal.wanted.clear();
            }
        }
        self.unavailable.retain(|refusal| {
            let new = !told.contains(refusal);
            told.push(refusal.clone());
            new
        });
    }

    /// Settles how often each cell is measured.
    fn repeat(&mut self, request: &Request) -> Result<()> {
        let counts = |pairs: usize| self.cells.iter().map(move |cell| count(cell, pairs, request));
        let time = |pairs: usize| -> Duration {
            let pairs =
                self.cells.iter().zip(counts(pairs)).map(|(cell, count)| cell.pair_time * count as u32);
            pairs.sum::<Duration>() + self.spectra_time()
        };
        self.repetitions = match request.repetitions {
            Repetitions::Count(count) if REPETITIONS.contains(&count) => count,
            Repetitions::Count(count) => {
                return Err(Error::usage(format!("cannot repeat {count} times")).hint("give from 2 to 1000"));
            }
            Repetitions::Within(budget) => {
                let planned = budget.mul_f64(PLANNED);
                let fits = |count: &usize| time(*count) <= planned;
                REPETITIONS.take_while(fits).last().ok_or_else(|| {
                    let least = time(*REPETITIONS.start()).div_f64(PLANNED).as_secs() + 1;
                    Error::usage(format!("cannot measure all of this within {budget:?}")).hint(format!(
                        "give at least --time {least}s, or fewer methods, workloads, speeds or cores"
                    ))
                })?
            }
        };
        if let Repetitions::Within(budget) = request.repetitions {
            self.budget = budget;
        }
        let counts: Vec<_> = counts(self.repetitions).collect();
        for (cell, count) in self.cells.iter_mut().zip(counts) {
            cell.repetitions = count;
        }
        Ok(())
    }

    fn spectra_time(&self) -> Duration {
        self.cells.iter().filter(|cell| cell.spectrum).map(|cell| self.seeing_time(cell)).sum()
    }

    /// How long the granularity spectrum of a cell takes.
    pub(super) fn seeing_time(&self, cell: &Cell) -> Duration {
        spectrum_of_periods(self.spectrum, cell.period) + cell.pair_time
    }

    /// About how long it takes in all, without repeats.
    pub fn expected_time(&self) -> Duration {
        let pairs = self.cells.iter().map(|cell| cell.pair_time * cell.repetitions as u32);
        pairs.sum::<Duration>() + self.spectra_time()
    }
}

/// How long a worker takes to get ready. The first one may find no memory that is ready, and says little.
fn start_time(job: &Job) -> Result<Duration> {
    const LITTLE: Duration = Duration::from_millis(50);
    let start = || {
        let begin = Instant::now();
        Worker::start(job).map(|_| begin.elapsed())
    };
    let first = start()?;
    if first < LITTLE { Ok(first) } else { start() }
}

/// How long a worker is stopped for what its start took of its CPUs, by an emulation that judges its whole life.
fn stopped_for_start(host: &Host, cell: &Cell, start: Duration) -> Duration {
    let rule = methods::emulated(cell.contender, host, &cell.demand)
        .ok()
        .and_then(|emulated| emulated.lifetime_rule());
    let used = start * cell.trial.job.active.min(cell.cores()) as u32;
    rule.map_or(Duration::ZERO, |rule| rule.held_for(used, start))
}

/// How often a cell is measured where the others are measured `pairs` times.
fn count(cell: &Cell, pairs: usize, request: &Request) -> usize {
    let is_control = cell.contender == NONE && !request.contenders.contains(&NONE);
    let is_promised = workload(cell.workload()).is_ok_and(Workload::is_promised);
    match (is_control, request.sparing && !is_promised) {
        (true, true) => 0,
        (true, false) => Plan { pairs, ..Plan::new(0) }.controls(),
        (false, true) => pairs.min(FEWEST),
        (false, false) => pairs,
    }
}

/// How many CPUs the largest zone has.
fn largest_zone(host: &Host, request: &Request) -> Result<usize> {
    let here = host.allowed.len();
    let Cores::Each(counts) = &request.cores else { return Ok(here) };
    for &count in counts {
        if count == 0 {
            return Err(Error::usage("cannot measure on 0 CPUs").hint("give at least --cores 1"));
        }
        if count > here {
            return Err(Error::unavailable(format!(
                "cannot measure on {}: only {here} may be used here",
                cpus_in_words(count)
            ))
            .hint(format!("give at most --cores {here}")));
        }
    }
    counts
        .iter()
        .copied()
        .max()
        .ok_or_else(|| Error::usage("no number of CPUs is given").hint("give --cores 1"))
}

/// The zones that a workload runs in.
fn zones(host: &Host, name: &str, cores: &Cores) -> Result<Vec<CpuList>> {
    let first = |count: usize| host.allowed.iter().take(count).collect::<CpuList>();
    Ok(match cores {
        Cores::Each(counts) => counts.iter().map(|&count| first(count)).collect(),
        Cores::Filled => {
            let setting = crate::workload::Setting {
                cpus: host.allowed.clone(),
                period: Duration::ZERO,
                share: 1.0,
                window: Duration::from_millis(100),
            };
            vec![first(workload(name)?.job(&setting).active.clamp(1, host.allowed.len()))]
        }
    })
}

fn targets(zone: &CpuList, speed: Speed, reference: Hertz) -> Result<Targets> {
    zone.iter().map(|cpu| Ok::<(usize, Target), Error>((cpu, speed.target(cpu, Some(reference))?))).collect()
}

/// The clock of the CPUs, which are taken to be alike: the median.
fn reference(cpus: &CpuList) -> Result<Hertz> {
    let readings = clock::measure_all(cpus, clock::BUDGET)?;
    let mut clocks: Vec<_> = readings.iter().map(|reading| reading.clock).collect();
    clocks.sort_unstable();
    clocks.get(clocks.len() / 2).copied().ok_or_else(|| Error::unavailable("no CPU may be used"))
}

fn cpus_in_words(count: usize) -> String {
    if count == 1 { "1 CPU".into() } else { format!("{count} CPUs") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::{ErrorKind, Roots};

    const WINDOW: Duration = Duration::from_millis(200);

    fn request() -> Request {
        Request {
            contenders: vec![NONE],
            workloads: vec!["cpu-loop".into()],
            speeds: vec![Speed::share(0.5).unwrap()],
            speeds_of_loop: Vec::new(),
            cores: Cores::Each(vec![1]),
            repetitions: Repetitions::Count(2),
            sparing: false,
            window: WINDOW,
            spectrum: Duration::from_secs(1),
            period: None,
            tolerance: Band::FIVE_PERCENT,
            preset: None,
            seed: 1,
        }
    }

    #[test]
    fn its_watcher_ends_planning_before_anything_is_measured() {
        let host = Host::detect(&Roots::system()).unwrap();
        let mut steps = Vec::new();
        let planned = Experiment::plan_for(&host, &request(), &mut |what| {
            steps.push(what.to_owned());
            Err(Error::new(ErrorKind::Failed, "ended"))
        });
        assert_eq!(planned.unwrap_err().to_string(), "ended");
        assert_eq!(steps, ["what measuring costs"]);
    }

    #[test]
    fn what_makes_no_sense_is_told_before_anything_is_measured() {
        let host = Host::detect(&Roots::system()).unwrap();
        let none = Request { cores: Cores::Each(vec![0]), ..request() };
        let planned = Experiment::plan_for(&host, &none, &mut |what| panic!("{what}"));
        assert_eq!(planned.unwrap_err().kind(), ErrorKind::Usage);
    }

    #[test]
    fn published_cpu_lim_has_windows_and_times_of_its_real_cycles() {
        let host = Host::detect(&Roots::system()).unwrap();
        let zone: CpuList = host.allowed.iter().take(1).collect();
        let experiment = Experiment {
            seed: 1,
            repetitions: 0,
            window: WINDOW,
            spectrum: Duration::ZERO,
            budget: Duration::ZERO,
            tolerance: 0.05,
            reference: Hertz(1_000_000_000),
            preset: None,
            cells: Vec::new(),
            unavailable: Vec::new(),
            own_costs: OwnCosts::default(),
        };
        let cell = |name: &str| {
            let speed = Speed::share(0.1).unwrap();
            let targets = targets(&zone, speed, experiment.reference).unwrap();
            let contender = name.parse().unwrap();
            experiment.cell(&host, contender, "cpu-loop", Demand::new(targets), None).unwrap()
        };
        let window = |cell: &Cell| experiment.plan(cell, &host.roots.proc).unwrap().window;
        let (best, published) = (cell("cpu-lim"), cell("cpu-lim:published"));
        assert_eq!(window(&best), WINDOW);
        // A look of 10 ms, a tenth of the time: 100 ms.
        assert!(published.period > Duration::from_millis(99), "{:?}", published.period);
        assert_eq!(window(&published), published.period * 3);
        let second = Duration::from_secs(1);
        assert_eq!(stopped_for_start(&host, &best, second), Duration::ZERO);
        assert!(stopped_for_start(&host, &published, second) >= second * 8);
        // A native window of 300 ms is worked off by ten times that, in every other pair.
        assert!(published.pair_time > best.pair_time + second);
    }
}

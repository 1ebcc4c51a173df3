//! From what is asked for to the cells of an experiment.

use std::time::{Duration, Instant};

use emu_core::{CpuList, Demand, Error, Hertz, Hint, Host, MethodId, Result, Speed, Target, Targets, clock};

use super::request::{Crowd, Group, Repetitions, Request, cpus_in_words};
use super::{Cell, Experiment, NONE, OwnCosts, Refusal, methods};
use crate::verify::{Plan, SMOOTH, Trial, spectrum_of_periods, window_for};
use crate::workload::{Job, Worker, Workload, workload};

/// The fewest and the most pairs of a cell: one alone cannot be judged.
const REPETITIONS: std::ops::RangeInclusive<usize> = 2..=REPETITIONS_MAX;
pub(super) const REPETITIONS_MAX: usize = 1000;

/// The fewest pairs with an interval of 95 % for their median.
const FEWEST: usize = 6;

/// Share of a budget that is planned with; the rest is for pairs that are taken again.
const PLANNED: f64 = 0.95;

impl Experiment {
    /// Plans what is asked for, on the first CPUs that may be used. Starts a worker of each kind to learn how long that takes,
    /// and measures the core clock: this takes some seconds. `watch` is called before each step, while nothing is measured and
    /// no worker is there; its error ends the planning. What one method cannot do is in [`Experiment::unavailable`].
    pub fn plan_for(
        host: &Host,
        request: &Request,
        watch: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<Self> {
        let groups = request.groups(host)?;
        let largest = groups.iter().map(|group| &group.zone).max_by_key(|zone| zone.len());
        let largest = largest.ok_or_else(|| Error::usage("nothing is to be measured"))?;
        watch("what measuring costs")?;
        let own_costs = host.allowed.first().map(OwnCosts::measure).unwrap_or_default();
        watch("the core clock")?;
        let mut experiment = Self {
            seed: request.seed,
            repetitions: 0,
            window: request.window,
            lead: request.lead,
            spectrum: request.spectrum,
            budget: Duration::ZERO,
            tolerance: request.tolerance.high() - 1.0,
            reference: reference(largest)?,
            preset: request.preset.clone(),
            cells: Vec::new(),
            unavailable: Vec::new(),
            own_costs,
        };
        for group in &groups {
            watch(&format!("{} on {}", group.workload, cpus_in_words(group.zone.len())))?;
            experiment.add_group(host, request, group)?;
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
            let smooth = experiment.cells.iter_mut();
            let smooth = smooth
                .filter(|cell| cell.contender == *one && cell.workload() == SMOOTH)
                .min_by(|a, b| a.cores().cmp(&b.cores()).then(a.share().total_cmp(&b.share())));
            if let Some(cell) = smooth {
                cell.spectrum = true;
            }
        }
        experiment.repeat(request)?;
        Ok(experiment)
    }

    fn add_group(&mut self, host: &Host, request: &Request, group: &Group<'_>) -> Result<()> {
        let Group { workload: name, zone, speeds } = group;
        let mut cells = Vec::new();
        for &speed in speeds {
            for &one in request.contenders.iter().filter(|one| **one != NONE) {
                let mut demand = Demand::new(targets(zone, speed, self.reference)?);
                demand.period = request.period;
                demand.exclude_background = request.exclude_background;
                demand.hold_clock = request.hold_clock;
                match self.cell(host, request, (one, name), demand, None) {
                    Ok(cell) => cells.push(cell),
                    Err(why) => {
                        let wanted = format!("{speed} on {}", cpus_in_words(zone.len()));
                        self.unavailable.push(Refusal::of(one, wanted, &why));
                    }
                }
            }
        }
        // The controls do what the slowest cell does, at full speed.
        let slowest = cells.iter().max_by_key(|cell| cell.pair_time).cloned();
        let native = Demand::new(targets(zone, Speed::share(1.0)?, self.reference)?);
        let mut control = self.cell(host, request, (NONE, name), native, slowest.as_ref())?;
        // The free memory changes while this is planned; all are to have arrays of the same length.
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

    /// One that is `like` another does the same for as long, at other shares.
    fn cell(
        &self,
        host: &Host,
        request: &Request,
        (contender, name): (MethodId, &str),
        demand: Demand,
        like: Option<&Cell>,
    ) -> Result<Cell> {
        let emulated = methods::emulated(contender, host, &demand)?;
        let period = emulated.cycle();
        let share = demand.lowest_share();
        let least = request.window.max(request.work.div_f64(share));
        let window = like.map_or_else(|| window_for(least, &*emulated, share), |like| like.window);
        let plan = Plan { window, ..Plan::new(self.seed) };
        let plan = Plan { lead: plan.lead.max(self.lead), ..plan };
        let mut trial = Trial::of(name, &demand, &plan.setting(&*emulated, &demand.targets))?;
        if let Some(Crowd { active, idle }) = request.crowd {
            (trial.job.active, trial.job.idle) = (active, idle);
        }
        if let Some(like) = like {
            trial.job = like.trial.job.clone();
        }
        // How long arrays take to be filled is measured.
        let mut light = trial.clone();
        light.job.arrays = None;
        let (pair_time, _) = plan.expected_times(&*emulated, &light);
        Ok(Cell { contender, demand, trial, period, window, repetitions: 0, spectrum: false, pair_time })
    }

    /// A method that can do nothing at all is told once.
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
                // What these do not decide gets the rest of the time.
                let most = if request.sparing { FEWEST } else { REPETITIONS_MAX };
                (*REPETITIONS.start()..=most).take_while(fits).last().ok_or_else(|| {
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

    pub(super) fn seeing_time(&self, cell: &Cell) -> Duration {
        spectrum_of_periods(self.spectrum, cell.period) + cell.pair_time
    }

    /// About how long it takes in all, without repeats.
    pub fn expected_time(&self) -> Duration {
        let pairs = self.cells.iter().map(|cell| cell.pair_time * cell.repetitions as u32);
        pairs.sum::<Duration>() + self.spectra_time()
    }
}

/// The first start may find no memory that is ready, and says little.
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

#[cfg(test)]
mod tests {
    use super::super::request;
    use super::*;
    use emu_core::{ErrorKind, Roots};

    const WINDOW: Duration = Duration::from_millis(200);

    fn request() -> Request {
        let request = request::tests::request(vec![request::tests::part("cpu-loop", &[50], &[1])]);
        Request { contenders: vec![NONE], window: WINDOW, ..request }
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
    fn published_cpu_lim_has_windows_and_times_of_its_real_cycles() {
        let host = Host::detect(&Roots::system()).unwrap();
        let zone: CpuList = host.allowed.iter().take(1).collect();
        let experiment = Experiment {
            seed: 1,
            repetitions: 0,
            window: WINDOW,
            lead: Duration::ZERO,
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
            experiment.cell(&host, &request(), (contender, "cpu-loop"), Demand::new(targets), None).unwrap()
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

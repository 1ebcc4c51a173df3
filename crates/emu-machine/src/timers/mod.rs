//! Whether the clocks of this machine tell the truth, and what each of them is worth.

pub mod clock;
mod conclusion;
mod disparity;
mod drift;
mod ledger;
mod problem;
mod quality;
mod reference;

pub use disparity::{Disparity, OfSize, Times};
pub use drift::{Change, Direction, Drift, Pass};
pub use ledger::Ledger;
pub use quality::{Backwards, Quality};
pub use reference::{Relative, RelativeSize};

use std::time::Duration;

use emu_core::{CpuList, Host, Result};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Event, Watch, tell};
use crate::kernel::on_one;
use crate::witness::{Others, Witness};
use clock::{Clock, Counts, SystemClock};
use ledger::Accounts;

/// How long each clock is read for each question.
const LENGTH: Duration = Duration::from_millis(100);
const LENGTH_QUICK: Duration = Duration::from_millis(50);

/// Rounds of ascending, descending and random order.
const ROUNDS: u32 = 5;
const ROUNDS_QUICK: u32 = 3;

/// Samples whose time is split.
const LEDGERS: u32 = 5;
const LEDGERS_QUICK: u32 = 2;

/// The clock by which computations are timed, and which CPU time is compared with.
const WALL: SystemClock = SystemClock::RAW;

/// Questions that each clock is asked, for the time that it takes: step counts twice.
const QUESTIONS: u32 = 4;

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimersPlan {
    /// Whether it is only a first look.
    pub quick: bool,
    /// How long each clock is read for each question.
    pub length_ns: u64,
    /// Sizes of the computation, in steps.
    pub sizes: Vec<u64>,
    /// Rounds of all orders.
    pub rounds: u32,
    /// Samples whose time is split.
    pub ledgers: u32,
    /// The CPUs on which clocks are read.
    pub cpus: CpuList,
    /// Start of the random numbers of the random order.
    pub seed: u64,
}

impl TimersPlan {
    /// The usual plan, or a shorter one for a first look.
    pub fn new(host: &Host, quick: bool, seed: u64) -> Self {
        let pick = |full, short| if quick { short } else { full };
        Self {
            quick,
            length_ns: if quick { LENGTH_QUICK } else { LENGTH }.as_nanos() as u64,
            sizes: problem::sizes(quick),
            rounds: pick(ROUNDS, ROUNDS_QUICK),
            ledgers: pick(LEDGERS, LEDGERS_QUICK),
            cpus: host.allowed.clone(),
            seed,
        }
    }

    fn length(&self) -> Duration {
        Duration::from_nanos(self.length_ns)
    }

    fn disparity_time(&self) -> Duration {
        let time = |&steps: &u64| {
            let took = problem::expected_time(steps);
            took * disparity::repetitions(took, self.quick)
        };
        self.sizes.iter().map(time).sum()
    }

    fn pass_time(&self) -> Duration {
        self.sizes.iter().map(|steps| problem::expected_time(*steps)).sum()
    }
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Each clock.
    pub clocks: Vec<Quality>,
    /// Each clock of CPU time against the wall.
    pub disparities: Vec<Disparity>,
    /// What the order of sizes does to each.
    pub drift: Vec<Drift>,
    /// The passes from which that follows.
    pub passes: Vec<Pass>,
    /// Where the time of samples went.
    pub ledgers: Vec<Ledger>,
    /// The performance here in that of a reference; `None` without one.
    pub relative: Option<Relative>,
    /// Whether the clocks may be trusted.
    pub conclusion: String,
}

impl Measured {
    /// With the comparison with a reference machine, by the name of its processor.
    pub fn compared_with(self, reference: &Self, name: &str) -> Result<Self> {
        let relative = Relative::new(&self.drift, &reference.drift, name)?;
        Ok(Self { relative: Some(relative), ..self })
    }
}

/// Measures by a plan.
pub fn measure(host: &Host, plan: &TimersPlan, watch: Watch<'_>) -> Result<Measured> {
    let clocks = SystemClock::all();
    let clocks: Vec<&dyn Clock> = clocks.iter().map(|clock| clock as &dyn Clock).collect();
    measure_with(host, plan, &clocks, watch)
}

fn measure_with(host: &Host, plan: &TimersPlan, clocks: &[&dyn Clock], watch: Watch<'_>) -> Result<Measured> {
    host.check_cpus(&plan.cpus)?;
    let is_of_cpu = |clock: &&&dyn Clock| clock.counts() != Counts::Wall;
    let mut run = Run::new(plan, clocks.len() as u32, clocks.iter().filter(is_of_cpu).count() as u32, watch);
    let mut qualities = Vec::new();
    for clock in clocks {
        run.next(clock.name(), plan.length() * QUESTIONS)?;
        let quality = Quality::of(*clock, &plan.cpus, plan.length())?;
        tell(&mut *run.watch, "clock", &quality)?;
        qualities.push(quality);
    }
    let step = |name: &str| {
        qualities.iter().find(|quality| quality.clock == name).map_or(0.0, |quality| quality.error_ns)
    };
    let mut disparities = Vec::new();
    for clock in clocks.iter().filter(is_of_cpu) {
        run.next(&format!("{} against the wall clock", clock.name()), plan.disparity_time())?;
        let mut sizes = Vec::new();
        for &steps in &plan.sizes {
            run.go_on(clock.name())?;
            let count = disparity::repetitions(problem::expected_time(steps), plan.quick);
            let before = Accounts::now(host, &plan.cpus)?;
            let times = (0..count).map(|_| Times::of(*clock, &WALL, steps)).collect::<Result<_>>()?;
            let account = Accounts::now(host, &plan.cpus)?.since(&before, Duration::ZERO);
            let size = OfSize { steps, times, account: Some(account) };
            tell(&mut *run.watch, clock.name(), &size)?;
            sizes.push(size);
        }
        let error_ns = step(clock.name()) + step(WALL.name());
        disparities.push(Disparity::new(clock.name().into(), error_ns, sizes)?);
    }
    let mut rng = Pcg64::seed_from_u64(plan.seed);
    let mut passes = Vec::new();
    let mut witness = Witness::new(host, plan.rounds as usize * Direction::ALL.len(), Others::Count);
    for round in 1..=plan.rounds {
        for direction in Direction::of_round(round - 1) {
            run.next(&format!("order of sizes, round {round} of {}", plan.rounds), plan.pass_time())?;
            let take = || Pass::of(direction, &plan.sizes, &WALL, &mut rng);
            let (pass, disturbed) = witness.measure("sizes", std::slice::from_ref(&plan.cpus), take)?;
            let pass = Pass { disturbed, ..pass };
            tell(&mut *run.watch, "pass", &pass)?;
            passes.push(pass);
        }
    }
    let mut ledgers = Vec::new();
    for _ in 0..plan.ledgers {
        run.next("where the time of a sample goes", Ledger::expected_time())?;
        let ledger = ledger(host, &plan.cpus)?;
        tell(&mut *run.watch, "ledger", &ledger)?;
        ledgers.push(ledger);
    }
    let drift = drift::of(&passes, &plan.sizes)?;
    let conclusion = conclusion::of(&qualities, &disparities, (&drift, &passes));
    Ok(Measured { clocks: qualities, disparities, drift, passes, ledgers, relative: None, conclusion })
}

fn ledger(host: &Host, cpus: &CpuList) -> Result<Ledger> {
    let cpu: CpuList = cpus.first().into_iter().collect();
    on_one("the sample", &cpu, || Ledger::take(host, &cpu))
}

struct Run<'a> {
    watch: Watch<'a>,
    left: Duration,
    current: Duration,
}

impl<'a> Run<'a> {
    fn new(plan: &TimersPlan, clocks: u32, of_cpu: u32, watch: Watch<'a>) -> Self {
        let left = plan.length() * QUESTIONS * clocks
            + plan.disparity_time() * of_cpu
            + plan.pass_time() * Direction::ALL.len() as u32 * plan.rounds
            + Ledger::expected_time() * plan.ledgers;
        Self { watch, left, current: Duration::ZERO }
    }

    fn next(&mut self, what: &str, expected: Duration) -> Result<()> {
        self.left = self.left.saturating_sub(self.current);
        self.current = expected;
        self.go_on(what)
    }

    fn go_on(&mut self, what: &str) -> Result<()> {
        (self.watch)(Event::Next { what, left: self.left })
    }
}

#[cfg(test)]
mod tests {
    use super::clock::testing::{RIGHT, Synthetic};
    use super::*;
    use emu_core::{Error, ErrorKind, Roots};

    fn plan(host: &Host) -> TimersPlan {
        TimersPlan {
            length_ns: 5_000_000,
            sizes: vec![256, 1 << 12],
            rounds: 2,
            ledgers: 1,
            ..TimersPlan::new(host, true, 7)
        }
    }

    #[test]
    fn everything_is_measured_told_and_can_be_read_back() {
        let host = Host::detect(&Roots::system()).unwrap();
        let plan = plan(&host);
        let (mut rows, mut left) = (Vec::new(), Vec::new());
        let mut watch = |event: Event<'_>| {
            match event {
                Event::Next { left: time, .. } => left.push(time),
                Event::Sample { row, .. } => rows.push(row.to_owned()),
            }
            Ok(())
        };
        let measured = measure(&host, &plan, &mut watch).unwrap();
        let count = |name: &str| rows.iter().filter(|row| *row == name).count();
        assert_eq!((count("clock"), count("pass"), count("ledger")), (SystemClock::all().len(), 6, 1));
        assert_eq!((measured.disparities.len(), measured.drift.len()), (4, 2));
        for of in &measured.disparities {
            assert_eq!(count(&of.clock), 2, "{}", of.clock);
        }
        assert!(left.is_sorted_by(|a, b| a >= b) && !measured.conclusion.is_empty());
        let json = serde_json::to_string(&measured).unwrap();
        assert_eq!(serde_json::from_str::<Measured>(&json).unwrap(), measured);
        let same = measured.clone().compared_with(&measured, "itself").unwrap().relative.unwrap();
        assert!(same.sizes.iter().all(|size| (size.share - 1.0).abs() < 1e-12));
    }

    #[test]
    fn a_clock_that_lies_is_named_and_one_that_is_right_is_not() {
        let host = Host::detect(&Roots::system()).unwrap();
        let falling = Synthetic { falls_every_ns: 1_000_000, ..RIGHT };
        let fast = Synthetic { counts: Counts::Process, gain: 0.5, ..RIGHT };
        let conclusion = |clocks: &[&dyn Clock]| {
            measure_with(&host, &plan(&host), clocks, &mut |_| Ok(())).unwrap().conclusion
        };
        let accused = conclusion(&[&SystemClock::MONOTONIC, &falling, &fast]);
        assert!(
            accused.contains("synthetic ran back") && accused.contains("synthetic counted more"),
            "{accused}"
        );
        let right = conclusion(&[&SystemClock::MONOTONIC, &RIGHT]);
        assert!(!right.contains("ran back by") && !right.contains("counted more"), "{right}");
    }

    #[test]
    fn cpu_time_is_compared_with_an_unslewed_clock_of_known_step() {
        assert_eq!(WALL.name(), "MONOTONIC_RAW");
        assert!(SystemClock::all().iter().any(|clock| clock.name() == WALL.name()));
    }

    #[test]
    fn a_watcher_ends_it_before_the_next_sample() {
        let host = Host::detect(&Roots::system()).unwrap();
        let mut events = 0;
        let mut watch = |_: Event<'_>| {
            events += 1;
            if events > 2 { Err(Error::new(ErrorKind::Failed, "enough")) } else { Ok(()) }
        };
        let ended = measure(&host, &plan(&host), &mut watch).unwrap_err();
        assert_eq!((ended.to_string().as_str(), events), ("enough", 3));
    }
}

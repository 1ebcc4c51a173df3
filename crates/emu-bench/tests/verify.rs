//! Verification of emulations whose true speed is known: a false one must be caught.
//!
//! Workers are processes of the running executable, so this test has its own `main` and no test harness.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests without a harness are not known as such"
)]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use emu_bench::stats::{Interval, Verdict};
use emu_bench::verify::{
    Emulated, Finding, LifetimeRule, Outcome, Pair, Plan, Trial, compare, delivered, spectrum, verify,
};
use emu_bench::worker::serve_if_asked;
use emu_bench::workload::TASK;
use emu_core::{Demand, Error, Host, Pid, Result, Roots, Target};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};

fn main() -> ExitCode {
    if let Some(code) = serve_if_asked(&[TASK]) {
        return code;
    }
    let tests: &[(&str, fn())] = &[
        ("an_emulation_is_measured_as_what_it_is", an_emulation_is_measured_as_what_it_is),
        ("two_pairs_tell_what_a_cpu_delivers", two_pairs_tell_what_a_cpu_delivers),
        ("an_emulation_that_does_nothing_is_caught", an_emulation_that_does_nothing_is_caught),
        ("an_emulation_that_forgets_children_is_caught", an_emulation_that_forgets_children_is_caught),
        ("sleeps_do_not_count_as_work", sleeps_do_not_count_as_work),
        ("a_known_bias_is_found_in_every_workload", a_known_bias_is_found_in_every_workload),
        ("a_known_slowdown_is_right_for_work_that_sleeps", a_known_slowdown_is_right_for_work_that_sleeps),
        ("a_known_stall_is_found_in_every_workload", a_known_stall_is_found_in_every_workload),
        ("a_rule_for_a_whole_life_settles_first", a_rule_for_a_whole_life_settles_first),
        ("the_clock_is_metered_around_windows", the_clock_is_metered_around_windows),
        ("rivals_are_told_apart_and_share_their_controls", rivals_are_told_apart_and_share_their_controls),
        ("the_period_shows_in_the_granularity", the_period_shows_in_the_granularity),
        ("an_emulation_that_fails_leaves_no_worker", an_emulation_that_fails_leaves_no_worker),
    ];
    // Like libtest: arguments that are not flags choose tests.
    let wanted: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (name, test) in tests {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            test();
            println!("test {name} ... ok");
        }
    }
    ExitCode::SUCCESS
}

/// A thread that holds a process and lets it go until it is to end.
struct AtWork {
    ending: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl AtWork {
    fn end(self) {
        self.ending.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
    }
}

/// Stops and continues a process, and keeps account of how long it really ran.
struct Stopper {
    /// For how long of each period the process is stopped.
    stop: Duration,
    period: Duration,
    /// Whether children are stopped, too.
    is_thorough: bool,
    at_work: Option<AtWork>,
    /// Nanoseconds for which the process was stopped at least, and at most, and nanoseconds in all.
    account: Arc<[AtomicU64; 3]>,
}

impl Stopper {
    fn new(share: f64) -> Self {
        let period = Duration::from_millis(20);
        let account = Arc::new([0; 3].map(AtomicU64::new));
        Self { stop: period.mul_f64(1.0 - share), period, is_thorough: false, at_work: None, account }
    }

    fn thorough(share: f64) -> Self {
        Self { is_thorough: true, ..Self::new(share) }
    }

    /// The share that was delivered at least, and at most: a process that is let go may run before the thread that lets
    /// it go has looked at the clock.
    fn delivered(&self) -> [f64; 2] {
        let [least, most, all] = self.account.each_ref().map(|sum| sum.load(Ordering::SeqCst) as f64);
        [1.0 - most / all, 1.0 - least / all]
    }
}

impl Emulated for Stopper {
    fn name(&self) -> String {
        "stopper".into()
    }

    fn period(&self) -> Duration {
        self.period
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        let ending = Arc::new(AtomicBool::new(false));
        let (stop, period, account) = (self.stop, self.period, Arc::clone(&self.account));
        let theirs = Arc::clone(&ending);
        let pids = if self.is_thorough { family(worker) } else { vec![worker] };
        let thread = thread::spawn(move || {
            while !theirs.load(Ordering::SeqCst) {
                let begin = Instant::now();
                signal(&pids, Signal::SIGSTOP);
                let is_stopped = Instant::now();
                thread::sleep(stop);
                let least = is_stopped.elapsed();
                signal(&pids, Signal::SIGCONT);
                let most = begin.elapsed();
                thread::sleep(period.saturating_sub(most));
                let spans = [least, most, begin.elapsed()];
                for (sum, span) in account.iter().zip(spans) {
                    sum.fetch_add(span.as_nanos() as u64, Ordering::SeqCst);
                }
            }
        });
        self.at_work = Some(AtWork { ending, thread });
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        if let Some(at_work) = self.at_work.take() {
            at_work.end();
        }
        Ok(())
    }
}

/// A worker and its children.
fn family(worker: Pid) -> Vec<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{worker}/task/{worker}/children")).unwrap();
    std::iter::once(worker).chain(children.split_whitespace().map(|pid| pid.parse().unwrap())).collect()
}

fn signal(pids: &[Pid], signal: Signal) {
    for &pid in pids {
        kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
    }
}

/// Holds the worker and its children once in each window, and else does nothing.
struct Stall {
    length: Duration,
    at_work: Option<JoinHandle<()>>,
}

impl Emulated for Stall {
    fn name(&self) -> String {
        "stall".into()
    }

    fn period(&self) -> Duration {
        Duration::ZERO
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        let (length, pids) = (self.length, family(worker));
        // Soon after the window has begun.
        let begin = self.settle() + Duration::from_millis(5);
        self.at_work = Some(thread::spawn(move || {
            thread::sleep(begin);
            signal(&pids, Signal::SIGSTOP);
            thread::sleep(length);
            signal(&pids, Signal::SIGCONT);
        }));
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        self.at_work.take().map_or(Ok(()), |thread| {
            thread.join().unwrap();
            Ok(())
        })
    }
}

/// CPU-Lim as published: stops each process while its CPU time is at least a share of its lifetime.
struct Lim {
    share: f64,
    at_work: Option<AtWork>,
}

impl Emulated for Lim {
    fn name(&self) -> String {
        "lim".into()
    }

    fn period(&self) -> Duration {
        Duration::from_millis(10)
    }

    fn lifetime_rule(&self) -> Option<LifetimeRule> {
        Some(LifetimeRule { share: self.share, period: self.period(), cpus: 1 })
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        let ending = Arc::new(AtomicBool::new(false));
        let (share, period, theirs) = (self.share, self.period(), Arc::clone(&ending));
        let born = born(worker);
        let thread = thread::spawn(move || {
            while !theirs.load(Ordering::SeqCst) {
                let lived = since_boot().saturating_sub(born);
                let is_reached = used(worker) >= lived.mul_f64(share);
                signal(&[worker], if is_reached { Signal::SIGSTOP } else { Signal::SIGCONT });
                thread::sleep(period);
            }
            signal(&[worker], Signal::SIGCONT);
        });
        self.at_work = Some(AtWork { ending, thread });
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        if let Some(at_work) = self.at_work.take() {
            at_work.end();
        }
        Ok(())
    }
}

/// CPU time of a process.
fn used(pid: Pid) -> Duration {
    let clock = clock_getcpuclockid(nix::unistd::Pid::from_raw(pid)).unwrap();
    clock_gettime(clock).unwrap().into()
}

/// When a process was started, after boot; in `/proc` in hundredths of a second.
fn born(pid: Pid) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let ticks = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().nth(19).unwrap();
    Duration::from_millis(10 * ticks.parse::<u64>().unwrap())
}

fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap().into()
}

/// Promises much and does nothing, or fails.
struct Idle {
    fails: bool,
    seen: Vec<Pid>,
}

impl Emulated for Idle {
    fn name(&self) -> String {
        "idle".into()
    }

    fn period(&self) -> Duration {
        Duration::ZERO
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        self.seen.push(worker);
        if self.fails { Err(Error::unavailable("it cannot")) } else { Ok(()) }
    }

    fn release(&mut self) -> Result<()> {
        Ok(())
    }
}

fn plan() -> Plan {
    Plan { pairs: 10, window: Duration::from_millis(60), ..Plan::new(7) }
}

/// A workload on the first CPU that is to run at `share`.
fn trial(workload: &str, share: f64, emulated: &dyn Emulated) -> Trial {
    let host = Host::detect(&Roots::system()).unwrap();
    let cpu = host.allowed.first().unwrap();
    let demand = Demand::new([(cpu, Target { share, clock: None })].into());
    let mut trial = Trial::of(workload, &demand, &plan().setting(emulated, &demand.targets)).unwrap();
    if let Some(size) = &mut trial.job.arrays {
        // Nothing is said here of memory, and short ones are ready sooner.
        size.array_bytes = 16 << 20;
    }
    trial
}

fn judge(emulated: &mut dyn Emulated, workload: &str, asked: f64) -> Finding {
    let trial = trial(workload, asked, emulated);
    let mut seen = 0;
    let mut outcome = verify(emulated, &trial, &plan(), &mut |_| {
        seen += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, outcome.pairs.len());
    outcome.findings.remove(0)
}

fn an_emulation_is_measured_as_what_it_is() {
    let mut stopper = Stopper::new(0.5);
    let found = judge(&mut stopper, "cpu-loop", 0.5);
    assert_holds(&found, &found.ratio, stopper.delivered());
    assert!(found.longest_stall_ns > 5_000_000, "{found:?}");
}

fn two_pairs_tell_what_a_cpu_delivers() {
    let cpu = Host::detect(&Roots::system()).unwrap().allowed.first().unwrap();
    let demand = Demand::new([(cpu, Target { share: 0.8, clock: None })].into());
    // It is asked for 80 % and gives half.
    let mut stopper = Stopper::new(0.5);
    let mut pairs = 0;
    let (window, cpus) = delivered(&mut stopper, &demand, &mut |_| {
        pairs += 1;
        Ok(())
    })
    .unwrap();
    assert!((2..=4).contains(&pairs) && window == Duration::from_millis(200), "{pairs} of {window:?}");
    let [seen] = &cpus[..] else { panic!("{cpus:?}") };
    let [least, most] = stopper.delivered();
    assert!((least - 0.1..=most + 0.1).contains(&seen.delivered), "{seen:?}, {least} to {most}");
    assert!(seen.cpu == cpu && (seen.asked - 0.8).abs() < 1e-9 && seen.error() < -0.2, "{seen:?}");
    assert!(seen.longest_stall >= Duration::from_millis(5) && seen.free > 0.3, "{seen:?}");
}

/// The smallest error of the false emulations.
const FALSE: f64 = 0.4;

/// A false emulation fails; on a machine too busy to tell so large an error, it at least does not pass.
fn assert_caught(found: &Finding) {
    let unsure = matches!(found.verdict, Verdict::NotEnoughData { .. });
    let is_too_busy = found.is_disturbed() || found.detectable.is_some_and(|error| error > FALSE);
    assert!(found.verdict == Verdict::Fail || unsure && is_too_busy, "{found:?}");
}

fn an_emulation_that_does_nothing_is_caught() {
    let mut idle = Idle { fails: false, seen: vec![] };
    let found = judge(&mut idle, "cpu-loop", 0.5);
    assert_caught(&found);
    // Each pair has a process of its own.
    idle.seen.sort_unstable();
    idle.seen.dedup();
    assert!(idle.seen.len() >= 10);
}

fn an_emulation_that_forgets_children_is_caught() {
    // It stops the parent, which only hands on orders; the children run on.
    let found = judge(&mut Stopper::new(0.5), "multiprocess", 0.5);
    assert_caught(&found);
}

fn sleeps_do_not_count_as_work() {
    let mut idle = Idle { fails: false, seen: vec![] };
    let found = judge(&mut idle, "sleep-compute", 0.5);
    assert!((found.ideal - 0.6).abs() < 0.05, "{found:?}");
    assert_caught(&found);
}

/// Those that compute all the time; the ideal of the others is a formula of its own. Not stream: while it is stopped
/// for a part of the time it was seen to keep more of its speed than that.
const COMPUTING: [&str; 4] = ["cpu-loop", "multithread", "multiprocess", "udp-io-unpaced"];

/// Whether an interval holds what is true, between two bounds, to a tenth: a stopped process stops when it is next
/// scheduled.
fn assert_holds(found: &Finding, interval: &Interval, [low, high]: [f64; 2]) {
    let holds = interval.low <= high * 1.1 && low * 0.9 <= interval.high;
    assert!(holds || found.is_disturbed(), "{low} to {high}: {found:?}");
}

fn a_known_bias_is_found_in_every_workload() {
    for workload in COMPUTING {
        let mut stopper = Stopper::thorough(0.7);
        let found = judge(&mut stopper, workload, 0.5);
        assert_holds(&found, &found.ratio, stopper.delivered());
        assert_holds(&found, &found.relative, stopper.delivered().map(|share| share / 0.5));
        assert_caught(&found);
    }
}

fn a_known_slowdown_is_right_for_work_that_sleeps() {
    for workload in ["sleep-compute", "udp-io"] {
        let found = judge(&mut Stopper::thorough(0.5), workload, 0.5);
        assert_holds(&found, &found.relative, [1.0; 2]);
    }
}

fn a_known_stall_is_found_in_every_workload() {
    const STALL: Duration = Duration::from_millis(30);
    for workload in emu_bench::workload::WORKLOADS {
        let mut stall = Stall { length: STALL, at_work: None };
        let trial = trial(workload.name(), 1.0, &stall);
        let plan = Plan { pairs: 2, ..plan() };
        let found = verify(&mut stall, &trial, &plan, &mut |_| Ok(())).unwrap().findings.remove(0);
        let longest = Duration::from_nanos(found.longest_stall_ns);
        // Paced work is late from the next moment on at which it is due.
        assert!(longest + trial.job.interval >= STALL.mul_f64(0.9), "{:?}: {found:?}", trial.job.interval);
        assert!(longest < STALL * 2 || found.is_disturbed(), "{found:?}");
    }
}

fn a_rule_for_a_whole_life_settles_first() {
    const SHARE: f64 = 0.2;
    let mut lim = Lim { share: SHARE, at_work: None };
    let plan = Plan { pairs: 8, window: Duration::from_millis(200), ..plan() };
    for (workload, ideal) in [("cpu-loop", SHARE), ("sleep-compute", SHARE * 1.5)] {
        let trial = trial(workload, SHARE, &lim);
        let mut outcome = verify(&mut lim, &trial, &plan, &mut |_| Ok(())).unwrap();
        let found = outcome.findings.remove(0);
        // A worker that was held through a window would make a ratio of nearly nothing. What sleeps a third of its time
        // has that as credit.
        let error = found.ratio.estimate / ideal - 1.0;
        assert!(error.abs() < 0.3 || found.is_disturbed(), "{workload}: {found:?}");
        let emulated = outcome.pairs.iter().filter_map(Pair::sides).map(|(_, emulated)| emulated);
        let mut empty = 0;
        for window in emulated {
            assert!(window.settled_s > 0.05, "{workload}: {window:?}");
            empty += usize::from(window.done.work() <= 0.0);
        }
        // Without settling, half of them are. A late look at the worker can make one.
        assert!(empty <= 1, "{workload}: {empty} of 8 windows are empty");
    }
}

fn the_clock_is_metered_around_windows() {
    let mut idle = Idle { fails: false, seen: vec![] };
    let trial = trial("cpu-loop", 1.0, &idle);
    let plan = Plan { pairs: 2, ..plan() };
    let outcome = verify(&mut idle, &trial, &plan, &mut |_| Ok(())).unwrap();
    let windows: Vec<_> = outcome.pairs.iter().flat_map(|pair| &pair.windows).collect();
    let known: Vec<_> = windows.iter().filter_map(|window| window.work_per_cycle()).collect();
    // A step is a multiplication and an addition that wait for each other: some 4 cycles on any CPU of today.
    assert!(known.iter().all(|per_cycle| (0.05..1.0).contains(per_cycle)), "{known:?}");
    let is_known = known.len() * 2 > windows.len();
    assert!(
        is_known || outcome.findings[0].is_disturbed(),
        "the meter fails on a machine that is not that busy"
    );
}

fn rivals_are_told_apart_and_share_their_controls() {
    let (mut idle, mut stopper) = (Idle { fails: false, seen: vec![] }, Stopper::new(0.5));
    let trial = trial("cpu-loop", 0.5, &stopper);
    let outcomes = compare(&mut [&mut idle, &mut stopper], &trial, &plan(), &mut |_| Ok(())).unwrap();
    let [idle, stopper] = &outcomes[..] else { panic!() };
    let ratio = |outcome: &Outcome| outcome.findings[0].ratio.estimate;
    let is_disturbed = outcomes.iter().any(|outcome| outcome.findings[0].is_disturbed());
    let are_apart = ratio(idle) > ratio(stopper) * 1.1;
    assert!(are_apart || is_disturbed, "{:?} {:?}", idle.findings, stopper.findings);
    let controls = |outcome: &Outcome| {
        outcome.pairs.iter().filter(|pair| pair.rival.is_none()).cloned().collect::<Vec<_>>()
    };
    assert_eq!(controls(idle), controls(stopper));
    assert!(!controls(idle).is_empty());
}

fn the_period_shows_in_the_granularity() {
    let mut stopper = Stopper::new(0.5);
    let trial = trial("cpu-loop", 0.5, &stopper);
    let seen = spectrum(&mut stopper, &trial, &plan(), Duration::from_millis(400)).unwrap().granularity;
    assert!(seen.smooth_from_ms.is_none_or(|length| length > 3), "{seen:?}");
    assert!(seen.longest_stall_ns > 5_000_000, "{seen:?}");
}

fn an_emulation_that_fails_leaves_no_worker() {
    let mut idle = Idle { fails: true, seen: vec![] };
    let trial = trial("multiprocess", 0.5, &idle);
    assert!(verify(&mut idle, &trial, &plan(), &mut |_| Ok(())).is_err());
    let worker = nix::unistd::Pid::from_raw(idle.seen[0]);
    assert!(kill(worker, None).is_err(), "the worker is gone");
}

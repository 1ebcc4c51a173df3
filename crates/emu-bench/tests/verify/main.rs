//! Verification of emulations whose true speed is known: a false one must be caught.
//!
//! Workers are processes of the running executable, so this test has its own `main` and no test harness.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests without a harness are not known as such"
)]

mod emulations;

use std::process::ExitCode;
use std::time::Duration;

use emu_bench::stats::{Interval, Verdict};
use emu_bench::verify::{Emulated, Finding, Pair, Plan, Trial, delivered, spectrum, verify};
use emu_bench::worker::serve_if_asked;
use emu_bench::workload::TASK;
use emu_core::{Demand, Host, Roots, Target};
use emulations::{Idle, Lim, Stall, Stopper};
use nix::sys::signal::kill;

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
    let mut outcome = verify(emulated, &trial, &plan(), &mut |pair| {
        seen += usize::from(pair.is_some());
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
    let (window, cpus) = delivered(&mut stopper, &demand, &mut |pair| {
        pairs += usize::from(pair.is_some());
        Ok(())
    })
    .unwrap();
    assert!((2..=12).contains(&pairs) && window == Duration::from_millis(200), "{pairs} of {window:?}");
    let [seen] = &cpus[..] else { panic!("{cpus:?}") };
    let [least, most] = stopper.delivered();
    // Where the pairs do not agree, it says so.
    let [low, high] = seen.between;
    assert!(low <= most + 0.1 && high >= least - 0.1, "{seen:?}, {least} to {most}");
    assert!(seen.cpu == cpu && (seen.asked - 0.8).abs() < 1e-9 && low / seen.asked < 0.8, "{seen:?}");
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
        let mut stall = Stall::new(STALL);
        let trial = trial(workload.name(), 1.0, &stall);
        let plan = Plan { pairs: 2, ..plan() };
        let found = verify(&mut stall, &trial, &plan, &mut |_| Ok(())).unwrap().findings.remove(0);
        let seen = Duration::from_nanos(found.longest_stall_ns);
        let [least, most] = stall.longest();
        // Paced work is late from the next moment on at which it is due.
        assert!(
            seen + trial.job.interval >= least.mul_f64(0.9),
            "{least:?}, {:?}: {found:?}",
            trial.job.interval
        );
        assert!(seen < most * 2 || found.is_disturbed(), "{most:?}: {found:?}");
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
        // A worker that was stopped through a window would make a ratio of nearly nothing. What sleeps a third of its time
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

fn the_period_shows_in_the_granularity() {
    let mut stopper = Stopper::new(0.5);
    let trial = trial("cpu-loop", 0.5, &stopper);
    let seen = spectrum(&mut stopper, &trial, &plan(), Duration::from_millis(400), &mut || Ok(()))
        .unwrap()
        .granularity;
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

//! Measures what each correction of the methods is worth: the error of the speed with it and without it.
//!
//! On this machine, in interleaved rounds, as root:
//!
//! `cargo bench -p emu-cpu-core --features ablation --bench ablation -- [--row TEXT]… [--off NAME]… [--speed PERCENT]… [--rounds 1]`
//!
//! In a guest that counts instructions, where one round tells it to the last digit, the static program of
//! `RUSTFLAGS='-C target-feature=+crt-static' cargo bench --no-run --target x86_64-unknown-linux-gnu …`:
//!
//! `tests/rig/run --icount [--cpus 2] -- target/x86_64-unknown-linux-gnu/release/deps/ablation-… --row cpu-freeze:one`
//!
//! What such runs have written becomes one table, of the largest change that each correction makes, by
//!
//! `cat RUN… | target/x86_64-unknown-linux-gnu/release/deps/ablation-… table`
//!
//! Each sample is a process of its own: the environment tells it which correction is off, and it measures costs anew.

#![allow(
    clippy::indexing_slicing,
    clippy::enum_glob_use,
    reason = "a table that is made here, and all of its rows"
)]

use std::error::Error;
use std::hint::black_box;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use emu_core::ablation::{Correction, Correction::*, VARIABLE};
use emu_core::{Demand, Host, MethodId, Prepared, Roots, SlowCommand, ids};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What can be switched off in all methods that stop tasks, and in each method.
const OF_STOPS: [Correction; 13] = [
    Account,
    DetunedGrid,
    LateStart,
    StopCostBase,
    StopCostTick,
    OwnTime,
    SharedController,
    WayOut,
    Settle,
    PinApart,
    CpuAwake,
    QueuePlace,
    SearchAfterStop,
];
const OF_FREEZE: [Correction; 2] = [FreezeMiddle, EarlySleepers];
const OF_LIM: [Correction; 5] = [Leaked, RunnerSignals, MomentOfWork, TurnOrder, EarlySleepers];
const OF_HOGS: [Correction; 13] = [
    Account,
    DetunedGrid,
    LateStart,
    OwnTime,
    VisibleWakeCost,
    HiddenWakeCost,
    HiddenScaling,
    NormalProbe,
    TimerPrearm,
    SkippedPeriods,
    BurnGaps,
    SearchAfterBurn,
    InterruptsOfOthers,
];
const OF_FRACAS: [Correction; 9] =
    [DetunedGrid, StopCostBase, StopCostTick, StallCost, StallFrequency, IdleQuota, Arrears, TurnEnds, Trim];

/// Each method with its period in milliseconds and its corrections.
fn methods() -> [(&'static str, MethodId, u64, Vec<Correction>); 7] {
    let freeze: Vec<_> = OF_STOPS.into_iter().chain(OF_FREEZE).collect();
    let lim: Vec<_> = OF_STOPS.into_iter().chain(OF_LIM).collect();
    [
        ("cpu-hogs", ids::CPU_HOGS, 10, OF_HOGS.into()),
        ("cpu-hogs-1ms", ids::CPU_HOGS, 1, OF_HOGS.into()),
        ("cpu-hogs-spared", ids::CPU_HOGS, 10, OF_HOGS.into()),
        ("cpu-freeze", ids::CPU_FREEZE, 20, freeze.clone()),
        ("cpu-freeze-100ms", ids::CPU_FREEZE, 100, freeze),
        ("cpu-lim", ids::CPU_LIM, 20, lim),
        ("fracas", ids::FRACAS, 20, OF_FRACAS.into()),
    ]
}

/// One thread on one CPU; the others on all CPUs: one thread, two threads, four processes, one thread that sleeps and
/// computes in turn, short programs in two rows as by `xargs -P2`, two processes beside 60 that sleep, and 16 processes.
const WORKLOADS: [&str; 8] = ["one", "alone", "threads", "processes", "sleep", "jobs", "crowd", "busy"];

/// How long a thread or process runs before anything is measured.
const SETTLE: Duration = Duration::from_millis(300);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["work", ref job @ ..] => work(job),
        ["table"] => table(),
        ["sample", method, state, cpus, speed, ref job @ ..] => sample(method, state, cpus, speed, job),
        _ => compare(&words),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("ablation: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Every row that is asked for: the error with all corrections, then what changes without each.
fn compare(words: &[&str]) -> Outcome<()> {
    let values = |option: &str| -> Vec<&str> {
        words.windows(2).filter(|pair| pair[0] == option).map(|pair| pair[1]).collect()
    };
    let (rows, off, speeds) = (values("--row"), values("--off"), values("--speed"));
    let rounds: usize = values("--rounds").first().map_or(Ok(1), |rounds| rounds.parse())?;
    let window: u64 = values("--window").first().map_or(Ok(0), |window| window.parse())?;
    let speeds = if speeds.is_empty() { vec!["10", "25", "50"] } else { speeds };
    for (name, _, period, corrections) in methods() {
        for workload in WORKLOADS {
            let row = format!("{name}:{workload}");
            if !rows.is_empty()
                && !rows.iter().any(|wanted| *wanted == row || row.starts_with(&format!("{wanted}:")))
            {
                continue;
            }
            let wanted = corrections.iter().filter(|one| off.is_empty() || off.contains(&&*one.name()));
            let cases: Vec<_> = [None].into_iter().chain(wanted.copied().map(Some)).collect();
            for speed in &speeds {
                one_row(&row, name, workload, speed, (period, window), &cases, rounds)?;
            }
        }
    }
    Ok(())
}

fn one_row(
    row: &str,
    method: &str,
    workload: &str,
    speed: &str,
    (period, window): (u64, u64),
    cases: &[Option<Correction>],
    rounds: usize,
) -> Outcome<()> {
    let share = speed.parse::<f64>()? / 100.0;
    // Of the real, slightly longer period.
    let period_us = if method.starts_with("fracas") { period * 1000 } else { period * 1000 * 513 / 512 };
    let window_us = if window > 0 { window * 1000 / period_us * period_us } else { period_us * 100 };
    let job = |native: f64| -> Vec<String> {
        // The work of a burst, or of a short program.
        let steps = match workload {
            "sleep" => native * share * 10.0 * period_us as f64 / 1e6,
            "jobs" => native * share * 0.05,
            _ => 0.0,
        };
        [workload.into(), window_us.to_string(), period_us.to_string(), (steps as u64).to_string()].into()
    };
    let one_native =
        sum(&rates(Command::new(std::env::current_exe()?).arg("work").args(["one", "300000", "0", "0"]))?);
    let mut found: Vec<Found> = cases.iter().map(|_| Found::default()).collect();
    for round in 0..rounds {
        let mut native = Command::new(std::env::current_exe()?);
        let native = sum(&rates(native.arg("work").args(job(one_native)))?);
        for place in 0..cases.len() {
            let index = (place + round) % cases.len();
            let state = std::env::temp_dir().join("emu-ablation");
            let _ = std::fs::remove_dir_all(&state);
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["sample", method]).arg(&state);
            command.args([if workload == "one" { "one" } else { "all" }, speed]).args(job(one_native));
            if let Some(correction) = cases[index] {
                command.env(VARIABLE, correction.name());
            }
            let mut parts = rates(&mut command)?;
            found[index].own.push(parts.pop().ok_or("a sample without its own CPU time")? * 100.0);
            found[index].errors.push((sum(&parts) / native / share - 1.0) * 100.0);
            let squares: f64 = parts.iter().map(|part| part * part).sum();
            found[index].fairness.push(sum(&parts).powi(2) / squares / parts.len() as f64);
        }
    }
    let cpus = thread::available_parallelism()?;
    println!("{row} {speed} %, {cpus} CPUs: {}, {rounds} rounds", found[0].tell());
    for (one, case) in found.iter().zip(cases).skip(1) {
        let Some(correction) = case else { continue };
        let changes: Vec<_> =
            one.errors.iter().zip(&found[0].errors).map(|(without, with)| without - with).collect();
        let ((low, high), change) = (interval(&changes), median(&changes));
        let name = correction.name();
        println!("  without {name:18} {}, by {change:+6.2} [{low:+.2}, {high:+.2}]", one.tell());
    }
    Ok(())
}

/// Reads what runs have written, and writes a table in Markdown of the largest change without each correction.
fn table() -> Outcome<()> {
    let mut row = String::new();
    let mut changes: Vec<(String, f64, String)> = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line?;
        if let Some((name, rest)) = line.strip_prefix("  without ").and_then(|line| line.split_once(' ')) {
            let change = rest.split("by ").nth(1).and_then(|change| change.split_whitespace().next());
            changes.push((name.into(), change.ok_or("a line without a change")?.parse()?, row.clone()));
        } else if let Some((name, _)) = line.split_once(": ").filter(|(name, _)| name.contains(" %, ")) {
            row = name.into();
        }
    }
    println!("| without | largest change, points | where | rows |\n|---|---|---|---|");
    for name in Correction::ALL.iter().copied().map(Correction::name) {
        let of_it = || changes.iter().filter(|(of, ..)| *of == name);
        if let Some((_, change, row)) = of_it().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())) {
            println!("| {name} | {change:+.2} | {row} | {} |", of_it().count());
        }
    }
    Ok(())
}

/// What the rounds of one case gave.
#[derive(Default)]
struct Found {
    /// Of the speed, in percent.
    errors: Vec<f64>,
    /// Jain's index over the parts.
    fairness: Vec<f64>,
    /// CPU time of emu itself, in percent of one CPU.
    own: Vec<f64>,
}

impl Found {
    fn tell(&self) -> String {
        let [error, fairness, own] = [&self.errors, &self.fairness, &self.own].map(|values| median(values));
        format!("{error:+7.2} %, fairness {fairness:.3}, own {own:.2} %")
    }
}

/// Runs a command and reads the rates of its parts, in steps a second.
fn rates(command: &mut Command) -> Outcome<Vec<f64>> {
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?.split_whitespace().map(str::parse).collect::<Result<_, _>>()?)
}

fn sum(values: &[f64]) -> f64 {
    values.iter().sum()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: &[f64]) -> f64 {
    let values = sorted(values);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
}

/// An interval of 95 % of the median, by ranks; from the least to the most where there are few values.
fn interval(values: &[f64]) -> (f64, f64) {
    let values = sorted(values);
    let count = values.len() as f64;
    let rank = ((count - 1.96 * count.sqrt()) / 2.0).floor().max(0.0) as usize;
    (values[rank], values[values.len() - 1 - rank])
}

/// Emulates for one job, in this process; the job writes its rates, and this the CPU time of emu as a part of one CPU.
fn sample(method: &str, state: &str, cpus: &str, speed: &str, job: &[&str]) -> Outcome<()> {
    let (_, id, period, _) =
        methods().into_iter().find(|(name, ..)| *name == method).ok_or("no such method")?;
    let roots = Roots { state: state.into(), ..Roots::system() };
    let host = Host::detect(&roots)?;
    let one = host.allowed.iter().last().into_iter().collect();
    let cpus = if cpus == "one" { &one } else { &host.allowed };
    let mut demand = Demand::measured(&host, &format!("{speed}%").parse()?, Some(cpus))?;
    demand.period = Some(Duration::from_millis(period));
    demand.exclude_background = method.ends_with("spared");
    let prepared = Prepared::named(id, &host, &demand)?;
    let mut work = SlowCommand::new(std::env::current_exe()?);
    let child = work.arg("work").args(job).spawn(&prepared)?;
    let begin = Instant::now();
    let ended = child.wait()?;
    println!("{:.6}", ended.status.own_cpu.div_duration_f64(begin.elapsed()));
    Ok(ended.released?)
}

/// The work itself: writes the rate of each part.
fn work(job: &[&str]) -> Outcome<()> {
    let [workload, window, period, steps] = job else { return Err("no such work".into()) };
    let window = Duration::from_micros(window.parse()?);
    let (period, steps) = (Duration::from_micros(period.parse()?), steps.parse::<u64>()?);
    let again = |workload: &str| {
        Command::new(std::env::current_exe()?)
            .args(["work", workload, &window.as_micros().to_string(), &period.as_micros().to_string(), "0"])
            .stdout(Stdio::piped())
            .spawn()
    };
    let parts = match *workload {
        "one" | "alone" => vec![turns(window)],
        "part" => vec![whole(window)],
        "threads" => thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(|| whole(window)));
            threads.into_iter().map(|thread| thread.join().unwrap_or(0.0)).collect()
        }),
        "processes" => all_of((0..4).map(|_| again("part")).collect::<Result<_, _>>()?)?,
        "busy" => all_of((0..16).map(|_| again("part")).collect::<Result<_, _>>()?)?,
        "crowd" => {
            let sleeping: Vec<Child> = (0..60).map(|_| again("idle")).collect::<Result<_, _>>()?;
            let parts = all_of((0..2).map(|_| again("part")).collect::<Result<_, _>>()?);
            for mut child in sleeping {
                child.kill()?;
                child.wait()?;
            }
            parts?
        }
        "idle" => {
            thread::sleep(Duration::from_secs(1000));
            vec![]
        }
        "sleep" => vec![bursts(period, steps)],
        "steps" => {
            compute(steps);
            vec![]
        }
        "jobs" => vec![jobs(steps)?],
        _ => return Err(format!("no such work: {workload}").into()),
    };
    for part in parts {
        println!("{part:.1}");
    }
    Ok(())
}

fn all_of(children: Vec<Child>) -> Outcome<Vec<f64>> {
    let mut all = Vec::new();
    for child in children {
        all.extend(
            String::from_utf8(child.wait_with_output()?.stdout)?.split_whitespace().map(str::parse::<f64>),
        );
    }
    Ok(all.into_iter().collect::<Result<_, _>>()?)
}

fn compute(steps: u64) {
    for step in 0..steps {
        black_box(step);
    }
}

/// Computes until `end`, or until it was away from its CPU for so long; how many steps, and until when.
fn compute_until(end: Instant, away: Duration) -> (u64, Instant) {
    const LOOK_EVERY: u64 = 200;
    let (mut steps, mut now) = (0, Instant::now());
    loop {
        compute(LOOK_EVERY);
        steps += LOOK_EVERY;
        let before = std::mem::replace(&mut now, Instant::now());
        if now >= end || now - before > away {
            return (steps, now);
        }
    }
}

/// Steps a second from the end of one stop to that of another: of whole turns. A stop is a stretch of 300 µs without the CPU.
fn turns(window: Duration) -> f64 {
    const AWAY: Duration = Duration::from_micros(300);
    compute_until(Instant::now() + SETTLE, Duration::MAX);
    let (_, begin) = compute_until(Instant::now() + SETTLE, AWAY);
    let (steps, passed) = compute_until(begin + window, Duration::MAX);
    let (more, end) = compute_until(passed + SETTLE, AWAY);
    (steps + more) as f64 / (end - begin).as_secs_f64()
}

/// Steps a second in a window, which is to be one of whole periods.
fn whole(window: Duration) -> f64 {
    let (_, begin) = compute_until(Instant::now() + SETTLE, Duration::MAX);
    let (steps, end) = compute_until(begin + window, Duration::MAX);
    steps as f64 / (end - begin).as_secs_f64()
}

/// Steps in each second of being awake, of one that sleeps for five periods between two bursts.
fn bursts(period: Duration, steps: u64) -> f64 {
    const BURSTS: u32 = 16;
    let mut awake = Duration::ZERO;
    thread::sleep(SETTLE);
    for burst in 0..BURSTS {
        // All phases of a period.
        thread::sleep(period * 5 + period * burst / BURSTS);
        let begin = Instant::now();
        compute(steps);
        awake += begin.elapsed();
    }
    (steps * u64::from(BURSTS)) as f64 / awake.as_secs_f64()
}

/// Steps a second of short programs in two rows, their making included.
fn jobs(steps: u64) -> Outcome<f64> {
    const EACH: u64 = 20;
    let program = std::env::current_exe()?;
    let row = || -> std::io::Result<()> {
        for _ in 0..EACH {
            Command::new(&program).args(["work", "steps", "0", "0", &steps.to_string()]).status()?;
        }
        Ok(())
    };
    let begin = Instant::now();
    thread::scope(|scope| -> Outcome<()> {
        let rows = [(); 2].map(|()| scope.spawn(row));
        for row in rows {
            row.join().map_err(|_| "a row has panicked")??;
        }
        Ok(())
    })?;
    Ok((2 * EACH * steps) as f64 / begin.elapsed().as_secs_f64())
}

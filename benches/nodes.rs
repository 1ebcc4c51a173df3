//! Nodes beside each other, new speeds, and traces, by what a program counts itself; and what `emu node exec` takes.
//!
//! `cargo build --release -p emu-cpu && cargo bench -p emu-cpu-bench --bench nodes -- --pairs 9 [--row NAME] [--out DIR]`, as root
//! on a host with two CPUs or more.

mod common;

use std::array::from_ref;
use std::hint::black_box;
use std::io::{BufRead, BufReader, BufWriter, Write, stdout};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use common::{Line, Met, Run, emu, median, timed};
use emu_bench::stats::Sample;
use emu_core::{
    CpuId, Demand, Error, METHODS, MethodId, Node, Pid, Player, Prepared, Result, Session, Target, Targets,
    Tasks, Trace, Trait, process_cpu_time,
};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Has this executable be a program that computes and writes how far it is.
const COUNT: &str = "EMU_BENCH_COUNT";

/// How often it notes that, and hands its notes over: whoever reads them runs on the same CPUs.
const EVERY: f64 = 0.001;
const HANDED_OVER: f64 = 0.2;

/// What a node is slowed to, and the other one.
const SPEEDS: [f64; 2] = [0.3, 0.8];

/// How long a speed settles, and how long it is looked at.
const SETTLE: Duration = Duration::from_millis(400);
const WINDOW: Duration = Duration::from_secs(1);

/// New speeds in a row, how fast they come, and between which.
const RETARGETS: usize = 1000;
const PACE: Duration = Duration::from_millis(1);
const BETWEEN: [f64; 2] = [0.5, 0.8];

/// Steps of a trace: 20 s of them, and the periods of each.
const STEP: Duration = Duration::from_millis(100);
const STEPS: usize = 200;
const PERIODS: u32 = 5;

/// How a method may be off, and how much a node may be moved by another one.
const OFF: f64 = 0.02;
const MOVED: f64 = 0.01;
const OFF_IN_STEP: f64 = 0.03;
const EXEC_MS: f64 = 20.0;

fn main() -> ExitCode {
    if std::env::var_os(COUNT).is_some() {
        return count();
    }
    common::main("nodes", |run| {
        let methods = METHODS.iter().filter(|method| !method.about().has(Trait::Published));
        let methods: Vec<_> =
            methods.map(|method| method.id()).filter(|id| run.wants_case(id.as_str())).collect();
        for (row, measure) in [
            ("nodes", nodes as fn(&mut Run, MethodId) -> Result<()>),
            ("retarget", retarget),
            ("trace", trace),
        ] {
            if run.wants(row) {
                methods.iter().try_for_each(|method| measure(run, *method))?;
            }
        }
        if run.wants("exec") { exec(run) } else { Ok(()) }
    })
}

fn now() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Between two looks at the clock, which are few beside them.
const AT_ONCE: u64 = 5_000;

/// Computes, and writes the time and the number of steps, until nobody reads.
fn count() -> ExitCode {
    let mut out = BufWriter::with_capacity(1 << 16, stdout().lock());
    let (mut steps, mut state, mut next, mut full) = (0_u64, 1_u64, now(), now());
    loop {
        // Each step waits for the one before: what runs on the CPU's sibling takes nothing from it.
        for _ in 0..AT_ONCE {
            state = black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
        steps += AT_ONCE;
        let at = now();
        if at < next {
            continue;
        }
        next = at + EVERY;
        let mut written = writeln!(out, "{at:.9} {steps}");
        if at >= full {
            full = at + HANDED_OVER;
            written = written.and_then(|()| out.flush());
        }
        if written.is_err() {
            return ExitCode::SUCCESS;
        }
    }
}

/// A program that counts, killed in the end.
struct Counter {
    child: Child,
    seen: Arc<Mutex<Vec<(f64, f64)>>>,
}

impl Counter {
    fn start(cpu: CpuId) -> Result<Self> {
        let failed = |cause| Error::io("cannot start a program that counts", cause);
        let this = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new("taskset")
            .args(["-c", &cpu.to_string()])
            .arg(this)
            .env(COUNT, "")
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (out, kept) = (child.stdout.take(), Arc::clone(&seen));
        thread::spawn(move || {
            for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
                let mut numbers = line.split(' ').filter_map(|word| word.parse::<f64>().ok());
                if let (Some(at), Some(steps)) = (numbers.next(), numbers.next()) {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push((at, steps));
                }
            }
        });
        Ok(Self { child, seen })
    }

    fn pid(&self) -> Pid {
        self.child.id() as Pid
    }

    /// Steps each second between two times, if it was seen at both.
    fn rate(&self, from: f64, until: f64) -> Option<f64> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let at = |time: f64| {
            let after = seen.partition_point(|(at, _)| *at < time);
            let ((early, low), (late, high)) = (seen.get(after.checked_sub(1)?)?, seen.get(after)?);
            Some(low + (high - low) * (time - early) / (late - early))
        };
        Some((at(until)? - at(from)?) / (until - from))
    }

    /// CPU time in seconds, by the kernel's account.
    fn cpu_time(&self) -> Result<f64> {
        let time = process_cpu_time(self.pid()).map(|time| time.as_secs_f64());
        time.ok_or_else(|| Error::unavailable("the program that counts has ended"))
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn targets(cpu: CpuId, share: f64) -> Targets {
    [(cpu, Target { share, clock: None })].into()
}

/// What a method makes of a speed of one CPU; tells where it makes nothing of it.
fn prepared(run: &mut Run, row: &'static str, id: MethodId, demand: &Demand) -> Option<Prepared> {
    let prepared = Prepared::named(id, &run.host, demand);
    prepared
        .map_err(|why| {
            let met = Met::Not(why.in_words());
            run.line(row, Line { case: id.to_string(), measured: "-".into(), must: "-".into(), met });
        })
        .ok()
}

/// Median and quartiles of errors, in percent; and the median without its sign.
fn errors(values: &[f64]) -> (String, Option<f64>) {
    let Ok(sample) = Sample::new(values) else { return ("-".into(), None) };
    let quartile = |part| sample.quantile(part).map_or(f64::NAN, |value| 100.0 * value);
    let [low, high] = [0.25, 0.75].map(quartile);
    (format!("{:+.2} % ({low:+.2} to {high:+.2})", 100.0 * sample.median()), Some(sample.median().abs()))
}

/// What a program was given in a window.
#[derive(Clone, Copy, Serialize)]
struct Given {
    /// Its own steps a second.
    rate: Option<f64>,
    /// The share of a CPU, by the kernel's account.
    share: f64,
}

/// What each of them is given at once.
fn given<const N: usize>(counters: &[Counter; N]) -> Result<[Given; N]> {
    sleep(SETTLE);
    let look = || counters.iter().map(Counter::cpu_time).collect::<Result<Vec<_>>>();
    let (before, from) = (look()?, now());
    sleep(WINDOW);
    let (after, until) = (look()?, now());
    // Whoever was stopped is seen again after a period.
    sleep(SETTLE);
    let mut shares = before.iter().zip(after).map(|(before, after)| (after - before) / (until - from));
    let mut one = |counter: &Counter| Given {
        rate: counter.rate(from, until),
        share: shares.next().unwrap_or(f64::NAN),
    };
    Ok(counters.each_ref().map(&mut one))
}

#[derive(Serialize)]
struct Beside {
    method: MethodId,
    /// Without emulation, both at work; on the nodes, the same; the first one while the other has nothing to do.
    native: [Given; 2],
    both: [Given; 2],
    alone: Given,
}

/// Two nodes at once, and one while the other's load stops.
fn nodes(run: &mut Run, method: MethodId) -> Result<()> {
    let cpus: Vec<_> = run.cpus(2).iter().collect();
    let &[one, two] = cpus.as_slice() else {
        return Err(Error::unavailable("two nodes need two CPUs").hint("measure the other rows: --row"));
    };
    let mut seen = Vec::new();
    for _ in 0..run.options.pairs {
        let counters = [Counter::start(one)?, Counter::start(two)?];
        let native = given(&counters)?;
        // One that burns would take from whatever is on its CPU.
        let mut node = |cpu, share| {
            let prepared = prepared(run, "nodes", method, &Demand::new(targets(cpu, share)));
            prepared.map(|prepared| Node::create(&prepared, format!("bench {cpu}"))).transpose()
        };
        let (Some(first), Some(second)) = (node(one, SPEEDS[0])?, node(two, SPEEDS[1])?) else {
            return Ok(());
        };
        first.adopt(counters[0].pid())?;
        second.adopt(counters[1].pid())?;
        let both = given(&counters)?;
        let [counter, other] = counters;
        drop(other);
        let [alone] = given(from_ref(&counter))?;
        drop(counter);
        for node in [first, second] {
            node.kill()?;
            node.remove().1?;
        }
        let one = Beside { method, native, both, alone };
        run.sample("nodes", &one)?;
        seen.push(one);
    }
    let mut tell = |case: String, most: f64, off: &dyn Fn(&Beside) -> Option<f64>| {
        let (measured, error) = errors(&seen.iter().filter_map(off).collect::<Vec<_>>());
        let must = format!("≤ {:.0} %", 100.0 * most);
        run.line("nodes", Line { case, measured, must, met: Met::at_most(error, most) });
    };
    for (cpu, is_first, speed) in [(one, true, SPEEDS[0]), (two, false, SPEEDS[1])] {
        let of = move |&[first, second]: &[Given; 2]| if is_first { first } else { second };
        let at = format!("{method}: {:.0} % on CPU {cpu}", 100.0 * speed);
        tell(format!("{at}, CPU time"), OFF, &|seen| Some(of(&seen.both).share / speed - 1.0));
        tell(format!("{at}, own count"), OFF, &|seen| {
            Some(of(&seen.both).rate? / of(&seen.native).rate? / speed - 1.0)
        });
    }
    let moved = format!("{method}: moved by the other");
    tell(format!("{moved}, CPU time"), MOVED, &|seen| Some(seen.both[0].share / seen.alone.share - 1.0));
    tell(format!("{moved}, own count"), MOVED, &|seen| Some(seen.both[0].rate? / seen.alone.rate? - 1.0));
    Ok(())
}

#[derive(Serialize)]
struct Retargeted {
    method: MethodId,
    /// How long each of the calls took.
    micros: Vec<f64>,
    /// Steps a second without emulation; in windows of two periods meanwhile; and at the end.
    native: Option<f64>,
    windows: Vec<f64>,
    end: Option<f64>,
}

/// A thousand new speeds while a program counts.
fn retarget(run: &mut Run, method: MethodId) -> Result<()> {
    let Some(cpu) = run.host.allowed.first() else { return Ok(()) };
    let Some(prepared) = prepared(run, "retarget", method, &Demand::new(targets(cpu, BETWEEN[0]))) else {
        return Ok(());
    };
    let counter = Counter::start(cpu)?;
    let [Given { rate: native, .. }] = given(from_ref(&counter))?;
    let mut session = Session::engage(&prepared, "bench", Tasks::Processes(vec![counter.pid()]))?;
    sleep(SETTLE);
    let (begin, mut micros) = (now(), Vec::new());
    for number in 0..RETARGETS {
        let [low, high] = BETWEEN;
        let targets = targets(cpu, if number % 2 == 0 { high } else { low });
        let before = Instant::now();
        session.retarget(&targets)?;
        micros.push(before.elapsed().as_secs_f64() * 1e6);
        sleep(PACE);
    }
    let end_of_all = now();
    let [Given { rate: end, .. }] = given(from_ref(&counter))?;
    let two = 2.0 * session.status().period.as_secs_f64();
    session.release().1?;
    let windows = ((end_of_all - begin) / two) as usize;
    let windows = (0..windows).map(|number| begin + two * number as f64);
    let windows: Vec<_> = windows.filter_map(|from| counter.rate(from, from + two)).collect();
    if let (Some(native), Ok(times)) = (native, Sample::new(micros.as_slice())) {
        let worst = windows.iter().copied().fold(0.0, f64::max) / native;
        let [middle, high, most] =
            [0.5, 0.99, 1.0].map(|part| times.quantile(part).map_or(f64::NAN, |micros| micros / 1e3));
        let case = format!("{method}: a call");
        let measured = format!("{middle:.3} ms, 99 % {high:.3}, most {most:.3}");
        run.line(
            "retarget",
            Line { case, measured, must: "≤ 1 ms".into(), met: Met::at_most(Some(high), 1.0) },
        );
        let case = format!("{method}: the fastest two periods");
        let measured = format!("{:.1} % of native", 100.0 * worst);
        let bound = format!("≤ {:.0} %", 100.0 * BETWEEN[1]);
        let met = Met::at_most(Some(worst), BETWEEN[1] * (1.0 + OFF));
        run.line("retarget", Line { case, measured, must: bound, met });
        let off = end.map(|end| end / native / BETWEEN[0] - 1.0);
        let measured = common::figure(off.map(|off| 100.0 * off), " %");
        let case = format!("{method}: at 50 % at the end");
        let met = Met::at_most(off.map(f64::abs), OFF);
        run.line("retarget", Line { case, measured, must: "≤ 2 %".into(), met });
    }
    run.sample("retarget", &Retargeted { method, micros, native, windows, end })
}

#[derive(Serialize)]
struct Step {
    method: MethodId,
    asked: f64,
    /// Relative to what is asked: of the whole step, and from two periods after its begin on.
    whole: Option<f64>,
    settled: Option<f64>,
}

/// A trace of short steps while a program counts.
fn trace(run: &mut Run, method: MethodId) -> Result<()> {
    let Some(cpu) = run.host.allowed.first() else { return Ok(()) };
    // All tenths from 20 to 90 %, in an order without a pattern of neighbours.
    let shares: Vec<f64> = (0..STEPS).map(|step| ((step * 5 + step / 8) % 8 + 2) as f64 / 10.0).collect();
    let line = |(step, share): (usize, &f64)| {
        format!("{:.1},*,{:.0}%\n", step as f64 * STEP.as_secs_f64(), share * 100.0)
    };
    let lines: String = shares.iter().enumerate().map(line).collect();
    let end = STEPS as f64 * STEP.as_secs_f64();
    let trace: Trace = format!("time_s,cpu,speed\n{lines}{end},*,end\n").parse()?;
    let first = shares.first().copied().unwrap_or(1.0);
    let mut demand = Demand::new(targets(cpu, first));
    demand.period = Some(STEP / PERIODS);
    let Some(prepared) = prepared(run, "trace", method, &demand) else { return Ok(()) };
    let one = [cpu].into_iter().collect();
    let mut player = Player::new(&run.host, trace, Some(&one), emu_core::AtEnd::Hold)?;
    let counter = Counter::start(cpu)?;
    let [Given { rate: before, .. }] = given(from_ref(&counter))?;
    let mut session = Session::engage(&prepared, "bench", Tasks::Processes(vec![counter.pid()]))?;
    sleep(SETTLE);
    let begin = now();
    player.begin();
    while let Some(due) = player.due().filter(|_| now() < begin + end) {
        sleep(due.saturating_duration_since(Instant::now()));
        player.play(&mut session)?;
    }
    sleep(Duration::from_secs_f64((begin + end - now()).max(0.0)) + SETTLE);
    let two = 2.0 * session.status().period.as_secs_f64();
    session.release().1?;
    let [Given { rate: after, .. }] = given(from_ref(&counter))?;
    let Some((before, after)) = before.zip(after) else { return Ok(()) };
    let (mut whole, mut settled, mut total) = (Vec::new(), Vec::new(), [0.0; 2]);
    for (step, &asked) in shares.iter().enumerate() {
        let (from, length) = (begin + step as f64 * STEP.as_secs_f64(), STEP.as_secs_f64());
        // The machine may become faster or slower meanwhile.
        let native = before + (after - before) * step as f64 / STEPS as f64;
        let off = |from: f64, until: f64| counter.rate(from, until).map(|rate| rate / native / asked - 1.0);
        let one =
            Step { method, asked, whole: off(from, from + length), settled: off(from + two, from + length) };
        total[0] += one.whole.map_or(0.0, |off| asked * (1.0 + off));
        total[1] += one.whole.map_or(0.0, |_| asked);
        whole.extend(one.whole);
        settled.extend(one.settled.filter(|_| two < length));
        run.sample("trace", &one)?;
    }
    for (what, off) in [("a step", &whole), ("from two periods on", &settled)] {
        let (measured, _) = errors(off);
        let sizes: Vec<_> = off.iter().map(|off| off.abs()).collect();
        let share =
            sizes.iter().filter(|off| **off <= OFF_IN_STEP).count() as f64 / sizes.len().max(1) as f64;
        let measured = format!("{measured}, {:.0} % within", 100.0 * share);
        let case = format!("{method}: {what}");
        let met = Met::at_most(median(&sizes), OFF_IN_STEP);
        run.line("trace", Line { case, measured, must: "≤ 3 %".into(), met });
    }
    let off = (total[1] > 0.0).then(|| total[0] / total[1] - 1.0);
    let measured = common::figure(off.map(|off| 100.0 * off), " %");
    let met = Met::at_most(off.map(f64::abs), OFF);
    run.line("trace", Line { case: format!("{method}: all steps"), measured, must: "≤ 2 %".into(), met });
    Ok(())
}

#[derive(Serialize)]
struct Taken {
    plain_ms: f64,
    on_node_ms: f64,
}

/// What a command on a node takes beyond the same command.
fn exec(run: &mut Run) -> Result<()> {
    let emu = emu()?;
    let node = |words: &[&str]| timed(Command::new(&emu).arg("node").args(words));
    node(&["create", "emu-bench", "--quiet", "--cpus", "0", "--speed", "100%"])?;
    let mut beyond = Vec::new();
    let measured = (0..run.options.pairs.max(15)).try_for_each(|_| {
        let plain_ms = timed(&mut Command::new("true"))?;
        let on_node_ms = node(&["exec", "emu-bench", "--", "true"])?;
        beyond.push(on_node_ms - plain_ms);
        run.sample("exec", &Taken { plain_ms, on_node_ms })
    });
    node(&["remove", "emu-bench", "--kill"])?;
    measured?;
    let beyond = median(&beyond);
    let line = Line {
        case: "emu node exec -- true, beyond true".into(),
        measured: common::figure(beyond, " ms"),
        must: format!("≤ {EXEC_MS} ms"),
        met: Met::at_most(beyond, EXEC_MS),
    };
    run.line("exec", line);
    Ok(())
}

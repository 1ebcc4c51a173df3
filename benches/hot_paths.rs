//! Criterion benches of code that runs often or while time is measured.
//!
//! `cargo bench -p emu-cpu-bench --bench hot_paths`
//!
//! `grid/tick` and `sample/overhead` are taken from an emulation and a pair that are really made; the former needs the
//! rights of `cpu-hogs`. Whether they keep to their limits is in the row `hogs-cost` of `fidelity` and in `harness`.

use std::hint::black_box;
use std::process::{Child, Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group};
use emu_bench::stats::{Bootstrap, Granularity, Interval, Level, Sample, Stamp};
use emu_bench::verify::{Emulated, Nothing, Plan, SessionEmulated, Side, Trial, take};
use emu_bench::worker::serve_if_asked;
use emu_bench::workload::kernel::{self, QUANTUM};
use emu_bench::workload::{TASK, now_ns};
use emu_core::{
    CpuId, CpuList, Demand, Error, Host, Journal, Pid, Result, Roots, SpeedSpec, Status, Target, Undo, clock,
    ids,
};

/// Length of a turn of the grid.
const TICK: Duration = Duration::from_millis(1);

/// Window of a sample: what is measured here does not depend on it.
const WINDOW: Duration = Duration::from_millis(10);

/// Something that computes ends by itself, whatever becomes of this process.
const LIFETIME_S: &str = "120";

fn main() -> ExitCode {
    if let Some(code) = serve_if_asked(&[TASK]) {
        return code;
    }
    benches();
    Criterion::default().configure_from_args().final_summary();
    ExitCode::SUCCESS
}

/// What a worker does between two looks at the clock, and the look.
fn worker(c: &mut Criterion) {
    c.bench_function("worker/quantum", |b| b.iter(|| kernel::advance(black_box(1), QUANTUM)));
    c.bench_function("worker/clock", |b| b.iter(now_ns));
    c.bench_function("worker/verify", |b| {
        b.iter(|| kernel::expected(black_box(1), black_box(1_000_000_007)));
    });
}

fn statistics(c: &mut Criterion) {
    let Ok(sample) = Sample::new((0..15).map(f64::from).collect::<Vec<_>>()) else { return };
    c.bench_function("statistics/median of 15", |b| {
        b.iter(|| Interval::of_median(black_box(&sample), Level::P95, &Bootstrap::new(1)));
    });
    // A second at a period of 1 ms, in quanta of 20 µs of which half fall away.
    let stamps: Vec<_> =
        (0..25_000).map(|i| Stamp { time_ns: i * 20_000 + i / 25 * 500_000, work: i * QUANTUM }).collect();
    c.bench_function("statistics/granularity of 25000 stamps", |b| {
        b.iter(|| Granularity::of(black_box(&stamps)));
    });
}

/// What a start of the command does before it changes anything.
fn startup(c: &mut Criterion) {
    let roots = Roots::system();
    c.bench_function("startup/host", |b| b.iter(|| Host::detect(black_box(&roots))));
    c.bench_function("startup/speeds", |b| b.iter(|| black_box("0-63=1.2GHz,64=40%").parse::<SpeedSpec>()));
    let Some(cpu) = Host::detect(&roots).ok().and_then(|host| host.allowed.first()) else { return };
    c.bench_function("startup/meter for 1 ms", |b| b.iter(|| clock::measure(cpu, Duration::from_millis(1))));
}

/// What stands before every change of the system, and the change.
fn journal(c: &mut Criterion) {
    let Ok(dir) = tempfile::tempdir() else { return };
    let roots = Roots { proc: "/proc".into(), ..Roots::below(dir.path()) };
    let file = roots.sys.join("scaling_setspeed");
    let made = std::fs::create_dir_all(&roots.sys).and_then(|()| std::fs::write(&file, "800000"));
    let (Ok(()), Ok(journal)) = (made, Journal::open(&roots, &CpuList::default(), "bench", "bench")) else {
        return;
    };
    let thaw = Undo::Thaw { file: file.clone(), value: "0".into() };
    c.bench_function("journal/append", |b| b.iter(|| journal.record(black_box(&thaw))));
    c.bench_function("journal/write a control file", |b| {
        b.iter(|| journal.write_file(black_box(&file), "1400000"));
    });
}

/// CPU time that `cpu-hogs` takes for a turn beyond what it burns, the kernel's part of waking up included.
fn grid(c: &mut Criterion) {
    if let Err(why) = tick(c) {
        println!("grid/tick is left out: {why}");
    }
}

fn tick(c: &mut Criterion) -> Result<()> {
    let host = Host::detect(&Roots::system())?;
    let demand = Demand { period: Some(TICK), ..Demand::new([target(&host, 0.5)].into()) };
    let mut hogs = SessionEmulated::named(&host, &demand, ids::CPU_HOGS)?;
    let busy = Busy::start()?;
    hogs.engage(busy.pid())?;
    let status = || hogs.status().unwrap_or_else(|| unreachable!("it is engaged"));
    let own = |before: &Status, after: &Status| {
        let turns = after.periods.saturating_sub(before.periods).max(1);
        after.own_cpu.saturating_sub(before.own_cpu).as_secs_f64() / turns as f64
    };
    let mut group = c.benchmark_group("grid");
    group.sample_size(50);
    group.bench_function("tick", |b| {
        b.iter_custom(|turns| {
            let before = status();
            thread::sleep(TICK * turns as u32);
            Duration::from_secs_f64(own(&before, &status()) * turns as f64)
        });
    });
    group.finish();
    hogs.release()
}

/// A process that computes until this is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Result<Self> {
        let child = Command::new("timeout").args([LIFETIME_S, "sh", "-c", "while :; do :; done"]).spawn();
        child.map(Self).map_err(|cause| Error::io("cannot start a process that computes", cause))
    }

    fn pid(&self) -> Pid {
        self.0.id() as Pid
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // To be ended with what it has started, which it passes this on to.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid()), nix::sys::signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// The first CPU, and what it is to deliver.
fn target(host: &Host, share: f64) -> (CpuId, Target) {
    (host.allowed.first().unwrap_or(0), Target { share, clock: None })
}

/// What a sample takes beyond its window and the time before it: half of what a pair does.
fn sample(c: &mut Criterion) {
    if let Err(why) = overhead(c) {
        println!("sample/overhead does not count: {why}");
    }
}

fn overhead(c: &mut Criterion) -> Result<()> {
    let host = Host::detect(&Roots::system())?;
    let demand = Demand::new([target(&host, 1.0)].into());
    let plan = Plan { window: WINDOW, ..Plan::new(1) };
    let trial = Trial::of("cpu-loop", &demand, &plan.setting(&Nothing, &demand.targets))?;
    let mut failed = None;
    let mut beyond = |number| {
        let begin = Instant::now();
        let pair = take(&mut Nothing, &trial, &plan, number as usize, [Side::Native, Side::Emulated]);
        let windows = pair.map(|pair| pair.windows.iter().map(|window| window.done.wall_s()).sum::<f64>());
        let windows = windows.unwrap_or_else(|why| {
            failed = Some(why);
            0.0
        });
        begin.elapsed().saturating_sub(Duration::from_secs_f64(windows) + plan.lead * 2) / 2
    };
    let mut group = c.benchmark_group("sample");
    group.sample_size(20);
    group.bench_function("overhead", |b| b.iter_custom(|samples| (0..samples).map(&mut beyond).sum()));
    group.finish();
    failed.map_or(Ok(()), Err)
}

criterion_group!(benches, worker, statistics, startup, journal, grid, sample);

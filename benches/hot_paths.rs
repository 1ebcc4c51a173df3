//! Criterion benches of code that runs often or while time is measured.
//!
//! `cargo bench -p emu-cpu-bench --bench hot_paths`

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use emu_bench::stats::{Bootstrap, Granularity, Interval, Level, Sample, Stamp};
use emu_bench::workload::kernel::{self, QUANTUM};
use emu_bench::workload::now_ns;
use emu_core::{CpuList, Host, Journal, Roots, SpeedSpec, Undo, clock};

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

criterion_group!(benches, worker, statistics, startup, journal);
criterion_main!(benches);

//! What `emu run` costs a command that does nothing.
//!
//! `cargo build --release -p emu-cpu && cargo bench -p emu-cpu-bench --bench startup -- --pairs 30 [--out DIR]`

mod common;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use common::{Line, Run, emu, in_turn, median, timed};
use emu_core::{Hertz, Result, Speed, clock};
use serde::Serialize;

/// What `emu run -- true` may take beyond `true` and beyond metering, in milliseconds.
const MUST_MS: f64 = 30.0;

fn main() -> ExitCode {
    common::main("startup", measure)
}

#[derive(Serialize)]
struct Taken {
    speed: Speed,
    plain_ms: f64,
    emulated_ms: f64,
    /// What it takes to measure the clocks as emu does; 0 for a share, which needs none.
    metering_ms: f64,
}

fn measure(run: &mut Run) -> Result<()> {
    let emu = emu()?;
    startup(run, &emu, Speed::Share(0.5), "emu run -- true, beyond true")?;
    let clocks = clock::measure_all(&run.host.allowed, clock::BUDGET)?;
    let slowest = clocks.iter().map(|reading| reading.clock.0).min().unwrap_or_default();
    startup(run, &emu, Speed::Clock(Hertz(slowest / 2)), "half the clock in GHz, beyond metering too")
}

fn startup(run: &mut Run, emu: &Path, speed: Speed, case: &str) -> Result<()> {
    let mut emulated = Command::new(emu);
    emulated.args(["run", "--quiet", "--speed", &speed.to_string(), "--", "true"]);
    let mut plain = Command::new("true");
    // The first run measures the cost of a wake-up, which is kept for later ones; clocks are measured by each.
    for command in [&mut emulated, &mut plain] {
        timed(command)?;
    }
    let mut beyond = Vec::new();
    for number in 0..run.options.pairs {
        let (plain_ms, emulated_ms) = in_turn(number, || timed(&mut plain), || timed(&mut emulated))?;
        let metering_ms = match speed {
            Speed::Share(_) => 0.0,
            Speed::Clock(_) => metering(run)?,
        };
        beyond.push(emulated_ms - plain_ms - metering_ms);
        run.sample("startup", &Taken { speed, plain_ms, emulated_ms, metering_ms })?;
    }
    let beyond = median(&beyond);
    let line = Line {
        case: case.into(),
        measured: common::figure(beyond, " ms"),
        must: format!("≤ {MUST_MS} ms"),
        met: common::Met::at_most(beyond, MUST_MS),
    };
    run.line("startup", line);
    Ok(())
}

/// Wall time of measuring the clocks of all CPUs in milliseconds.
fn metering(run: &Run) -> Result<f64> {
    let begin = Instant::now();
    clock::measure_all(&run.host.allowed, clock::BUDGET)?;
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

//! What `emu run` costs a command that does nothing.
//!
//! `cargo build --release -p emu-cli && cargo bench -p emu-bench --bench startup -- [--pairs 30] [--out DIR]`

mod common;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use common::{Line, Run, median};
use emu_core::{Error, ErrorKind, Result};
use serde::Serialize;

/// What `emu run -- true` may take beyond `true`, in milliseconds.
const MUST_MS: f64 = 30.0;

/// Pairs that a median of so short a time needs.
const PAIRS_MIN: usize = 30;

fn main() -> ExitCode {
    common::main("startup", measure)
}

#[derive(Serialize)]
struct Taken {
    plain_ms: f64,
    emulated_ms: f64,
}

fn measure(run: &mut Run) -> Result<()> {
    let emu = emu()?;
    let mut emulated = Command::new(&emu);
    emulated.args(["run", "--quiet", "--speed", "50%", "--", "true"]);
    let mut plain = Command::new("true");
    // The first run measures the meter's and the wake-ups' costs, which are kept for later ones.
    for command in [&mut emulated, &mut plain] {
        timed(command)?;
    }
    let mut beyond = Vec::new();
    for number in 0..run.options.pairs.max(PAIRS_MIN) {
        // The order changes from pair to pair: ABBA.
        let (plain_ms, emulated_ms) = if number.is_multiple_of(2) {
            let plain_ms = timed(&mut plain)?;
            (plain_ms, timed(&mut emulated)?)
        } else {
            let emulated_ms = timed(&mut emulated)?;
            (timed(&mut plain)?, emulated_ms)
        };
        beyond.push(emulated_ms - plain_ms);
        run.sample("startup", &Taken { plain_ms, emulated_ms })?;
    }
    let beyond = median(&beyond);
    let line = Line {
        case: "emu run -- true, beyond true".into(),
        measured: format!("{beyond:.1} ms"),
        must: format!("≤ {MUST_MS} ms"),
        met: (beyond <= MUST_MS).into(),
    };
    run.line("startup", line);
    Ok(())
}

/// Wall time of a command in milliseconds.
fn timed(command: &mut Command) -> Result<f64> {
    let begin = Instant::now();
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|cause| Error::io(format!("cannot run {}", command.get_program().display()), cause))?;
    let time = begin.elapsed().as_secs_f64() * 1e3;
    if status.success() {
        Ok(time)
    } else {
        Err(Error::new(ErrorKind::Failed, format!("the command failed: {status}")))
    }
}

/// The command, built for release beside this bench.
fn emu() -> Result<PathBuf> {
    let this = std::env::current_exe().map_err(|cause| Error::io("cannot find this executable", cause))?;
    // target/release/deps/startup-… → target/release/emu
    let emu = this.ancestors().nth(2).map(|folder| folder.join("emu"));
    emu.filter(|path| path.exists()).ok_or_else(|| {
        Error::unavailable("the command emu has not been built")
            .hint("run `cargo build --release -p emu-cli`")
    })
}

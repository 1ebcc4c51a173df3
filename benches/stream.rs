//! Our STREAM and a plain C STREAM, side by side: same sizes, same threads, each run in a process of its own, in
//! pairs whose order changes.
//!
//! `cargo bench -p emu-cpu-machine --bench stream -- [--pairs 15] [--seed N] [--out benches/results]`
//!
//! Needs a C compiler `cc` with OpenMP.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use common::{Line, Run, in_turn, in_words, output, ratio};
use emu_bench::memory::StreamSize;
use emu_core::{CpuList, Error, ErrorKind, Result};
use emu_machine::kernel::stream::{self, Kernel, Passes};
use serde::Serialize;

/// What our rate must be of C's, at least.
const MUST: f64 = 0.97;

/// Iterations of a run, of which the first is not counted.
const ITERATIONS: usize = 4;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/peers/stream.c");

fn main() -> ExitCode {
    common::main_beside("stream", ours, |run| {
        let folder = tempfile::tempdir().map_err(|cause| Error::io("cannot make a folder", cause))?;
        let peer = compile(folder.path())?;
        for cpus in 1..=run.host.allowed.len() {
            side_by_side(run, &peer, &run.cpus(cpus))?;
        }
        Ok(())
    })
}

/// Runs our STREAM in this process, and writes what C's does.
fn ours(words: &[String]) -> Result<()> {
    let [elements, cpus] = words else { return Err(Error::usage("not elements and CPUs")) };
    let elements = elements.parse().map_err(|cause| Error::usage("bad elements").caused_by(cause))?;
    let cpus: CpuList = cpus.parse()?;
    // As OpenMP's threads by default, each may run on any of the CPUs.
    let passes = stream::run(elements, &vec![cpus.clone(); cpus.len()], ITERATIONS)?;
    let [copy, scale, add, triad] = &passes.seconds;
    for (((copy, scale), add), triad) in copy.iter().zip(scale).zip(add).zip(triad) {
        println!("{copy:.9} {scale:.9} {add:.9} {triad:.9}");
    }
    Ok(())
}

fn compile(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("stream");
    let mut command = Command::new("cc");
    command.args(["-O3", "-fopenmp", "-std=gnu11", "-o"]).arg(&program).args([SOURCE, "-lm"]);
    output(&mut command)?;
    Ok(program)
}

#[derive(Serialize)]
struct Taken<'a> {
    threads: usize,
    ours: &'a Passes,
    c: &'a Passes,
}

fn side_by_side(run: &mut Run, peer: &Path, cpus: &CpuList) -> Result<()> {
    let size = StreamSize::of(&run.host, cpus)?;
    let elements = size.array_bytes as usize / size_of::<f64>();
    let mut ours = common::ours()?;
    ours.args([elements.to_string(), cpus.to_string()]);
    let mut c = Command::new("taskset");
    c.args(["-c", &cpus.to_string()]).arg(peer).args([elements.to_string(), ITERATIONS.to_string()]);
    c.env("OMP_NUM_THREADS", cpus.len().to_string());
    let mut taken = Vec::new();
    for number in 0..run.options.pairs {
        let pair = in_turn(number, || passes(&mut ours, elements), || passes(&mut c, elements))?;
        run.sample("stream", &Taken { threads: cpus.len(), ours: &pair.0, c: &pair.1 })?;
        taken.push(pair);
    }
    let rule = if size.obeys_rule() { "" } else { ", arrays shorter than the rule" };
    for kernel in Kernel::ALL {
        let best = |passes: &Passes| passes.best(kernel).unwrap_or(f64::NAN);
        let ratio = ratio(run, taken.iter().map(|(ours, c)| (best(ours), best(c))))?;
        let gb = |rates: Vec<f64>| common::figure(common::median(&rates).map(|rate| rate / 1e9), "");
        let (ours, c): (Vec<_>, Vec<_>) = taken.iter().map(|(ours, c)| (best(ours), best(c))).unzip();
        let line = Line {
            case: format!(
                "{}, {} threads of {} MiB{rule}",
                kernel.name(),
                cpus.len(),
                size.array_bytes >> 20
            ),
            measured: format!("{} ({} : {} GB/s)", in_words(&ratio), gb(ours), gb(c)),
            must: format!("≥ {MUST}"),
            met: (ratio.estimate >= MUST).into(),
        };
        run.line("stream", line);
    }
    Ok(())
}

/// Runs a program that writes the seconds of its passes.
fn passes(program: &mut Command, elements: usize) -> Result<Passes> {
    let text = output(program)?;
    let mut seconds: [Vec<f64>; 4] = Default::default();
    for line in text.lines() {
        let mut times = line.split(' ').map(str::parse::<f64>);
        for seconds in &mut seconds {
            seconds
                .push(times.next().and_then(std::result::Result::ok).ok_or_else(|| failed(program, line))?);
        }
    }
    Ok(Passes { elements, seconds })
}

fn failed(command: &Command, what: &str) -> Error {
    Error::new(ErrorKind::Failed, format!("{} failed: {}", command.get_program().display(), what.trim()))
}

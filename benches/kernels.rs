//! Our DGEMM, LINPACK, FFT, `RandomAccess` and PTRANS beside `OpenBLAS`, FFTW and hpcc: same sizes, same threads, each run
//! in a process of its own, in pairs whose order changes.
//!
//! `cargo bench -p emu-cpu-machine --bench kernels -- [--row dgemm] [--pairs 7] [--seed N] [--out benches/results]`
//!
//! Needs a C compiler `cc` and Debian's libopenblas-dev, libfftw3-dev and hpcc.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use common::{Line, Run, in_turn, in_words, output, ratio};
use emu_core::{CpuList, Error, ErrorKind, Result};
use emu_machine::kernel::{Outcome, dgemm, fft, linpack, ptrans, random_access};
use serde::Serialize;

/// Runs of a kernel in a process, after one that does not count. The best counts, but of PTRANS the slowest, as hpcc
/// reports the least rate of its five runs.
const REPEATS: usize = 3;

/// What our rate must be of the peer's, at least.
const MUST_BLAS: f64 = 0.90;
const MUST_ESTIMATE: f64 = 1.0;
const MUST_MEASURE: f64 = 0.8;
const MUST_HPCC: f64 = 1.0;

/// The order of hpcc's LINPACK, from which it derives the sizes of the rest.
const HPCC_ORDER: usize = 4000;

/// The sizes that hpcc derives from [`HPCC_ORDER`].
const HPCC_WORDS: usize = 1 << 23;
const HPCC_TRANSPOSED: usize = 2000;

const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/peers");

fn main() -> ExitCode {
    common::main_beside("kernels", ours, |run| {
        let folder = tempfile::tempdir().map_err(|cause| Error::io("cannot make a folder", cause))?;
        let counts: Vec<usize> = (1..=run.host.allowed.len().min(2)).collect();
        if run.wants("dgemm") || run.wants("linpack") {
            let blas = Blas::build(folder.path())?;
            println!(
                "OpenBLAS with the kernels that are fastest here: {}\n",
                blas.core.unwrap_or("its own choice")
            );
            for (row, name, orders) in
                [("dgemm", "dgemm", &[1000, 2000][..]), ("linpack", "dgesv", &[1000, 2000, 4000][..])]
            {
                if !run.wants(row) {
                    continue;
                }
                for (order, threads) in both(orders, &counts) {
                    let peer = |cpus: &CpuList| blas.command(name, order, threads, cpus);
                    side_by_side(run, row, "OpenBLAS", MUST_BLAS, order, threads, &peer)?;
                }
            }
        }
        if run.wants("fft") {
            let program = compile(folder.path(), "fft", "fftw3", "libfftw3-dev")?;
            for (log, (effort, must)) in
                both(&[20, 22, 24], &[("estimate", MUST_ESTIMATE), ("measure", MUST_MEASURE)])
            {
                let wisdom = folder.path().join("wisdom");
                let peer = |cpus: &CpuList| {
                    let words = [effort.to_owned(), (1 << log).to_string(), REPEATS.to_string()];
                    on(cpus, &program, words.map(Into::into).into_iter().chain([wisdom.clone().into()]))
                };
                side_by_side(run, "fft", &format!("FFTW {effort}"), must, 1 << log, 1, &peer)?;
            }
        }
        if run.wants("random-access") || run.wants("ptrans") {
            hpcc(run, folder.path())?;
        }
        Ok(())
    })
}

/// Every pair of the one and the other.
fn both<A: Copy, B: Copy>(ones: &[A], others: &[B]) -> impl Iterator<Item = (A, B)> {
    ones.iter().flat_map(move |one| others.iter().map(move |other| (*one, *other)))
}

/// Runs one of our kernels in this process, and writes what the C programs do.
fn ours(words: &[String]) -> Result<()> {
    let [kernel, size, cpus, threads] = words else {
        return Err(Error::usage("not a kernel, a size, CPUs and threads"));
    };
    let number = |text: &str| {
        text.parse::<usize>().map_err(|cause| Error::usage(format!("{text} is no number")).caused_by(cause))
    };
    let (size, cpus): (_, CpuList) = (number(size)?, cpus.parse()?);
    // As the peers' threads, each may run on any of the CPUs.
    let threads = vec![cpus; number(threads)?];
    for repeat in 0..=REPEATS {
        let outcome = outcome(kernel, size, &threads)?;
        if !outcome.passes() {
            return Err(Error::new(ErrorKind::WrongResult, format!("{kernel} is wrong: {outcome:?}")));
        }
        if repeat > 0 {
            println!("{:.9}", outcome.seconds);
        }
    }
    Ok(())
}

fn outcome(kernel: &str, size: usize, threads: &[CpuList]) -> Result<Outcome> {
    match kernel {
        "dgemm" => dgemm::run(size, 1, threads),
        "linpack" => linpack::run(size, 1, threads),
        "fft" => fft::run(size, 1, threads),
        "random-access" => random_access::run(size, threads),
        "ptrans" => ptrans::run(size, 1, threads),
        _ => Err(Error::usage(format!("there is no kernel {kernel}"))),
    }
}

/// What a kernel does at this size, and the unit of billions of it per second.
fn work(row: &str, size: usize) -> (f64, &'static str) {
    match row {
        "dgemm" => (dgemm::operations(size), "GFLOPS"),
        "linpack" => (linpack::operations(size), "GFLOPS"),
        "fft" => (fft::operations(size), "GFLOPS"),
        "random-access" => (random_access::updates(size) as f64, "GUPS"),
        _ => (ptrans::moved(size), "GB/s"),
    }
}

/// A program built from `benches/peers/<name>.c` with a library.
fn compile(folder: &Path, name: &str, library: &str, package: &str) -> Result<PathBuf> {
    let program = folder.join(name);
    let mut command = Command::new("cc");
    command.args(["-O3", "-std=gnu11", "-o"]).arg(&program).arg(format!("{PEERS}/{name}.c"));
    command.args([format!("-l{library}"), "-lm".into()]);
    output(&mut command).map_err(|error| error.hint(format!("install a C compiler and {package}")))?;
    Ok(program)
}

/// A program bound to some CPUs.
fn on(cpus: &CpuList, program: &Path, words: impl IntoIterator<Item = std::ffi::OsString>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpus.to_string()]).arg(program).args(words);
    command
}

/// The driver of `OpenBLAS`.
struct Blas {
    program: PathBuf,
    /// The processor that it is told to be on; `None` leaves it to find out.
    core: Option<&'static str>,
}

impl Blas {
    /// Builds it, and finds out with which kernels the library is fastest: releases that are older than the
    /// processor fall back to those of a much older one.
    fn build(folder: &Path) -> Result<Self> {
        let mut best =
            Self { program: compile(folder, "linpack", "openblas", "libopenblas-dev")?, core: None };
        let mut least = f64::INFINITY;
        for core in [None, Some("Haswell"), Some("SkylakeX"), Some("Zen")] {
            let one = Self { core, ..best };
            // A processor without the instructions ends the program.
            let Ok(text) = output(&mut one.command("dgemm", 1500, 1, &"0".parse()?)) else {
                best.program = one.program;
                continue;
            };
            let seconds = least_of(&text)?;
            best = if seconds < least { one } else { Self { core: best.core, program: one.program } };
            least = least.min(seconds);
        }
        Ok(best)
    }

    fn command(&self, name: &str, order: usize, threads: usize, cpus: &CpuList) -> Command {
        let words = [name.to_owned(), order.to_string(), REPEATS.to_string()];
        let mut command = on(cpus, &self.program, words.map(Into::into));
        command.env("OPENBLAS_NUM_THREADS", threads.to_string());
        if let Some(core) = self.core {
            command.env("OPENBLAS_CORETYPE", core);
        }
        command
    }
}

#[derive(Serialize)]
struct Taken<'a> {
    peer: &'a str,
    size: usize,
    threads: usize,
    ours_seconds: f64,
    peer_seconds: f64,
}

/// Our seconds, in a process of its own.
fn our_seconds(row: &str, size: usize, threads: usize, cpus: &CpuList) -> Result<f64> {
    let mut command = common::ours()?;
    command.args([row, &size.to_string(), &cpus.to_string(), &threads.to_string()]);
    let text = output(&mut command)?;
    if row == "ptrans" { one_of(&text, f64::max) } else { least_of(&text) }
}

fn side_by_side(
    run: &mut Run,
    row: &'static str,
    name: &str,
    must: f64,
    size: usize,
    threads: usize,
    peer: &dyn Fn(&CpuList) -> Command,
) -> Result<()> {
    let cpus = run.cpus(threads);
    let mut pairs = Vec::new();
    for number in 0..run.options.pairs {
        let ours = || our_seconds(row, size, threads, &cpus);
        let theirs = || output(&mut peer(&cpus)).and_then(|text| least_of(&text));
        let pair = in_turn(number, ours, theirs)?;
        let (ours_seconds, peer_seconds) = pair;
        run.sample(row, &Taken { peer: name, size, threads, ours_seconds, peer_seconds })?;
        pairs.push(pair);
    }
    judge(run, row, name, must, size, threads, &pairs)
}

/// Writes the line of a case from pairs of our and the peer's seconds.
fn judge(
    run: &mut Run,
    row: &'static str,
    name: &str,
    must: f64,
    size: usize,
    threads: usize,
    pairs: &[(f64, f64)],
) -> Result<()> {
    let (work, unit) = work(row, size);
    let rates: Vec<_> = pairs.iter().map(|(ours, peer)| (work / ours / 1e9, work / peer / 1e9)).collect();
    let ratio = ratio(run, rates.iter().copied())?;
    let (ours, peers): (Vec<_>, Vec<_>) = rates.into_iter().unzip();
    let size = if size.is_power_of_two() { format!("2^{}", size.ilog2()) } else { size.to_string() };
    let s = if threads == 1 { "" } else { "s" };
    let line = Line {
        case: format!("{size}, {threads} thread{s}, {name}"),
        measured: format!(
            "{} ({} : {} {unit})",
            in_words(&ratio),
            common::figure(common::median(&ours), ""),
            common::figure(common::median(&peers), "")
        ),
        must: format!("≥ {must}"),
        met: (ratio.estimate >= must).into(),
    };
    run.line(row, line);
    Ok(())
}

/// `RandomAccess` and PTRANS beside a whole run of hpcc, which has no other.
fn hpcc(run: &mut Run, folder: &Path) -> Result<()> {
    let cpus = run.cpus(1);
    let rows = [("random-access", HPCC_WORDS), ("ptrans", HPCC_TRANSPOSED)];
    let mut pairs: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for number in 0..run.options.pairs {
        let ours =
            || rows.iter().map(|(row, size)| our_seconds(row, *size, 1, &cpus)).collect::<Result<Vec<_>>>();
        let (ours, theirs) = in_turn(number, ours, || Hpcc::run(folder, &cpus))?;
        for ((row, size), ours_seconds) in rows.into_iter().zip(ours) {
            let peer_seconds = theirs.seconds(row, size)?;
            run.sample(row, &Taken { peer: "hpcc", size, threads: 1, ours_seconds, peer_seconds })?;
            pairs.entry(row).or_default().push((ours_seconds, peer_seconds));
        }
    }
    for (row, size) in rows.into_iter().filter(|(row, _)| run.wants(row)).collect::<Vec<_>>() {
        judge(run, row, "hpcc", MUST_HPCC, size, 1, pairs.get(row).map_or(&[], Vec::as_slice))?;
    }
    Ok(())
}

/// The summary of a run of hpcc: names and values.
struct Hpcc(BTreeMap<String, String>);

impl Hpcc {
    fn run(folder: &Path, cpus: &CpuList) -> Result<Self> {
        let (input, results) = (folder.join("hpccinf.txt"), folder.join("hpccoutf.txt"));
        std::fs::write(&input, hpcc_input()).map_err(|cause| Error::file("write", &input, cause))?;
        // hpcc adds to the file of an earlier run.
        let _ = std::fs::remove_file(&results);
        let mut command = on(cpus, Path::new("hpcc"), []);
        command.current_dir(folder).env("OPENBLAS_NUM_THREADS", "1");
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        output(&mut command).map_err(|error| error.hint("install hpcc"))?;
        let text = std::fs::read_to_string(&results).map_err(|cause| Error::file("read", &results, cause))?;
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Ok(Self(pairs.map(|(name, value)| (name.trim().into(), value.trim().into())).collect()))
    }

    fn number(&self, name: &str) -> Result<f64> {
        let value = self.0.get(name).and_then(|value| value.parse().ok());
        value.ok_or_else(|| Error::new(ErrorKind::Failed, format!("hpcc has not told {name}")))
    }

    fn seconds(&self, row: &str, size: usize) -> Result<f64> {
        let (of_size, of_rate) = match row {
            "random-access" => ("RandomAccess_N", "SingleRandomAccess_GUPs"),
            _ => ("PTRANS_n", "PTRANS_GBs"),
        };
        if self.number(of_size)?.to_bits() != (size as f64).to_bits() {
            return Err(Error::new(
                ErrorKind::Failed,
                format!("hpcc has another size than {size} for {row}"),
            ));
        }
        Ok(work(row, size).0 / self.number(of_rate)? / 1e9)
    }
}

/// hpcc's input for one process, in the order of lines that it wants.
fn hpcc_input() -> String {
    let lines = [
        "HPLinpack benchmark input file",
        "-",
        "HPL.out",
        "8",
        "1",
        &HPCC_ORDER.to_string(),
        "1",
        "128",
        "0",
        "1",
        "1",
        "1",
        "16.0",
        "1",
        "2",
        "1",
        "4",
        "1",
        "2",
        "1",
        "1",
        "1",
        "1",
        "1",
        "1",
        "2",
        "64",
        "0",
        "0",
        "1",
        "8",
        "-",
        "0",
        "0",
        "0",
        "0",
    ];
    lines.map(|line| format!("{line}\n")).concat()
}

/// The least of the seconds that a program has written.
fn least_of(text: &str) -> Result<f64> {
    one_of(text, f64::min)
}

/// The one of these seconds that `choice` prefers to every other.
fn one_of(text: &str, choice: impl Fn(f64, f64) -> f64) -> Result<f64> {
    let seconds = text.lines().filter_map(|line| line.trim().parse::<f64>().ok()).reduce(choice);
    seconds.ok_or_else(|| Error::new(ErrorKind::Failed, "a program has not told its seconds"))
}

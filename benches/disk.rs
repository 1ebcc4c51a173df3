//! Our direct transfers and those of fio, side by side: the same file, one thread, one operation at a time by
//! `pread(2)` and `pwrite(2)`, each run in a process of its own, in pairs whose order changes.
//!
//! A process of its own, as fio's is, has a block of its own in memory. How it is scattered over pages decides into how
//! many pieces a large transfer falls, and so its rate; a block that is used again and again keeps its luck.
//!
//! `cargo bench -p emu-cpu-machine --bench disk -- [--case NAME] [--pairs 15] [--seed N] [--out benches/results]`
//!
//! emu writes ever other parts of a random memory, with a stamp in each page, and counts the time of transfers alone. fio
//! fills small blocks anew for each write, which at 4 KiB is little beside the transfer, and writes the same large block again
//! and again: to change that, be it by a stamp in every 512 bytes (`scramble_buffers`), is work of the CPU between transfers
//! that it counts, an eighth of the rate at 1 MiB.
//!
//! Needs `fio`, and a disk below the folder of temporary files (`TMPDIR`).

mod common;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use common::{Line, Run, in_words, output, ratio};
use emu_core::{Error, ErrorKind, Result};
use emu_machine::disk::{Column, Named, Operation, Order, Transfer};
use serde::Serialize;

/// How far our rate may be from fio's.
const WITHIN: f64 = 0.05;

/// Bytes of the file.
const FILE: u64 = 256 << 20;

/// How long each of the two transfers, in seconds.
const SECONDS: u64 = 1;

/// The same for us.
const PHASE: Duration = Duration::from_secs(SECONDS);

/// Bytes of the largest block that fio fills anew for each write.
const SMALL: u64 = 4 << 10;

/// What is compared: customary for small blocks is random order, for large ones that of the file. Reads come
/// first, as they verify what the file was made with.
const CASES: [Case; 4] = [
    ("random read 4 KiB", 4 << 10, Operation::Read, Order::Random),
    ("sequential read 1 MiB", 1 << 20, Operation::Read, Order::Sequential),
    ("random write 4 KiB", 4 << 10, Operation::Write, Order::Random),
    ("sequential write 1 MiB", 1 << 20, Operation::Write, Order::Sequential),
];

fn main() -> ExitCode {
    common::main_beside("disk", ours, |run| {
        let folder = tempfile::tempdir().map_err(|cause| Error::io("cannot make a folder", cause))?;
        let path = folder.path().join("file");
        drop(Named::make(&path, FILE, PHASE, run.options.seed)?);
        for case in &CASES {
            if run.wants_case(case.0) {
                side_by_side(run, &path, case)?;
            }
        }
        Ok(())
    })
}

/// One of [`CASES`].
type Case = (&'static str, u64, Operation, Order);

fn transfer(&(_, block_bytes, operation, order): &Case) -> Transfer {
    Transfer { block_bytes, operation, order, threads: 1, column: Column::Direct }
}

/// Transfers in this process, and writes the rate.
fn ours(words: &[String]) -> Result<()> {
    let [path, seed, name] = words else { return Err(Error::usage("not a path, a seed and a case")) };
    let seed = seed.parse().map_err(|cause| Error::usage("bad seed").caused_by(cause))?;
    let case = CASES.iter().find(|case| case.0 == name).ok_or_else(|| Error::usage("no such case"))?;
    let sample = Named::open(Path::new(path), FILE, PHASE, seed)?.sample(&transfer(case))?;
    println!("{}", sample.bytes_per_s);
    Ok(())
}

#[derive(Serialize)]
struct Taken<'a> {
    case: &'a str,
    ours_bytes_per_s: f64,
    fio_bytes_per_s: f64,
    /// A second run of fio: what the two differ by is what this disk makes of the same.
    again_bytes_per_s: f64,
}

fn side_by_side(run: &mut Run, path: &Path, case: &Case) -> Result<()> {
    let name = case.0;
    let mut command = common::ours()?;
    command.arg(path).args([&run.options.seed.to_string(), name]);
    let mut ours = || -> Result<f64> {
        let text = output(&mut command)?;
        text.trim().parse().map_err(|cause| Error::new(ErrorKind::Failed, "we tell no rate").caused_by(cause))
    };
    let theirs = || fio(path, &transfer(case));
    let (mut pairs, mut floor) = (Vec::new(), Vec::new());
    // The first of a kind may find the device asleep, or its cache cold.
    ours()?;
    theirs()?;
    for number in 0..run.options.pairs {
        // All orders in turn: what was transferred just before decides how much of its burst a disk has left.
        let (mut own, mut rates) = (0.0, Vec::new());
        for turn in 0..3 {
            if turn == number % 3 {
                own = ours()?;
            } else {
                rates.push(theirs()?);
            }
        }
        if number % 6 >= 3 {
            rates.reverse();
        }
        let [fio, again] = rates[..] else { continue };
        let taken =
            Taken { case: name, ours_bytes_per_s: own, fio_bytes_per_s: fio, again_bytes_per_s: again };
        run.sample("disk", &taken)?;
        pairs.push((own, fio));
        floor.push((again, fio));
    }
    let (ratio, floor) = (ratio(run, pairs)?, ratio(run, floor)?);
    let line = Line {
        case: name.into(),
        measured: format!("{} (fio with itself {})", in_words(&ratio), in_words(&floor)),
        must: format!("1 ± {WITHIN}"),
        met: ((ratio.estimate - 1.0).abs() <= WITHIN).into(),
    };
    run.line("disk", line);
    Ok(())
}

/// The rate of fio, in bytes each second.
fn fio(path: &Path, transfer: &Transfer) -> Result<f64> {
    let (section, sequential, random) = match transfer.operation {
        Operation::Read => ("read", "read", "randread"),
        Operation::Write => ("write", "write", "randwrite"),
    };
    let pattern = if transfer.order == Order::Random { random } else { sequential };
    let mut command = Command::new("fio");
    command.args(["--name=peer", "--ioengine=psync", "--direct=1", "--numjobs=1", "--iodepth=1", "--thread"]);
    command.args([
        "--time_based",
        "--allow_file_create=0",
        "--fallocate=none",
        "--scramble_buffers=0",
        "--output-format=json",
    ]);
    if transfer.block_bytes <= SMALL {
        command.arg("--refill_buffers=1");
    }
    command.arg(format!("--filename={}", path.display()));
    command.args([format!("--size={FILE}"), format!("--bs={}", transfer.block_bytes)]);
    command.args([format!("--rw={pattern}"), format!("--runtime={SECONDS}")]);
    let failed = |why: &str| Error::new(ErrorKind::Failed, format!("fio {why}")).hint("install fio");
    let json: serde_json::Value = serde_json::from_str(&output(&mut command)?)
        .map_err(|cause| failed("has not written JSON").caused_by(cause))?;
    let rate = json.pointer(&format!("/jobs/0/{section}/bw_bytes")).and_then(serde_json::Value::as_f64);
    rate.filter(|rate| *rate > 0.0).ok_or_else(|| failed("tells no rate"))
}

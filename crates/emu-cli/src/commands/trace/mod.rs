//! `emu trace`: records speeds that change with time, and shows how they were followed.

mod show;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use emu_bench::numbers::{rate, span};
use emu_core::{CpuList, Error, Host, Result, Roots};
use emu_machine::wavering::{WaveringPlan, record};
use nix::sys::signal::Signal;

use crate::exit::{Exit, Failure};
use crate::output::file::OutputFile;
use crate::reporter::Reporter;
use crate::signals::Signals;
use crate::{output, values};

const EXAMPLES: &str = "\
A trace is a CSV file. The time is in seconds, and a speed holds until the next:
  time_s,cpu,speed
  0,*,100%
  1.5,0,40%          # CPU 0; `*` is for all of the zone, and 0-3 for some
  20,*,end
With the column `load` instead of `speed` it is what other work would take.

Examples:
  emu trace record laptop.csv --for 60s          # where the speed wavers
  emu trace show laptop.csv --figure laptop.svg
  emu run --trace laptop.csv --json run.json -- ./server
  emu trace show run.json --figure run.svg       # asked and delivered";

/// Speeds that change with time, for --trace
#[derive(Debug, Subcommand)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::TABLE))]
pub(crate) enum TraceCommand {
    Record(RecordArgs),
    Show(ShowArgs),
}

/// Record how fast the CPUs of this machine are, over time
///
/// A thread on each CPU computes all the time, as a CPU without work shows neither heat nor steal. What other tasks of this
/// system take is left out. 100 % is the highest speed that was seen.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The trace to write
    #[arg(value_name = "FILE", value_parser = values::output_file)]
    pub(crate) file: PathBuf,

    /// How long to record
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) length: Duration,

    /// Length of a step, 10ms at least
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) every: Duration,

    /// CPUs to record [default: all allowed]
    #[arg(short, long, value_name = "LIST", allow_hyphen_values = true)]
    pub(crate) cpus: Option<CpuList>,

    /// Write clocks (1.2GHz) instead of shares
    #[arg(long)]
    pub(crate) clocks: bool,

    /// Say nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Show a trace, or how it was followed
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// A trace, or what `run --trace … --json FILE` has left
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Draw it, as SVG
    #[arg(long, value_name = "SVG", value_parser = values::output_file)]
    pub(crate) figure: Option<PathBuf>,
}

const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn trace(command: &TraceCommand) -> Result<Exit, Failure> {
    match command {
        TraceCommand::Record(args) => recorded(args),
        TraceCommand::Show(args) => {
            let shown = show::read(&args.file)?;
            if let Some(figure) = &args.figure {
                output::write(figure, &shown.chart().svg()?)?;
            }
            output::print(&shown.text())?;
            Ok(Exit::Success)
        }
    }
}

fn recorded(args: &RecordArgs) -> Result<Exit, Failure> {
    let signals = Signals::block()?;
    let host = Host::detect(&Roots::system())?;
    let plan = WaveringPlan::new(&host, args.cpus.as_ref(), args.length, args.every)?;
    let mut file = OutputFile::open(&args.file)?;
    let reporter = Reporter::new(args.quiet);
    let length = span(plan.length());
    reporter.tell(&format!("records for {length}; Ctrl-C ends it before, and keeps what there is"));
    let ends = AtomicBool::new(false);
    let recorded = thread::scope(|scope| {
        let recorder = scope.spawn(|| record(&host, &plan, &ends));
        while !recorder.is_finished() && !ends.load(Ordering::Relaxed) {
            signals.wait(&[], LOOK)?;
            while let Some(received) = signals.next()? {
                if received.signal == Signal::SIGTSTP {
                    let note = "a recording cannot stop and go on; Ctrl-C ends it, and keeps what there is";
                    reporter.note(note);
                }
                ends.fetch_or(signals.is_ending(received), Ordering::Relaxed);
            }
        }
        recorder.join().unwrap_or_else(|_| Err(Error::unavailable("the recorder has panicked")))
    })?;
    if recorded.steps() == 0 {
        return Err(Error::unavailable("it was ended before the first step").into());
    }
    file.write(&recorded.trace(args.clocks))?;
    let (steps, highest) = (recorded.steps(), rate(recorded.highest(), "Hz").replace("/s", ""));
    reporter.tell(&format!("{steps} steps are in {}; 100% is {highest}", args.file.display()));
    Ok(Exit::Success)
}

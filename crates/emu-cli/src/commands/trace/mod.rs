//! `emu trace`: records speeds that change with time, and shows how they were followed.

mod args;
mod show;

pub(crate) use args::TraceCommand;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use emu_bench::numbers::{rate, span};
use emu_core::{Error, Host, Result, Roots};
use emu_machine::wavering::{WaveringPlan, record};
use nix::sys::signal::Signal;

use crate::exit::{Exit, Failure};
use crate::output;
use crate::output::file::OutputFile;
use crate::reporter::Reporter;
use crate::signals::Signals;
use args::RecordArgs;

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
    reporter.tell(&format!(
        "records for {}; Ctrl-C ends it before, and keeps what there is",
        span(plan.length())
    ));
    let ends = AtomicBool::new(false);
    let recorded = thread::scope(|scope| {
        let recorder = scope.spawn(|| record(&host, &plan, &ends));
        while !recorder.is_finished() && !ends.load(Ordering::Relaxed) {
            signals.wait(&[], LOOK)?;
            while let Some(received) = signals.next()? {
                if received.signal == Signal::SIGTSTP {
                    reporter
                        .note("a recording cannot stop and go on; Ctrl-C ends it, and keeps what there is");
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

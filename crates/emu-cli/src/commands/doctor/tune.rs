//! `emu doctor tune`: a command on a tuned machine, or the machine held tuned for others.

use std::time::{Duration, Instant};

use emu_core::{Error, SlowCommand};
use emu_machine::doctor::{Machine, Tuning, examine, throttled};
use nix::sys::signal::Signal;

use crate::commands::doctor::{DoctorTuneArgs, show as words};
use crate::exit::{Exit, Failure};
use crate::host;
use crate::reporter::Reporter;
use crate::signals::{self, Came, Signals};
use crate::supervise::{command, program, run_alone};

/// How long is waited for a signal at a time where there is no limit.
const LOOK: Duration = Duration::from_secs(60);

pub(super) fn tune(args: &DoctorTuneArgs) -> Result<Exit, Failure> {
    let measuring = &args.measuring;
    if measuring.quick || measuring.json || measuring.out.is_some() || measuring.seed.is_some() {
        return Err(Error::usage("--quick, --json, --out and --seed belong to --measure")
            .hint("add --measure, or leave them out")
            .into());
    }
    // Before anything that makes a thread.
    let signals = Signals::block()?;
    let command = command(&args.command, &signals);
    if let Some(command) = &command {
        program::check(command.program())?;
    }
    let reporter = Reporter::new(args.quiet);
    let (roots, restored) = host::restored_roots();
    let machine = Machine::of_files(&roots, args.knobs.cpus.as_ref())?;
    let mut knobs = examine(&machine, &args.knobs.knobs)?;
    if command.is_none() {
        // It is inherited by commands, and nobody else.
        knobs.retain(|knob| knob.about.name != "timer-slack");
    }
    let zone = command.as_ref().map_or_else(|| "this machine".to_owned(), SlowCommand::name);
    let events = throttled(&machine.host);
    let tuning = Tuning::begin(&machine, &knobs, &zone, !args.knobs.knobs.is_empty())?;
    let notes = tuning.notes();
    for note in restored.iter().chain(notes.iter().filter(|note| !restored.contains(note))) {
        reporter.note(note);
    }
    for line in words::begun(&tuning) {
        reporter.tell(&line);
    }

    let (ended, exit) = match &command {
        None => hold(tuning, args.limit, &signals, reporter)?,
        Some(command) => {
            // The tuning needs nobody to keep it up, so that it stays while emu is stopped.
            let ran = run_alone(command, &signals, false, |_| Ok(()));
            (tuning.end()?, ran?)
        }
    };
    for note in ended.iter().skip(notes.len()) {
        reporter.note(note);
    }
    if let (Some(before), Some(after)) = (events, throttled(&machine.host))
        && after > before
    {
        let count = after - before;
        reporter.note(&format!("the processor was throttled for its heat {count} times meanwhile"));
    }
    Ok(exit)
}

fn hold(
    tuning: Tuning,
    limit: Option<Duration>,
    signals: &Signals,
    reporter: Reporter,
) -> Result<(Vec<String>, Exit), Failure> {
    if tuning.tuned().is_empty() {
        return Ok((tuning.end()?, Exit::Success));
    }
    reporter.say(match limit {
        Some(_) => "tuned until the time is over or Ctrl-C",
        None => "tuned until Ctrl-C",
    });
    let end = limit.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        match signals.wait_for_end(&[], end, LOOK)? {
            Came::End => return Ok((tuning.end()?, Exit::Success)),
            Came::Stop => signals::stop_self(Signal::SIGTSTP),
            Came::Nothing => {}
        }
    }
}

//! `emu doctor tune`: a command on a tuned machine, or the machine held tuned for others.

use std::time::{Duration, Instant};

use emu_core::{Error, Result, SlowCommand};
use emu_machine::doctor::{Machine, Tuning, examine, throttled};
use nix::sys::signal::Signal;

use crate::commands::doctor::{DoctorTuneArgs, show as words};
use crate::exit::{Exit, Failure};
use crate::host;
use crate::reporter::Reporter;
use crate::signals::{self, Came, Signals};
use crate::supervise::{Child, InForce, Supervisor, begin, command, program};

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
        Some(command) => run(tuning, command, &machine, &signals)?,
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

/// Runs the command; returns the notes of the tuning's end.
fn run(
    tuning: Tuning,
    command: &SlowCommand,
    machine: &Machine,
    signals: &Signals,
) -> Result<(Vec<String>, Exit), Failure> {
    let gated = command.gate()?;
    let child = Child::open(&machine.host.roots, gated.pid())?;
    let mut supervisor = Supervisor::new(signals, child, Tuned(tuning));
    supervisor.pass_on_early_signals()?;
    let beginning = begin(gated)?;
    let exit = supervisor.watch(|_| {})?;
    let Tuned(tuning) = supervisor.into_in_force();
    let ended = tuning.end();
    if let Ok(Err(error)) = beginning.join() {
        ended?;
        return Err(error.into());
    }
    Ok((ended?, exit))
}

/// The tuning that a command runs under. It needs nobody to keep it up, so that it stays while emu is stopped.
#[derive(Debug)]
struct Tuned(Tuning);

impl InForce for Tuned {
    fn while_paused(&mut self, act: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        act()
    }

    fn stops_processes(&self) -> bool {
        false
    }
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

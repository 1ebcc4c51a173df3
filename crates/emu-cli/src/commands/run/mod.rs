//! `emu run`: a command inside a zone, transparent to its terminal, its signals and its exit code.

mod args;

pub(crate) use args::RunArgs;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use emu_core::{Error, Result, Session, Tasks, Trait, adopt_orphans};

use crate::control::{Change, Control};
use crate::exit::{Exit, Failure};
use crate::host;
use crate::output::file::OutputFile;
use crate::signals::Signals;
use crate::supervise::{Child, InForce, Supervisor, begin, command, program};
use crate::zone::follow::Following;
use crate::zone::plan::Plan;
use crate::zone::record::Record;
use crate::zone::tell::Report;

pub(crate) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    // Before anything that makes a thread.
    let signals = Signals::block()?;
    let command =
        command(&args.command, &signals).ok_or_else(|| Error::usage("there is no command to run"))?;
    program::check(command.program())?;
    let (host, restored) = host::restored()?;
    let mut plan = Plan::new(&host, &args.zone, &signals)?;
    let json = args.report.json.as_deref().map(OutputFile::open).transpose()?;
    let mut report = Report::new(args.report.quiet, json, Record::of_command(&plan, &args.command));
    report.begin(&plan, "");
    report.tell(&restored);
    if args.report.verify {
        plan.settle();
        report.verify(&plan, &signals, args.report.tolerance, "the command was not started")?;
    }

    adopt_orphans()?;
    let gated = command.gate()?;
    let tasks = Tasks::Processes(vec![gated.pid()]);
    let (session, other) = plan.engage(|prepared| Session::begin(prepared, command.name(), tasks.clone()))?;
    report.engaged(&plan, other, &session);
    let control = report.control(&command.name(), tasks);
    let child = Child::open(&host.roots, gated.pid())?;
    let following = Following::begin(session, plan.trace.take());
    let emulated = Emulated { following, control, changes: Vec::new() };
    let mut supervisor = Supervisor::new(&signals, child, emulated);
    supervisor.pass_on_early_signals()?;
    let begun = Instant::now();
    let beginning = begin(gated)?;
    let watched = supervisor.watch(|emulated| {
        report.changed(&emulated.changes);
        report.tell_meanwhile(&emulated.following.session.status().messages());
    });

    report.was_stopped(supervisor.stopped());
    let Emulated { following, changes, .. } = supervisor.into_in_force();
    report.changed(&changes);
    let wall = begun.elapsed();
    report.followed(&following.session, following.follow.as_ref());
    let (status, released) = following.session.release();
    // A command that nobody watches any more may never begin.
    if watched.is_ok()
        && let Ok(Err(error)) = beginning.join()
    {
        released?;
        return Err(error.into());
    }
    let exit = report.end(&status, wall, watched.as_ref().map_or(Exit::Failure, |exit| *exit));
    released?;
    watched?;
    Ok(exit)
}

#[derive(Debug)]
struct Emulated {
    following: Following,
    control: Option<Control>,
    changes: Vec<Change>,
}

impl InForce for Emulated {
    fn while_paused(&mut self, act: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.following.session.pause()?;
        let done = act();
        self.following.session.resume()?;
        done
    }

    fn stops_processes(&self) -> bool {
        self.following.session.about().has(Trait::SendsSignals)
    }

    fn asked(&self) -> Option<BorrowedFd<'_>> {
        self.control.as_ref().map(AsFd::as_fd)
    }

    fn answer(&mut self) {
        let Self { control, following, changes, .. } = self;
        changes.extend(control.iter().flat_map(|control| control.answer(following)));
    }

    fn due(&self) -> Option<Instant> {
        self.following.due()
    }

    fn act(&mut self) {
        self.following.play();
    }
}

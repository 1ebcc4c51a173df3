//! `emu run`: a command inside a zone, transparent to its terminal, its signals and its exit code.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use clap::Args;
use emu_core::{Error, Result, Session, Tasks, Trait, adopt_orphans};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

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
use crate::zone::{TellArgs, ZoneArgs};

const EXAMPLES: &str = "\
Examples:
  emu run --speed 40% -- make -j4
  emu run --speed 1.2GHz --cpus 0-1 --verify -- ./server
  emu run --speed 0=40%,1=80% --json result.json -- ./simulation";

/// Run a command as on a slower CPU
///
/// The command starts inside its zone and keeps its terminal, its input and output, job control and signals;
/// emu ends with its exit code, or by its signal. emu writes to stderr only. Children are slowed too; those that
/// outlive the command run on at full speed.
#[derive(Debug, Args)]
#[command(override_usage = "emu run <--speed SPEED|--trace FILE|--like FILE> [OPTIONS] COMMAND...")]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::TABLE))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) zone: ZoneArgs,

    #[command(flatten)]
    pub(crate) report: TellArgs,

    /// The command gets SIGTERM when this process ends, which has started emu
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) ends_with: Option<i32>,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

pub(crate) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    // Before anything that makes a thread.
    let signals = Signals::block()?;
    args.ends_with.map_or(Ok(()), end_with)?;
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

/// Has the kernel send this process SIGTERM, which goes to the command, when its parent ends, however that ends.
fn end_with(parent: i32) -> Result<(), Failure> {
    prctl::set_pdeathsig(Signal::SIGTERM)
        .map_err(|e| Error::io("cannot ask for the signal at the end of the parent", e.into()))?;
    // It may have ended before the kernel was asked.
    if getppid().as_raw() == parent { Ok(()) } else { Err(Failure::interrupted(Signal::SIGTERM)) }
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

//! `emu run`: a command inside a zone, transparent to its terminal, its signals and its exit code.

pub(super) mod child;
pub(super) mod program;
pub(super) mod supervisor;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use emu_core::{ExecError, Gated, MethodId, Pid, Result, Session, Tasks};

use crate::args::RunArgs;
use crate::commands::pause;
use crate::commands::tell::{JsonFile, Report};
use crate::exit::{Exit, Failure};
use crate::output::record::Record;
use crate::plan::{self, Plan};
use crate::signals::Signals;
use child::Child;
use supervisor::{Hold, Supervisor};

/// Runs the command; emu ends as it does.
pub(crate) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    // Before anything that makes a thread.
    let signals = Signals::block()?;
    let program = args.command.first().map(OsString::as_os_str).unwrap_or_default();
    program::check(program)?;
    let (host, restored) = plan::host()?;
    let plan = Plan::new(&host, &args.zone)?;
    let json = args.report.json.as_deref().map(JsonFile::open).transpose()?;
    let mut report = Report::new(args.report.quiet, json, Record::of_command(&plan, &args.command));
    report.begin(&plan);
    report.tell(&restored);
    if args.report.verify {
        report.verify(&host, &plan, &signals)?;
    }

    let gated = Gated::spawn(&args.command, signals.original())?;
    let zone = plan.zone(name(program), Tasks::Processes(vec![gated.pid()]));
    let session = Session::engage(&host, &zone, plan.method)?;
    report.tell(&session.notes());
    let child = Child::open(&host.roots, gated.pid())?;
    let mut supervisor = Supervisor::new(&signals, child, Emulated { plan: &plan, session });
    supervisor.pass_on_early_signals()?;
    let begun = Instant::now();
    let opening = open(gated, program.to_owned());
    let exit = supervisor.watch(|emulated| {
        report.tell_meanwhile(&emulated.session.status().notes);
    })?;

    report.was_stopped(supervisor.stopped());
    let Emulated { session, .. } = supervisor.into_hold();
    let wall = begun.elapsed();
    let (status, released) = session.release();
    if let Ok(Err(error)) = opening.join() {
        released?;
        return Err(error.into());
    }
    report.end(&status, wall, exit);
    released?;
    Ok(exit)
}

/// The emulation that the command is in.
#[derive(Debug)]
struct Emulated<'a> {
    plan: &'a Plan,
    session: Session,
}

impl Hold for Emulated<'_> {
    fn while_let_go(&mut self, act: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        pause::while_let_go(&mut self.session, &self.plan.demand.targets, act)?
    }

    fn stops_processes(&self) -> bool {
        self.plan.method == MethodId::CpuLim
    }
}

/// Opens the gate on a thread of its own: a command that Ctrl-Z stops before it has begun begins only when the
/// supervisor, which has then followed it, is continued.
pub(super) fn open(gated: Gated, program: OsString) -> JoinHandle<Result<Pid, ExecError>> {
    thread::spawn(move || gated.open(&program))
}

/// What other emus and messages call the zone.
pub(super) fn name(program: &OsStr) -> String {
    Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned()
}

//! `emu run`: a command inside a zone, transparent to its terminal, its signals and its exit code.

mod child;
mod program;
mod supervisor;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use emu_core::{ExecError, Gated, Host, Pid, Roots, Session, Tasks};

use crate::args::RunArgs;
use crate::commands::tell::{JsonFile, Report};
use crate::exit::{Exit, Failure};
use crate::output::record::Record;
use crate::plan::Plan;
use crate::signals::Signals;
use child::Child;
use supervisor::Supervisor;

/// Runs the command; emu ends as it does.
pub(crate) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    // Before anything that makes a thread.
    let signals = Signals::block()?;
    let program = args.command.first().map(OsString::as_os_str).unwrap_or_default();
    program::check(program)?;
    let host = Host::detect(&Roots::system())?;
    let plan = Plan::new(&host, &args.zone)?;
    let json = args.report.json.as_deref().map(JsonFile::open).transpose()?;
    let mut report = Report::new(args.report.quiet, json, Record::of_command(&plan, &args.command));
    report.begin(&plan);
    if args.report.verify {
        report.verify(&host, &plan, &signals)?;
    }

    let gated = Gated::spawn(&args.command, signals.original())?;
    let zone = plan.zone(name(program), Tasks::Processes(vec![gated.pid()]));
    let session = Session::engage(&host, &zone, plan.method)?;
    report.tell(&session.notes());
    let child = Child::open(&host.roots, gated.pid())?;
    let mut supervisor = Supervisor::new(&plan, &signals, child, session);
    supervisor.pass_on_early_signals()?;
    let begun = Instant::now();
    let opening = open(gated, program.to_owned());
    let exit = supervisor.watch(|status| report.tell_meanwhile(&status.notes))?;

    report.was_stopped(supervisor.stopped());
    let session = supervisor.into_session();
    let (status, wall) = (session.status(), begun.elapsed());
    let released = session.release();
    if let Ok(Err(error)) = opening.join() {
        released?;
        return Err(error.into());
    }
    report.end(status.as_ref(), wall, exit);
    released?;
    Ok(exit)
}

/// Opens the gate on a thread of its own: a command that Ctrl-Z stops before it has begun begins only when the
/// supervisor, which has then followed it, is continued.
fn open(gated: Gated, program: OsString) -> JoinHandle<Result<Pid, ExecError>> {
    thread::spawn(move || gated.open(&program))
}

/// What other emus and messages call the zone.
fn name(program: &OsStr) -> String {
    Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned()
}

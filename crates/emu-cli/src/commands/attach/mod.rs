//! `emu attach`: slows down what runs already.

mod args;
mod target;

pub(crate) use args::AttachArgs;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use emu_core::{Result, Session};
use nix::sys::signal::Signal;

use crate::control::Control;
use crate::exit::{Exit, Failure};
use crate::host;
use crate::signals::{self, Came, Signals};
use crate::zone::plan::Plan;
use crate::zone::record::Record;
use crate::zone::tell::{JsonFile, Report};
use target::Target;

/// How often the emulation's status and the cgroup are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Slows the target down until it ends, the time is over, or a signal asks emu to end.
pub(crate) fn attach(args: &AttachArgs) -> Result<Exit, Failure> {
    let signals = Signals::block()?;
    let (host, restored) = host::restored()?;
    let target = Target::find(&host, &args.pid, args.cgroup.as_deref())?;
    let mut plan = Plan::new(&host, &args.zone)?;
    let json = args.report.json.as_deref().map(JsonFile::open).transpose()?;
    let mut report = Report::new(args.report.quiet, json, Record::of_tasks(&plan, target.tasks()));
    report.begin(&plan);
    report.tell(&restored);
    if args.report.verify {
        plan.settle();
        report.verify(&plan, &signals, args.report.tolerance, "nothing was slowed down")?;
    }

    let (mut session, other) =
        plan.engage(|prepared| Session::engage(prepared, target.name(), target.tasks()))?;
    report.engaged(&plan, other, &session);
    let control = report.control(&target.name(), target.tasks());
    let begun = Instant::now();
    let end = args.limit.and_then(|limit| begun.checked_add(limit));
    let watched = watch(&mut session, control.as_ref(), &signals, &target, end, &mut report);

    let wall = begun.elapsed();
    let (status, released) = session.release();
    report.end(&status, wall, Exit::Success);
    released?;
    watched?;
    Ok(Exit::Success)
}

fn watch(
    session: &mut Session,
    control: Option<&Control>,
    signals: &Signals,
    target: &Target,
    end: Option<Instant>,
    report: &mut Report,
) -> Result<()> {
    while target.is_alive() {
        let others: Vec<_> = target.ends().into_iter().chain(control.map(AsFd::as_fd)).collect();
        match signals.wait_for_end(&others, end, LOOK)? {
            Came::End => return Ok(()),
            Came::Stop => {
                session.pause()?;
                let begin = Instant::now();
                signals::stop_self(Signal::SIGTSTP);
                report.was_stopped(begin.elapsed());
                session.resume()?;
            }
            Came::Nothing => {}
        }
        if let Some(control) = control {
            report.changed(&control.answer(session));
        }
        report.tell_meanwhile(&session.status().messages());
    }
    Ok(())
}

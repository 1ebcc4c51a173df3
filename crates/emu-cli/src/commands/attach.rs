//! `emu attach`: slows down what runs already.

mod target;

use std::time::{Duration, Instant};

use emu_core::{Result, Session};
use nix::sys::signal::Signal;

use super::pause;
use super::tell::{JsonFile, Report};
use crate::args::AttachArgs;
use crate::exit::{Exit, Failure};
use crate::output::record::Record;
use crate::plan::{self, Plan};
use crate::signals::{self, Signals};
use target::Target;

/// How often the emulation's status and the cgroup are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Slows the target down until it ends, the time is over, or a signal asks emu to end.
pub(crate) fn attach(args: &AttachArgs) -> Result<Exit, Failure> {
    let signals = Signals::block()?;
    let (host, restored) = plan::host()?;
    let target = Target::find(&host, &args.pid, args.cgroup.as_deref())?;
    let plan = Plan::new(&host, &args.zone)?;
    let json = args.report.json.as_deref().map(JsonFile::open).transpose()?;
    let mut report = Report::new(args.report.quiet, json, Record::of_tasks(&plan, target.tasks()));
    report.begin(&plan);
    report.tell(&restored);
    if args.report.verify {
        report.verify(&host, &plan, &signals)?;
    }

    let mut session = Session::engage(&host, &plan.zone(target.name(), target.tasks()), plan.method)?;
    report.tell(&session.notes());
    let begun = Instant::now();
    let end = args.limit.and_then(|limit| begun.checked_add(limit));
    watch(&mut session, &plan, &signals, &target, end, &mut report)?;

    let wall = begun.elapsed();
    let (status, released) = session.release();
    report.end(&status, wall, Exit::Success);
    released?;
    Ok(Exit::Success)
}

fn watch(
    session: &mut Session,
    plan: &Plan,
    signals: &Signals,
    target: &Target,
    end: Option<Instant>,
    report: &mut Report,
) -> Result<()> {
    while target.is_alive() {
        let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(());
        }
        signals.wait(&target.ends(), left.min(LOOK))?;
        while let Some(received) = signals.next()? {
            match received.signal {
                Signal::SIGTSTP => {
                    let stopped = pause::while_let_go(session, &plan.demand.targets, || {
                        let begin = Instant::now();
                        signals::stop_self(Signal::SIGTSTP);
                        begin.elapsed()
                    })?;
                    report.was_stopped(stopped);
                }
                _ if signals.is_ending(received) => return Ok(()),
                _ => {}
            }
        }
        report.tell_meanwhile(&session.status().notes);
    }
    Ok(())
}

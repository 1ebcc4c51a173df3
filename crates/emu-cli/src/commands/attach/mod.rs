//! `emu attach`: slows down what runs already.

mod target;

pub(crate) use target::Target;

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use emu_bench::numbers::span;
use emu_core::{Host, Pid, Result, Session, Status, Targets};
use nix::sys::signal::Signal;

use crate::control::Control;
use crate::exit::{Exit, Failure};
use crate::output::file::OutputFile;
use crate::signals::{self, Came, Signals, until};
use crate::zone::follow::Following;
use crate::zone::plan::Plan;
use crate::zone::record::Record;
use crate::zone::tell::Report;
use crate::zone::{TellArgs, ZoneArgs};
use crate::{host, values};

const EXAMPLES: &str = "\
Examples:
  emu attach --pid 1234,1240 --speed 40%
  emu attach --name redis-server --speed 25%
  emu attach --unit postgresql --speed 50%
  emu attach --container web --trace laptop.csv
  emu attach --cgroup /user.slice/x.scope --speed 1.2GHz --for 10m";

/// What is slowed.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct TargetArgs {
    /// Processes, with their threads and children
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = values::pid, allow_hyphen_values = true)]
    pub(crate) pid: Vec<Pid>,

    /// Everything in a cgroup: /user.slice/x.scope, or its folder
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,

    /// A unit of systemd: redis.service, or redis; also after it was restarted
    #[arg(long, value_name = "UNIT")]
    pub(crate) unit: Option<String>,

    /// A container of Docker, Podman, containerd, CRI-O or LXC, by name or ID; also after it was restarted
    #[arg(long, value_name = "CONTAINER")]
    pub(crate) container: Option<String>,

    /// All processes of this name, with their threads and children
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// Slow down what runs already, until Ctrl-C or its end
#[derive(Debug, Args)]
#[command(override_usage = "emu attach <--pid PID|--name NAME|--unit UNIT|…> --speed SPEED [OPTIONS]")]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::TABLE))]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// End after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) limit: Option<Duration>,

    #[command(flatten)]
    pub(crate) zone: ZoneArgs,

    #[command(flatten)]
    pub(crate) report: TellArgs,
}

/// How often the emulation's status and the cgroup are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// The same where a unit or container may be started anew: it runs at full speed until that is seen.
const LOOK_FOR_RESTART: Duration = Duration::from_millis(20);

/// How long a unit or container that has ended may take to be started again.
const RESTART: Duration = Duration::from_secs(10);

pub(crate) fn attach(args: &AttachArgs) -> Result<Exit, Failure> {
    let signals = Signals::block()?;
    let (host, restored) = host::restored()?;
    let target = Target::find(&host, &args.target)?;
    let mut plan = Plan::new(&host, &args.zone, &signals)?;
    let json = args.report.json.as_deref().map(OutputFile::open).transpose()?;
    let mut report = Report::new(args.report.quiet, json, Record::of_tasks(&plan, target.tasks()));
    report.begin(&plan, "");
    report.tell(&restored);
    if args.report.verify {
        plan.settle();
        report.verify(&plan, &signals, args.report.tolerance, "nothing was slowed down")?;
    }

    let end = args.limit.and_then(|limit| Instant::now().checked_add(limit));
    let (mut target, mut restarts) = (target, 0u32);
    let mut before: Option<(Status, Duration, Targets)> = None;
    loop {
        let engaged = plan.engage(|prepared| Session::engage(prepared, target.name(), target.tasks()));
        let (mut session, other) = match (engaged, &before) {
            (Ok(engaged), _) => engaged,
            // It has ended anew.
            (Err(_), Some((status, wall, _))) if !target.is_alive() => {
                match returned(&host, &target, &signals, end, &mut report)? {
                    Some(again) => target = again,
                    None => return Ok(report.end(status, *wall, Exit::Success)),
                }
                continue;
            }
            (Err(why), _) => return Err(why.into()),
        };
        // A speed that was set meanwhile.
        let is_set = |targets: &&Targets| plan.trace.is_none() && **targets != session.demand().targets;
        let set = before.as_ref().map(|(.., targets)| targets).filter(is_set);
        if let Some(Err(why)) = set.map(|targets| session.retarget(targets)) {
            report.tell(&[format!("the speed that was set is not kept: {}", why.in_words())]);
        }
        report.engaged(&plan, other, &session);
        let control = report.control(&target.name(), target.tasks());
        let begun = Instant::now();
        let mut following = Following::begin(session, plan.trace.clone());
        let watched = watch(&mut following, control.as_ref(), &signals, &target, end, &mut report);

        let wall = begun.elapsed();
        report.followed(&following.session, following.follow.as_ref());
        let targets = following.session.demand().targets.clone();
        let (status, released) = following.session.release();
        // What released it may be the next session's concern.
        let again = match &watched {
            Ok(Ended::Target) if released.is_ok() => returned(&host, &target, &signals, end, &mut report)?,
            _ => None,
        };
        let Some(again) = again else {
            let exit = report.end(&status, wall, Exit::Success);
            released?;
            watched?;
            return Ok(exit);
        };
        before = Some((status, wall, targets));
        (target, restarts) = (again, restarts + 1);
        report.tell(&[format!(
            "{} was started again, and is slowed again (restart {restarts})",
            target.name()
        )]);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Target,
    /// Emu was asked to end, or the time is over.
    Asked,
}

/// Waits until a unit or container that has ended is started again; `None` where it is not for a while.
fn returned(
    host: &Host,
    target: &Target,
    signals: &Signals,
    end: Option<Instant>,
    report: &mut Report,
) -> Result<Option<Target>> {
    let Some(of) = target.of() else { return Ok(None) };
    let patience = Instant::now() + RESTART;
    report.tell(&[format!("{of} has ended; emu waits {} for it to be started again", span(RESTART))]);
    let until = end.map_or(patience, |end| end.min(patience));
    loop {
        match signals.wait_for_end(&[], Some(until), LOOK_FOR_RESTART)? {
            Came::End => return Ok(None),
            Came::Stop => signals::stop_self(Signal::SIGTSTP),
            Came::Nothing => {}
        }
        if let Some(again) = target.again(host) {
            return Ok(Some(again));
        }
    }
}

fn watch(
    following: &mut Following,
    control: Option<&Control>,
    signals: &Signals,
    target: &Target,
    end: Option<Instant>,
    report: &mut Report,
) -> Result<Ended> {
    let mut looked = Instant::now();
    while target.is_alive() && !following.is_over() {
        let others: Vec<_> = target.ends().into_iter().chain(control.map(AsFd::as_fd)).collect();
        let look = if target.of().is_some() { LOOK_FOR_RESTART } else { LOOK };
        let came = signals.wait_for_end(&others, end, until(following.due(), look))?;
        following.play();
        match came {
            Came::End => return Ok(Ended::Asked),
            Came::Stop => {
                following.session.pause()?;
                let begin = Instant::now();
                signals::stop_self(Signal::SIGTSTP);
                report.was_stopped(begin.elapsed());
                following.session.resume()?;
            }
            Came::Nothing => {}
        }
        if let Some(control) = control {
            report.changed(&control.answer(following));
        }
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            report.tell_meanwhile(&following.session.status().messages());
        }
    }
    Ok(if following.is_over() { Ended::Asked } else { Ended::Target })
}

//! Makes the nodes of the caller those of a file: all of them, or as before.

use std::fmt;

use emu_core::{
    Apart, CpuList, Demand, Error, Host, LiveSession, Method, OnlyOne, Pid, Placed, Result, Speed, SpeedSpec,
    Status, Targets, Trait, live_sessions, place,
};

use rustix::param::page_size;
use serde::Serialize;

use super::args::{ApplyArgs, CreateArgs};
use super::file;
use super::killed::Killed;
use super::members::{self, Join, There, What};
use super::spec::{Spec, Specs};
use super::{Found, asked_to_end, create, find, killed, killed_nodes, name, nodes, remove};
use crate::control::{Member, Removal, Request, Setting, Working, order};
use crate::exit::{Exit, Failure};
use crate::host;
use crate::output;
use crate::reporter::Reporter;
use crate::signals::Signals;
use crate::values::MethodChoice;
use crate::zone::options::Options;
use crate::zone::plan::Plan;
use crate::zone::{ZoneArgs, follow, like};

/// How far a period may be from the one asked for: `cpu-hogs` keeps out of step with the tick.
const PERIOD_SLACK: f64 = 0.02;

pub(super) fn apply(args: &ApplyArgs) -> Result<Exit, Failure> {
    let specs = file::read(&args.file)?;
    let (host, _) = host::restored()?;
    // Another one would plan on what this one changes.
    let _only_one = OnlyOne::take(&host.roots, "apply", |holder| {
        Error::unavailable(format!("another `emu node apply` of yours is at work: {holder}"))
            .hint("try again when it has ended")
    })?;
    // One that asks to end is heard between two steps.
    let signals = Signals::block()?;
    let found = nodes()?;
    let killed = killed_nodes();
    let (steps, gone) = plan(&host, &specs, found, &signals)?;
    let reporter = Reporter::new(args.quiet);
    for member in &gone {
        reporter.note(member);
    }
    let told = |one: &Killed| format!("node {}: {}", one.name, one.in_words());
    for one in &killed {
        reporter.note(&told(one));
    }
    let json = args.json.then(|| Applied {
        schema: output::SCHEMA,
        dry_run: args.dry_run,
        changes: steps.iter().map(Change::of).collect(),
        notes: gone.into_iter().chain(killed.iter().map(told)).collect(),
    });
    if args.dry_run {
        let lines: Vec<_> = steps.iter().map(Step::to_string).collect();
        let text = if lines.is_empty() { "Nothing is to be changed.".into() } else { lines.join("\n") };
        output::print(&json.map_or(Ok(format!("{text}\n")), |json| output::json(&json))?)?;
        return Ok(Exit::Success);
    }
    let mut done: Vec<Step> = Vec::new();
    for step in steps {
        if let Err(why) = asked_to_end(&signals).and_then(|()| step.take(Some(&signals))) {
            if let Step::Join(_) | Step::Remove { .. } = step {
                // A part of it may be done.
                done.push(step);
            }
            let left: Vec<_> = done.iter().rev().filter(|step| !step.undo(&done)).collect();
            for step in &left {
                Reporter::new(false).note(&format!("this was not taken back: {step}"));
            }
            return Err(if left.is_empty() { why } else { Failure { exit: Exit::RestoreIncomplete, ..why } });
        }
        reporter.tell(&step.to_string());
        done.push(step);
    }
    // What is in the file has been made again, and perhaps another one meanwhile.
    let still = killed::killed(&host.roots);
    for one in killed.iter().filter(|one| !specs.contains_key(&one.name) && still.contains(one)) {
        killed::forget(&host.roots, &one.name);
    }
    if let Some(json) = json {
        output::print(&output::json(&json)?)?;
    }
    Ok(Exit::Success)
}

/// What makes the nodes those of the file: it was done, or would be.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Applied {
    /// Version of this form.
    schema: u32,
    /// Whether nothing was done.
    dry_run: bool,
    /// In the order in which they are done; none where all is as in the file.
    changes: Vec<Change>,
    /// Members that are not there, what stays though its member leaves, and nodes whose emu was killed, in words.
    notes: Vec<String>,
}

/// A change of a node.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Change {
    /// The node.
    node: String,
    /// `create`, `remove`, `set`, or of what is to be there: `join`, `leave`, `start`, `watch`, `unwatch`.
    action: &'static str,
    /// All of it in words.
    what: String,
}

impl Change {
    fn of(step: &Step) -> Self {
        let (node, action) = match step {
            Step::Remove { name, .. } => (name.as_str(), "remove"),
            Step::Create { name, .. } => (name.as_str(), "create"),
            Step::Set { name, .. } => (name.as_str(), "set"),
            Step::Join(join) => (join.node.as_str(), join.action()),
        };
        Self { node: node.to_owned(), action, what: step.to_string() }
    }
}

/// Writes the nodes that there are as a file for [`apply`].
pub(super) fn dump() -> Result<Exit, Failure> {
    let mut specs = Specs::new();
    for (session, working) in nodes()? {
        specs.insert(name(&session).to_owned(), Spec::of(&session, &working?));
    }
    output::print(&file::text(specs)?)?;
    Ok(Exit::Success)
}

#[derive(Debug)]
enum Step {
    /// Of a node without processes.
    Remove {
        name: String,
        was: Spec,
    },
    Create {
        name: String,
        spec: Spec,
    },
    Set {
        name: String,
        emu: Pid,
        from: Setting,
        to: Setting,
    },
    /// Comes after all others.
    Join(Join),
}

impl Step {
    /// With `signals`, one that asks to end is heard meanwhile, as far as that leaves nothing behind.
    fn take(&self, signals: Option<&Signals>) -> Result<(), Failure> {
        match self {
            // Once it has begun to end it goes on; a signal waits for the next step.
            Self::Remove { name, .. } => remove(name, Removal::Empty, None).map(drop),
            Self::Create { name, spec } => {
                let words =
                    ["node", "keep", "--quiet"].map(str::to_owned).into_iter().chain(spec.words(name));
                match create::keeper(words.map(Into::into), signals)? {
                    Exit::Success => Ok(()),
                    // Its emu has said why.
                    exit => Err(Failure { exit, error: None }),
                }
            }
            Self::Set { emu, to, .. } => Ok(order(*emu, &Request::Set(to.clone()))?),
            Self::Join(join) => join.take(),
        }
    }

    /// Takes it back, one of those that are `done`. Returns whether all is as before.
    fn undo(&self, done: &[Self]) -> bool {
        match self {
            Self::Remove { name, .. } if find(name).is_ok() => true,
            Self::Remove { name, was } => {
                let watch = |member| Join { node: name.clone(), member, what: What::Watch }.take().is_ok();
                Self::Create { name: name.clone(), spec: was.clone() }.take(None).is_ok()
                    && was.members().into_iter().filter(Member::comes_again).all(watch)
            }
            // What has joined it runs on where it was.
            Self::Create { name, .. } => remove(name, Removal::Free, None).is_ok(),
            Self::Set { emu, from, .. } => order(*emu, &Request::Set(from.clone())).is_ok(),
            Self::Join(join) => {
                let is_new = |step: &Self| matches!(step, Self::Create { name, .. } if *name == join.node);
                join.undo() || done.iter().any(is_new)
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remove { name, .. } => write!(f, "remove {name}"),
            Self::Create { name, spec } => write!(f, "create {}", spec.words(name).join(" ")),
            Self::Set { name, from, to, .. } => write!(f, "set {name} {to} (it was {from})"),
            Self::Join(join) => write!(f, "{join}"),
        }
    }
}

/// The changes that make the nodes that were found those of the file; and in words the members that are not there. All that
/// can be seen before is seen here.
fn plan(
    host: &Host,
    specs: &Specs,
    found: Vec<Found>,
    signals: &Signals,
) -> Result<(Vec<Step>, Vec<String>), Failure> {
    let mut there = There::new();
    for (session, working) in found {
        there.insert(name(&session).to_owned(), (session, working?));
    }
    // This process may be kept off the CPUs of a node that is to be another one.
    let mut host = host.clone();
    for (session, _) in there.values().filter(|(_, working)| working.exclusive.is_some()) {
        host.allowed = host.allowed.union(&session.cpus);
    }
    let (host, specs) = (&host, &placed(&host, specs, &there)?);
    let (mut removed, mut created, mut set) = (Vec::new(), Vec::new(), Vec::new());
    let mut keeps: Vec<Pid> = Vec::new();
    let mut exclusive: Option<&str> = None;
    for (name, spec) in specs {
        let args = spec.args(name)?;
        if args.exclusive
            && let Some(other) = exclusive.replace(name)
        {
            return Err(Error::unavailable(format!(
                "nodes {other} and {name} of the file are both exclusive"
            ))
            .hint("one node can be at a time: let one have the CPUs of both")
            .into());
        }
        match there.get(name) {
            Some((session, working)) if is_like(host, &args, session, working)? => {
                keeps.push(session.pid);
                set.extend(change(name, args, session, working)?);
            }
            _ => created.push((name, spec, cpus_of_new(host, &args.zone, signals)?)),
        }
    }
    for (name, (session, working)) in &there {
        if keeps.contains(&session.pid) {
            continue;
        }
        if let Some(first) = working.members.first() {
            let why =
                if specs.contains_key(name) { "is another one in the file" } else { "is not in the file" };
            return Err(Error::usage(format!("node {name} {why}, and process {first} runs there"))
                .hint(format!("`emu node remove {name}` ends it, with --free or --kill for what runs there"))
                .into());
        }
        removed.push(Step::Remove { name: name.clone(), was: Spec::of(session, working) });
    }
    let goes = |pid: Pid| there.values().any(|(session, _)| session.pid == pid) && !keeps.contains(&pid);
    let mut taken: Vec<_> = sessions_but(host, goes)?.into_iter().map(place_of).collect();
    for (name, _, cpus) in &created {
        for other in &taken {
            let both = cpus.intersection(&other.cpus);
            if !both.is_empty() {
                return Err(Error::unavailable(format!(
                    "{both:#} of node {name}: {} has them, too",
                    other.name
                ))
                .hint("nodes never share a CPU: give each its own in `cpus` or `speed`")
                .into());
            }
        }
        taken.push(place_of_node(name, cpus.clone()));
    }
    // A node that is made anew has and watches nothing.
    there.retain(|_, (session, _)| keeps.contains(&session.pid));
    let (joins, gone) = members::plan(host, specs, &there)?;
    let created =
        created.into_iter().map(|(name, spec, _)| Step::Create { name: name.clone(), spec: spec.clone() });
    let joins = joins.into_iter().map(Step::Join);
    let steps = removed.into_iter().chain(created).chain(set).chain(joins).collect();
    Ok((steps, gone))
}

/// What is to be set of a node that is the one of the file.
fn change(name: &str, args: CreateArgs, session: &LiveSession, working: &Working) -> Result<Option<Step>> {
    let speed = match args.zone.wanted.speed {
        Some(to) if !has_speed(&to, session, &working.status)? => Some(to),
        _ => None,
    };
    let limit = working.memory.map(|memory| memory.limit);
    // The kernel has whole pages.
    let page = page_size() as u64;
    let memory = args.memory.filter(|bytes| limit.is_some_and(|limit| bytes / page != limit / page));
    if speed.is_none() && memory.is_none() {
        return Ok(None);
    }
    let was = Spec::of(session, working).args(name)?.zone.wanted.speed;
    let from = Setting {
        speed: speed.as_ref().map(|to| was.unwrap_or_else(|| to.clone())),
        memory: memory.and(limit),
    };
    Ok(Some(Step::Set { name: name.to_owned(), emu: session.pid, from, to: Setting { speed, memory } }))
}

/// Whether a node is the one of the file, but for its speed and how much memory it has.
fn is_like(host: &Host, args: &CreateArgs, session: &LiveSession, working: &Working) -> Result<bool> {
    let (zone, status) = (&args.zone, &working.status);
    let has_memory = working.memory.is_some() == args.memory.is_some();
    let excludes = working.exclusive.is_some() == args.exclusive;
    let period = zone
        .demand
        .period
        .is_none_or(|wanted| (status.period.as_secs_f64() / wanted.as_secs_f64() - 1.0).abs() < PERIOD_SLACK);
    let follows = follow::read(zone)?.map(|(source, _)| source) == working.follows;
    let like = like::read(zone)?.map(|(source, _)| source) == working.like;
    let is_on = cpus_of(host, zone)? == session.cpus;
    // A method's own period may be near to the one asked for.
    let options =
        Options { period_ns: working.options.period_ns, ..Options::of(&zone.demand.demand(Targets::new())) };
    let options = options == working.options;
    let is_alike = is_on && has_memory && excludes && period && options && follows && like;
    Ok(is_alike && zone.method.allows(&session.method))
}

fn cpus_of(host: &Host, zone: &ZoneArgs) -> Result<CpuList> {
    let cpus = zone.demand.cpus.as_ref();
    if let Some((_, other)) = like::read(zone)? {
        return like::cpus(host, &other, cpus);
    }
    Ok(match (&zone.wanted.speed, follow::read(zone)?) {
        (Some(speed), _) => Demand::cpus_of(host, speed, cpus),
        (None, Some((_, trace))) => trace.cpus_of(host, cpus),
        (None, None) => cpus.cloned().unwrap_or_default(),
    })
}

/// The CPUs of a node that is to be made, if a method can do it. How fast another machine is would take a minute to find,
/// and is found when the node is made.
fn cpus_of_new(host: &Host, zone: &ZoneArgs, signals: &Signals) -> Result<CpuList, Failure> {
    if zone.wanted.like.is_some() {
        return Ok(cpus_of(host, zone)?);
    }
    Ok(Plan::new(host, zone, signals)?.prepared.demand().cpus())
}

/// The nodes, those that name no CPUs on some that do not disturb the others: where they are, if they are there already.
fn placed(host: &Host, specs: &Specs, there: &There) -> Result<Specs> {
    let (mut taken, mut wanted, mut specs) = (Vec::new(), Vec::new(), specs.clone());
    let of_nodes: Vec<Pid> = there.values().map(|(session, _)| session.pid).collect();
    let others = sessions_but(host, |pid| of_nodes.contains(&pid))?;
    let mut moves = others.iter().any(|session| emu_core::find(&session.method).is_ok_and(moves_clock));
    taken.extend(others.into_iter().map(place_of));
    let mut to_be_placed = Vec::new();
    for (name, spec) in &specs {
        let zone = spec.args(name)?.zone;
        moves |= match &zone.method {
            MethodChoice::Auto => true,
            MethodChoice::Named(id) => moves_clock(emu_core::find(id.as_str())?),
        };
        match spec.to_be_placed(name, &zone)? {
            Some(count) => to_be_placed.push((name.clone(), count)),
            None => taken.push(place_of_node(name, cpus_of(host, &zone)?)),
        }
    }
    // A node stays where it is, unless another one is to be there.
    for (name, count) in to_be_placed {
        let is_free = |cpus: &CpuList| taken.iter().all(|other| other.cpus.intersection(cpus).is_empty());
        let stays =
            there.get(&name).filter(|(session, _)| session.cpus.len() == count && is_free(&session.cpus));
        let Some((session, _)) = stays else {
            wanted.push((name, count));
            continue;
        };
        taken.push(place_of_node(&name, session.cpus.clone()));
        if let Some(spec) = specs.get_mut(&name) {
            *spec = spec.clone().on(&session.cpus);
        }
    }
    let apart = if moves { Apart::Clocks } else { Apart::Cores };
    let named: Vec<_> = wanted.iter().map(|(name, count)| (format!("node {name}"), *count)).collect();
    for ((name, _), cpus) in wanted.iter().zip(place(host, &taken, &named, apart)?) {
        if let Some(spec) = specs.get_mut(name) {
            *spec = spec.clone().on(&cpus);
        }
    }
    Ok(specs)
}

fn sessions_but(host: &Host, is_left_out: impl Fn(Pid) -> bool) -> Result<Vec<LiveSession>> {
    let all = live_sessions(&host.roots)?.into_iter();
    Ok(all.filter(|session| !session.is_tuning() && !is_left_out(session.pid)).collect())
}

fn place_of(session: LiveSession) -> Placed {
    Placed { name: format!("{} of emu {}", session.what(), session.pid), cpus: session.cpus }
}

fn place_of_node(name: &str, cpus: CpuList) -> Placed {
    Placed { name: format!("node {name}"), cpus }
}

/// Whether a method sets the clock, which CPUs of one domain share.
fn moves_clock(method: &dyn Method) -> bool {
    method.about().has(Trait::MovesClock)
}

/// Whether a node has this speed, by what it was asked for: its clock is not the CPU's own while it is at work.
fn has_speed(speed: &SpeedSpec, session: &LiveSession, status: &Status) -> Result<bool> {
    let speeds = speed.for_cpus(&session.cpus)?;
    Ok(status.cpus.iter().all(|cpu| match (speeds.get(&cpu.cpu), cpu.asked.clock) {
        (Some(Speed::Share(wanted)), None) => (wanted - cpu.asked.share).abs() < 1e-9,
        (Some(Speed::Clock(wanted)), Some(asked)) => *wanted == asked,
        _ => false,
    }))
}

#[cfg(test)]
mod tests;

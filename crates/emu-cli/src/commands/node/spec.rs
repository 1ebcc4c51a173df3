//! A node as a file has it: what it is asked for, in the words of `emu node create`, and what is to be on it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Command, FromArgMatches};
use emu_bench::numbers::whole_size;
use emu_core::{CpuList, CpuStatus, Error, LiveSession, Pid, Result, Round, SpeedSpec, Target, nearest};
use serde::{Deserialize, Serialize};

use super::args::CreateArgs;
use crate::control::{Member, Working};
use crate::values;
use crate::zone::{ZoneArgs, like};

pub(super) type Specs = BTreeMap<String, Spec>;

/// What a file has of one node, or of a class of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Spec {
    pub(super) class: Option<String>,
    /// How many such nodes there are: NAME1, NAME2 …
    pub(super) count: Option<u16>,
    /// How many CPUs it has, where none are named.
    cores: Option<u16>,
    speed: Option<String>,
    pub(super) like: Option<PathBuf>,
    metric: Option<String>,
    pub(super) trace: Option<PathBuf>,
    trace_end: Option<String>,
    pub(super) cpus: Option<String>,
    method: Option<String>,
    period: Option<String>,
    lift_rt_limit: Option<bool>,
    exclude_background: Option<bool>,
    round: Option<String>,
    widen: Option<bool>,
    no_hold_clock: Option<bool>,
    memory: Option<String>,
    exclusive: Option<bool>,
    /// A command that is started there.
    run: Option<Vec<String>>,
    /// What runs already and joins: in the words of `emu attach`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pids: Vec<Pid>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    names: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    units: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    containers: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cgroups: Vec<PathBuf>,
}

impl Spec {
    /// With what the class has that it does not say itself.
    pub(super) fn with_class(self, name: &str, classes: &Specs) -> Result<Self> {
        let Some(wanted) = &self.class else {
            return Ok(self.counted());
        };
        let class = classes.get(wanted).cloned().ok_or_else(|| {
            let hint = match nearest(wanted, classes.keys().map(String::as_str)) {
                Some(nearest) => format!("there is `{nearest}`"),
                None => "a class is a table `[class.NAME]`".to_owned(),
            };
            Error::usage(format!("node `{name}` of the file is of the class `{wanted}`, which is not there"))
                .hint(hint)
        })?;
        let is_fast_by_itself = self.speed.is_some() || self.trace.is_some() || self.like.is_some();
        let class = if is_fast_by_itself {
            Self { speed: None, trace: None, like: None, metric: None, trace_end: None, ..class }
        } else {
            class
        };
        let one = Self {
            class: None,
            count: self.count,
            cores: self.cores.or(class.cores.filter(|_| !self.names_cpus())),
            speed: self.speed.or(class.speed),
            like: self.like.or(class.like),
            metric: self.metric.or(class.metric),
            trace: self.trace.or(class.trace),
            trace_end: self.trace_end.or(class.trace_end),
            cpus: self.cpus,
            method: self.method.or(class.method),
            period: self.period.or(class.period),
            lift_rt_limit: self.lift_rt_limit.or(class.lift_rt_limit),
            exclude_background: self.exclude_background.or(class.exclude_background),
            round: self.round.or(class.round),
            widen: self.widen.or(class.widen),
            no_hold_clock: self.no_hold_clock.or(class.no_hold_clock),
            memory: self.memory.or(class.memory),
            exclusive: self.exclusive.or(class.exclusive),
            run: self.run.or(class.run),
            ..self
        };
        Ok(one.counted())
    }

    /// One of several has a CPU, unless a profile tells how many its machine has.
    fn counted(self) -> Self {
        let one = self.count.filter(|_| self.like.is_none()).map(|_| 1);
        Self { count: None, cores: self.cores.or(one), ..self }
    }

    pub(super) fn members(&self) -> Vec<Member> {
        let run = self.run.iter().filter(|words| !words.is_empty()).cloned().map(Member::Run);
        let pids = self.pids.iter().copied().map(Member::Pid);
        let names = self.names.iter().cloned().map(Member::Name);
        let units = self.units.iter().cloned().map(Member::Unit);
        let containers = self.containers.iter().cloned().map(Member::Container);
        let cgroups = self.cgroups.iter().cloned().map(Member::Cgroup);
        run.chain(pids).chain(names).chain(units).chain(containers).chain(cgroups).collect()
    }

    fn add(&mut self, member: Member) {
        match member {
            Member::Run(words) => self.run = Some(words),
            Member::Pid(pid) => self.pids.push(pid),
            Member::Name(name) => self.names.push(name),
            Member::Unit(unit) => self.units.push(unit),
            Member::Container(container) => self.containers.push(container),
            Member::Cgroup(path) => self.cgroups.push(path),
        }
    }

    /// Whether it says itself which CPUs it has; a trace may do so, too.
    pub(super) fn names_cpus(&self) -> bool {
        let speed = self.speed.as_ref().and_then(|speed| speed.parse::<SpeedSpec>().ok());
        self.cpus.is_some() || speed.is_some_and(|speed| speed.cpus().is_some())
    }

    /// How many CPUs are to be found for it, of which these are the options; `None` where it names them, or takes all.
    pub(super) fn to_be_placed(&self, name: &str, zone: &ZoneArgs) -> Result<Option<usize>> {
        match (self.names_cpus(), self.cores) {
            (true, Some(_)) => Err(Error::usage(format!(
                "node `{name}` of the file tells its CPUs twice, by `speed` or `cpus` and `cores`"
            ))
            .hint("`cores` is for a node that names no CPUs")),
            (true, None) => Ok(None),
            (false, Some(cores)) => Ok(Some(usize::from(cores))),
            (false, None) => Ok(like::read(zone)?.and_then(|(_, other)| other.cpus())),
        }
    }

    pub(super) fn on(self, cpus: &CpuList) -> Self {
        Self { cpus: Some(cpus.to_string()), cores: None, ..self }
    }

    /// A node that is there, by what it was asked for.
    pub(super) fn of(session: &LiveSession, working: &Working) -> Self {
        let (status, follows, like) = (&working.status, working.follows.as_ref(), working.like.as_ref());
        let (options, on) = (&working.options, |is_on: bool| is_on.then_some(true));
        let mut speeds: Vec<_> = status.cpus.iter().map(|cpu| (cpu.cpu, speed(cpu))).collect();
        speeds.dedup_by(|a, b| a.1 == b.1);
        let each = || {
            let each = status.cpus.iter().map(|cpu| format!("{}={}", cpu.cpu, speed(cpu)));
            each.collect::<Vec<_>>().join(",")
        };
        let speed = if let [(_, all)] = &speeds[..] { all.clone() } else { each() };
        let mut spec = Self {
            speed: (follows.is_none() && like.is_none()).then_some(speed),
            like: like.map(|source| source.file.clone()),
            metric: like.map(|source| source.how.clone()),
            trace: follows.map(|source| source.file.clone()),
            trace_end: follows.map(|source| source.how.clone()),
            cpus: Some(session.cpus.to_string()),
            method: Some(session.method.clone()),
            period: options.period_ns.map(|nanos| values::exact(Duration::from_nanos(nanos))),
            lift_rt_limit: on(options.lift_rt_limit),
            exclude_background: on(options.exclude_background),
            round: (options.round != Round::default()).then(|| values::round_name(options.round).to_owned()),
            widen: on(options.widen_policies),
            no_hold_clock: on(!options.hold_clock),
            memory: working.memory.map(|memory| whole_size(memory.limit)),
            exclusive: on(working.exclusive.is_some()),
            ..Self::default()
        };
        let joined = working.joined.iter().map(|joined| &joined.of);
        let members: BTreeSet<&Member> = joined.chain(&working.watched).collect();
        for member in members {
            spec.add(member.clone());
        }
        spec
    }

    /// The words behind `create` for this node.
    pub(super) fn words(&self, name: &str) -> Vec<String> {
        let file = |path: &PathBuf| path.display().to_string();
        let (trace, like) = (self.trace.as_ref().map(file), self.like.as_ref().map(file));
        let options = [
            ("speed", self.speed.as_ref()),
            ("like", like.as_ref()),
            ("metric", self.metric.as_ref()),
            ("trace", trace.as_ref()),
            ("trace-end", self.trace_end.as_ref()),
            ("cpus", self.cpus.as_ref()),
            ("method", self.method.as_ref()),
            ("period", self.period.as_ref()),
            ("round", self.round.as_ref()),
            ("memory", self.memory.as_ref()),
        ];
        let options =
            options.into_iter().filter_map(|(option, value)| Some(format!("--{option}={}", value?)));
        let flags = [
            ("lift-rt-limit", self.lift_rt_limit),
            ("exclude-background", self.exclude_background),
            ("widen", self.widen),
            ("no-hold-clock", self.no_hold_clock),
            ("exclusive", self.exclusive),
        ];
        let flags = flags.into_iter().filter(|(_, is_on)| *is_on == Some(true));
        let flags = flags.map(|(option, _)| format!("--{option}"));
        [name.to_owned()].into_iter().chain(options).chain(flags).collect()
    }

    pub(super) fn args(&self, name: &str) -> Result<CreateArgs> {
        let words = ["create".to_owned()].into_iter().chain(self.words(name));
        let command = CreateArgs::augment_args(Command::new("create"));
        let matches = command.try_get_matches_from(words);
        matches.and_then(|matches| CreateArgs::from_arg_matches(&matches)).map_err(|e| {
            let text = e.to_string();
            // What is missing or wrong may be on the lines that follow; after an empty one come advice and usage.
            let why: Vec<_> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            let why = why.join(" ");
            let why = why.trim_start_matches("error: ");
            Error::usage(format!("node `{name}` of the file: {why}"))
                .hint("the values are those of the options of `emu node create`")
        })
    }
}

fn speed(cpu: &CpuStatus) -> String {
    match cpu.asked {
        Target { clock: Some(clock), .. } => format!("{}Hz", clock.0),
        Target { share, .. } => format!("{share}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_of_a_file_lacks_is_named() {
        let why = Spec::default().args("a").unwrap_err().to_string();
        assert!(why.contains("arguments were not provided: <--speed"), "{why}");
        let odd = Spec { speed: Some("140%".into()), ..Spec::default() };
        let why = odd.args("a").unwrap_err().to_string();
        assert!(why.contains("140%") && !why.contains("error:"), "{why}");
    }
}

//! `--like`: the speed at which this machine is as fast as another one was.

use std::path::PathBuf;
use std::time::Duration;

use emu_bench::numbers::{percent, signed};
use emu_core::{
    CpuList, Error, Host, MethodId, Prepared, Result, Session, Target, Targets, Tasks, choose, input_file,
};
use emu_machine::profile::{Build, Found, Metric, Profile, Scorer, Wanted, find};
use serde::Serialize;

use crate::control::Source;
use crate::exit::Failure;
use crate::output::progress::Progress;
use crate::signals::{Meanwhile, Signals};
use crate::values::MethodChoice;
use crate::zone::ZoneArgs;

/// What is off by less than this by another metric is not worth a word.
const ALIKE: f64 = 0.1;

/// The speed that was found, and for what.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Like {
    /// The profile.
    file: PathBuf,
    /// The machine that it is of.
    model: String,
    /// What no speed can match, in words.
    unmatched: Vec<String>,
    #[serde(flatten)]
    found: Found,
    /// Which profile it is.
    #[serde(skip)]
    pub(crate) source: Source,
    #[serde(skip)]
    pub(crate) targets: Targets,
    /// By which it was found: another one has other costs.
    #[serde(skip)]
    pub(crate) method: MethodId,
}

impl Like {
    pub(crate) fn find(host: &Host, args: &ZoneArgs, signals: &Signals) -> Result<Option<Self>, Failure> {
        let Some((source, profile)) = read(args)? else { return Ok(None) };
        let metric = metric(args);
        let cpus = cpus(host, &profile, args.demand.cpus.as_ref())?;
        host.check_cpus(&cpus)?;
        let first = cpus.first().ok_or_else(|| Error::usage("a zone needs at least one CPU"))?;
        let mut method = match args.method {
            MethodChoice::Auto => None,
            MethodChoice::Named(id) => Some(id),
        };
        let mut engage = |share: f64, scorer: &Scorer| {
            let target = Target { share, clock: None };
            let demand = args.demand.demand([(first, target)].into());
            let prepared = match method {
                Some(id) => Prepared::named(id, host, &demand)?,
                None => choose(host, &demand)?,
            };
            method = Some(prepared.method().id());
            Session::begin(&prepared, "like", Tasks::Processes(vec![scorer.pid()]))
        };
        let progress = Progress::new(Duration::ZERO);
        let mut meanwhile = Meanwhile::new(signals);
        let mut watch = |what: Option<&str>| {
            if let Some(what) = what {
                progress.show_alone(what);
            }
            meanwhile.look()
        };
        let wanted = Wanted { profile: &profile, metric: &metric, cpu: first };
        let found = find(&wanted, &mut engage, &mut watch);
        progress.clear();
        let found = meanwhile.end(found)?;
        let target = |relative: f64| Target { share: (found.share * relative).min(1.0), clock: None };
        let targets =
            cpus.iter().zip(profile.relative()).map(|(cpu, relative)| (cpu, target(relative))).collect();
        let method = method.ok_or_else(|| Error::unavailable("no method was tried"))?;
        let (file, model) = (source.file.clone(), profile.machine.model.clone());
        let unmatched = profile.build.differences(&Build::of(host));
        Ok(Some(Self { file, model, unmatched, found, source, targets, method }))
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let Found { metric, share, predicted, error, low, high, others, .. } = &self.found;
        let half = (high - low) / 2.0;
        let mut lines = vec![format!(
            "as fast as {} by {metric}: {} of this machine ({} predicted), measured {} ±{}",
            self.model,
            percent(*share),
            percent(*predicted),
            signed(*error),
            percent(half)
        )];
        let differ = others.iter().filter(|(_, off)| off.abs() > ALIKE);
        let differ: Vec<_> = differ.map(|(other, off)| format!("{other} {}", signed(*off))).collect();
        if !differ.is_empty() {
            lines.push(format!("a speed alone cannot match all of it; here it has {}", differ.join(", ")));
        }
        if !self.unmatched.is_empty() {
            lines.push(format!("not matched by any speed: {}", self.unmatched.join("; ")));
        }
        lines
    }
}

pub(crate) fn cpus(host: &Host, profile: &Profile, given: Option<&CpuList>) -> Result<CpuList> {
    let there = profile.cpus.len();
    let cpus: CpuList = given.cloned().unwrap_or_else(|| host.allowed.iter().take(there).collect());
    let wanted = given.map_or(there, CpuList::len);
    if cpus.len() < wanted || wanted > there {
        let here = host.allowed.len();
        let message = if wanted > there {
            format!("that machine has {there} CPUs, and {wanted} are asked for")
        } else {
            format!("that machine has {there} CPUs, and only {here} may be used here")
        };
        return Err(Error::unavailable(message).hint("name as many of its CPUs as there are here: --cpus"));
    }
    Ok(cpus)
}

fn metric(args: &ZoneArgs) -> Metric {
    args.metric.clone().unwrap_or(Metric::Loop)
}

pub(crate) fn read(args: &ZoneArgs) -> Result<Option<(Source, Profile)>> {
    let Some(path) = args.wanted.like.as_deref() else {
        let without = "--metric is for a profile, and there is none";
        return match args.metric {
            Some(_) => Err(Error::usage(without).hint("pass --like FILE, or leave it out")),
            None => Ok(None),
        };
    };
    let hint = "make one on the other machine: `emu profile FILE`";
    let (source, text) = Source::read(path, &metric(args).to_string(), input_file::SIZE_MAX, hint)?;
    let profile = Profile::parse(&text).map_err(|e| e.during(format!("cannot use {}", path.display())))?;
    Ok(Some((source, profile)))
}

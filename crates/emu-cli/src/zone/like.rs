//! `--like`: the speed at which this machine is as fast as another one was, by its profile or a setting that was mapped.

use std::path::PathBuf;
use std::time::Duration;

use emu_bench::numbers::{percent, signed};
use emu_bench::record::About;
use emu_core::{
    CpuList, Error, Host, MethodId, Prepared, Result, Session, Target, Targets, Tasks, choose, input_file,
};
use emu_machine::calibrate::Equivalent;
use emu_machine::profile::{Build, Found, Metric, Profile, Scorer, Wanted, find};
use serde::{Deserialize, Serialize};

use crate::control::Source;
use crate::ending::Ending;
use crate::exit::Failure;
use crate::output;
use crate::output::progress::Progress;
use crate::signals::Signals;
use crate::values::MethodChoice;
use crate::zone::ZoneArgs;

/// What is off by less than this by another metric is not worth a word.
const ALIKE: f64 = 0.1;

/// What a file tells of another machine.
#[derive(Debug)]
pub(crate) enum Other {
    Profile(Box<Profile>),
    /// What equals one of its settings here, by LINPACK.
    Setting(Equivalent),
}

impl Other {
    /// How many CPUs the machine has; `None` where only its rates are known.
    pub(crate) fn cpus(&self) -> Option<usize> {
        match self {
            Self::Profile(profile) => Some(profile.cpus.len()),
            Self::Setting(_) => None,
        }
    }
}

/// The speed that was found, and for what.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub(crate) struct Like {
    /// The profile, or the JSON of `emu calibrate map`.
    file: PathBuf,
    /// The machine that a profile is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// What no speed can match, in words.
    unmatched: Vec<String>,
    #[serde(flatten)]
    found: By,
    /// Which file it is.
    #[serde(skip)]
    pub(crate) source: Source,
    #[serde(skip)]
    pub(crate) targets: Targets,
    /// By which it was found: another one has other costs.
    #[serde(skip)]
    pub(crate) method: MethodId,
}

/// How a speed was found.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(untagged)]
enum By {
    /// It was measured here against a profile.
    Measured(Found),
    /// A setting of the other machine was mapped to a quota here.
    Mapped(Equivalent),
}

impl Like {
    pub(crate) fn find(host: &Host, args: &ZoneArgs, signals: &Signals) -> Result<Option<Self>, Failure> {
        let Some((source, other)) = read(args)? else { return Ok(None) };
        let cpus = cpus(host, &other, args.demand.cpus.as_ref())?;
        host.check_cpus(&cpus)?;
        Ok(Some(match other {
            Other::Profile(profile) => Self::measured(host, args, signals, (source, &profile), &cpus)?,
            Other::Setting(equivalent) => Self::mapped(host, args, source, equivalent, &cpus)?,
        }))
    }

    /// The quota that equals the setting, spread over the CPUs.
    fn mapped(
        host: &Host,
        args: &ZoneArgs,
        source: Source,
        equivalent: Equivalent,
        cpus: &CpuList,
    ) -> Result<Self> {
        let target = Target { share: equivalent.quota / cpus.len() as f64, clock: None };
        let targets: Targets = cpus.iter().map(|cpu| (cpu, target)).collect();
        let method = match args.method {
            MethodChoice::Auto => choose(host, &args.demand.demand(targets.clone()))?.method().id(),
            MethodChoice::Named(id) => id,
        };
        let (file, found) = (source.file.clone(), By::Mapped(equivalent));
        Ok(Self { file, model: None, unmatched: Vec::new(), found, source, targets, method })
    }

    fn measured(
        host: &Host,
        args: &ZoneArgs,
        signals: &Signals,
        (source, profile): (Source, &Profile),
        cpus: &CpuList,
    ) -> Result<Self, Failure> {
        let metric = metric(args);
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
        let mut ending = Ending::new(signals);
        let mut watch = |what: Option<&str>| {
            if let Some(what) = what {
                progress.show_alone(what);
            }
            ending.look()
        };
        let wanted = Wanted { host, profile, metric: &metric, cpu: first };
        let found = find(&wanted, &mut engage, &mut watch);
        progress.clear();
        ending.by_signal(found.as_ref().err())?;
        let found = found?;
        let target = |relative: f64| Target { share: (found.share * relative).min(1.0), clock: None };
        let targets =
            cpus.iter().zip(profile.relative()).map(|(cpu, relative)| (cpu, target(relative))).collect();
        let method = method.ok_or_else(|| Error::unavailable("no method was tried"))?;
        let (file, model) = (source.file.clone(), Some(profile.machine.model.clone()));
        let unmatched = profile.build.differences(&Build::of(host));
        Ok(Self { file, model, unmatched, found: By::Measured(found), source, targets, method })
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        match &self.found {
            By::Measured(found) => self.lines_of(found),
            By::Mapped(equivalent) => lines_of_setting(equivalent, self.targets.len()),
        }
    }

    fn lines_of(&self, found: &Found) -> Vec<String> {
        let Found { metric, share, predicted, error, low, high, others, .. } = found;
        let half = (high - low) / 2.0;
        let mut lines = vec![format!(
            "as fast as {} by {metric}: {} of this machine ({} predicted), measured {} ±{}",
            self.model.as_deref().unwrap_or("that machine"),
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

fn lines_of_setting(equivalent: &Equivalent, cpus: usize) -> Vec<String> {
    let Equivalent { setting, quota, quota_sd, .. } = equivalent;
    let share = percent(quota / cpus as f64);
    let mut lines = vec![format!(
        "as fast as another machine at its setting {setting} by linpack: {quota:.3} ± {quota_sd:.3} CPUs, {share} of each"
    )];
    if !equivalent.both_linear {
        let doubt = "one of both machines follows no line, and `emu calibrate map` says how far it is off";
        lines.push(format!("in doubt: {doubt}"));
    }
    lines
}

/// The CPUs to be used: of a profile as many as that machine has, for a setting all that may be, where none are given.
pub(crate) fn cpus(host: &Host, other: &Other, given: Option<&CpuList>) -> Result<CpuList> {
    let profile = match other {
        Other::Profile(profile) => profile,
        Other::Setting(Equivalent { setting, quota, .. }) => {
            let cpus = given.unwrap_or(&host.allowed);
            let few = cpus.len();
            if *quota <= few as f64 {
                return Ok(cpus.clone());
            }
            let message = format!("setting {setting} equals {quota:.2} CPUs here, and CPUs {cpus} are {few}");
            return Err(Error::unavailable(message).hint("name more CPUs, or map a smaller setting"));
        }
    };
    let there = profile.cpus.len();
    let cpus: CpuList = given.cloned().unwrap_or_else(|| host.allowed.iter().take(there).collect());
    let wanted = given.map_or(there, CpuList::len);
    if cpus.len() < wanted || wanted > there {
        let few = if wanted > there {
            format!("{wanted} are asked for")
        } else {
            format!("only {} may be used here", host.allowed.len())
        };
        return Err(Error::unavailable(format!("that machine has {there} CPUs, and {few}"))
            .hint("name as many of its CPUs as there are here: --cpus"));
    }
    Ok(cpus)
}

fn metric(args: &ZoneArgs) -> Metric {
    args.metric.clone().unwrap_or(Metric::Loop)
}

pub(crate) fn read(args: &ZoneArgs) -> Result<Option<(Source, Other)>> {
    let Some(path) = args.wanted.like.as_deref() else {
        let without = "--metric is for a profile, and there is none";
        return match args.metric {
            Some(_) => Err(Error::usage(without).hint("pass --like FILE, or leave it out")),
            None => Ok(None),
        };
    };
    let hint = "make one on the other machine: `emu profile FILE`";
    let (mut source, text) = Source::read(path, &metric(args).to_string(), input_file::SIZE_MAX, hint)?;
    let other = parse(&text).map_err(|e| e.during(format!("cannot use {}", path.display())))?;
    if let Other::Setting(_) = other {
        if let Some(metric) = args.metric.as_ref().filter(|metric| **metric != Metric::Linpack) {
            return Err(Error::usage(format!("cannot compare by {metric}: a setting is mapped by linpack"))
                .hint("leave out --metric, or name a profile of that machine"));
        }
        source.how = Metric::Linpack.to_string();
    }
    Ok(Some((source, other)))
}

fn parse(text: &str) -> Result<Other> {
    #[derive(Deserialize)]
    struct Mapped {
        schema: u32,
        #[serde(flatten)]
        equivalent: Equivalent,
    }
    #[derive(Deserialize)]
    struct Measurement {
        about: About,
    }
    if let Ok(Mapped { schema, equivalent }) = serde_json::from_str(text) {
        if schema != output::SCHEMA || equivalent.quota <= 0.0 {
            let what = format!("a mapped setting of version {schema} and {} CPUs", equivalent.quota);
            return Err(Error::usage(what).hint("map it again with this emu: `emu calibrate map`"));
        }
        return Ok(Other::Setting(equivalent));
    }
    let other = serde_json::from_str::<Measurement>(text).ok().and_then(|it| it.about.measurement);
    if let Some(other) = other {
        return Err(Error::usage(format!("it is one of `emu {}`", other.name))
            .hint("name a profile of `emu profile`, or the JSON of `emu calibrate map`"));
    }
    Profile::parse(text).map(|profile| Other::Profile(Box::new(profile)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::Roots;

    #[test]
    fn a_mapped_setting_is_spread_over_the_cpus_or_refused() {
        let mut host = Host::detect(&Roots::system()).unwrap();
        host.allowed = "0-3".parse().unwrap();
        let equivalent = Equivalent {
            setting: 1769.0,
            setting_sd: 20.0,
            gflops: 25.0,
            quota: 1.5,
            quota_sd: 0.02,
            speed: 0.375,
            speed_sd: 0.005,
            both_linear: false,
            doubts: Vec::new(),
        };
        let lines = lines_of_setting(&equivalent, 4);
        assert!(lines[0].contains("setting 1769 by linpack: 1.500 ± 0.020 CPUs, 37.5% of each"), "{lines:?}");
        assert!(lines[1].starts_with("in doubt"), "{lines:?}");
        let other = Other::Setting(equivalent);
        assert_eq!((cpus(&host, &other, None).unwrap(), other.cpus()), (host.allowed.clone(), None));
        let given = |cpus: &str| cpus.parse::<CpuList>().unwrap();
        assert_eq!(cpus(&host, &other, Some(&given("0-1"))).unwrap(), given("0-1"));
        let why = cpus(&host, &other, Some(&given("1"))).unwrap_err().to_string();
        assert!(why.contains("setting 1769 equals 1.50 CPUs here"), "{why}");
    }

    #[test]
    fn what_tells_of_no_other_machine_is_refused_by_name() {
        let of = |text: &str| parse(text).unwrap_err().to_string();
        let machine = emu_bench::record::Machine::of(&Host::detect(&Roots::system()).unwrap());
        let measurement = serde_json::json!({"name": "noise", "plan": {}});
        let about = serde_json::json!({
            "schema": 1, "date": "", "command": "", "version": "", "seed": 1,
            "machine": machine, "measurement": measurement,
        });
        let noise = serde_json::json!({"schema": 1, "about": about}).to_string();
        assert!(of(&noise).contains("it is one of `emu noise`"), "{}", of(&noise));
        assert!(of("{}").contains("no profile"), "{}", of("{}"));
    }
}

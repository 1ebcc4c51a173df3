//! How fast a machine is, in a file that another machine can be made as slow as.

mod build;
mod like;
mod scorer;

pub use build::Build;
pub use like::{Found, Wanted, find};
pub use scorer::{Scorer, TASK};

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use emu_bench::record::Machine;
use emu_bench::stats::{Interval, Level, Sample};
use emu_core::{CpuId, Error, Host, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the file.
pub const SCHEMA: u32 = 1;

/// What a machine is judged by. All are for one thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum Metric {
    /// Dependent additions each second: the core clock that a program perceives.
    Loop,
    /// Additions, subtractions, multiplications and divisions of integers, with the widest vectors that there are.
    Int,
    /// The same of doubles.
    Fp,
    /// A system of 1000 linear equations, in floating-point operations each second.
    Linpack,
    /// Bytes each second that the triad of STREAM moves, with arrays larger than most caches.
    Memory,
    /// Loads each second that depend on each other, spread over 64 MiB.
    Latency,
    /// Runs each second of a command of the shell.
    Command(String),
    /// The geometric mean of the first four.
    Geomean,
}

impl Metric {
    /// Those that every profile has.
    pub const MEASURED: [Self; 6] =
        [Self::Loop, Self::Int, Self::Fp, Self::Linpack, Self::Memory, Self::Latency];

    const MEAN_OF: [Self; 4] = [Self::Loop, Self::Int, Self::Fp, Self::Linpack];

    fn geomean(score: impl FnMut(&Self) -> Result<f64>) -> Result<f64> {
        let scores = Self::MEAN_OF.iter().map(score);
        let sum = scores.map(|score| score.map(f64::ln)).sum::<Result<f64>>()?;
        Ok((sum / Self::MEAN_OF.len() as f64).exp())
    }

    /// What is counted each second.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Loop => "cycles",
            Self::Int | Self::Fp | Self::Linpack | Self::Geomean => "operations",
            Self::Memory => "bytes",
            Self::Latency => "loads",
            Self::Command(_) => "runs",
        }
    }
}

const COMMAND: &str = "command:";

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loop => "loop",
            Self::Int => "int",
            Self::Fp => "fp",
            Self::Linpack => "linpack",
            Self::Memory => "memory",
            Self::Latency => "latency",
            Self::Geomean => "geomean",
            Self::Command(command) => return write!(f, "{COMMAND}{command}"),
        })
    }
}

impl FromStr for Metric {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(command) = text.strip_prefix(COMMAND).filter(|command| !command.trim().is_empty()) {
            return Ok(Self::Command(command.to_owned()));
        }
        let mut known = Self::MEASURED.into_iter().chain([Self::Geomean]);
        known.find(|metric| metric.to_string() == text).ok_or_else(|| {
            Error::usage(format!("unknown metric `{text}`"))
                .hint("loop, int, fp, linpack, memory, latency, geomean, or command:'…'")
        })
    }
}

impl TryFrom<String> for Metric {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Metric> for String {
    fn from(metric: Metric) -> Self {
        metric.to_string()
    }
}

/// How fast a machine is by one metric, each second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Score {
    /// The mean.
    pub mean: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// In the order they were taken.
    pub samples: Vec<f64>,
}

impl Score {
    fn of(samples: Vec<f64>) -> Result<Self> {
        let Interval { estimate, low, high, .. } =
            Interval::of_mean(&Sample::new(samples.clone())?, Level::P95)?;
        Ok(Self { mean: estimate, low, high, samples })
    }
}

/// How fast a machine is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// The version of this form.
    pub schema: u32,
    /// The version of the emu that has measured it.
    pub emu: String,
    /// What machine it is.
    pub machine: Machine,
    /// What a speed cannot change of it; absent in profiles of older emus.
    #[serde(default)]
    pub build: Build,
    /// Dependent additions each second of each CPU that may be used.
    pub cpus: BTreeMap<CpuId, f64>,
    /// By each metric, on the first CPU.
    pub scores: BTreeMap<Metric, Score>,
}

/// Whoever watches is told what comes next, or just asked (`None`) whether it is to go on; an error ends it.
pub type Watch<'a> = &'a mut dyn FnMut(Option<&str>) -> Result<()>;

/// What is measured, and how long.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProfilePlan {
    samples: usize,
    length: Duration,
    commands: Vec<String>,
}

impl ProfilePlan {
    /// A plan with these commands beside all else.
    pub fn new(quick: bool, commands: &[String]) -> Self {
        let (samples, length) = if quick { (5, 150) } else { (9, 500) };
        Self { samples, length: Duration::from_millis(length), commands: commands.to_vec() }
    }

    /// About how long it takes, without the commands.
    pub fn time(&self, host: &Host) -> Duration {
        (self.length * (self.samples * Metric::MEASURED.len()) as u32).mul_f64(1.4)
            + PER_CPU * host.allowed.len() as u32
    }
}

const PER_CPU: Duration = Duration::from_millis(100);

impl Profile {
    /// Measures this machine.
    pub fn measure(host: &Host, plan: &ProfilePlan, watch: Watch<'_>) -> Result<Self> {
        let first = host.allowed.first().ok_or_else(|| Error::unavailable("no CPU may be used"))?;
        let mut worker = Scorer::start(host, first)?;
        let commands = plan.commands.iter().cloned().map(Metric::Command);
        let metrics: Vec<_> = Metric::MEASURED.into_iter().chain(commands).collect();
        let mut samples = BTreeMap::<Metric, Vec<f64>>::new();
        // In turn, so that a slow moment of the machine is one of all.
        for round in 0..plan.samples {
            for metric in &metrics {
                watch(Some(&format!("{metric}, round {} of {}", round + 1, plan.samples)))?;
                let score = worker.score(metric, plan.length, &mut || watch(None))?;
                samples.entry(metric.clone()).or_default().push(score);
            }
        }
        let all = samples.into_iter().map(|(metric, samples)| Ok((metric, Score::of(samples)?)));
        let scores: BTreeMap<_, _> = all.collect::<Result<_>>()?;
        let mut cpus = BTreeMap::new();
        for cpu in host.allowed.iter() {
            let mut worker = Scorer::start(host, cpu)?;
            cpus.insert(cpu, worker.score(&Metric::Loop, PER_CPU, &mut || watch(None))?);
        }
        let emu = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Self { schema: SCHEMA, emu, machine: Machine::of(host), build: Build::of(host), cpus, scores })
    }

    /// Reads a profile.
    pub fn parse(text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            schema: u32,
        }
        let no_profile = |e: serde_json::Error| {
            Error::usage(format!("it is no profile: {e}")).hint("make one there: `emu profile FILE`")
        };
        let Version { schema } = serde_json::from_str(text).map_err(no_profile)?;
        if schema != SCHEMA {
            let message = format!("it is a profile of version {schema}, and this emu reads version {SCHEMA}");
            return Err(Error::usage(message).hint("make it again with this emu"));
        }
        let profile: Self = serde_json::from_str(text).map_err(no_profile)?;
        let figures = profile.scores.values().map(|score| score.mean).chain(profile.cpus.values().copied());
        if profile.cpus.is_empty() || figures.clone().any(|figure| !(figure > 0.0 && figure.is_finite())) {
            return Err(Error::usage("it is no profile: a figure in it is none")
                .hint("make one there: `emu profile FILE`"));
        }
        Ok(profile)
    }

    /// How fast it is by a metric.
    pub fn score(&self, metric: &Metric) -> Result<f64> {
        if *metric == Metric::Geomean {
            return Metric::geomean(|metric| self.score(metric));
        }
        self.scores.get(metric).map(|score| score.mean).ok_or_else(|| {
            let hint = match metric {
                Metric::Command(command) => {
                    format!("measure it there: `emu profile FILE --command '{command}'`")
                }
                _ => "make the profile again with this emu".into(),
            };
            Error::usage(format!("the profile has no score by `{metric}`")).hint(hint)
        })
    }

    /// How fast each CPU is relative to the first one, in their order.
    pub fn relative(&self) -> Vec<f64> {
        let first = self.cpus.values().next().copied().unwrap_or(1.0);
        // What is within the noise of a look is the same.
        let same = |ratio: f64| if (ratio - 1.0).abs() < 0.05 { 1.0 } else { ratio };
        self.cpus.values().map(|rate| same(rate / first)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::Roots;

    fn profile() -> Profile {
        let host = Host::detect(&Roots::system()).unwrap();
        let score = |mean| Score { mean, low: mean * 0.99, high: mean * 1.01, samples: vec![mean] };
        let figures = [1e9, 4e9, 2e9, 8e9].map(score);
        let scores = Metric::MEAN_OF.into_iter().zip(figures).collect();
        let cpus = [(0, 3e9), (1, 3.1e9), (4, 1.5e9)].into();
        let (machine, build) = (Machine::of(&host), Build::of(&host));
        Profile { schema: SCHEMA, emu: "0".into(), machine, build, cpus, scores }
    }

    #[test]
    fn a_profile_comes_back_as_it_was() {
        let before = profile();
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(Profile::parse(&text).unwrap(), before);
        assert_eq!(before.relative(), [1.0, 1.0, 0.5]);
        let mean = before.score(&Metric::Geomean).unwrap();
        assert!((mean / (64f64.powf(0.25) * 1e9) - 1.0).abs() < 1e-9, "{mean}");
        for metric in [Metric::Memory, Metric::Command("true".into())] {
            assert!(before.score(&metric).unwrap_err().hint_text().is_some());
        }
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        let text = serde_json::to_string(&profile()).unwrap();
        for (text, why) in [
            ("{}".to_owned(), "schema"),
            ("time_s,cpu".into(), "no profile"),
            (text.replace("\"schema\":1", "\"schema\":7"), "version 7"),
            (text.replace("1000000000.0", "-1.0"), "a figure"),
            (text.replace("\"fp\"", "\"fq\""), "fq"),
        ] {
            let error = Profile::parse(&text).unwrap_err();
            assert!(error.to_string().contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn metrics_have_names() {
        for metric in
            Metric::MEASURED.into_iter().chain([Metric::Geomean, Metric::Command("gcc -c x.c".into())])
        {
            assert_eq!(metric.to_string().parse::<Metric>().unwrap(), metric);
        }
        for text in ["", "loops", "command:", "command: "] {
            assert!(text.parse::<Metric>().is_err(), "{text}");
        }
    }
}

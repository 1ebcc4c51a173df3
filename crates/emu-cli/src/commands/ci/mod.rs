//! `emu ci`: a test command at several speeds, and what fails only at the slower ones.

mod args;
mod junit;
mod merged;
mod one;
pub(crate) mod result;
mod scope;
mod show;

pub(crate) use args::CiArgs;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use emu_core::as_ns::nanos;
use emu_core::{
    Demand, Error, ErrorKind, Hint, Host, Prepared, Result, Speed, SpeedSpec, Trait, lowest_share,
};
use nix::unistd::geteuid;

use self::junit::Reports;
use self::one::Case;
use self::result::{Outcome, Report, Tally, Verdict};
use crate::exit::{Exit, Failure};
use crate::hints;
use crate::host;
use crate::output::file::OutputFile;
use crate::output::{self, SCHEMA};
use crate::reporter::Reporter;
use crate::signals::Signals;
use crate::supervise::program;
use crate::values::MethodChoice;
use crate::zone::plan;

pub(crate) fn ci(args: &CiArgs) -> Result<Exit, Failure> {
    let program = args.command.first().ok_or_else(|| Error::usage("there is no command to run"))?;
    program::check(program)?;
    let (host, restored) = host::restored()?;
    // All that can be refused is refused before the first run.
    let (shares, advice) = shares(&host, args)?;
    let reporter = Reporter::new(args.quiet);
    if advice.is_some() && !args.in_scope {
        scope::begin_anew(reporter)?;
    }
    // What it begins anew is to have none blocked.
    let signals = Signals::block()?;
    let mut reports = Reports::new(&args.junit)?;
    let mut outputs = Outputs::open(args)?;
    restored.iter().chain(&advice).for_each(|note| reporter.note(note));
    if hints::in_container() {
        reporter.note(
            "this is a container: the CPUs are the host's, numbered as there, and shared with all that it runs",
        );
    }

    emu_core::adopt_orphans()?;
    let mut report = begin(&host, args);
    let ended = runs(&mut report, &mut reports, &shares, args, &signals, reporter);
    report.is_complete = ended.is_ok();
    // What was measured is there also where emu cannot go on.
    let written = if report.runs.is_empty() { Ok(()) } else { outputs.write(&report, reporter) };
    if let (Err(_), Err(error)) = (&ended, &written) {
        output::errors::print(error);
    }
    ended?;
    written?;
    Ok(report.exit())
}

/// Adds each run to the report, until all were made or emu cannot go on.
fn runs(
    report: &mut Report,
    reports: &mut Reports,
    shares: &[f64],
    args: &CiArgs,
    signals: &Signals,
    reporter: Reporter,
) -> Result<(), Failure> {
    let options = options(args);
    for (number, (speed, share)) in args.speeds.iter().zip(shares).enumerate() {
        // Where all that can be told is that the command fails, slower runs tell nothing more.
        let is_hopeless = report.by_speed.first().is_some_and(|first| first.passed == 0 && first.fails() > 0);
        if number > 0 && is_hopeless && !reports.are_wanted() {
            reporter.note("every run at the first speed has failed, so there are none at the others");
            break;
        }
        for repetition in 1..=args.reps {
            reporter.say(&format!("ci: at {speed}, run {repetition} of {}", args.reps));
            let limit = args.timeout.map(|limit| longer(limit, *share));
            let case = Case { speed: *speed, options: &options, command: &args.command, limit };
            let mut run = one::run(&case, signals, reporter)?;
            let (tests, broken) = reports.read();
            run.has_tests = tests.is_some();
            let has_passed = run.outcome == Outcome::Passed;
            let is_missing = reports.are_wanted() && tests.is_none() && broken.is_empty();
            report.add(number, run, tests);
            if has_passed && is_missing {
                return Err(not_written(args, speed).into());
            }
            for error in broken {
                // What was ended while it wrote may leave a part of a file.
                if has_passed {
                    return Err(error.into());
                }
                reporter.note(&format!(
                    "{}; the run has failed, and no test of this file counts",
                    error.in_words()
                ));
            }
        }
    }
    Ok(())
}

/// Where the result goes beside stderr.
#[derive(Debug)]
struct Outputs {
    json: Option<OutputFile>,
    merged: Option<OutputFile>,
    summary: Option<(PathBuf, File)>,
}

impl Outputs {
    fn open(args: &CiArgs) -> Result<Self> {
        let open = |path: &Option<PathBuf>| path.as_deref().map(OutputFile::open).transpose();
        let summary = args.summary.as_ref().map(|path| to_append(path).map(|file| (path.clone(), file)));
        Ok(Self { json: open(&args.json)?, merged: open(&args.merged)?, summary: summary.transpose()? })
    }

    fn write(&mut self, report: &Report, reporter: Reporter) -> Result<()> {
        for line in show::text(report) {
            reporter.say(&line);
        }
        if let Some((path, file)) = &mut self.summary {
            let text = show::markdown(report);
            file.write_all(text.as_bytes()).map_err(|e| Error::file("write", path, e))?;
        }
        if let Some(file) = &mut self.merged {
            let text = merged::junit(report).map_err(|e| Error::io("cannot write JUnit XML", e))?;
            file.write(&text)?;
        }
        if let Some(file) = &mut self.json {
            file.write(&output::json(report)?)?;
        }
        Ok(())
    }
}

fn longer(time: Duration, share: f64) -> Duration {
    Duration::try_from_secs_f64(time.as_secs_f64() / share).unwrap_or(Duration::MAX)
}

/// The share of full speed of each speed, and how more methods could be had. Refuses speeds that cannot be compared.
fn shares(host: &Host, args: &CiArgs) -> Result<(Vec<f64>, Option<String>)> {
    let (mut shares, mut advice) = (Vec::new(), None);
    for &speed in &args.speeds {
        let demand = plan::demand(host, &SpeedSpec::Uniform(speed), &args.demand)?;
        let able = plan::able(host, &demand, args.method)?;
        advice = advice.or_else(|| more_methods(&able, args.method));
        shares.push(lowest_share(&demand.targets));
    }
    let hint = "name two speeds or more, the fastest first: --speeds 100%,50%,25%";
    let Some((first, slower)) = shares.split_first().filter(|(_, slower)| !slower.is_empty()) else {
        return Err(Error::usage("there is one speed only, and nothing to compare it with").hint(hint));
    };
    match slower.iter().position(|share| share >= first) {
        Some(at) => {
            let [first, other] =
                [0, at + 1].map(|at| args.speeds.get(at).map_or_else(String::new, Speed::to_string));
            Err(Error::usage(format!("{other} is not slower than {first}, the speed to compare with"))
                .hint(hint))
        }
        None => Ok((shares, advice)),
    }
}

/// What an ordinary user can do who can have no method but the one that needs nothing.
fn more_methods(able: &[Prepared], asked: MethodChoice) -> Option<String> {
    let needs_nothing = |prepared: &Prepared| prepared.method().about().has(Trait::SendsSignals);
    let is_poor = asked == MethodChoice::Auto && !geteuid().is_root() && able.iter().all(needs_nothing);
    let method = able.first().filter(|_| is_poor)?.method().id();
    let how = hints::words(&Hint::OwnGroup(Vec::new()));
    Some(format!("{method} is all that this user can have here; for better methods, {how}"))
}

fn options(args: &CiArgs) -> Vec<String> {
    let mut options: Vec<_> = args.demand.options().split_whitespace().map(str::to_owned).collect();
    if let MethodChoice::Named(id) = args.method {
        options.extend(["--method".into(), id.to_string()]);
    }
    if args.quiet {
        options.push("--quiet".into());
    }
    options
}

fn not_written(args: &CiArgs, speed: &Speed) -> Error {
    let paths: Vec<_> = args.junit.iter().map(|path| path.display().to_string()).collect();
    Error::usage(format!("the command has passed at {speed} and not written {}", paths.join(", ")))
        .hint("name with --junit what each run writes, relative to the folder in which emu runs")
}

fn begin(host: &Host, args: &CiArgs) -> Report {
    let speed =
        args.speeds.first().copied().map_or(SpeedSpec::Uniform(Speed::Share(1.0)), SpeedSpec::Uniform);
    Report {
        schema: SCHEMA,
        emu: env!("CARGO_PKG_VERSION"),
        started: jiff::Timestamp::now().to_string(),
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        cpus: Demand::cpus_of(host, &speed, args.demand.cpus.as_ref()),
        repetitions: args.reps,
        timeout_ns: args.timeout.map(nanos),
        speeds: args.speeds.iter().map(Speed::to_string).collect(),
        is_complete: false,
        runs: Vec::new(),
        verdict: Verdict::Nowhere,
        by_speed: vec![Tally::default(); args.speeds.len()],
        tests: BTreeMap::new(),
    }
}

/// A file to which a CI service lets every step add something.
fn to_append(path: &Path) -> Result<File> {
    output::open(path, OpenOptions::new().append(true).create(true)).map_err(|e| {
        Error::file("write", path, e)
            .with_kind(ErrorKind::Usage)
            .hint("name a file for --summary that can be written")
    })
}

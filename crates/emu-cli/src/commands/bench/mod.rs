//! `emu bench`: every method on every kind of work, into a record.

mod args;

pub(crate) use args::{BenchArgs, Preset};

use std::path::Path;
use std::time::Duration;

use emu_bench::experiment::{Cores, Experiment, Repetitions, Request, Run, methods};
use emu_bench::record::{About, Machine, Record, seed_from_clock};
use emu_bench::report::Results;
use emu_bench::stats::Band;
use emu_bench::workload::WORKLOADS;
use emu_core::{Host, Result, Speed};

use crate::commands::report;
use crate::ending::Ending;
use crate::exit::{Exit, Failure};
use crate::host;
use crate::options::{flag, option};
use crate::output::numbers::span;
use crate::output::progress::Progress;
use crate::reporter::Reporter;
use crate::signals::Signals;
use crate::values::{TOLERANCE, share};

/// Where records go unless given.
const RECORDS: &str = "emu-results";

/// Pairs unless given, and as published.
const REPETITIONS: u16 = 15;
const REPETITIONS_FULL: u16 = 40;

/// Time of a quick run; starting and reporting take some more.
const QUICK: Duration = Duration::from_secs(105);

/// Bound to the CPU, as the loop is, and not published.
const UNPACED: &str = "udp-io-unpaced";

/// What a quick run leaves out, as it teaches least for its time: traffic that a slower CPU does not slow, and work that
/// takes seconds to fill its memory for a window of milliseconds.
const NOT_QUICK: [&str; 3] = [UNPACED, "udp-io", "stream"];

/// Windows, unless that is less than three periods of the method.
const WINDOW: Duration = Duration::from_millis(200);
const WINDOW_QUICK: Duration = Duration::from_millis(100);
const WINDOW_FULL: Duration = Duration::from_millis(500);

/// The granularity spectrum is taken over this time. Windows of 300 ms need three seconds.
const SPECTRUM: Duration = Duration::from_secs(3);
const SPECTRUM_QUICK: Duration = Duration::from_millis(500);

/// Measures what the command line asks for, or what is left of it, and shows what it means.
pub(crate) fn bench(args: &BenchArgs) -> Result<Exit, Failure> {
    let mut ending = Ending::new(Signals::block()?);
    let host = host::detect()?;
    let begun = match &args.resume {
        Some(folder) => Run::resume(&host, folder),
        None => begin(&host, args, &mut ending),
    };
    let mut run = match begun {
        Ok(run) => run,
        Err(why) => {
            ending
                .by_signal(Some(&why))
                .inspect_err(|_| Reporter::new(false).say("interrupted before anything was measured"))?;
            return Err(why.into());
        }
    };
    let measured = measure(&mut run, &mut ending);
    let folder = run.folder().display().to_string();
    ending.by_signal(measured.as_ref().err()).inspect_err(|_| {
        Reporter::new(false).say(&format!("interrupted; complete it by: emu bench --resume {folder}"));
    })?;
    measured.inspect_err(|_| {
        Reporter::new(false)
            .say(&format!("what was measured is kept; complete it by: emu bench --resume {folder}"));
    })?;
    let results = Results::of_run(&run)?;
    report::show(&results, &run.folder().join(report::FOLDER), args.json)
}

/// Plans a run and makes its record.
fn begin(host: &Host, args: &BenchArgs, ending: &mut Ending) -> Result<Run> {
    let request = request(host, args)?;
    let mut about = About::new(Machine::of(host), command(args, request.seed)?, request.seed);
    // Before the machine is measured: a folder that cannot be made is told at once.
    if let Some(out) = &args.out {
        Record::check(out)?;
    }
    let experiment = plan(host, &request, ending)?;
    about.experiment = Some(experiment.clone());
    let record = match &args.out {
        Some(out) => Record::at(out, &about),
        None => Record::below(Path::new(RECORDS), &about),
    }?;
    Ok(Run::new(host, about, experiment, record))
}

/// Plans what is asked for, unless a signal comes.
fn plan(host: &Host, request: &Request, ending: &mut Ending) -> Result<Experiment> {
    let shown = Progress::new(Duration::ZERO);
    let planned = Experiment::plan_for(host, request, &mut |what| {
        ending.go_on()?;
        shown.show_alone(&format!("planning: {what}"));
        Ok(())
    });
    shown.clear();
    // Before there is a record that would be left behind.
    ending.go_on()?;
    planned
}

fn measure(run: &mut Run, ending: &mut Ending) -> Result<()> {
    let experiment = run.experiment();
    let words = format!(
        "{} cells, {} pairs of samples each, about {}, into {}",
        experiment.cells.len(),
        experiment.repetitions,
        span(Duration::from_secs(experiment.expected_time().as_secs() + 1)),
        run.folder().display()
    );
    Reporter::new(false).say(&words);
    let mut shown = Progress::new(Duration::ZERO);
    let measured = run.go(&mut |progress| {
        ending.go_on()?;
        let cell = progress.cell;
        shown.expect(progress.time_left);
        let percent = (cell.share() * 100.0).round();
        shown.show(&format!("{} at {percent}%, {}", cell.contender, cell.workload()));
        Ok(())
    });
    shown.clear();
    measured
}

/// What is asked for, with all defaults.
fn request(host: &Host, args: &BenchArgs) -> Result<Request> {
    let percent = |percent: &[u32]| {
        percent.iter().map(|one| Speed::share(f64::from(*one) / 100.0)).collect::<Result<Vec<_>>>()
    };
    let speeds = match (args.quick, args.full, args.preset) {
        (true, ..) => percent(&[50]),
        (_, true, _) => percent(&[10, 20, 30, 40, 50, 60, 70, 80, 90]),
        (.., Some(Preset::Buchert2011)) => percent(&[20, 40, 60, 80]),
        _ => percent(&[25, 50, 75]),
    };
    let contenders = match args.preset {
        Some(Preset::Buchert2011) => emu_bench::report::BUCHERT_2011_METHODS.into(),
        None => methods::best(),
    };
    let is_usual = |name: &&str| match (args.quick, args.preset) {
        (true, _) => !NOT_QUICK.contains(name),
        (_, Some(Preset::Buchert2011)) => *name != UNPACED,
        (false, None) => true,
    };
    let names = WORKLOADS.iter().map(|workload| workload.name());
    let all_workloads = || names.filter(is_usual).map(str::to_owned).collect();
    let (window, spectrum) = match (args.quick, args.full) {
        (true, _) => (WINDOW_QUICK, SPECTRUM_QUICK),
        (_, true) => (WINDOW_FULL, SPECTRUM),
        _ => (WINDOW, SPECTRUM),
    };
    Ok(Request {
        contenders: given(&args.methods, || contenders),
        workloads: given(&args.workloads, all_workloads),
        speeds: if args.speeds.is_empty() { speeds? } else { given(&args.speeds, Vec::new) },
        // A point says less than a line.
        speeds_of_loop: if args.quick && args.speeds.is_empty() { percent(&[25, 75])? } else { Vec::new() },
        cores: cores(host, args),
        repetitions: match (args.reps, args.time) {
            (Some(count), _) => Repetitions::Count(count.into()),
            (_, Some(time)) => Repetitions::Within(time),
            _ if args.quick => Repetitions::Within(QUICK),
            _ => Repetitions::Count(if args.full { REPETITIONS_FULL } else { REPETITIONS }.into()),
        },
        sparing: args.quick && args.reps.is_none(),
        window,
        spectrum,
        period: args.period,
        tolerance: Band::new(args.tolerance)?,
        preset: args.preset.map(|Preset::Buchert2011| emu_bench::report::BUCHERT_2011.to_owned()),
        seed: args.seed.unwrap_or_else(seed_from_clock),
    })
}

/// What is given, each value once, or else what is usual.
fn given<T: PartialEq + Clone>(values: &[T], usual: impl FnOnce() -> Vec<T>) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for value in values {
        if !all.contains(value) {
            all.push(value.clone());
        }
    }
    if all.is_empty() { usual() } else { all }
}

fn cores(host: &Host, args: &BenchArgs) -> Cores {
    if !args.cores.is_empty() {
        return Cores::Each(given(&args.cores, Vec::new).into_iter().map(usize::from).collect());
    }
    let here = host.allowed.len();
    let powers = std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count <= here);
    match (args.preset, args.quick) {
        (Some(Preset::Buchert2011), _) => Cores::Each(powers.take(2).collect()),
        (None, true) => Cores::Filled,
        (None, false) => Cores::Each(powers.collect()),
    }
}

/// The command that takes the same measurements again; where results go is left out.
fn command(args: &BenchArgs, seed: u64) -> Result<String> {
    let micros = |time: Option<Duration>| time.map(|time| format!("{}us", time.as_micros()));
    let speeds = args.speeds.iter().map(|speed| speed.to_string().replace(' ', ""));
    let tolerance = (args.tolerance - share(TOLERANCE)?).abs() > f64::EPSILON;
    let preset = args.preset.map(|Preset::Buchert2011| emu_bench::report::BUCHERT_2011);
    Ok([
        "emu bench".to_owned(),
        flag("quick", args.quick),
        flag("full", args.full),
        option("preset", preset),
        option("methods", &args.methods),
        option("workloads", &args.workloads),
        option("speeds", speeds),
        option("cores", &args.cores),
        option("reps", args.reps),
        option("time", micros(args.time)),
        option("period", micros(args.period)),
        option("tolerance", tolerance.then_some(args.tolerance)),
        option("seed", [seed]),
    ]
    .concat())
}

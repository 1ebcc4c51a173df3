//! `emu bench`: every method on every kind of work, into a record.

mod args;
mod usual;

pub(crate) use args::{BenchArgs, Preset};

use std::path::Path;
use std::time::Duration;

use emu_bench::distinct;
use emu_bench::experiment::{Cores, Experiment, Part, Repetitions, Request, Run};
use emu_bench::numbers::span;
use emu_bench::record::{About, Machine, Record};
use emu_bench::report::Results;
use emu_core::{Host, Result};

use crate::commands::report;
use crate::ending::Ending;
use crate::exit::{Exit, Failure};
use crate::host;
use crate::options::{flag, option};
use crate::output::progress::Progress;
use crate::reporter::Reporter;
use crate::signals::Signals;
use crate::values::{TOLERANCE, exact, share};
use usual::usual;

const RECORDS: &str = "emu-results";

pub(crate) fn bench(args: &BenchArgs) -> Result<Exit, Failure> {
    let mut ending = Ending::new(Signals::block()?);
    let host = host::detect()?;
    let begun = match &args.resume {
        Some(folder) => Run::resume(&host, folder),
        None => begin(&host, args, &mut ending),
    };
    let say = |words: &str| Reporter::new(false).say(words);
    let interrupted = |_: &Failure| say("interrupted before anything was measured");
    if let Err(why) = &begun {
        ending.by_signal(Some(why)).inspect_err(interrupted)?;
    }
    let mut run = begun?;
    let measured = measure(&mut run, &mut ending);
    let complete = format!("complete it by: emu bench --resume {}", run.folder().display());
    ending.by_signal(measured.as_ref().err()).inspect_err(|_| say(&format!("interrupted; {complete}")))?;
    measured.inspect_err(|_| say(&format!("what was measured is kept; {complete}")))?;
    let results = Results::of_run(&run)?;
    report::show(&results, &run.folder().join(report::FOLDER), args.json)
}

fn begin(host: &Host, args: &BenchArgs, ending: &mut Ending<Signals>) -> Result<Run> {
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

fn plan(host: &Host, request: &Request, ending: &mut Ending<Signals>) -> Result<Experiment> {
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

fn measure(run: &mut Run, ending: &mut Ending<Signals>) -> Result<()> {
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

fn request(host: &Host, args: &BenchArgs) -> Result<Request> {
    let usual = usual(host, args)?;
    Ok(Request {
        contenders: given(&args.methods, || usual.contenders),
        parts: parts(args, usual.parts),
        repetitions: match (args.reps, args.time) {
            (Some(count), _) => Repetitions::Count(count.into()),
            (_, Some(time)) => Repetitions::Within(time),
            _ => usual.repetitions,
        },
        exclude_background: args.exclude_background || usual.exclude_background,
        ..usual
    })
}

/// What is usual, but for what is given. Work that is in no part joins the first one.
fn parts(args: &BenchArgs, usual: Vec<Part>) -> Vec<Part> {
    let workloads = given(&args.workloads, Vec::new);
    let is_known = |name: &String| usual.iter().any(|part| part.workloads.contains(name));
    let unknown: Vec<_> = workloads.iter().filter(|name| !is_known(name)).cloned().collect();
    let cores = given(&args.cores, Vec::new).into_iter().map(usize::from).collect::<Vec<_>>();
    let mut parts = usual;
    for part in &mut parts {
        if !workloads.is_empty() {
            let kept = workloads.iter().filter(|name| part.workloads.contains(name));
            part.workloads = kept.cloned().collect();
        }
        part.speeds = given(&args.speeds, || std::mem::take(&mut part.speeds));
        if !cores.is_empty() {
            part.cores = Cores::Each(cores.clone());
        }
    }
    if let Some(first) = parts.first_mut() {
        first.workloads.extend(unknown);
    }
    parts
}

fn given<T: PartialEq + Clone>(values: &[T], usual: impl FnOnce() -> Vec<T>) -> Vec<T> {
    if values.is_empty() { usual() } else { distinct(values.iter().cloned()) }
}

/// The command that takes the same measurements again; where results go is left out.
fn command(args: &BenchArgs, seed: u64) -> Result<String> {
    let speeds = args.speeds.iter().map(|speed| speed.to_string().replace(' ', ""));
    let tolerance = (args.tolerance - share(TOLERANCE)?).abs() > f64::EPSILON;
    Ok([
        "emu bench".to_owned(),
        flag("quick", args.quick),
        flag("full", args.full),
        option("preset", args.preset.map(Preset::name)),
        option("methods", &args.methods),
        option("workloads", &args.workloads),
        option("speeds", speeds),
        option("cores", &args.cores),
        option("reps", args.reps),
        option("time", args.time.map(exact)),
        option("period", args.period.map(exact)),
        flag("exclude-background", args.exclude_background),
        flag("no-hold-clock", args.no_hold_clock),
        option("tolerance", tolerance.then_some(args.tolerance)),
        option("seed", [seed]),
    ]
    .concat())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::command;
    use crate::cli::{Cli, Command};

    #[test]
    fn times_are_recorded_to_the_nanosecond() {
        let line = "emu bench --time 90000ms --period 1500001ns --seed 7";
        let Command::Bench(args) = Cli::try_parse_from(line.split_whitespace()).unwrap().command else {
            panic!("{line}")
        };
        assert_eq!(command(&args, 7).unwrap(), line);
    }
}

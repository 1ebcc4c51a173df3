//! `emu profile`: how fast this machine is, for `--like` on another one.

use std::path::PathBuf;

use clap::Args;
use emu_bench::numbers::{nanos, rate, span};
use emu_bench::table;
use emu_machine::profile::{Metric, Profile, ProfilePlan, Score};

use crate::ending::Ending;
use crate::exit::{Exit, Failure};
use crate::host;
use crate::output;
use crate::output::file::OutputFile;
use crate::output::progress::Progress;
use crate::reporter::Reporter;
use crate::signals::Signals;
use crate::values;

const EXAMPLES: &str = "\
Examples:
  emu profile pi4.json                           # there
  emu profile pi4.json --command 'gcc -O2 -c x.c'
  emu run --like pi4.json -- ./server            # here
  emu node create pi --like pi4.json --metric linpack";

/// Measure how fast this machine is, and keep it in a file for `--like` on another one
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::TABLE))]
pub(crate) struct ProfileArgs {
    /// The file to write
    #[arg(value_name = "FILE", value_parser = values::output_file)]
    file: PathBuf,

    /// Measure for some seconds only
    #[arg(long)]
    quick: bool,

    /// Measure a command of the shell, too; may be given several times
    #[arg(long, value_name = "COMMAND")]
    command: Vec<String>,

    /// Say nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

pub(crate) fn profile(args: &ProfileArgs) -> Result<Exit, Failure> {
    let mut ending = Ending::new(Signals::block()?);
    let host = host::detect()?;
    let plan = ProfilePlan::new(args.quick, &args.command);
    let mut file = OutputFile::open(&args.file)?;
    let progress = Progress::new(plan.time(&host));
    let reporter = Reporter::new(args.quiet);
    reporter.tell(&format!("takes about {}", span(plan.time(&host))));
    let measured = Profile::measure(&host, &plan, &mut |what| {
        let Some(what) = what else { return ending.look() };
        progress.show_alone(what);
        ending.go_on()
    });
    progress.clear();
    ending.by_signal(measured.as_ref().err())?;
    let measured = measured?;
    file.write(&output::json(&measured)?)?;
    if !args.quiet {
        output::print(&text(&measured))?;
    }
    Ok(Exit::Success)
}

fn text(profile: &Profile) -> String {
    let score = |metric: &Metric, mean: f64| match metric {
        Metric::Latency => format!("{} a load", nanos(1e9 / mean)),
        Metric::Command(_) => format!("{} a run", nanos(1e9 / mean)),
        _ => rate(mean, metric.unit()),
    };
    let table = table! {
        for (metric, Score { mean, low, high, .. }) in &profile.scores;
        text "METRIC" = metric.to_string(),
        number "SCORE" = score(metric, *mean),
        percent "±" = (high - low) / 2.0 / mean,
    };
    let relative = profile.relative();
    let unlike = relative.iter().filter(|ratio| (**ratio - 1.0).abs() > 0.0).count();
    let cpus = match (relative.len(), unlike) {
        (1, _) => "One CPU.".to_owned(),
        (all, 0) => format!("{all} CPUs, equally fast."),
        (all, unlike) => format!("{all} CPUs; {unlike} of them are faster or slower than the first."),
    };
    format!("{}\n{cpus}\n", table.text())
}

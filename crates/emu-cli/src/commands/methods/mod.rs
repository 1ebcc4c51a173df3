//! `emu methods`: what works here, how well, and why the rest does not.

pub(crate) mod show;

use clap::Args;
use emu_core::{METHODS, MethodId, SpeedSpec, best, judge};

use self::show::{Listing, Verdict};
use crate::exit::{Exit, Failure};
use crate::zone::{DemandArgs, plan};
use crate::{host, output, values};

const EXAMPLES: &str = "\
Examples:
  emu methods
  emu methods --speed 25% --cpus 0-3
  emu methods --method cpu-freq";

/// Show which methods work here, how well, and why others do not
///
/// Each is judged as if it were asked for by `emu run` with the same options. Nothing is changed, but what killed emus
/// have left is undone first.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MethodsArgs {
    /// The speed to judge by
    #[arg(short, long, default_value = "50%", allow_hyphen_values = true)]
    pub(crate) speed: SpeedSpec,

    /// Show one method in full
    #[arg(short, long, value_parser = values::method())]
    pub(crate) method: Option<MethodId>,

    #[command(flatten)]
    pub(crate) demand: DemandArgs,

    /// Write JSON to stdout instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn methods(args: &MethodsArgs) -> Result<Exit, Failure> {
    let host = host::detect()?;
    let demand = plan::demand(&host, &args.speed, &args.demand)?;
    let judged = judge(&host, &demand);
    let auto = best(&judged).map(|prepared| prepared.method().id());
    let verdicts = judged
        .into_iter()
        .zip(METHODS)
        .filter(|(judged, _)| args.method.is_none_or(|wanted| wanted == judged.method))
        .map(|(judged, method)| {
            let expected = judged.result.map(|prepared| prepared.expected().clone());
            Verdict::new(judged.method, *method.about(), expected)
        })
        .collect();
    let listing = Listing::new(&args.speed, &demand, auto, verdicts);
    let text = match (args.json, args.method) {
        (true, _) => output::json(&listing)?,
        (false, Some(_)) => listing.in_full(),
        (false, None) => listing.table(),
    };
    output::print(&text)?;
    Ok(Exit::Success)
}

//! `emu methods`: what works here, how well, and why the rest does not.

mod args;
pub(crate) mod show;

pub(crate) use args::MethodsArgs;

use emu_core::{METHODS, best, judge};

use self::show::{Listing, Verdict};
use crate::exit::{Exit, Failure};
use crate::zone::plan;
use crate::{host, output};

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

//! `emu methods`: what works here, how well, and why the rest does not.

use emu_core::{METHODS, choose};

use crate::args::MethodsArgs;
use crate::exit::{Exit, Failure};
use crate::host;
use crate::output;
use crate::output::methods::{Listing, Verdict};
use crate::plan;

/// Judges every method by the demand, and shows it.
pub(crate) fn methods(args: &MethodsArgs) -> Result<Exit, Failure> {
    let host = host::detect()?;
    let demand = plan::demand(&host, &args.speed, &args.demand)?;
    let auto = choose(&host, &demand).ok().map(|choice| choice.method);
    let verdicts = METHODS
        .iter()
        .filter(|method| args.method.is_none_or(|wanted| wanted == method.id()))
        .map(|method| Verdict::new(method.id(), *method.about(), method.check(&host, &demand)))
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

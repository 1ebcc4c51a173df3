//! `emu methods`: what works here, how well, and why the rest does not.

use emu_core::{Host, METHODS, Roots};

use crate::args::MethodsArgs;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::output::methods::{Listing, Verdict};
use crate::plan;

/// Judges every method by the demand, and shows it.
pub(crate) fn methods(args: &MethodsArgs) -> Result<Exit, Failure> {
    let host = Host::detect(&Roots::system())?;
    let demand = plan::demand(&host, &args.speed, &args.demand)?;
    let verdicts = METHODS
        .iter()
        .filter(|method| args.method.is_none_or(|wanted| wanted == method.id()))
        .map(|method| Verdict::new(method.id(), *method.about(), method.check(&host, &demand)))
        .collect();
    let listing = Listing::new(&args.speed, &demand, verdicts);
    let text = match (args.json, args.method) {
        (true, _) => output::json(&listing)?,
        (false, Some(_)) => listing.in_full(),
        (false, None) => listing.table(),
    };
    output::print(&text)?;
    Ok(Exit::Success)
}

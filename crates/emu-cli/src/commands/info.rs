//! `emu info`: this host as found.

use emu_core::{Host, Roots, live_sessions, meter};

use crate::args::InfoArgs;
use crate::exit::{Exit, Failure};
use crate::output;
use crate::output::info::{Info, Measured};

/// Shows the host, with the clock of every CPU that may be used.
pub(crate) fn info(args: &InfoArgs) -> Result<Exit, Failure> {
    let roots = Roots::system();
    let host = Host::detect(&roots)?;
    let clocks =
        host.allowed.iter().map(|cpu| Measured::new(cpu, meter::measure(cpu, meter::BUDGET))).collect();
    let info = Info::new(host, clocks, live_sessions(&roots)?);
    output::print(&if args.json { output::json(&info)? } else { info.text() })?;
    Ok(Exit::Success)
}

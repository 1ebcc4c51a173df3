//! `emu info`: this host as found.

mod frequencies;
pub(crate) mod show;

use clap::Args;
use emu_core::{clock, live_sessions};

use self::show::{Info, Measured};
use crate::exit::{Exit, Failure};
use crate::reporter::Reporter;
use crate::{host, output};

const EXAMPLES: &str = "\
Examples:
  emu info
  emu info --json > machine.json";

/// Show this machine: CPUs, clocks, cgroups, privileges
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InfoArgs {
    /// Write JSON to stdout instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn info(args: &InfoArgs) -> Result<Exit, Failure> {
    let host = host::detect()?;
    let clocks =
        host.allowed.iter().map(|cpu| Measured::new(cpu, clock::measure(cpu, clock::BUDGET))).collect();
    let running = live_sessions(&host.roots).unwrap_or_else(|why| {
        let why = why.in_words();
        Reporter::new(false).note(&format!("what is at work here cannot be told: {why}"));
        Vec::new()
    });
    let info = Info::new(host, clocks, running);
    output::print(&if args.json { output::json(&info)? } else { info.text() })?;
    Ok(Exit::Success)
}

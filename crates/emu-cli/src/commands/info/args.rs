use clap::Args;

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

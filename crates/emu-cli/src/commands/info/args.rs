use clap::Args;

/// Show this machine: CPUs, clocks, cgroups, privileges
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// Write JSON to stdout instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

use clap::Args;

/// Tell what this host is and offers, with the measured clock of each CPU
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

use std::path::PathBuf;

use clap::Args;

/// Make the page, figures and tables of a record of `emu bench` again
///
/// Several records of one machine and one version of emu are taken together.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Folders that `emu bench` has made
    #[arg(required = true, value_name = "DIR")]
    pub(crate) records: Vec<PathBuf>,

    /// A new folder for the report [default: `report` in the record; several records need one]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Write JSON to stdout instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use emu_bench::report::Quoted;

const EXAMPLES: &str = "\
Examples:
  emu report emu-results/2026-01-31-some-processor
  emu report records/hogs records/fracas --table errors
  emu report --splice page.md --check
  emu report hosts/     # of HOST.json files that emu node list --json wrote";

/// Make the page, figures and tables of a record of `emu bench` again
///
/// Several records of one machine and one version of emu are taken together. A folder without a record that has a file HOST.json of
/// `emu node list --json` for each of some hosts is shown as a table of their nodes.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// Folders that `emu bench` has made
    #[arg(required_unless_present = "splice", value_name = "DIR")]
    pub(crate) records: Vec<PathBuf>,

    /// A folder for the report, that is new, empty or has one of the same records [default: `report` in the record; several
    /// records need one]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Write JSON to stdout instead of tables
    #[arg(long)]
    pub(crate) json: bool,

    /// Only print this table, in Markdown; the records may be of several machines
    #[arg(long, value_name = "NAME", value_parser = tables(), conflicts_with_all = ["out", "json"])]
    pub(crate) table: Option<Quoted>,

    /// Write the tables of these documents anew, each between the lines `<!-- emu report DIR… --table NAME -->` and
    /// `<!-- end of the table -->`; folders are below the current one
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["records", "out", "json", "table"])]
    pub(crate) splice: Vec<PathBuf>,

    /// Write nothing, and end with code 5 where a document differs from its records
    #[arg(long, requires = "splice", conflicts_with = "records")]
    pub(crate) check: bool,
}

fn tables() -> impl TypedValueParser<Value = Quoted> {
    PossibleValuesParser::new(Quoted::ALL.map(|(_, name)| name)).try_map(|name| name.parse::<Quoted>())
}

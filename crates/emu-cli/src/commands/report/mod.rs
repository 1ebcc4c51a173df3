//! `emu report`: what records of `emu bench` show.

pub(crate) mod hosts;
mod show;
mod splice;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use emu_bench::report::{Quoted, Results, files, is_page_of};
use emu_core::{Error, Result, input_file};

use crate::exit::{Exit, Failure};
use crate::output;

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

pub(crate) const FOLDER: &str = "report";

/// The file by which a folder is known to be a report.
const PAGE: &str = "report.html";

pub(crate) fn report(args: &ReportArgs) -> Result<Exit, Failure> {
    if !args.splice.is_empty() {
        return splice::splice(&args.splice, args.check);
    }
    if let Some(table) = args.table {
        return splice::table(&args.records, table);
    }
    if let [folder] = &args.records[..]
        && let Some(hosts) = hosts::Hosts::read(folder)?
    {
        if args.out.is_some() {
            return Err(Error::usage("--out is for records of emu bench").into());
        }
        output::print(&if args.json { output::json(&hosts)? } else { hosts.text() })?;
        return Ok(Exit::Success);
    }
    let folder = folder(args)?;
    let results = Results::read(&args.records)?;
    if let Some(out) = &args.out {
        check(out, |page| is_page_of(page, &results))?;
    }
    show(&results, &folder, args.json)
}

/// Whether a report may be written into a folder: nothing else in it is lost, and no page stands beside figures of others.
///
/// # Errors
/// Usage, unless it is new, empty, or has a page that `is_its_own`.
fn check(out: &Path, is_its_own: impl Fn(&str) -> bool) -> Result<()> {
    let why = match fs::read_dir(out).map(|mut files| files.next().is_none()) {
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(()),
        Err(_) => "it is no folder that can be read",
        Ok(true) => return Ok(()),
        Ok(false) => match input_file::read(&out.join(PAGE), input_file::TRACE_MAX) {
            Ok(page) if is_its_own(&page) => return Ok(()),
            Ok(_) => "it has a report of something else",
            Err(_) => "it is not empty and has no report",
        },
    };
    Err(Error::usage(format!("cannot make the report {}: {why}", out.display()))
        .hint("name a new folder with --out"))
}

fn folder(args: &ReportArgs) -> Result<PathBuf> {
    match (&args.out, args.records.as_slice()) {
        (Some(out), _) => Ok(out.clone()),
        (None, [record]) => Ok(record.join(FOLDER)),
        (None, _) => Err(Error::usage("a report of several records needs a folder of its own")
            .hint("name a new folder with --out")),
    }
}

/// The results are shown also where the report cannot be written.
pub(crate) fn show(results: &Results, folder: &Path, json: bool) -> Result<Exit, Failure> {
    let written = write(results, folder);
    let page = written.as_ref().map_or(String::new(), |()| show::page(&folder.join(PAGE)));
    let text = if json { output::json(results)? } else { show::text(results) + &page };
    output::print(&text)?;
    written?;
    Ok(Exit::Success)
}

/// A report follows from its record alone, so one that is there is replaced.
fn write(results: &Results, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|cause| {
        Error::file("make the folder", folder, cause).hint("name another one with emu report --out")
    })?;
    for file in files(results)? {
        output::write(&folder.join(&file.name), &file.text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_takes_the_place_of_its_own_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let check = || check(&out, |page| page == "own");
        assert!(check().is_ok(), "it is new");
        fs::create_dir(&out).unwrap();
        assert!(check().is_ok(), "it is empty");
        fs::write(out.join("notes"), "precious").unwrap();
        assert!(check().unwrap_err().to_string().ends_with("it is not empty and has no report"));
        for (page, is_free) in [("precious", false), ("own", true)] {
            fs::write(out.join(PAGE), page).unwrap();
            assert_eq!(check().is_ok(), is_free, "{page}");
        }
        fs::remove_dir_all(&out).unwrap();
        fs::write(&out, "precious").unwrap();
        assert!(check().is_err(), "it is a file");
    }
}

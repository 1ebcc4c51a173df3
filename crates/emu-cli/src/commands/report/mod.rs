//! `emu report`: what records of `emu bench` show.

mod args;
pub(crate) mod hosts;
mod show;
mod splice;

pub(crate) use args::ReportArgs;

use std::fs;
use std::path::{Path, PathBuf};

use emu_bench::report::{Results, files};
use emu_core::{Error, Result};

use crate::exit::{Exit, Failure};
use crate::output;

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
    show(&Results::read(&args.records)?, &folder, args.json)
}

fn folder(args: &ReportArgs) -> Result<PathBuf> {
    match (&args.out, args.records.as_slice()) {
        (Some(out), _) if out.exists() && !out.join(PAGE).exists() => {
            Err(Error::usage(format!("cannot make the report {}: it exists and is no report", out.display()))
                .hint("name a new folder with --out"))
        }
        (Some(out), _) => Ok(out.clone()),
        (None, [record]) => Ok(record.join(FOLDER)),
        (None, _) => Err(Error::usage("a report of several records needs a folder of its own")
            .hint("name a new folder with --out")),
    }
}

/// The results are shown also where the report cannot be written.
pub(crate) fn show(results: &Results, folder: &Path, json: bool) -> Result<Exit, Failure> {
    let written = write(results, folder);
    let text = if json {
        output::json(results)?
    } else {
        let mut text = show::text(results);
        if written.is_ok() {
            text.push_str(&show::page(&folder.join(PAGE)));
        }
        text
    };
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

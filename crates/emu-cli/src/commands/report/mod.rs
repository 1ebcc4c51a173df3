//! `emu report`: what records of `emu bench` show.

mod args;
pub(crate) mod hosts;
mod show;
mod splice;

pub(crate) use args::ReportArgs;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use emu_bench::report::{Results, files, is_page_of};
use emu_core::{Error, Result, input_file};

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

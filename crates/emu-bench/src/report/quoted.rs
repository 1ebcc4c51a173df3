//! Tables of records for documents. A document marks a table by the command that makes it, and emu fills it in:
//!
//! ```text
//! <!-- emu report benches/results/hogs --table errors -->
//! …
//! <!-- end of the table -->
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;

use emu_core::{Error, Result};

use super::results::{Beside, CellResult, Results, ground_name};
use crate::distinct;
use crate::experiment::NONE;
use crate::external::external;
use crate::numbers::{percent, signed, span};
use crate::row;
use crate::table::{Column, Table, Value, escaped};

const BEGIN: &str = "<!-- emu report ";
const CLOSE: &str = " -->";
const END: &str = "<!-- end of the table -->";

/// A kind of table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quoted {
    /// The error at each speed, with its interval.
    Errors,
    /// The largest error of each method on each kind of work, over the speeds.
    Largest,
    /// The methods beside other tools.
    Beside,
}

impl Quoted {
    /// All of them, with their names.
    pub const ALL: [(Self, &str); 3] =
        [(Self::Errors, "errors"), (Self::Largest, "largest"), (Self::Beside, "beside")];

    /// The table of some records, in Markdown, and by which commands they were measured.
    pub fn markdown(self, records: &[Results]) -> String {
        let table = match self {
            Self::Errors => errors(records),
            Self::Largest => largest(records),
            Self::Beside => beside(records),
        };
        let mut text = table.markdown() + "\n";
        for results in records {
            let machine = &results.machine;
            for run in &results.runs {
                let day = run.date.split('T').next().unwrap_or(&run.date);
                let _ = writeln!(
                    text,
                    "- {}, {} CPUs, {day}, emu {}: `{}`",
                    escaped(&machine.model),
                    machine.cpus,
                    escaped(&results.version),
                    run.command.replace('`', "")
                );
            }
        }
        text
    }
}

impl FromStr for Quoted {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(_, known)| *known == name);
        known.map(|(table, _)| *table).ok_or_else(|| {
            format!("there is no table `{name}`: one of {}", Self::ALL.map(|(_, name)| name).join(", "))
        })
    }
}

/// `cpu-hogs, 10ms`; where low and high speeds have longer periods, the shortest and the longest.
fn setting(results: &Results, cell: &CellResult) -> String {
    let alike = |one: &&CellResult| {
        (one.contender, one.exclude_background) == (cell.contender, cell.exclude_background)
    };
    let periods = results.cells.iter().filter(alike).map(|one| one.period);
    let [shortest, longest] = [periods.clone().min(), periods.max()].map(Option::unwrap_or_default);
    let period = match [shortest, longest].map(span) {
        _ if longest.is_zero() => String::new(),
        [shortest, longest] if shortest == longest => format!(", {shortest}"),
        [shortest, longest] => format!(", {shortest} to {longest}"),
    };
    let background = if cell.exclude_background { ", background excluded" } else { "" };
    format!("{}{period}{background}", cell.contender)
}

/// The error found in a cell; `None` where all of its pairs were disturbed.
fn error_of(cell: &CellResult) -> Option<f64> {
    (cell.finding.pairs > 0).then(|| cell.finding.error())
}

/// The cells that are no controls.
fn emulated(results: &Results) -> impl Iterator<Item = &CellResult> {
    results.cells.iter().filter(|cell| cell.contender != NONE)
}

/// Those of all records, each with its setting.
fn with_settings(records: &[Results]) -> Vec<(String, &CellResult)> {
    let of = |results| move |cell| (setting(results, cell), cell);
    records.iter().flat_map(|results| emulated(results).map(of(results))).collect()
}

fn shares(cells: &[(String, &CellResult)]) -> Vec<f64> {
    let mut shares: Vec<f64> = cells.iter().map(|(_, cell)| cell.share).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup_by(|a, b| is_same(*a, *b));
    shares
}

/// Shares that come from clocks differ in their last digits.
fn is_same(a: f64, b: f64) -> bool {
    percent(a) == percent(b)
}

fn work(cell: &CellResult) -> String {
    ground_name(&cell.workload, cell.cores)
}

fn errors(records: &[Results]) -> Table {
    let cells = with_settings(records);
    let shares = shares(&cells);
    let speeds = shares.iter().map(|share| Column::change(percent(*share)).with_interval());
    let mut table = Table::new(["method", "work"].map(Column::text).into_iter().chain(speeds));
    for (method, work) in distinct(cells.iter().map(|(setting, cell)| (setting, work(cell)))) {
        let of = |share: &f64| {
            let found = cells.iter().find(|(setting, cell)| {
                setting == method && self::work(cell) == work && is_same(cell.share, *share)
            });
            let (_, cell) = found.filter(|(_, cell)| cell.finding.pairs > 0)?;
            Some(cell.finding.relative.map(|relative| relative - 1.0))
        };
        let values: Vec<Value> = shares.iter().map(|share| of(share).into()).collect();
        table.row(row![method.as_str(), work.as_str()].into_iter().chain(values));
    }
    table
}

fn largest(records: &[Results]) -> Table {
    let cells = with_settings(records);
    let works = distinct(cells.iter().map(|(_, cell)| work(cell)));
    let columns = works.iter().map(|work| Column::text(work.as_str()));
    let mut table = Table::new([Column::text("method")].into_iter().chain(columns));
    for method in distinct(cells.iter().map(|(setting, _)| setting)) {
        let of = |wanted: &String| {
            let found = cells.iter().filter(|(setting, cell)| setting == method && work(cell) == *wanted);
            let largest = found.filter_map(|(_, cell)| error_of(cell).map(f64::abs)).reduce(f64::max);
            largest.map(|error| percent((error * 1000.0).round() / 1000.0))
        };
        table.row([Value::from(method)].into_iter().chain(works.iter().map(|work| of(work).into())));
    }
    table
}

fn beside(records: &[Results]) -> Table {
    let methods = distinct(records.iter().flat_map(emulated).map(|cell| cell.contender));
    let columns = methods.iter().map(|one| Column::text(one.as_str()));
    let mut table = Table::new([Column::text("work"), Column::number("speed")].into_iter().chain(columns));
    for results in records {
        let cells = || emulated(results);
        for (name, speed) in distinct(cells().map(|cell| (work(cell), percent(cell.share)))) {
            let of = |method| {
                let here = |cell: &&CellResult| work(cell) == name && percent(cell.share) == speed;
                let cell = cells().filter(here).find(|cell| cell.contender == method)?;
                let error = signed(error_of(cell)?);
                let is_here = |one: &&Beside| {
                    (one.tool, percent(one.share), ground_name(&one.workload, one.cores))
                        == (method, speed.clone(), name.clone())
                };
                let standings = results.beside.iter().filter(is_here);
                let standings = standings.map(|one| format!("{} {}", one.method, one.standing));
                let standings: Vec<_> = standings.collect();
                let is_compared = external(method).is_some() && !standings.is_empty();
                Some(if is_compared { format!("{error}: {}", standings.join(", ")) } else { error })
            };
            let found: Vec<Value> = methods.iter().map(|method| of(*method).into()).collect();
            table.row(row![name.as_str(), speed.as_str()].into_iter().chain(found));
        }
    }
    table
}

/// The document with its tables as the records have them now. `read` gives the results of records; an error names the line. A
/// document that marks no table is an error, too.
pub fn spliced(document: &str, read: &dyn Fn(&[PathBuf]) -> Result<Vec<Results>>) -> Result<String> {
    let (mut text, mut tables) = (String::new(), 0);
    let mut lines = document.split_inclusive('\n').enumerate();
    while let Some((number, line)) = lines.next() {
        text.push_str(line);
        let Some(words) = line.trim_end().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(CLOSE))
        else {
            continue;
        };
        let at = |what: &str| Error::usage(format!("line {}: {what}", number + 1));
        let (folders, table) = command(words).map_err(|what| at(&what))?;
        if !lines.any(|(_, line)| line.trim_end() == END) {
            return Err(at("the table has no end").hint(format!("end it with a line {END}")));
        }
        let records = read(&folders)
            .map_err(|why| why.during(format!("cannot write the table of line {}", number + 1)))?;
        let _ = writeln!(text, "\n{}\n{END}", table.markdown(&records));
        tables += 1;
    }
    if tables == 0 {
        return Err(Error::usage("it marks no table").hint(format!(
            "mark one by a line {BEGIN}DIR --table NAME{CLOSE}, and end it with a line {END}"
        )));
    }
    Ok(text)
}

fn command(words: &str) -> Result<(Vec<PathBuf>, Quoted), String> {
    let (folders, name) = words
        .split_once(" --table ")
        .ok_or_else(|| format!("`{words}` is not of the form DIR… --table NAME"))?;
    let table = name.trim().parse()?;
    let folders: Vec<_> = folders.split_whitespace().map(PathBuf::from).collect();
    if folders.is_empty() { Err("no record is named".into()) } else { Ok((folders, table)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_disturbed_pairs_show_is_not_quoted() {
        let error =
            |disturbed| error_of(&super::super::testing::cell(0.4, &[0.44; 12], disturbed)).map(signed);
        assert_eq!((error(5).as_deref(), error(12)), (Some("+10.0%"), None));
    }

    /// Records of which there are none.
    fn nothing(folders: &[PathBuf]) -> Result<Vec<Results>> {
        let known = [PathBuf::from("a"), PathBuf::from("b")];
        if folders == known { Ok(Vec::new()) } else { Err(Error::usage(format!("no record {folders:?}"))) }
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let document =
            "before\n<!-- emu report a b --table errors -->\nold\n<!-- end of the table -->\nafter";
        let new = spliced(document, &nothing).unwrap();
        assert!(
            new.starts_with("before\n<!-- emu report a b --table errors -->\n\n| method | work |\n"),
            "{new}"
        );
        assert!(new.ends_with("\n<!-- end of the table -->\nafter"), "{new}");
        assert!(!new.contains("old"));
        assert_eq!(spliced(&new, &nothing).unwrap(), new);
    }

    #[test]
    fn a_document_without_a_mark_has_nothing_to_check() {
        let error = spliced("no table\n", &nothing).unwrap_err();
        assert_eq!(error.to_string(), "it marks no table");
    }

    #[test]
    fn marks_that_make_no_sense_are_named_by_their_line() {
        for (mark, what) in [
            ("<!-- emu report a -->", "line 2: `a` is not of the form"),
            (
                "<!-- emu report a --table erors -->",
                "line 2: there is no table `erors`: one of errors, largest, beside",
            ),
            ("<!-- emu report  --table errors -->", "line 2: no record is named"),
            ("<!-- emu report a b --table errors -->", "line 2: the table has no end"),
        ] {
            let error = spliced(&format!("x\n{mark}\nold\n"), &nothing).unwrap_err();
            assert!(error.to_string().starts_with(what), "{error}");
        }
    }
}

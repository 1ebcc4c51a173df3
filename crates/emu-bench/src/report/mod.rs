//! Reports: what records show, as a page, figures and tables, from the records alone. [`Chart`] serves other measurements too.

mod axis;
mod chart;
mod comparison;
mod conclusion;
mod csv;
mod figure;
mod html;
mod markdown;
mod marker;
mod measured;
mod published;
mod quoted;
mod reading;
mod results;
mod series;
mod standing;
mod stored;
mod style;
mod tables;
#[cfg(test)]
mod testing;

pub use axis::Axis;
pub use chart::Chart;
pub use published::{BUCHERT_2011, BUCHERT_2011_METHODS, Compared, Reproduced, Says};
pub use quoted::{Quoted, spliced};
pub use results::{
    Beside, CellResult, Furthest, Ground, Judged, Rate, Results, RunInfo, Smoothness, Standing, Total,
};
pub use series::{Point, Series};

use emu_core::Result;

/// A file of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportFile {
    /// Its name.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// Whether a page of this text is a report of the records that these results are of.
pub fn is_page_of(page: &str, results: &Results) -> bool {
    page.contains(&html::mark(results).into_string())
}

/// Every file of a report: the page, the figures, the tables.
pub fn files(results: &Results) -> Result<Vec<ReportFile>> {
    let file = |name: &str, text: String| ReportFile { name: name.into(), text };
    let mut files = vec![
        file("report.html", html::page(results)?),
        file("report.md", markdown::summary(results)),
        file("cells.csv", csv::cells(results).csv()),
        file("lines.csv", csv::lines(results).csv()),
    ];
    for ground in &results.grounds {
        let name = format!("{}-{}.svg", ground.workload, ground.cores);
        files.push(file(&name, figure::of_ground(results, ground)?));
    }
    for (number, svg) in figure::of_errors(results)?.into_iter().enumerate() {
        let name = if number == 0 { "errors.svg".to_owned() } else { format!("errors-{}.svg", number + 1) };
        files.push(file(&name, svg));
    }
    if let Some(svg) = figure::of_granularity(results)? {
        files.push(file("granularity.svg", svg));
    }
    Ok(files)
}

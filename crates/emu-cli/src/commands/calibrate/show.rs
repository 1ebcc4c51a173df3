//! A calibration as tables and figures, and what several of them make of each other.

mod comparison;
mod figures;
mod map;

pub(crate) use comparison::{Comparison, chart as chart_of_comparison, text as text_of_comparison};
pub(crate) use map::text as text_of_map;

use std::fmt::Write as _;

use emu_bench::columns;
use emu_bench::numbers::{percent, signed};
use emu_bench::row;
use emu_bench::stats::{Interval, Level, LinearFit};
use emu_bench::table::{Table, wrap};
use emu_core::Result;
use emu_machine::calibrate::published::{PUBLISHED, SIZES};
use emu_machine::calibrate::{Analysis, Measured, Model, OrderEffect, Sample};
use serde::Serialize;

use crate::output::{SCHEMA, Shown};

/// Disturbed samples that are listed; the CSV has all.
const DISTURBED: usize = 5;

/// Notes that are shown; one that tells of a quota may come for each of them.
const NOTES: usize = 3;

const COLUMNS: &str = "order,quota,threads,solutions,seconds,gflops,cpus_used,residual,passed,pass,begin_seconds,\
clock_hz,stolen,foreign,disturbed";

pub(crate) fn shown(measured: &Measured, with_published: bool) -> Shown {
    Shown {
        text: text(measured, with_published),
        csv: csv(measured),
        figures: vec![("", figures::chart(measured)), ("residuals", figures::residuals_chart(measured))],
    }
}

fn text(measured: &Measured, with_published: bool) -> String {
    let note = "DEAD: CPUs at which the line is 0. OFF, WORST: mean and largest deviation from being proportional. RESIDUAL: \
                the largest, of the largest rate. GIVEN: the least share of a quota's CPU time that was delivered. CPU-S: \
                what a CPU second is worth at low quotas relative to high ones. equal clock: each rate times the median core \
                clock by its own. weighted: through the means of quotas, each by its scatter; the others are of all samples.";
    let mut text = format!("{}\n{}\n{}\n\n", model(measured).text(), hidden(measured).text(), wrap(note, 0));
    for line in around(measured).into_iter().chain(disturbed(measured)) {
        let _ = writeln!(text, "{}", wrap(&line, 0));
    }
    for one in &measured.analyses {
        let line = format!("Threads {}: {}", one.threads.name(), per_cpu(one));
        let _ = writeln!(text, "{}", wrap(&line, 0));
        for effect in &one.orders {
            let line = format!("Threads {}: {}", one.threads.name(), order_effect(effect));
            let _ = writeln!(text, "{}", wrap(&line, 0));
        }
    }
    if with_published {
        let _ = write!(text, "\n{}", published(measured));
    }
    let _ = writeln!(text, "\n{}", wrap(&measured.verdict, 0));
    if let Some(explained) = &measured.explained {
        let _ = writeln!(text, "{}", wrap(&explained.words, 0));
    }
    for note in measured.notes.iter().take(NOTES) {
        let _ = writeln!(text, "{}", wrap(&format!("Note: {note}."), 0));
    }
    if let Some(more @ 1..) = measured.notes.len().checked_sub(NOTES) {
        let _ = writeln!(text, "Further notes in the JSON: {more}.");
    }
    text
}

fn around(measured: &Measured) -> Option<String> {
    let most = |share: fn(&Sample) -> Option<f64>| {
        measured.samples.iter().filter_map(share).reduce(f64::max).map(percent)
    };
    let clock = measured.clock_range().map(|(low, high)| {
        let [low, high] = [low, high].map(|hz| hz / 1e9);
        format!("core clock {low:.2} to {high:.2} GHz")
    });
    let stolen = most(|sample| sample.stolen).map(|share| format!("stolen up to {share}"));
    let foreign = most(|sample| sample.foreign).map(|share| format!("other tasks up to {share}"));
    let parts: Vec<_> = [clock, stolen, foreign].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("During the samples: {}.", parts.join(", ")))
}

/// The samples that others have disturbed, and how many of them were left out.
fn disturbed(measured: &Measured) -> Option<String> {
    let count = measured.disturbed().count();
    let listed = measured.disturbed().take(DISTURBED).map(|sample| {
        let of = |share: Option<f64>, who: &str| share.map(|share| format!("{who} {}", percent(share)));
        let why: Vec<_> =
            of(sample.stolen, "stolen").into_iter().chain(of(sample.foreign, "others")).collect();
        format!("{:.1} CPUs ({})", sample.quota, why.join(", "))
    });
    let mut listed: Vec<_> = listed.collect();
    if count > DISTURBED {
        listed.push(format!("and {} more", count - DISTURBED));
    }
    (count > 0).then(|| {
        let all = measured.samples.len();
        format!(
            "Disturbed by others: {count} of {all} samples, of which {} are left out, as their quotas have better ones: {}.",
            measured.left_out().count(),
            listed.join("; ")
        )
    })
}

fn per_cpu(one: &Analysis) -> String {
    let model = one.model();
    let rate = |rate: &Option<Interval>| {
        let of = |rate: Interval| {
            // Few quotas have less than they were asked for.
            let level =
                if rate.reaches(Level::P95) { String::new() } else { format!(" at {}", percent(rate.level)) };
            format!("{:.2} ({:.2} to {:.2}{level})", rate.estimate, rate.low, rate.high)
        };
        rate.map_or_else(|| "?".into(), of)
    };
    let at = if one.equal_clock.is_some() { " at equal clock" } else { "" };
    let bands = match model.bands.as_slice() {
        [] => "no bands are told, as too few quotas have two undisturbed samples".to_owned(),
        [_] => "one band".to_owned(),
        several => {
            let band = several.iter().map(|band| {
                format!("{:.1} to {:.1} CPUs with {}", band.line.from, band.line.to, rate(&band.per_cpu))
            });
            format!("{} bands: {}", several.len(), band.collect::<Vec<_>>().join(", "))
        }
    };
    format!("{} GFLOPS per CPU{at}; {bands}.", rate(&model.per_cpu))
}

fn order_effect(effect: &OrderEffect) -> String {
    let interval = |share: &Interval| {
        format!("{} ({} to {})", signed(share.estimate), signed(share.low), signed(share.high))
    };
    let apart = match (&effect.adjusted, &effect.drift) {
        (Some(adjusted), Some(drift)) => {
            format!("{} on average, without a drift of {}", interval(adjusted), interval(drift))
        }
        _ => "not to be told from a drift".to_owned(),
    };
    format!(
        "{} against {}: {apart}; {} in the median, {} at {:.1} CPUs.",
        effect.order.name(),
        effect.against.name(),
        signed(effect.median),
        signed(effect.worst),
        effect.at_quota
    )
}

fn model(measured: &Measured) -> Table {
    let mut table = Table::new(columns![
        text "THREADS", number "POINTS", number "R²", number "P-VALUE", number "INTERCEPT", number "SLOPE",
        number "MAX GFLOPS",
    ]);
    for (name, _, model) in models(measured) {
        let weighted = model.weighted.as_ref().map(|fit| ("weighted", fit));
        for (name, fit) in [(name, &model.fit)].into_iter().chain(weighted) {
            table.row([
                name.to_owned(),
                fit.points.to_string(),
                r_squared(fit),
                fit.slope.p.map_or_else(|| "-".into(), p_value),
                format!("{:.3}", fit.intercept.interval.estimate),
                format!("{:.3}", fit.slope.interval.estimate),
                format!("{:.3}", model.max_gflops),
            ]);
        }
    }
    table
}

fn models(measured: &Measured) -> impl Iterator<Item = (&'static str, &Analysis, &Model)> {
    measured.analyses.iter().flat_map(|one| {
        let equal = one.equal_clock.as_ref().map(|model| ("equal clock", one, model));
        [(one.threads.name(), one, &one.measured)].into_iter().chain(equal)
    })
}

/// What R² hides.
fn hidden(measured: &Measured) -> Table {
    let mut table = Table::new(columns![
        text "THREADS", number "DEAD", number "OFF", number "WORST", number "RESIDUAL", number "GIVEN",
        number "CPU-S", text "LINE",
    ]);
    for (name, one, model) in models(measured) {
        table.row([
            name.to_owned(),
            format!("{:.3}", model.dead_quota),
            percent(model.proportional_mean),
            format!("{} at {:.1}", signed(model.proportional_worst), model.worst_quota),
            percent(model.residuals.largest_share),
            percent(one.delivered),
            percent(model.clock_ratio),
            match measured.is_off_line(model) {
                Some(false) => "passes",
                Some(true) => "FAILS",
                None => "undecided",
            }
            .to_owned(),
        ]);
    }
    table
}

fn r_squared(fit: &LinearFit) -> String {
    fit.r_squared.map_or_else(|| "-".into(), |r_squared| format!("{r_squared:.4}"))
}

/// As R prints it, which cannot tell smaller ones from 0.
fn p_value(p: f64) -> String {
    if p < 2.2e-16 { "<2.2e-16".into() } else { format!("{p:.1e}") }
}

/// The paper's tables beside ours, which are of the rates as they are, too.
fn published(measured: &Measured) -> String {
    let mut table = Table::new(columns![
        text "MACHINE", number "R²", number "P-VALUE", number "INTERCEPT", number "SLOPE",
        number "MAX GFLOPS", number "DEAD",
    ]);
    for one in &measured.analyses {
        let (model, fit) = (&one.measured, &one.measured.fit);
        table.row([
            format!("here, {}", one.threads.name()),
            r_squared(fit),
            fit.slope.p.map_or_else(|| "-".into(), p_value),
            format!("{:.3}", fit.intercept.interval.estimate),
            format!("{:.3}", fit.slope.interval.estimate),
            format!("{:.3}", model.max_gflops),
            format!("{:.3}", model.dead_quota),
        ]);
    }
    for row in PUBLISHED {
        table.row([
            row.name.to_owned(),
            format!("{:.4}", row.r_squared),
            row.p.unwrap_or("-").to_owned(),
            format!("{:.3}", row.intercept),
            // Lambda's has a unit of its own, and four digits.
            if row.slope < 1.0 { format!("{:.4}", row.slope) } else { format!("{:.3}", row.slope) },
            format!("{:.3}", row.max_gflops),
            format!("{:.3}", row.dead()),
        ]);
    }
    let settings: Vec<_> = PUBLISHED.iter().map(|row| format!("{}: {}", row.name, row.setting)).collect();
    let source = format!(
        "Published: Manner & Wirtz, SOSE 2021, tables II to IV, {} equations; here {}. {}.",
        sizes(SIZES),
        if measured.sizes.is_empty() { measured.equations.to_string() } else { sizes(&measured.sizes) },
        settings.join("; ")
    );
    format!("{}{}\n", table.text(), wrap(&source, 0))
}

fn sizes(sizes: &[usize]) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn csv(measured: &Measured) -> String {
    let mut table = Table::data(COLUMNS);
    for sample in &measured.samples {
        table.row(row![
            sample.order.name(),
            sample.quota,
            sample.threads,
            sample.solutions,
            sample.seconds,
            sample.gflops,
            sample.cpus_used,
            sample.residual,
            sample.passed,
            sample.pass,
            sample.begin_seconds,
            sample.clock_hz,
            sample.stolen,
            sample.foreign,
            sample.is_disturbed(),
        ]);
    }
    table.csv()
}

/// What several calibrations make of each other.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct Document<'a, T> {
    /// Version of the form.
    schema: u32,
    #[serde(flatten)]
    found: &'a T,
}

pub(crate) fn json(found: &impl Serialize) -> Result<String> {
    crate::output::json(&Document { schema: SCHEMA, found })
}

#[cfg(test)]
mod tests;

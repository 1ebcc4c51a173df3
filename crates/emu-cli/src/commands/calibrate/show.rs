//! A calibration as tables and figures, and what two of them make of each other.

mod figures;

use std::fmt::Write as _;

use emu_bench::numbers::{percent, signed};
use emu_bench::report::{Csv, optional};
use emu_bench::stats::Interval;
use emu_bench::table::{Column, Table, wrap};
use emu_core::Result;
use emu_machine::calibrate::published::PUBLISHED;
use emu_machine::calibrate::{Analysis, Equivalent, Measured, Model, OrderEffect, Sample};
use serde::Serialize;

use crate::output::{SCHEMA, Shown};

/// Notes that are shown; one that tells of a quota may come for each of them.
const NOTES: usize = 3;

const COLUMNS: &str = "order,quota,threads,solutions,seconds,gflops,cpus_used,residual,passed,pass,begin_seconds,\
clock_hz,stolen,foreign";

/// What was measured, for people and their programs; with the published tables where they are asked for.
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
                clock by its own.";
    let mut text = format!("{}\n{}\n{}\n\n", model(measured).text(), hidden(measured).text(), wrap(note, 0));
    if let Some(around) = around(measured) {
        let _ = writeln!(text, "{}", wrap(&around, 0));
    }
    for one in &measured.analyses {
        let bands: Vec<_> = one
            .model()
            .bands
            .iter()
            .map(|band| format!("{:.1} to {:.1} CPUs ({:.1} GFLOPS per CPU)", band.from, band.to, band.slope))
            .collect();
        let count = if bands.len() == 1 { "one band".to_owned() } else { format!("{} bands", bands.len()) };
        let at = if one.equal_clock.is_some() { " at equal clock" } else { "" };
        let line = format!("Threads {}: {count}{at}: {}.", one.threads.name(), bands.join(", "));
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
    for note in measured.notes.iter().take(NOTES) {
        let _ = writeln!(text, "{}", wrap(&format!("Note: {note}."), 0));
    }
    if let Some(more @ 1..) = measured.notes.len().checked_sub(NOTES) {
        let _ = writeln!(text, "Further notes in the JSON: {more}.");
    }
    text
}

/// What was around the samples; `None` where none of it is known.
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

/// How an order differs from another, and what of that is a drift.
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

/// The published model.
fn model(measured: &Measured) -> Table {
    let mut table = Table::new([
        Column::text("THREADS"),
        Column::number("POINTS"),
        Column::number("R²"),
        Column::number("P-VALUE"),
        Column::number("INTERCEPT"),
        Column::number("SLOPE"),
        Column::number("MAX GFLOPS"),
    ]);
    for (name, _, model) in models(measured) {
        let fit = &model.fit;
        table.row([
            name.to_owned(),
            fit.points.to_string(),
            r_squared(model),
            fit.slope.p.map_or_else(|| "-".into(), p_value),
            format!("{:.3}", fit.intercept.interval.estimate),
            format!("{:.3}", fit.slope.interval.estimate),
            format!("{:.3}", model.max_gflops),
        ]);
    }
    table
}

/// Every model by its name, with the analysis that it is of.
fn models(measured: &Measured) -> impl Iterator<Item = (&'static str, &Analysis, &Model)> {
    measured.analyses.iter().flat_map(|one| {
        let equal = one.equal_clock.as_ref().map(|model| ("equal clock", one, model));
        [(one.threads.name(), one, &one.measured)].into_iter().chain(equal)
    })
}

/// What R² hides.
fn hidden(measured: &Measured) -> Table {
    let mut table = Table::new([
        Column::text("THREADS"),
        Column::number("DEAD"),
        Column::number("OFF"),
        Column::number("WORST"),
        Column::number("RESIDUAL"),
        Column::number("GIVEN"),
        Column::number("CPU-S"),
        Column::text("LINE"),
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
            if model.is_linear() { "passes" } else { "FAILS" }.to_owned(),
        ]);
    }
    table
}

fn r_squared(model: &Model) -> String {
    model.fit.r_squared.map_or_else(|| "-".into(), |r_squared| format!("{r_squared:.4}"))
}

/// As R prints it, which cannot tell smaller ones from 0.
fn p_value(p: f64) -> String {
    if p < 2.2e-16 { "<2.2e-16".into() } else { format!("{p:.1e}") }
}

/// The paper's tables beside ours, which are of the rates as they are, too.
fn published(measured: &Measured) -> String {
    let mut table = Table::new([
        Column::text("MACHINE"),
        Column::number("R²"),
        Column::number("P-VALUE"),
        Column::number("INTERCEPT"),
        Column::number("SLOPE"),
        Column::number("MAX GFLOPS"),
        Column::number("DEAD"),
    ]);
    for one in &measured.analyses {
        let (model, fit) = (&one.measured, &one.measured.fit);
        table.row([
            format!("here, {}", one.threads.name()),
            r_squared(model),
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
        emu_machine::calibrate::published::EQUATIONS,
        measured.equations,
        settings.join("; ")
    );
    format!("{}{}\n", table.text(), wrap(&source, 0))
}

fn csv(measured: &Measured) -> String {
    let mut csv = Csv::new(COLUMNS);
    for sample in &measured.samples {
        csv.line([
            sample.order.name().to_owned(),
            sample.quota.to_string(),
            sample.threads.to_string(),
            sample.solutions.to_string(),
            sample.seconds.to_string(),
            sample.gflops.to_string(),
            sample.cpus_used.to_string(),
            optional(sample.residual),
            sample.passed.to_string(),
            sample.pass.to_string(),
            sample.begin_seconds.to_string(),
            optional(sample.clock_hz),
            optional(sample.stolen),
            optional(sample.foreign),
        ]);
    }
    csv.text()
}

/// The equivalent of a setting.
#[derive(Serialize)]
pub(crate) struct Document {
    /// Version of the form.
    schema: u32,
    #[serde(flatten)]
    found: Equivalent,
}

/// The same as JSON.
///
/// # Errors
/// It has no JSON form, which is a defect of emu.
pub(crate) fn json(found: Equivalent) -> Result<String> {
    crate::output::json(&Document { schema: SCHEMA, found })
}

/// The equivalent of a setting, in words.
pub(crate) fn text_of_map(found: &Equivalent) -> String {
    let doubt = if found.both_linear {
        ""
    } else {
        " One of the machines does not follow a line (R² below 0.99, or a rate off the line by more than 5% of the largest): \
         the equivalent holds for none of its bands."
    };
    let words = format!(
        "Setting {} of the other machine is {:.2} GFLOPS; here that is a quota of {:.3} ± {:.3} CPUs (one standard \
         deviation), or a speed of {} on all CPUs.{doubt}",
        found.setting,
        found.gflops,
        found.quota,
        found.quota_sd,
        percent(found.speed)
    );
    wrap(&words, 0) + "\n"
}

#[cfg(test)]
mod tests;

//! A calibration as tables and figures, and what several of them make of each other.

mod comparison;
mod figures;
mod map;

pub(crate) use comparison::{Comparison, chart as chart_of_comparison, text as text_of_comparison};
pub(crate) use map::text as text_of_map;

use emu_bench::numbers::{percent, signed};
use emu_bench::stats::{Interval, Level};
use emu_bench::table::{Table, paragraph};
use emu_bench::{columns, data, row, table};
use emu_core::Result;
use emu_machine::calibrate::published::{PUBLISHED, SIZES};
use emu_machine::calibrate::{Analysis, Measured, Model, OrderEffect, Sample};
use serde::Serialize;

use crate::output::{SCHEMA, Shown};

/// Disturbed samples that are listed; the CSV has all.
const DISTURBED: usize = 5;

/// Notes that are shown; one that tells of a quota may come for each of them.
const NOTES: usize = 3;

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
    let mut text = format!("{}\n{}\n{}\n", model(measured).text(), hidden(measured).text(), paragraph(note));
    text.extend(around(measured).into_iter().chain(disturbed(measured)).map(paragraph));
    for one in &measured.analyses {
        let lines = std::iter::once(per_cpu(one)).chain(one.orders.iter().map(order_effect));
        text.extend(lines.map(|line| paragraph(format!("Threads {}: {line}", one.threads.name()))));
    }
    if with_published {
        text.extend(["\n", &published(measured)]);
    }
    text.extend(["\n", &paragraph(&measured.verdict)]);
    text.extend(measured.explained.iter().map(|explained| paragraph(&explained.words)));
    text.extend(measured.notes.iter().take(NOTES).map(|note| paragraph(format!("Note: {note}."))));
    if let Some(more @ 1..) = measured.notes.len().checked_sub(NOTES) {
        text.extend([format!("Further notes in the JSON: {more}.\n")]);
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
    let fits = models(measured).flat_map(|(name, _, model)| {
        let weighted = model.weighted.as_ref().map(|fit| ("weighted", fit, model));
        [(name, &model.fit, model)].into_iter().chain(weighted)
    });
    table! {
        for (name, fit, model) in fits;
        text "THREADS" = name,
        number "POINTS" = fit.points,
        fixed(4) "R²" = fit.r_squared,
        number "P-VALUE" = fit.slope.p.map(p_value),
        fixed(3) "INTERCEPT" = fit.intercept.interval.estimate,
        fixed(3) "SLOPE" = fit.slope.interval.estimate,
        fixed(3) "MAX GFLOPS" = model.max_gflops,
    }
}

fn models(measured: &Measured) -> impl Iterator<Item = (&'static str, &Analysis, &Model)> {
    measured.analyses.iter().flat_map(|one| {
        let equal = one.equal_clock.as_ref().map(|model| ("equal clock", one, model));
        [(one.threads.name(), one, &one.measured)].into_iter().chain(equal)
    })
}

/// What R² hides.
fn hidden(measured: &Measured) -> Table {
    let line = |model| match measured.is_off_line(model) {
        Some(false) => "passes",
        Some(true) => "FAILS",
        None => "undecided",
    };
    table! {
        for (name, one, model) in models(measured);
        text "THREADS" = name,
        fixed(3) "DEAD" = model.dead_quota,
        percent "OFF" = model.proportional_mean,
        number "WORST" = format!("{} at {:.1}", signed(model.proportional_worst), model.worst_quota),
        percent "RESIDUAL" = model.residuals.largest_share,
        percent "GIVEN" = one.delivered,
        percent "CPU-S" = model.clock_ratio,
        text "LINE" = line(model),
    }
}

/// As R prints it, which cannot tell smaller ones from 0.
fn p_value(p: f64) -> String {
    if p < 2.2e-16 { "<2.2e-16".into() } else { format!("{p:.1e}") }
}

/// The paper's tables beside ours, which are of the rates as they are, too.
fn published(measured: &Measured) -> String {
    let mut table = Table::new(columns![
        text "MACHINE", fixed(4) "R²", number "P-VALUE", fixed(3) "INTERCEPT", number "SLOPE",
        fixed(3) "MAX GFLOPS", fixed(3) "DEAD",
    ]);
    for one in &measured.analyses {
        let (model, fit) = (&one.measured, &one.measured.fit);
        table.row(row![
            format!("here, {}", one.threads.name()),
            fit.r_squared,
            fit.slope.p.map(p_value),
            fit.intercept.interval.estimate,
            format!("{:.3}", fit.slope.interval.estimate),
            model.max_gflops,
            model.dead_quota,
        ]);
    }
    for row in PUBLISHED {
        // Lambda's has a unit of its own, and four digits.
        let slope = if row.slope < 1.0 { format!("{:.4}", row.slope) } else { format!("{:.3}", row.slope) };
        table.row(row![row.name, row.r_squared, row.p, row.intercept, slope, row.max_gflops, row.dead()]);
    }
    let settings: Vec<_> = PUBLISHED.iter().map(|row| format!("{}: {}", row.name, row.setting)).collect();
    let source = format!(
        "Published: Manner & Wirtz, SOSE 2021, tables II to IV, {} equations; here {}. {}.",
        sizes(SIZES),
        if measured.sizes.is_empty() { measured.equations.to_string() } else { sizes(&measured.sizes) },
        settings.join("; ")
    );
    table.text() + &paragraph(source)
}

fn sizes(sizes: &[usize]) -> String {
    sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn csv(measured: &Measured) -> String {
    let table = data! {
        for sample in &measured.samples;
        order = sample.order.name(), quota, threads, solutions, seconds, gflops, cpus_used, residual, passed, pass,
        begin_seconds, clock_hz, stolen, foreign, disturbed = sample.is_disturbed(),
    };
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

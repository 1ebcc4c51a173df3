//! A calibration as tables and figures, and what two of them make of each other.

mod figures;

use std::fmt::Write as _;

use emu_bench::report::{Csv, optional};
use emu_bench::stats::Interval;
use emu_core::Result;
use emu_machine::calibrate::published::PUBLISHED;
use emu_machine::calibrate::{Analysis, Equivalent, Measured, Model, OrderEffect, Sample};
use serde::Serialize;

use crate::output::numbers::{percent, signed};
use crate::output::table::{Align, Table, wrap};
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
    let mut text =
        format!("{}\n{}\n{}\n\n", model(measured).render(), hidden(measured).render(), wrap(note, 0));
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
        ("THREADS", Align::Left),
        ("POINTS", Align::Right),
        ("R²", Align::Right),
        ("P-VALUE", Align::Right),
        ("INTERCEPT", Align::Right),
        ("SLOPE", Align::Right),
        ("MAX GFLOPS", Align::Right),
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
        ("THREADS", Align::Left),
        ("DEAD", Align::Right),
        ("OFF", Align::Right),
        ("WORST", Align::Right),
        ("RESIDUAL", Align::Right),
        ("GIVEN", Align::Right),
        ("CPU-S", Align::Right),
        ("LINE", Align::Left),
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
        ("MACHINE", Align::Left),
        ("R²", Align::Right),
        ("P-VALUE", Align::Right),
        ("INTERCEPT", Align::Right),
        ("SLOPE", Align::Right),
        ("MAX GFLOPS", Align::Right),
        ("DEAD", Align::Right),
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
    format!("{}{}\n", table.render(), wrap(&source, 0))
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

/// The equivalent of a setting as JSON.
///
/// # Errors
/// It has no JSON form, which is a defect of emu.
pub(crate) fn json(found: Equivalent) -> Result<String> {
    #[derive(Serialize)]
    struct Document {
        schema: u32,
        #[serde(flatten)]
        found: Equivalent,
    }
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
mod tests {
    use emu_bench::report::{Point, Series};

    use super::*;
    use crate::output::table::WIDTH;

    /// A calibration as JSON has it, of two CPUs with a constant loss.
    fn measured() -> Measured {
        let coefficient = |estimate: f64| {
            serde_json::json!({
                "interval": {"estimate": estimate, "low": estimate - 1.0, "high": estimate + 1.0, "level": 0.95},
                "standard_error": 0.5, "t": 100.0, "p": 1e-30,
            })
        };
        let model = |r_squared: f64, residual: f64| {
            serde_json::json!({
                "fit": {
                    "intercept": coefficient(-1.82), "slope": coefficient(54.118), "r_squared": r_squared,
                    "residual_sd": 0.3, "f_test": null, "points": 60,
                },
                "max_gflops": 106.4, "dead_quota": 0.034, "proportional_mean": 0.05, "proportional_worst": -0.31,
                "worst_quota": 0.1,
                "residuals": {"largest_share": residual, "at_quota": 0.5, "pass": residual < 0.05},
                "bands": [{"from": 0.1, "to": 0.9, "intercept": 0.0, "slope": 50.0},
                          {"from": 1.0, "to": 2.0, "intercept": 0.0, "slope": 55.0}],
                "clock_ratio": 0.97,
            })
        };
        let analysis = |threads: &str| {
            let mut analysis = model(0.9999, 0.011);
            let rest = serde_json::json!({
                "threads": threads,
                "orders": [
                    {"order": "ascending", "against": "random", "median": 0.01, "worst": -0.05, "at_quota": 0.1,
                     "adjusted": {"estimate": 0.012, "low": -0.004, "high": 0.028, "level": 0.95},
                     "drift": {"estimate": -0.11, "low": -0.13, "high": -0.09, "level": 0.95}},
                    {"order": "descending", "against": "random", "median": 0.0, "worst": 0.02, "at_quota": 0.3},
                ],
                "delivered": 0.998,
            });
            analysis.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            analysis
        };
        let mut moved = analysis("ceiling");
        moved["equal_clock"] = model(0.9987, 0.023);
        moved["residuals"] = serde_json::json!({"largest_share": 0.063, "at_quota": 1.8, "pass": false});
        let sample = serde_json::json!({
            "order": "random", "pass": 4, "quota": 0.1, "threads": 2, "solutions": 3, "begin_seconds": 12.5,
            "seconds": 2.5, "gflops": 3.25, "cpus_used": 0.1, "residual": 0.01, "passed": true, "clock_hz": 2.75e9,
            "stolen": 0.25,
        });
        serde_json::from_value(serde_json::json!({
            "samples": [sample], "cpus": 2, "equations": 2000,
            "analyses": [moved, analysis("all")], "verdict": "The rate follows a line.",
        }))
        .unwrap()
    }

    #[test]
    fn the_tables_keep_to_their_width_and_tell_all() {
        let text = text(&measured(), true);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        for part in [
            "<2.2e-16",
            "-1.820",
            "54.118",
            "106.400",
            "0.034",
            "-31.0% at 0.1",
            "1.1%",
            "passes",
            "2 bands at equal clock",
            "During the samples: core clock 2.75 to 2.75 GHz, stolen up to 25%.",
            "ascending against random",
            "H60",
            "0.7349",
            "6.6e-16",
            "intel_cpufreq,",
            "0.0197",
            "here, ceil(quota)",
            "The rate follows a line.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!super::text(&measured(), false).contains("H60"));
    }

    #[test]
    fn rates_at_equal_clock_have_rows_where_the_clock_is_known() {
        let text = text(&measured(), false);
        let rows = |name: &str| -> Vec<String> {
            let own = text.lines().filter(|line| line.starts_with(name));
            own.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
        };
        for (name, r_squared, residual, line) in [
            ("ceil(quota) ", " 0.9999 ", " 6.3% ", "FAILS"),
            ("equal clock ", " 0.9987 ", " 2.3% ", "passes"),
        ] {
            let rows = rows(name);
            assert_eq!(rows.len(), 2, "{text}");
            assert!(rows[0].contains(r_squared), "{text}");
            assert!(rows[1].contains(residual) && rows[1].ends_with(line), "{text}");
        }
    }

    #[test]
    fn an_order_is_told_apart_from_a_drift_where_that_can_be() {
        let text = text(&measured(), false).split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "ascending against random: +1.2% (-0.4% to +2.8%) on average, without a drift of -11.0% (-13.0% to -9.0%); \
             +1.0% in the median, -5.0% at 0.1 CPUs.",
            "descending against random: not to be told from a drift; 0.0% in the median, +2.0% at 0.3 CPUs.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn some_of_many_notes_are_shown_and_the_others_counted() {
        let mut measured = measured();
        assert!(!text(&measured, false).contains("Note"));
        measured.notes = (1..=3).map(|number| format!("/a limits it to {number}")).collect();
        let three = text(&measured, false);
        assert!(three.contains("Note: /a limits it to 3.") && !three.contains("Further"), "{three}");
        measured.notes.push("/b limits it".into());
        let four = text(&measured, false);
        assert!(four.contains("Further notes in the JSON: 1.") && !four.contains("/b"), "{four}");
    }

    #[test]
    fn the_csv_has_every_sample_unrounded() {
        let line = "random,0.1,2,3,2.5,3.25,0.1,0.01,true,4,12.5,2750000000,0.25,";
        assert_eq!(csv(&measured()).lines().nth(1), Some(line));
        assert_eq!(COLUMNS.split(',').count(), line.split(',').count());
    }

    #[test]
    fn the_figure_has_points_lines_and_bands_for_all_threads() {
        let mut measured = measured();
        measured.analyses[1].measured.bands.truncate(1);
        let chart = figures::chart(&measured);
        let names: Vec<_> = chart.series.iter().map(|series| series.name.as_str()).collect();
        let both = ["threads: ceil(quota)", "threads: all CPUs", "line: ceil(quota)", "line: all CPUs"];
        assert_eq!(names, [&both[..], &["bands: ceil(quota)"]].concat());
        let [begin, end] = [0.034, 2.0].map(|quota| Point::new(quota, 54.118 * quota - 1.82));
        assert_eq!(chart.series[3], Series::line("line: all CPUs", vec![begin, end]));
        let bands = [(0.1, 5.0), (0.9, 45.0), (1.0, 55.0), (2.0, 110.0)].map(|(x, y)| Point::new(x, y));
        assert_eq!(chart.series[4], Series::line("bands: ceil(quota)", bands.to_vec()));
        assert!(chart.svg().unwrap().contains("CPU quota"));
        let residuals = figures::residuals_chart(&measured);
        assert!((residuals.series.len(), residuals.svg().is_ok()) == (2, true));
    }

    #[test]
    fn an_equivalent_says_when_it_is_in_doubt() {
        let found = Equivalent {
            setting: 1769.0,
            gflops: 32.85,
            quota: 0.64,
            quota_sd: 0.01,
            speed: 0.32,
            both_linear: true,
        };
        let text = text_of_map(&found).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("a quota of 0.640 ± 0.010 CPUs")
                && text.contains("32%")
                && !text.contains("does not")
        );
        let doubtful = text_of_map(&Equivalent { both_linear: false, ..found });
        assert!(doubtful.contains("R²"), "{doubtful}");
        assert!(json(found).unwrap().contains("\"schema\""));
    }
}

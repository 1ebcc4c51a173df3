//! What a calibration is shown as.

use emu_bench::record::Machine;
use emu_bench::report::{Point, Series};
use emu_bench::table::WIDTH;
use emu_core::{Host, Roots};
use emu_machine::calibrate::{Compared, Equivalent, Threads};
use serde_json::Value;

use super::*;

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
            "places": [{"x": 0.1, "count": 3, "mean": 3.5, "sd": 0.25}, {"x": 2.0, "count": 3, "mean": 106.0, "sd": 0.5}],
            "weighted": {
                "intercept": coefficient(-1.82), "slope": coefficient(54.118), "r_squared": 0.9991,
                "residual_sd": 0.3, "f_test": null, "points": 20,
            },
            "per_cpu": {"estimate": 53.1, "low": 52.9, "high": 53.35, "level": 0.95},
            "max_gflops": 106.4, "dead_quota": 0.034, "proportional_mean": 0.05, "proportional_worst": -0.31,
            "worst_quota": 0.1,
            "residuals": {"largest_share": residual, "at_quota": 0.5, "pass": residual < 0.05},
            "bands": [{"from": 0.1, "to": 0.9, "intercept": 0.0, "slope": 50.0,
                       "per_cpu": {"estimate": 50.0, "low": 49.5, "high": 50.5, "level": 0.95}},
                      {"from": 1.0, "to": 2.0, "intercept": 0.0, "slope": 55.0,
                       "per_cpu": {"estimate": 55.0, "low": 54.0, "high": 56.0, "level": 0.875}}],
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
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "<2.2e-16",
        "-1.820",
        "54.118",
        "106.400",
        "0.034",
        "-31.0% at 0.1",
        "1.1%",
        "passes",
        "weighted ",
        "0.9991",
        "53.10 (52.90 to 53.35) GFLOPS per CPU at equal clock; 2 bands:",
        "0.1 to 0.9 CPUs with 50.00 (49.50 to 50.50), 1.0 to 2.0 CPUs with 55.00 (54.00 to 56.00 at 87.5%).",
        "Disturbed by others: 1 of 1 samples, of which 0 are left out, as their quotas have better ones: 0.1 CPUs",
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
        assert!(text.contains(part) || joined.contains(part), "{part}\n{text}");
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
        ("ceil(quota) ", " 0.9999 ", " 6.3% ", "undecided"),
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
    let line = "random,0.1,2,3,2.5,3.25,0.1,0.01,true,4,12.5,2750000000,0.25,,true";
    let csv = csv(&measured());
    assert_eq!(csv.lines().nth(1), Some(line));
    assert_eq!(csv.lines().next().map(|names| names.split(',').count()), Some(line.split(',').count()));
}

#[test]
fn the_figure_has_points_with_lines_and_bands() {
    let mut measured = measured();
    measured.analyses[1].measured.bands.truncate(1);
    let chart = figures::chart(&measured);
    let names: Vec<_> = chart.series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(
        names,
        ["threads: ceil(quota)", "threads: all CPUs", "band 0.1 to 0.9", "band 1.0 to 2.0", "disturbed"]
    );
    let ends = [1.82 / 54.118, 2.0].map(|quota| (quota, 54.118 * quota - 1.82));
    let points = [Point::between(0.1, 3.5, 3.25, 3.75), Point::between(2.0, 106.0, 105.5, 106.5)];
    assert_eq!(chart.series[1], Series::points("threads: all CPUs", points.to_vec()).along(ends.to_vec()));
    let bands = [(0.1, 5.0), (0.9, 45.0)].map(|(x, y)| Point::new(x, y));
    assert_eq!(chart.series[2], Series::line("band 0.1 to 0.9", bands.to_vec()), "joined to no other band");
    assert!(chart.svg().unwrap().contains("CPU quota"));
    let residuals = figures::residuals_chart(&measured);
    assert!((residuals.series.len(), residuals.svg().is_ok()) == (2, true));
}

#[test]
fn an_equivalent_names_the_machine_that_is_in_doubt() {
    let found = |doubts: Value| -> Equivalent {
        serde_json::from_value(serde_json::json!({
            "setting": 1769.0, "setting_sd": 31.4, "gflops": 32.85, "quota": 0.64, "quota_sd": 0.01, "speed": 0.32,
            "speed_sd": 0.005, "both_linear": doubts == serde_json::json!([]), "doubts": doubts,
        }))
        .unwrap()
    };
    let words = |found: &Equivalent| text_of_map(found).split_whitespace().collect::<Vec<_>>().join(" ");
    let text = words(&found(serde_json::json!([])));
    assert!(text.contains("Setting 1769 ± 31.4 of") && text.contains("0.640 ± 0.010 CPUs"), "{text}");
    assert!(text.contains("32% ± 0.5%") && !text.contains("IN DOUBT"), "{text}");
    let residuals = serde_json::json!({"largest_share": 0.21, "at_quota": 0.5, "pass": false});
    let other = serde_json::json!([{"is_local": false, "r_squared": 0.7349, "residuals": residuals}]);
    let residuals = serde_json::json!({"largest_share": 0.01, "at_quota": 0.5, "pass": true});
    let disturbed = words(&found(serde_json::json!([{
        "is_local": true, "r_squared": 0.9999, "residuals": residuals, "is_linear": true, "disturbed_quotas": 3,
    }])));
    let must = "IN DOUBT: others disturbed every sample of this machine at 3 of its quotas.";
    assert!(disturbed.ends_with(must) && !disturbed.contains("follow"), "{disturbed}");
    let found = found(other);
    let text = words(&found);
    assert!(
        text.contains("IN DOUBT: the other machine does not follow a line (R² 0.7349, off it by 21%"),
        "{text}"
    );
    assert!(json(&found).unwrap().contains("\"schema\""));
}

#[test]
fn calibrations_are_laid_over_one_another() {
    let model = measured().analyses[0].measured.clone();
    let one = |name: &str, against_first: Option<f64>| Compared {
        name: name.into(),
        threads: Threads::All,
        model: model.clone(),
        cpus: 2,
        disturbed_quotas: vec![],
        against_first: against_first.map(|share| Interval {
            estimate: share,
            low: share - 0.01,
            high: share + 0.01,
            level: 0.95,
        }),
    };
    let compared = [one("1.a", None), one("acpi-cpufreq", Some(-0.083))];
    let machine = Machine::of(&Host::detect(&Roots::system()).unwrap());
    let text = text_of_comparison(&compared, &[&machine; 2]);
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    for part in ["acpi-cpufreq", "-8.3% ±1.0", "53.10 ±0.2", "106.4"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let chart = chart_of_comparison(&compared);
    assert_eq!(chart.series.len(), 2);
    assert!(chart.svg().unwrap().contains("acpi-cpufreq"));
}

//! What a calibration is shown as.

use emu_bench::report::{Point, Series};
use emu_bench::table::WIDTH;

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
    for (name, r_squared, residual, line) in
        [("ceil(quota) ", " 0.9999 ", " 6.3% ", "FAILS"), ("equal clock ", " 0.9987 ", " 2.3% ", "passes")]
    {
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
        text.contains("a quota of 0.640 ± 0.010 CPUs") && text.contains("32%") && !text.contains("does not")
    );
    let doubtful = text_of_map(&Equivalent { both_linear: false, ..found });
    assert!(doubtful.contains("R²"), "{doubtful}");
    assert!(json(found).unwrap().contains("\"schema\""));
}

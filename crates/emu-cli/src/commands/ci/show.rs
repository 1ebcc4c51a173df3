//! The result of `emu ci` in words, and as Markdown.

use emu_bench::stats::Sample;
use emu_bench::table::{Column, Table, Value, escaped};
use emu_bench::{columns, row};
use emu_core::Delivered;

use super::result::{Report, Tally, Verdict};

const KINDS: [(Verdict, &str); 3] = [
    (Verdict::OnlyWhenSlow, "fails only when slow"),
    (Verdict::Unknown, "fails, and was not run at the first speed"),
    (Verdict::AtFullSpeed, "fails at the first speed, too"),
];

/// The most tests of a kind that people are told; the JSON has them all.
const TOLD: usize = 50;

pub(super) fn text(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = speeds(report).text().lines().map(str::to_owned).collect();
    for (verdict, words) in KINDS {
        let tests: Vec<_> = report.tests_that_fail(verdict).collect();
        lines.extend(tests.iter().take(TOLD).map(|(name, judged)| {
            let failures = report
                .speeds
                .iter()
                .zip(&judged.by_speed)
                .map(|(speed, tally)| format!("{speed}: {} of {}", tally.fails(), tally.runs()));
            let name = name.replace(char::is_control, " ");
            format!("{words}: {name} ({})", failures.collect::<Vec<_>>().join(", "))
        }));
        lines.extend(more(tests.len()));
    }
    lines.push(conclusion(report));
    lines
}

pub(super) fn markdown(report: &Report) -> String {
    let command = escaped(&report.command.join(" "));
    let mut text = format!("## emu ci: {command}\n\n{}\n\n{}", conclusion(report), speeds(report).markdown());
    for (verdict, words) in KINDS {
        let tests: Vec<_> = report.tests_that_fail(verdict).collect();
        if tests.is_empty() {
            continue;
        }
        let columns = [Column::text(format!("test that {words}"))].into_iter();
        let columns =
            columns.chain(report.speeds.iter().map(Column::number)).chain([Column::text("message")]);
        let mut table = Table::new(columns);
        for (name, judged) in tests.iter().take(TOLD) {
            let failures = judged
                .by_speed
                .iter()
                .map(|tally| Value::from(format!("{} of {} fail", tally.fails(), tally.runs())));
            let message = judged.message.as_deref().map_or(Value::Missing, Value::from);
            table.row([Value::from(*name)].into_iter().chain(failures).chain([message]));
        }
        text.push('\n');
        text.push_str(&table.markdown());
        text.extend(more(tests.len()).map(|more| format!("\n{more}\n")));
    }
    text + "\n"
}

fn speeds(report: &Report) -> Table {
    let mut table = Table::new(columns![
        text "SPEED", percent "DELIVERED", number "PASSED", number "FAILED", number "TIMED OUT",
        time "MEDIAN TIME",
    ]);
    for (speed, tally) in report.speeds.iter().zip(&report.by_speed) {
        let runs = || report.runs.iter().filter(|run| run.speed == *speed);
        let times = Sample::new(runs().map(|run| run.wall_ns as f64).collect::<Vec<_>>()).ok();
        let given: Vec<Delivered> = runs().filter_map(|run| run.delivered).collect();
        let given = Delivered::mean(&given).map(|given| given.share);
        let median = times.map(|times| times.median() as u64);
        let Tally { passed, failed, timed_out, .. } = *tally;
        table.row(row![speed, given, u64::from(passed), u64::from(failed), u64::from(timed_out), median]);
    }
    table
}

fn conclusion(report: &Report) -> String {
    let command = match report.verdict {
        Verdict::OnlyWhenSlow => "The command fails or times out only when slow",
        Verdict::AtFullSpeed | Verdict::Unknown => "The command fails at the first speed, too",
        Verdict::Nowhere if report.is_complete => "The command passes at every speed",
        Verdict::Nowhere => "The command passes in every run that was made",
    };
    let begin = if report.is_complete { "" } else { "Not complete. " };
    let slow = match report.tests_that_fail(Verdict::OnlyWhenSlow).count() {
        0 if report.tests.is_empty() => String::new(),
        0 => ", and none of its tests fails only when slow".to_owned(),
        1 => ", and 1 of its tests fails only when slow".to_owned(),
        count => format!(", and {count} of its tests fail only when slow"),
    };
    format!("{begin}{command}{slow}.")
}

fn more(tests: usize) -> Option<String> {
    (tests > TOLD).then(|| format!("{} more like these are in the JSON.", tests - TOLD))
}

#[cfg(test)]
mod tests {
    use super::super::junit::Came;
    use super::super::result::Outcome;
    use super::super::result::testing::{add, report};
    use super::*;

    fn with_a_race() -> Report {
        let mut report = report();
        add(&mut report, 0, Outcome::Passed, &[("a|race", Came::Passed), ("fine", Came::Passed)]);
        add(&mut report, 1, Outcome::TimedOut, &[("a|race", Came::Failed), ("fine", Came::Passed)]);
        report
    }

    #[test]
    fn the_text_names_what_fails_only_when_slow() {
        assert_eq!(
            text(&with_a_race()),
            [
                "SPEED  DELIVERED  PASSED  FAILED  TIMED OUT  MEDIAN TIME",
                "100%           -       1       0          0         1.5s",
                "25%            -       0       0          1         1.5s",
                "fails only when slow: a|race (100%: 0 of 1, 25%: 1 of 1)",
                "The command fails or times out only when slow, and 1 of its tests fails only when slow.",
            ]
        );
    }

    #[test]
    fn what_was_not_run_is_not_said_to_pass() {
        let mut report = report();
        add(&mut report, 0, Outcome::Passed, &[]);
        report.is_complete = false;
        assert_eq!(conclusion(&report), "Not complete. The command passes in every run that was made.");
    }

    #[test]
    fn nothing_of_the_tests_is_markup_in_the_summary() {
        let text = markdown(&with_a_race());
        for part in [
            "## emu ci: make a\\|b\n\nThe command fails",
            "| 25% | - | 0 | 0 | 1 | 1.5s |\n",
            "| a\\|race | 0 of 1 fail | 1 of 1 fail | too &lt;late> |\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("fine"), "{text}");
    }
}

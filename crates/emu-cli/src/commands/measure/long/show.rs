//! A long series and its dips.

use std::time::Duration;

use emu_bench::numbers::{percent, prefix, rate, span};
use emu_bench::report::{Axis, Chart, Point, Series as Drawn};
use emu_bench::table::{notes, paragraph};
use emu_bench::{data, table};
use emu_machine::series::Series;

use crate::output::Shown;

const LISTED: usize = 10;

pub(crate) fn shown(series: &Series) -> Shown {
    Shown { text: text(series), csv: csv(series), figures: vec![("", chart(series))] }
}

fn text(series: &Series) -> String {
    let dips = &series.dips;
    let below =
        if dips.threshold > 0.0 { rate(dips.threshold, &series.unit) } else { "cannot be told".into() };
    let facts = [
        ("work", series.what.clone()),
        ("samples", format!("{}, each {}", series.rates.len(), seconds(series.every_s))),
        ("median", rate(dips.median, &series.unit)),
        ("samples scatter by", percent(dips.scatter)),
        ("a dip is below", below),
        ("dips", dips.dips.len().to_string()),
        ("share of the time", percent(dips.share)),
        ("work lost in them", percent(dips.lost_share)),
        ("period", series.period_s().map_or_else(|| "none".into(), seconds)),
    ];
    let mut text = table! { for (name, fact) in facts; text "SERIES" = name, text "" = fact }.text();
    if !dips.dips.is_empty() {
        let mut deepest: Vec<_> = dips.dips.iter().collect();
        deepest.sort_by(|a, b| a.lowest.total_cmp(&b.lowest));
        let table = table! {
            for dip in deepest.iter().take(LISTED);
            number "AT" = seconds(dip.begin as f64 * series.every_s),
            number "LENGTH" = seconds(dip.values as f64 * series.every_s),
            percent "OF THE MEDIAN" = dip.lowest,
        };
        text = format!("{text}\n{}", table.text());
    }
    if !series.notes.is_empty() {
        text = format!("{text}\n{}", notes(&series.notes));
    }
    format!("{text}\n{}", paragraph(conclusion(series)))
}

fn conclusion(series: &Series) -> String {
    let dips = &series.dips;
    let time = seconds(series.every_s * series.rates.len() as f64);
    let others = "Undecided: others had a part of the CPUs meanwhile";
    if dips.dips.is_empty() {
        let scatter = percent(dips.scatter);
        return match (dips.is_blind(), series.disturbed) {
            (true, _) => {
                format!("Undecided: samples scatter by {scatter}, so that a dip cannot be told from others.")
            }
            (false, true) => {
                format!("{others}, so that what seems usual may be less. No dip was seen in {time}.")
            }
            (false, false) => format!("For {time} the machine gave as much as usual, without a dip."),
        };
    }
    let count = dips.dips.len();
    let how = match series.period_s() {
        Some(period) => format!("every {}", seconds(period)),
        None => "at no regular times".to_owned(),
    };
    let of_others = match series.disturbed_dips() {
        0 => String::new(),
        some => format!(", {some} of which came while others had a part of the CPUs"),
    };
    let dips = format!(
        "For {} of {time} the machine gave less than usual, {how}: {} of the work was lost in {count} dip{}{of_others}.",
        percent(dips.share),
        percent(dips.lost_share),
        if count == 1 { "" } else { "s" }
    );
    if series.disturbed { format!("{others}, and dips may be theirs. {dips}") } else { dips }
}

fn seconds(seconds: f64) -> String {
    span(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

fn csv(series: &Series) -> String {
    let table = data! {
        for step in series.rates.iter().enumerate();
        at_s = step.0 as f64 * series.every_s, rate = *step.1, dipped = *step.1 < series.dips.threshold,
        disturbed = series.disturbed_steps.contains(&step.0),
    };
    table.csv()
}

fn chart(series: &Series) -> Chart {
    let (scale, prefix) = prefix(series.dips.median);
    let points = series.rates.iter().enumerate();
    let points = points.map(|(number, rate)| Point::new(number as f64 * series.every_s, rate / scale));
    let all = points.collect::<Vec<_>>();
    let end = series.rates.len() as f64 * series.every_s;
    let threshold = series.dips.threshold / scale;
    let y = Axis::linear(format!("rate, {prefix}{}/s", series.unit));
    Chart::new(&series.what, Axis::linear("time, s"), y, vec![Drawn::line("rate", all)])
        .with_ideal("a dip is below", vec![(0.0, threshold), (end, threshold)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_bench::stats::{Dips, Sample};

    fn series(period: usize) -> Series {
        let rate = |number: usize| if number % period == period - 1 { 0.6e9 } else { 1.2e9 };
        let rates: Vec<f64> = (0..120).map(rate).collect();
        let dips = Dips::of(&Sample::new(rates.clone()).unwrap()).unwrap();
        Series {
            what: "double mixed, 2 threads".into(),
            unit: "operations".into(),
            every_s: 1.0,
            rates,
            dips,
            disturbed: false,
            disturbed_steps: vec![],
            notes: vec![],
        }
    }

    #[test]
    fn dips_are_told_with_their_period_and_share() {
        let text = text(&series(15));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let text = text.replace('\n', " ");
        for words in
            ["1.2 Goperations/s", "For 6.67% of 2m00s", "every 15s", "3.33% of the work", "in 8 dips"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        let svg = chart(&series(15)).svg().unwrap();
        assert!(svg.contains("a dip is below") && svg.contains("rate, Goperations/s"), "{svg}");
        let noted = Series { notes: vec!["Cannot tell.".into()], ..series(15) };
        assert!(self::text(&noted).contains("\n\nCannot tell.\n\nFor 6.67%"));
    }

    #[test]
    fn a_series_that_scatters_or_was_disturbed_decides_nothing() {
        let rates: Vec<f64> = (0..120).map(|number| if number % 2 == 0 { 1.2e9 } else { 0.1e9 }).collect();
        let dips = Dips::of(&Sample::new(rates.clone()).unwrap()).unwrap();
        let wild = text(&Series { rates, dips, ..series(15) });
        assert!(!wild.contains('-') && wild.contains("cannot be told"), "{wild}");
        assert!(wild.contains("\n\nUndecided: samples scatter by 125.5%"), "{wild}");
        let disturbed = |period| conclusion(&Series { disturbed: true, ..series(period) });
        assert!(disturbed(1000).starts_with("Undecided: others had") && disturbed(1000).contains("No dip"));
        assert!(disturbed(15).starts_with("Undecided: others had") && disturbed(15).contains("in 8 dips"));
    }

    #[test]
    fn a_dip_while_others_had_cpus_is_told_as_such() {
        let some = Series { disturbed_steps: vec![3, 14, 29, 31], ..series(15) };
        let words = "in 8 dips, 2 of which came while others had a part of the CPUs.";
        assert!(conclusion(&some).ends_with(words), "{}", conclusion(&some));
        assert_eq!(csv(&some).matches("true,true").count(), 2);
    }

    #[test]
    fn a_quiet_machine_has_none() {
        let quiet = series(1000);
        assert!(text(&quiet).ends_with("For 2m00s the machine gave as much as usual, without a dip.\n"));
        assert_eq!(csv(&quiet).lines().count(), 121);
        assert!(!csv(&quiet).contains("true") && csv(&series(15)).contains("true"));
    }
}

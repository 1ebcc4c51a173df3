//! The tables for people: the same on the page, in Markdown and on a terminal.

use super::published::Reproduced;
use super::results::{Furthest, Judged, Results, ground_name};
use crate::numbers::{percent, range, signed};
use crate::row;
use crate::stats::{Interval, Spread, Verdict};
use crate::table::{Column, Judgement, Table, Value};

impl Results {
    /// How far each method is from the ideal, on each kind of work.
    pub fn fidelity_table(&self) -> Table {
        let methods = self.methods();
        let columns = methods.iter().map(|method| Column::verdict(method.as_str()));
        let mut table = Table::new([Column::text("work")].into_iter().chain(columns));
        for ground in &self.grounds {
            let cells = methods.iter().map(|method| self.judged(*method, ground).map(judgement).into());
            table.row([Value::from(ground.name())].into_iter().chain(cells));
        }
        table
    }

    /// Each method over all.
    pub fn totals_table(&self) -> Table {
        let mut table = Table::new([
            Column::text("method"),
            Column::fixed("score", 0),
            Column::text("worst work"),
            Column::time("longest stall"),
            Column::percent("own CPU"),
        ]);
        for total in self.totals.iter().filter(|total| self.methods().contains(&total.contender)) {
            table.row(row![
                total.contender,
                total.score,
                &total.worst,
                total.longest_stall_ns,
                total.own_cpu
            ]);
        }
        table
    }

    /// Each method beside each other tool.
    pub fn beside_table(&self) -> Table {
        let mut table = Table::new([
            Column::text("work"),
            Column::percent("asked"),
            Column::text("method"),
            Column::text("beside"),
            Column::text("standing"),
            Column::change("further off").with_interval(),
        ]);
        for one in &self.beside {
            let name = ground_name(&one.workload, one.cores);
            table.row(row![name, one.share, one.method, one.tool, one.standing.to_string(), one.lead]);
        }
        table
    }

    /// What was published beside what was found. Why something could not be measured is told elsewhere.
    pub fn published_table(&self) -> Table {
        let names = ["work", "method", "published", "here"].map(Column::text);
        let names = [Column::number("slide")].into_iter().chain(names).chain([Column::verdict("reproduced")]);
        let mut table = Table::new(names);
        for one in &self.published {
            let verdict = match one.reproduced {
                Reproduced::Yes => Verdict::Pass,
                Reproduced::No => Verdict::Fail,
                _ => Verdict::NotEnoughData { pairs_needed: None },
            };
            let word = Some(one.reproduced.as_str());
            let found = (one.reproduced != Reproduced::NotMeasured).then_some(&one.found);
            let judged = Judgement { word, ..verdict.into() };
            table.row(row![one.slide, &one.ground, one.contender, one.says.as_str(), found, judged]);
        }
        table
    }
}

/// The error of the speed that is furthest off, which speed that is, its interval, the mean over all, and why there is no
/// verdict.
fn judgement(one: &Judged) -> Judgement {
    let mut remarks = Vec::new();
    if let Some(Furthest { share, relative }) = &one.furthest {
        remarks.push(format!("{} at {}", ends(relative), percent(*share)));
    }
    remarks.extend(one.fidelity.map(|fidelity| format!("mean {}", signed(fidelity.bias.estimate))));
    remarks.extend(match (one.doubt_in_words(), one.verdict) {
        (None, Verdict::NotEnoughData { pairs_needed: Some(pairs) }) => {
            Some(format!("{pairs} pairs would decide"))
        }
        (None, Verdict::NotEnoughData { pairs_needed: None }) => {
            Some("too near the tolerance to be decided".into())
        }
        (doubt, _) => doubt,
    });
    Judgement { error: one.furthest.map(|furthest| furthest.error()), remarks, ..one.verdict.into() }
}

/// `-1.9 to +2.0%`: how far the ends of a ratio's interval are from 1.
fn ends(ratio: &Interval) -> String {
    range(&signed(ratio.low - 1.0), &signed(ratio.high - 1.0))
}

pub(super) fn granularity(results: &Results) -> Table {
    let windows = results.smoothness.first().map(|one| one.spectrum.granularity.windows.as_slice());
    let lengths = windows.unwrap_or_default().iter();
    let lengths = lengths.map(|window| Column::percent(format!("{} ms", window.length_ms)));
    let ends = [Column::number("smooth from"), Column::time("longest stall")];
    let mut table = Table::new([Column::text("method")].into_iter().chain(lengths).chain(ends));
    for one in &results.smoothness {
        let granularity = &one.spectrum.granularity;
        let mut row = row![format!("{} at {}", one.contender, percent(one.share))];
        row.extend(granularity.windows.iter().map(|window| match window.spread {
            Spread::Cv(cv) => cv.into(),
            Spread::NoWork => "no work".into(),
            Spread::SeriesTooShort | Spread::StampsTooSparse => None::<f64>.into(),
        }));
        let smooth_from = granularity.smooth_from_ms.map_or_else(|| "none".into(), |ms| format!("{ms} ms"));
        row.extend(row![smooth_from, granularity.longest_stall_ns]);
        table.row(row);
    }
    table
}

pub(super) fn noise(results: &Results) -> Table {
    let mut table = Table::new([
        Column::text("work"),
        Column::number("native against native"),
        Column::percent("pairs differ by"),
        Column::percent("smallest effect found"),
    ]);
    for ground in &results.grounds {
        table.row(match ground.aa {
            None => row![ground.name(), "too few controls"],
            Some(aa) => row![ground.name(), ends(&aa.ratio), aa.floor, aa.detectable],
        });
    }
    table
}

pub(super) fn cells(results: &Results) -> Table {
    let mut table = Table::new([
        Column::text("work"),
        Column::text("method"),
        Column::percent("asked"),
        Column::percent("ideal"),
        Column::percent("perceived"),
        Column::change("error"),
        Column::number("95% interval"),
        Column::verdict("verdict"),
        Column::number("pairs"),
        Column::number("disturbed"),
        Column::number("far off"),
        Column::time("stall"),
        Column::number("missed periods"),
    ]);
    for ground in &results.grounds {
        for cell in results.cells_of(ground) {
            let finding = &cell.finding;
            let remarks = finding.doubt.iter().map(ToString::to_string).collect();
            table.row(row![
                ground.name(),
                cell.contender,
                cell.share,
                finding.ideal,
                finding.ratio.estimate,
                finding.error(),
                ends(&finding.relative),
                Judgement { remarks, ..finding.verdict.into() },
                finding.pairs,
                finding.tainted,
                format!("{} beyond {}", finding.outliers.pairs, percent(finding.outliers.beyond)),
                finding.longest_stall_ns,
                (finding.periods > 0).then(|| format!("{} of {}", finding.missed, finding.periods)),
            ]);
        }
    }
    table
}

pub(super) fn lines(results: &Results) -> Table {
    let mut table = Table::new([
        Column::text("work"),
        Column::text("method"),
        Column::fixed("slope", 3).with_interval(),
        Column::fixed("SE", 3),
        Column::fixed("intercept, GHz", 3).with_interval(),
        Column::fixed("SE", 3),
        Column::fixed("R²", 4),
        Column::number("p of the slope"),
        Column::fixed("elasticity", 2),
    ]);
    for one in &results.fidelity {
        let Some(line) = one.line else { continue };
        table.row(row![
            ground_name(&one.workload, one.cores),
            one.contender,
            line.slope.interval,
            line.slope.standard_error,
            line.intercept.interval,
            line.intercept.standard_error,
            line.r_squared,
            line.slope.p.map(|p| format!("{p:.1e}")),
            one.fidelity.and_then(|fidelity| fidelity.elasticity).map(|elasticity| elasticity.estimate),
        ]);
    }
    table
}

pub(super) fn unavailable(results: &Results) -> Table {
    let mut table = Table::new(["method", "asked for", "why not", "what helps"].map(Column::text));
    for refusal in &results.unavailable {
        let wanted = if refusal.wanted.is_empty() { "anything" } else { &refusal.wanted };
        let hint = refusal.hint.as_deref().unwrap_or_default();
        table.row(row![refusal.contender, wanted, &refusal.why, hint]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::testing::{cell, judged};
    use super::*;

    #[test]
    fn errors_that_cancel_out_do_not_look_right() {
        let off = |share: f64, error: f64| cell(share, &[share * (1.0 + error); 12], 0);
        let cells = [off(0.2, 0.3), off(0.4, 0.3), off(0.6, -0.23), off(0.8, -0.23)];
        let shown = judgement(&judged(&cells));
        assert_eq!((shown.verdict, shown.error.map(signed).as_deref()), (Verdict::Fail, Some("+30.0%")));
        assert!(shown.remarks.concat().contains("at 40%"), "{shown:?}");
    }

    #[test]
    fn what_is_not_decided_says_why() {
        let few = judgement(&judged(&[cell(0.4, &[0.4, 0.41, 0.4], 0)]));
        assert!(few.remarks.iter().any(|one| one == "6 pairs would decide"), "{few:?}");
        let disturbed = judgement(&judged(&[cell(0.4, &[0.4; 12], 12)]));
        assert_eq!(disturbed.error, None);
        assert!(disturbed.remarks.concat().contains("12 of 12 pairs were disturbed"), "{disturbed:?}");
    }
}

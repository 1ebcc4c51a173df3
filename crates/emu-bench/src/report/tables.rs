//! The tables for people: the same on the page, in Markdown and on a terminal.

use super::published::Reproduced;
use super::results::{Furthest, Judged, Results, ground_name};
use crate::numbers::{percent, range, signed};
use crate::stats::{Interval, Spread, Verdict};
use crate::table::{Column, Judgement, Table, Value};
use crate::{columns, row};

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
        let mut table = Table::new(columns![
            text "method", fixed(0) "score", text "worst work", time "longest stall", percent "own CPU",
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
        let mut table = Table::new(columns![
            text "work", percent "asked", text "method", text "beside", text "standing",
            change "further off".with_interval(),
        ]);
        for one in &self.beside {
            let name = ground_name(&one.workload, one.cores);
            table.row(row![name, one.share, one.method, one.tool, one.standing.to_string(), one.lead]);
        }
        table
    }

    /// What was published beside what was found. Why something could not be measured is told elsewhere.
    pub fn published_table(&self) -> Table {
        let mut table = Table::new(columns![
            number "slide", text "work", text "method", text "published", text "here", verdict "reproduced",
        ]);
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
    let mut table = Table::new(columns![
        text "work", number "native against native", percent "pairs differ by", percent "smallest effect found",
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
    let mut table = Table::new(columns![
        text "work", text "method", percent "asked", percent "ideal", percent "perceived", change "error",
        number "95% interval", verdict "verdict", number "pairs", number "disturbed", number "far off",
        time "stall", number "missed periods",
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
    let mut table = Table::new(columns![
        text "work", text "method", fixed(3) "slope".with_interval(), fixed(3) "SE",
        fixed(3) "intercept, GHz".with_interval(), fixed(3) "SE", fixed(4) "R²", number "p of the slope",
        fixed(2) "elasticity",
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
    let mut table = Table::new(columns![text "method", text "asked for", text "why not", text "what helps"]);
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

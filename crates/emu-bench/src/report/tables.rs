//! The tables for people: the same on the page, in Markdown and on a terminal.

use super::published::Reproduced;
use super::results::{Furthest, Judged, Results, ground_name};
use crate::numbers::{percent, range, signed};
use crate::stats::{Interval, Spread, Verdict};
use crate::table::{Column, Judgement, Table, Value};
use crate::{columns, row, table};

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
        table! {
            for total in self.totals.iter().filter(|total| self.methods().contains(&total.contender));
            text "method" = total.contender,
            fixed(0) "score" = total.score,
            text "worst work" = &total.worst,
            time "longest stall" = total.longest_stall_ns,
            percent "own CPU" = total.own_cpu,
        }
    }

    /// Each method beside each other tool.
    pub fn beside_table(&self) -> Table {
        table! {
            for one in &self.beside;
            text "work" = ground_name(&one.workload, one.cores),
            percent "asked" = one.share,
            text "method" = one.method,
            text "beside" = one.tool,
            text "standing" = one.standing.to_string(),
            change "further off".with_interval() = one.lead,
        }
    }

    /// What was published beside what was found. Why something could not be measured is told elsewhere.
    pub fn published_table(&self) -> Table {
        let judged = |reproduced: Reproduced| {
            let verdict = match reproduced {
                Reproduced::Yes => Verdict::Pass,
                Reproduced::No => Verdict::Fail,
                _ => Verdict::NotEnoughData { pairs_needed: None },
            };
            Judgement { word: Some(reproduced.as_str()), ..verdict.into() }
        };
        table! {
            for one in &self.published;
            number "slide" = one.slide,
            text "work" = &one.ground,
            text "method" = one.contender,
            text "published" = one.says.as_str(),
            text "here" = (one.reproduced != Reproduced::NotMeasured).then_some(&one.found),
            verdict "reproduced" = judged(one.reproduced),
        }
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
    let of = |ground| results.cells_of(ground).into_iter().map(move |cell| (ground, cell, &cell.finding));
    table! {
        for (ground, cell, finding) in results.grounds.iter().flat_map(of);
        text "work" = ground.name(),
        text "method" = cell.contender,
        percent "asked" = cell.share,
        percent "ideal" = finding.ideal,
        percent "perceived" = finding.ratio.estimate,
        change "error" = finding.error(),
        number "95% interval" = ends(&finding.relative),
        verdict "verdict" = {
            let remarks = finding.doubt.iter().map(ToString::to_string).collect();
            Judgement { remarks, ..finding.verdict.into() }
        },
        number "pairs" = finding.pairs,
        number "disturbed" = finding.tainted,
        number "far off" = format!("{} beyond {}", finding.outliers.pairs, percent(finding.outliers.beyond)),
        time "stall" = finding.longest_stall_ns,
        number "missed periods" =
            (finding.periods > 0).then(|| format!("{} of {}", finding.missed, finding.periods)),
    }
}

pub(super) fn lines(results: &Results) -> Table {
    table! {
        for (one, line) in results.fidelity.iter().filter_map(|one| Some((one, one.line?)));
        text "work" = ground_name(&one.workload, one.cores),
        text "method" = one.contender,
        fixed(3) "slope".with_interval() = line.slope.interval,
        fixed(3) "SE" = line.slope.standard_error,
        fixed(3) "intercept, GHz".with_interval() = line.intercept.interval,
        fixed(3) "SE" = line.intercept.standard_error,
        fixed(4) "R²" = line.r_squared,
        number "p of the slope" = line.slope.p.map(|p| format!("{p:.1e}")),
        fixed(2) "elasticity" =
            one.fidelity.and_then(|fidelity| fidelity.elasticity).map(|elasticity| elasticity.estimate),
    }
}

pub(super) fn unavailable(results: &Results) -> Table {
    table! {
        for refusal in &results.unavailable;
        text "method" = refusal.contender,
        text "asked for" = if refusal.wanted.is_empty() { "anything" } else { &refusal.wanted },
        text "why not" = &refusal.why,
        text "what helps" = refusal.hint.as_deref().unwrap_or_default(),
    }
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

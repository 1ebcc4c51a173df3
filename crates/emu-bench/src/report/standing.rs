//! How the methods do beside other tools.

use std::collections::BTreeMap;

use emu_core::Result;

use super::measured::Measured;
use super::results::{Beside, CellResult, Standing};
use crate::experiment::NONE;
use crate::external::external;
use crate::stats::{Bootstrap, Interval, Level, Sample};

/// A tool whose median is nearer by less than this share is level with the method: no program notices that.
const MARGIN: f64 = 0.01;

impl Standing {
    fn of(lead: &Interval) -> Self {
        match lead {
            lead if lead.low > 0.0 => Self::Ahead,
            lead if lead.high < 0.0 => Self::Behind,
            lead if lead.low > -MARGIN => Self::Level,
            _ => Self::Untold,
        }
    }
}

pub(super) fn beside(measured: &[Measured<'_>], cells: &[CellResult], seed: u64) -> Result<Vec<Beside>> {
    let both = || measured.iter().zip(cells);
    let mut all = Vec::new();
    for (ours, cell) in
        both().filter(|(_, cell)| cell.contender != NONE && external(cell.contender).is_none())
    {
        let is_rival = |rival: &CellResult| {
            external(rival.contender).is_some()
                && (&rival.workload, rival.cores, rival.share) == (&cell.workload, cell.cores, cell.share)
        };
        for (theirs, rival) in both().filter(|(_, rival)| is_rival(rival)) {
            let lead = lead(&errors(ours, cell)?, &errors(theirs, rival)?, seed)?;
            all.push(Beside {
                workload: cell.workload.clone(),
                cores: cell.cores,
                share: cell.share,
                method: cell.contender,
                tool: rival.contender,
                standing: lead.as_ref().map_or(Standing::Untold, Standing::of),
                lead,
            });
        }
    }
    Ok(all)
}

/// By the number of its round, as a share.
fn errors(measured: &Measured<'_>, cell: &CellResult) -> Result<BTreeMap<usize, f64>> {
    let error = |(number, pair): (usize, crate::stats::Pair)| {
        (number, pair.log_ratio().exp() / cell.finding.ideal - 1.0)
    };
    Ok(measured.numbered_rates()?.into_iter().map(error).collect())
}

/// How much further their median is from what was asked than ours, bootstrapped over the rounds in which both pairs were
/// undisturbed: in a round both met the same machine. Of few rounds, how much further they are in a round, by signed ranks.
fn lead(ours: &BTreeMap<usize, f64>, theirs: &BTreeMap<usize, f64>, seed: u64) -> Result<Option<Interval>> {
    let rounds: Vec<_> = ours.iter().filter_map(|(number, own)| Some((*own, *theirs.get(number)?))).collect();
    if rounds.is_empty() {
        return Ok(None);
    }
    if rounds.len() < Bootstrap::UNITS_MIN {
        let further = rounds.iter().map(|(ours, theirs)| theirs.abs() - ours.abs()).collect::<Vec<_>>();
        let lead = Interval::of_differences(&Sample::new(further)?, Level::P95);
        return Ok(lead.reaches(Level::P95).then_some(lead));
    }
    let distance = |errors: Vec<f64>| Sample::new(errors).map_or(f64::NAN, |errors| errors.median().abs());
    Bootstrap::new(seed)
        .percentile(&rounds, Level::P95, |rounds| {
            distance(rounds.iter().map(|round| round.1).collect())
                - distance(rounds.iter().map(|round| round.0).collect())
        })
        .map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(errors: impl Fn(usize) -> f64) -> BTreeMap<usize, f64> {
        (0..15).map(|number| (number, errors(number))).collect()
    }

    fn standing(ours: &BTreeMap<usize, f64>, theirs: &BTreeMap<usize, f64>) -> Standing {
        Standing::of(&lead(ours, theirs, 1).unwrap().unwrap())
    }

    #[test]
    fn the_nearer_median_is_ahead_whichever_side_it_is_on() {
        let near = rounds(|number| 0.001 * (number % 3) as f64);
        let far = rounds(|number| -0.2 - 0.001 * (number % 3) as f64);
        assert_eq!(standing(&near, &far), Standing::Ahead);
        assert_eq!(standing(&far, &near), Standing::Behind);
        assert_eq!(standing(&near, &near), Standing::Level);
    }

    #[test]
    fn what_varies_widely_cannot_be_told() {
        let wide =
            |phase: usize| rounds(move |number| if (number + phase).is_multiple_of(2) { 0.3 } else { -0.02 });
        assert_eq!(standing(&wide(0), &wide(1)), Standing::Untold);
    }

    #[test]
    fn six_rounds_tell_who_is_ahead() {
        let of = |error: f64, count: usize| -> BTreeMap<_, _> {
            (0..count).map(|number| (number, error + 0.001 * (number % 3) as f64)).collect()
        };
        assert_eq!(standing(&of(0.0, 6), &of(-0.2, 6)), Standing::Ahead);
        assert_eq!(standing(&of(0.0, 6), &of(0.003, 6)), Standing::Ahead);
        assert!(lead(&of(0.0, 5), &of(-0.2, 5), 1).unwrap().is_none());
    }

    #[test]
    fn rounds_that_one_of_both_lacks_do_not_count() {
        let few = rounds(|_| 0.0).into_iter().take(1).collect();
        assert!(lead(&few, &rounds(|_| 0.1), 1).unwrap().is_none());
    }
}

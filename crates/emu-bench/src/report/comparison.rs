//! What was published, beside what is measured here.

use std::ops::RangeInclusive;

use emu_core::MethodId;

use super::published::{Compared, Reproduced, SLIDES, Says};
use super::results::{CellResult, Results, ground_name};
use crate::numbers::{percent, signed};
use crate::stats::{Band, Interval, Level, Verdict, slope_through_origin};

/// How near to proportional is as good as what can be seen in a published figure.
const BAND: f64 = 0.10;

pub(super) fn compare(results: &Results) -> Vec<Compared> {
    let statements = SLIDES.iter().flat_map(|&(slide, workload, cores, statements)| {
        let each =
            statements.iter().flat_map(|(contenders, says)| contenders.iter().map(move |of| (*of, *says)));
        each.map(move |(contender, says)| (slide, workload, cores, contender, says))
    });
    let compared = |(slide, workload, cores, contender, says): (_, &str, _, _, _)| {
        let is_meant = |cell: &&CellResult| {
            (cell.contender, cell.workload.as_str(), cell.cores) == (contender, workload, cores)
        };
        let cells: Vec<_> = results.cells.iter().filter(is_meant).collect();
        let (found, reproduced) = if cells.is_empty() {
            (why_not(results, contender), Reproduced::NotMeasured)
        } else {
            judge(&cells, says)
        };
        Compared { slide, contender, ground: ground_name(workload, cores), says, found, reproduced }
    };
    statements.map(compared).collect()
}

fn why_not(results: &Results, contender: MethodId) -> String {
    let refusal = results.unavailable.iter().find(|refusal| refusal.contender == contender);
    refusal.map_or_else(|| "it was left out".into(), |refusal| refusal.why.clone())
}

fn judge(cells: &[&CellResult], says: Says) -> (String, Reproduced) {
    let mut sorted = cells.to_vec();
    sorted.sort_by(|a, b| a.share.total_cmp(&b.share));
    let counting: Vec<_> = sorted.iter().copied().filter(|cell| cell.finding.pairs > 0).collect();
    let elasticity = elasticity(&counting);
    let found = match (says, elasticity) {
        (Says::Flat | Says::Scales, Some(Interval { estimate, .. })) => {
            format!("{}; elasticity {estimate:.2}", speeds(&sorted))
        }
        (Says::Flat | Says::Scales, None) => speeds(&sorted),
        (Says::Right | Says::Wrong | Says::TwiceTooSlow, _) => errors(&sorted),
    };
    // Two or three pairs have no interval of that level.
    let decides =
        |cell: &&CellResult| cell.finding.relative.reaches(Level::P95) && !cell.finding.is_disturbed();
    if !sorted.iter().all(decides) {
        return (found, Reproduced::NotEnoughData);
    }
    let reproduced = match says {
        Says::Right | Says::Wrong => is_right(&sorted, says == Says::Right),
        Says::TwiceTooSlow => is_half(&sorted),
        Says::Flat => elasticity.map_or(Reproduced::NotEnoughData, is_flat),
        Says::Scales => elasticity.map_or(Reproduced::NotEnoughData, scales),
    };
    (found, reproduced)
}

/// The slope of the logarithm of the speed over that of the frequency, through full speed at full frequency.
fn elasticity(cells: &[&CellResult]) -> Option<Interval> {
    let logs =
        |value: fn(&CellResult) -> f64| -> Vec<f64> { cells.iter().map(|cell| value(cell).ln()).collect() };
    let (shares, ratios) = (logs(|cell| cell.share), logs(|cell| cell.finding.ratio.estimate));
    slope_through_origin(&shares, &ratios, Level::P95).ok().map(|slope| slope.interval)
}

/// The elasticity is 1 where the speed falls like the frequency.
fn is_flat(elasticity: Interval) -> Reproduced {
    const FLAT: f64 = 0.25;
    match elasticity {
        Interval { high, .. } if high < FLAT => Reproduced::Yes,
        Interval { low, .. } if low > FLAT => Reproduced::No,
        _ => Reproduced::NotEnoughData,
    }
}

fn scales(elasticity: Interval) -> Reproduced {
    const SCALES: f64 = 0.5;
    match elasticity {
        Interval { low, .. } if low > SCALES => Reproduced::Yes,
        Interval { high, .. } if high < SCALES => Reproduced::No,
        _ => Reproduced::NotEnoughData,
    }
}

fn is_right(cells: &[&CellResult], wanted: bool) -> Reproduced {
    let verdicts =
        cells.iter().filter_map(|cell| cell.finding.within(Band::new(BAND).ok()?, Level::P95).ok());
    reproduced(verdicts, wanted)
}

/// Whether every speed is about half of what it should be, or one is not.
fn is_half(cells: &[&CellResult]) -> Reproduced {
    const HALF: RangeInclusive<f64> = 0.4..=0.67;
    let verdict = |cell: &&CellResult| match cell.finding.relative_beside_controls() {
        Interval { low, high, .. } if HALF.contains(&low) && HALF.contains(&high) => Verdict::Pass,
        Interval { low, high, .. } if high < *HALF.start() || low > *HALF.end() => Verdict::Fail,
        _ => Verdict::NotEnoughData { pairs_needed: None },
    };
    reproduced(cells.iter().map(verdict), true)
}

/// Whether a statement about every speed holds as it was published.
fn reproduced(verdicts: impl Iterator<Item = Verdict>, wanted: bool) -> Reproduced {
    match Verdict::of_all(verdicts) {
        Some(Verdict::Pass) if wanted => Reproduced::Yes,
        Some(Verdict::Fail) if !wanted => Reproduced::Yes,
        Some(Verdict::NotEnoughData { .. }) | None => Reproduced::NotEnoughData,
        Some(_) => Reproduced::No,
    }
}

/// `-44.0% at 20%, -17.2% at 80%`: the error at each speed.
fn errors(cells: &[&CellResult]) -> String {
    listed(cells, |cell| signed(cell.finding.error()))
}

/// `22% at 20%, 81% at 80%`
fn speeds(cells: &[&CellResult]) -> String {
    listed(cells, |cell| percent(cell.finding.ratio.estimate))
}

fn listed(cells: &[&CellResult], value: impl Fn(&CellResult) -> String) -> String {
    // What only disturbed pairs show is no finding.
    let found = |cell: &CellResult| if cell.finding.pairs > 0 { value(cell) } else { "disturbed".into() };
    let all = cells.iter().map(|cell| format!("{} at {}", found(cell), percent(cell.share)));
    all.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::testing::cell;
    use super::*;

    /// At 20, 40, 60 and 80 %, with these errors; the first cells are disturbed.
    fn judged(errors: [f64; 4], disturbed: usize, says: Says) -> (String, Reproduced) {
        let cells: Vec<_> = errors
            .iter()
            .enumerate()
            .map(|(place, error)| {
                let share = 0.2 * (place + 1) as f64;
                cell(share, &[share * (1.0 + error); 12], if place < disturbed { 12 } else { 0 })
            })
            .collect();
        judge(&cells.iter().collect::<Vec<_>>(), says)
    }

    #[test]
    fn twice_too_slow_is_said_of_every_speed() {
        let half = |errors| judged(errors, 0, Says::TwiceTooSlow).1;
        assert_eq!(half([-0.5, -0.52, -0.47, -0.4]), Reproduced::Yes);
        assert_eq!(half([-0.5, 0.0, 0.0, 0.0]), Reproduced::No);
        assert_eq!(half([0.0, -0.5, -0.5, -0.5]), Reproduced::No);
        let undecided = judged([-0.5; 4], 1, Says::TwiceTooSlow);
        assert_eq!(undecided.1, Reproduced::NotEnoughData);
    }

    #[test]
    fn what_only_disturbed_pairs_show_is_no_finding() {
        for says in [Says::Right, Says::Scales, Says::TwiceTooSlow] {
            let (found, reproduced) = judged([-0.99, -0.9, -0.8, -0.7], 4, says);
            assert_eq!(found, "disturbed at 20%, disturbed at 40%, disturbed at 60%, disturbed at 80%");
            assert_eq!(reproduced, Reproduced::NotEnoughData);
        }
        let (found, _) = judged([-0.9, 0.0, 0.0, 0.0], 1, Says::Scales);
        assert_eq!(found, "disturbed at 20%, 40% at 40%, 60% at 60%, 80% at 80%; elasticity 1.00");
    }

    #[test]
    fn what_an_interval_does_not_settle_is_not_enough_data() {
        let of = |low, high| Interval { estimate: f64::midpoint(low, high), low, high, level: 0.95 };
        let both = |low, high| (is_flat(of(low, high)), scales(of(low, high)));
        assert_eq!(both(-0.05, 0.1), (Reproduced::Yes, Reproduced::No));
        assert_eq!(both(0.9, 1.05), (Reproduced::No, Reproduced::Yes));
        assert_eq!(both(0.3, 0.4), (Reproduced::No, Reproduced::No));
        assert_eq!(both(0.2, 0.6), (Reproduced::NotEnoughData, Reproduced::NotEnoughData));
    }
}

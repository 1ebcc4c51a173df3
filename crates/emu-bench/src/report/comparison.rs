//! What was published, beside what is measured here.

use emu_core::MethodId;

use super::published::{Compared, Reproduced, SLIDES, Says};
use super::results::{CellResult, Results, ground_name};
use crate::numbers::{percent, signed};
use crate::stats::{Band, Interval, Level, Verdict, slope_through_origin};

/// How near to proportional is as good as what can be seen in a published figure.
const BAND: f64 = 0.10;

pub(super) fn compare(results: &Results) -> Vec<Compared> {
    let mut all = Vec::new();
    for &(slide, workload, cores, statements) in SLIDES {
        for &(contenders, says) in statements {
            for &contender in contenders {
                let cells: Vec<_> = results
                    .cells
                    .iter()
                    .filter(|cell| {
                        (cell.contender, cell.workload.as_str(), cell.cores) == (contender, workload, cores)
                    })
                    .collect();
                let (found, reproduced) = if cells.is_empty() {
                    (why_not(results, contender), Reproduced::NotMeasured)
                } else {
                    judge(&cells, says)
                };
                all.push(Compared {
                    slide,
                    contender,
                    ground: ground_name(workload, cores),
                    says,
                    found,
                    reproduced,
                });
            }
        }
    }
    all
}

fn why_not(results: &Results, contender: MethodId) -> String {
    let refusal = results.unavailable.iter().find(|refusal| refusal.contender == contender);
    refusal.map_or_else(|| "it was left out".into(), |refusal| refusal.why.clone())
}

fn judge(cells: &[&CellResult], says: Says) -> (String, Reproduced) {
    let mut sorted = cells.to_vec();
    sorted.sort_by(|a, b| a.share.total_cmp(&b.share));
    let elasticity = elasticity(&sorted);
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
    match Verdict::of_all(verdicts) {
        Some(Verdict::Pass) if wanted => Reproduced::Yes,
        Some(Verdict::Fail) if !wanted => Reproduced::Yes,
        Some(Verdict::NotEnoughData { .. }) | None => Reproduced::NotEnoughData,
        Some(_) => Reproduced::No,
    }
}

/// Judged at the slowest speed, where the published difference is largest.
fn is_half(cells: &[&CellResult]) -> Reproduced {
    let Some(slowest) = cells.first() else { return Reproduced::NotMeasured };
    let relative = &slowest.finding.relative;
    let (low, high) = (0.4, 0.67);
    if relative.low >= low && relative.high <= high {
        Reproduced::Yes
    } else if relative.high < low || relative.low > high {
        Reproduced::No
    } else {
        Reproduced::NotEnoughData
    }
}

/// `-44.0% at 20%, -17.2% at 80%`
fn errors(cells: &[&CellResult]) -> String {
    listed(cells, |cell| signed(cell.finding.error()))
}

/// `22% at 20%, 81% at 80%`
fn speeds(cells: &[&CellResult]) -> String {
    listed(cells, |cell| percent(cell.finding.ratio.estimate))
}

fn listed(cells: &[&CellResult], value: impl Fn(&CellResult) -> String) -> String {
    let all = cells.iter().map(|cell| format!("{} at {}", value(cell), percent(cell.share)));
    all.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

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

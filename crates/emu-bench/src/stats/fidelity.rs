//! How close an emulation comes to the ideal, for one workload over several speeds.

use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::Serialize;

use super::distribution::t_critical;
use super::interval::{Interval, Level};
use super::paired::{PairedRatios, unfit};
use super::regression::LinearFit;
use super::sample::Sample;

/// The error that halves the score.
const ERROR_OF_SCORE_50: f64 = 0.05;

/// Logarithms of speeds this near to each other are of one speed.
const SAME_SPEED: f64 = 1e-9;

/// The pairs taken at one emulated speed.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The speed asked for, as a ratio of the native one.
    pub target: f64,
    /// The ratio that a perfect emulation would give this workload: `target` for one that computes, 1 for one
    /// that waits or moves memory, (s + c) / (s + c / target) for s of sleep and c of compute.
    pub ideal: f64,
    /// What was measured: emulated / native.
    pub ratios: PairedRatios,
}

/// The fidelity of a method for one workload, from the log errors e = ln(p / ideal) of its pairs.
///
/// Log errors count twice too fast as much as twice too slow. A percentage error would be bounded at 100 % on
/// the slow side only, and so favour methods that are too slow (Tofallis 2015, *J. Oper. Res. Soc.* 66).
///
/// Every speed counts the same, however many pairs it has. Assumes independent pairs with about normal log
/// ratios; their spread may differ from speed to speed (Welch 1947; Satterthwaite 1946).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Fidelity {
    /// exp(mean e) − 1: −0.1 when the emulated speed is 10 % too low on average; 0 is ideal.
    pub bias: Interval,
    /// exp(mean |e|) − 1, the typical error of a pair, its noise included.
    pub error: Interval,
    /// exp(max |ē|) − 1 over the speeds, ē the mean e at one speed: how wrong the worst speed is. Its interval
    /// holds for all speeds at once (Bonferroni), so that choosing the worst of many is no advantage.
    pub worst: Interval,
    /// Slope of ln p on ln target by [`LinearFit`]: 1 for a workload that follows the clock, 0 for one that
    /// ignores it. `None` for a single speed or fewer than three pairs.
    pub elasticity: Option<Interval>,
    /// 100 for no error beyond the noise, 50 for a mean |e| of 0.05, towards 0: 100 · 2^(−E / 0.05) with
    /// E² = (mean |e|)² − floor², at least 0.
    pub score: Interval,
}

impl Fidelity {
    /// Summarises the cells of one workload. `floor` is the mean |ln ratio| of the A/A pairs of the same run
    /// ([`AaTest::floor`](super::AaTest::floor)): what a perfect method would show for an error here.
    pub fn of(cells: &[Cell], floor: f64, level: Level) -> Result<Self> {
        if !(floor.is_finite() && floor >= 0.0) {
            return Err(Error::usage(format!(
                "cannot subtract the noise floor {floor}: it is no finite number from 0 on"
            )));
        }
        let errors = cells.iter().map(log_errors).collect::<Result<Vec<_>>>()?;
        let magnitudes = errors.iter().map(|errors| errors.map(f64::abs)).collect::<Result<Vec<_>>>()?;
        let magnitude = stratified_mean(&magnitudes, level)?;
        let magnitude = Interval { low: magnitude.low.max(0.0), ..magnitude };
        let score = |magnitude: f64| {
            let beyond_noise = (magnitude.powi(2) - floor.powi(2)).max(0.0).sqrt();
            100.0 * (-beyond_noise / ERROR_OF_SCORE_50).exp2()
        };
        Ok(Self {
            bias: stratified_mean(&errors, level)?.map(f64::exp_m1),
            error: magnitude.map(f64::exp_m1),
            worst: worst_mean(&errors, level)?.map(f64::exp_m1),
            elasticity: elasticity(cells, level)?,
            score: Interval {
                estimate: score(magnitude.estimate),
                low: score(magnitude.high),
                high: score(magnitude.low),
                level: level.get(),
            },
        })
    }
}

fn log_errors(cell: &Cell) -> Result<Sample> {
    if let Some(why) = unfit(cell.target) {
        return Err(Error::usage(format!("cannot use the target speed {}: {why}", cell.target)));
    }
    if cell.ratios.logs().count() < 2 {
        return Err(Error::usage(format!("cannot judge the speed {} by a single pair", cell.target))
            .hint("repeat every cell at least twice"));
    }
    Ok(cell.ratios.relative_to(cell.ideal)?.logs().clone())
}

/// With the interval of Welch and Satterthwaite.
fn stratified_mean(strata: &[Sample], level: Level) -> Result<Interval> {
    let estimate = Sample::new(strata.iter().map(Sample::mean).collect::<Vec<_>>())?.mean();
    // Each stratum adds s²/n to the variance, known with n − 1 degrees of freedom.
    let (mut variance, mut doubt) = (0.0, 0.0);
    for stratum in strata {
        let n = stratum.count() as f64;
        let part = stratum.sd().unwrap_or(0.0).powi(2) / n;
        variance += part;
        doubt += part.powi(2) / (n - 1.0);
    }
    if variance == 0.0 {
        return Ok(Interval::around(estimate, 0.0, level.get()));
    }
    let standard_error = variance.sqrt() / strata.len() as f64;
    let half = t_critical(level.get(), variance.powi(2) / doubt)? * standard_error;
    Ok(Interval::around(estimate, half, level.get()))
}

/// A simultaneous interval: when all intervals of the strata hold, the largest true |mean| is at least every lower end of a
/// magnitude and at most the largest upper one.
fn worst_mean(strata: &[Sample], level: Level) -> Result<Interval> {
    let each = 1.0 - (1.0 - level.get()) / strata.len() as f64;
    let mut worst = Interval::around(0.0, 0.0, level.get());
    for stratum in strata {
        let n = stratum.count() as f64;
        let (mean, sd) = (stratum.mean(), stratum.sd().unwrap_or(0.0));
        let half = t_critical(each, n - 1.0)? * sd / n.sqrt();
        worst.estimate = worst.estimate.max(mean.abs());
        worst.low = worst.low.max(mean.abs() - half);
        worst.high = worst.high.max(mean.abs() + half);
    }
    Ok(worst)
}

fn elasticity(cells: &[Cell], level: Level) -> Result<Option<Interval>> {
    let (mut targets, mut logs) = (Vec::new(), Vec::new());
    for cell in cells {
        for &log in cell.ratios.logs().values() {
            targets.push(cell.target.ln());
            logs.push(log);
        }
    }
    let speeds = Sample::new(targets.as_slice())?;
    if logs.len() < 3 || speeds.max() - speeds.min() < SAME_SPEED {
        return Ok(None);
    }
    Ok(Some(LinearFit::of(&targets, &logs, level)?.slope.interval))
}

#[cfg(test)]
mod tests {
    use super::super::oracles::{Normals, close, oracles};
    use super::super::paired::Pair;
    use super::*;
    use proptest::prelude::*;

    /// Cells at 25, 50, 75 and 100 % whose log errors are `bias` ± `noise`.
    fn cells(bias: f64, noise: f64, ideal: impl Fn(f64) -> f64, seed: u64) -> Vec<Cell> {
        let mut normals = Normals::new(seed);
        [0.25, 0.5, 0.75, 1.0]
            .into_iter()
            .map(|target| {
                let pairs: Vec<Pair> = (0..12)
                    .map(|_| Pair::new(ideal(target) * (bias + noise * normals.draw()).exp(), 1.0).unwrap())
                    .collect();
                Cell { target, ideal: ideal(target), ratios: PairedRatios::new(&pairs).unwrap() }
            })
            .collect()
    }

    fn fidelity(cells: &[Cell], floor: f64) -> Fidelity {
        Fidelity::of(cells, floor, Level::P95).unwrap()
    }

    #[test]
    fn figures_agree_with_numpy_scipy_and_statsmodels() {
        for case in &oracles().fidelity {
            let cells: Vec<Cell> = case
                .cells
                .iter()
                .map(|cell| {
                    let pairs: Vec<Pair> = cell.ratios.iter().map(|&p| Pair::new(p, 1.0).unwrap()).collect();
                    Cell {
                        target: cell.target,
                        ideal: cell.ideal,
                        ratios: PairedRatios::new(&pairs).unwrap(),
                    }
                })
                .collect();
            let got = fidelity(&cells, case.floor);
            for (name, got, expected) in [
                ("bias", got.bias, case.bias),
                ("error", got.error, case.error),
                ("worst", got.worst, case.worst),
                ("elasticity", got.elasticity.unwrap(), case.elasticity),
                ("score", got.score, case.score),
            ] {
                close(got.estimate, expected.0, name);
                close(got.low, expected.1, name);
                close(got.high, expected.2, name);
            }
        }
    }

    #[test]
    fn a_perfect_method_has_score_100_and_elasticity_1() {
        let got = fidelity(&cells(0.0, 0.0, |target| target, 1), 0.0);
        assert!(got.bias.estimate.abs() < 1e-12 && got.error.high < 1e-12 && got.worst.high < 1e-12);
        close(got.score.low, 100.0, "score");
        close(got.elasticity.unwrap().estimate, 1.0, "elasticity");
    }

    #[test]
    fn an_error_of_five_log_percent_scores_50_and_of_ten_25() {
        close(fidelity(&cells(0.05, 0.0, |target| target, 1), 0.0).score.estimate, 50.0, "score");
        close(fidelity(&cells(-0.1, 0.0, |target| target, 1), 0.0).score.estimate, 25.0, "score");
    }

    #[test]
    fn the_floor_is_subtracted_in_quadrature() {
        let cells = cells(0.05, 0.0, |target| target, 1);
        close(fidelity(&cells, 0.03).score.estimate, 100.0 * (-0.8_f64).exp2(), "√(0.05² − 0.03²) = 0.04");
        close(fidelity(&cells, 0.06).score.estimate, 100.0, "below the floor");
    }

    #[test]
    fn a_known_bias_is_found_within_its_interval() {
        let got = fidelity(&cells(-0.1, 0.02, |target| target, 3), 0.0);
        assert!(got.bias.contains((-0.1_f64).exp_m1()) && !got.bias.contains(0.0), "{got:?}");
        assert!(got.worst.estimate >= got.error.estimate - 0.01);
    }

    #[test]
    fn a_workload_that_waits_has_elasticity_0() {
        let elasticity = fidelity(&cells(0.0, 0.01, |_| 1.0, 4), 0.0).elasticity.unwrap();
        assert!(elasticity.contains(0.0) && elasticity.high < 0.02, "{elasticity:?}");
    }

    /// One of four speeds is twice too slow: the mean error hides it, the worst does not.
    #[test]
    fn one_broken_speed_shows_in_the_worst() {
        let mut cells = cells(0.0, 0.01, |target| target, 5);
        cells[0].ideal *= 2.0;
        let got = fidelity(&cells, 0.0);
        assert!(got.error.estimate < 0.25 && got.worst.contains(1.0), "{got:?}");
    }

    #[test]
    fn one_speed_has_no_elasticity() {
        assert_eq!(fidelity(&cells(0.0, 0.01, |target| target, 6)[..1], 0.0).elasticity, None);
    }

    #[test]
    fn what_cannot_be_judged_is_refused() {
        let good = cells(0.0, 0.01, |target| target, 7);
        let change = |change: fn(&mut Cell)| {
            let mut cells = good.clone();
            change(&mut cells[1]);
            cells
        };
        assert!(Fidelity::of(&[], 0.0, Level::P95).is_err());
        for floor in [-0.1, f64::NAN, f64::INFINITY] {
            assert!(Fidelity::of(&good, floor, Level::P95).is_err(), "{floor}");
        }
        let single = |cell: &mut Cell| {
            cell.ratios = PairedRatios::new(&[Pair::new(1.0, 2.0).unwrap()]).unwrap();
        };
        for cells in [
            change(|cell| cell.target = 0.0),
            change(|cell| cell.target = f64::NAN),
            change(|cell| cell.ideal = -1.0),
            change(|cell| cell.ideal = f64::INFINITY),
            change(single),
        ] {
            assert!(Fidelity::of(&cells, 0.0, Level::P95).is_err(), "{:?}", cells[1]);
        }
    }

    /// Unequal spreads and a worst speed among equals are where a careless interval would fail.
    #[test]
    fn bias_and_worst_are_covered_as_often_as_they_say() {
        let mut normals = Normals::new(31);
        let truths = [0.04, 0.05, -0.05, 0.01];
        let spreads = [0.002, 0.01, 0.03, 0.005];
        let (mut bias, mut worst) = (0, 0);
        for _ in 0..2000 {
            let cells: Vec<Cell> = truths
                .iter()
                .zip(spreads)
                .map(|(truth, spread)| {
                    let pairs: Vec<Pair> = (0..6)
                        .map(|_| Pair::new((truth + spread * normals.draw()).exp(), 1.0).unwrap())
                        .collect();
                    Cell { target: 1.0, ideal: 1.0, ratios: PairedRatios::new(&pairs).unwrap() }
                })
                .collect();
            let got = fidelity(&cells, 0.0);
            bias += usize::from(got.bias.contains(0.0125_f64.exp_m1()));
            worst += usize::from(got.worst.contains(0.05_f64.exp_m1()));
        }
        assert!((1860..=1940).contains(&bias), "bias covered {bias} of 2000");
        assert!(worst >= 1900, "worst covered {worst} of 2000");
    }

    proptest! {
        #[test]
        fn figures_are_ordered(bias in -1.0..1.0_f64, noise in 0.0..0.2_f64, floor in 0.0..0.1_f64, seed: u64) {
            let got = fidelity(&cells(bias, noise, |target| target, seed), floor);
            prop_assert!(got.error.estimate.ln_1p() >= got.bias.estimate.ln_1p().abs() - 1e-12);
            prop_assert!(got.error.low >= 0.0 && got.worst.low >= 0.0);
            for interval in [got.bias, got.error, got.worst, got.score] {
                prop_assert!(interval.low <= interval.estimate && interval.estimate <= interval.high);
            }
            prop_assert!((0.0..=100.0).contains(&got.score.low) && got.score.high <= 100.0);
        }
    }
}

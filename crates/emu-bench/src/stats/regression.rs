//! Straight lines through measured points: ordinary least squares.

use emu_core::{Error, ErrorKind, Result};
use linregress::fit_low_level_regression_model;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::distribution::{f_upper_tail, t_critical, t_two_sided};
use super::interval::{Interval, Level};
use super::sample::Sample;

/// The least spread of x relative to its magnitude: below it, x is constant but for rounding.
const SPREAD_MIN: f64 = 1e-12;

/// One fitted parameter of a line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Coefficient {
    /// The estimate with its t interval, in units of y (intercept) or of y per x (slope).
    pub interval: Interval,
    /// Standard error of the estimate, in the same unit.
    pub standard_error: f64,
    /// Estimate / standard error. `None` when the points leave no residual, so that both are without meaning.
    pub t: Option<f64>,
    /// Two-sided p-value of "the true value is 0"; `None` as for `t`.
    pub p: Option<f64>,
}

impl Coefficient {
    fn new(estimate: f64, standard_error: f64, df: f64, level: Level) -> Result<Self> {
        let half = t_critical(level.get(), df)? * standard_error;
        let t = (standard_error > 0.0).then(|| estimate / standard_error);
        Ok(Self {
            interval: Interval::around(estimate, half, level.get()),
            standard_error,
            t,
            p: t.map(|t| t_two_sided(t, df)).transpose()?,
        })
    }
}

/// The F test of the line against a constant.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FTest {
    /// The F statistic with 1 and n − 2 degrees of freedom.
    pub value: f64,
    /// Its p-value; for one regressor the same as that of the slope.
    pub p: f64,
}

/// The line y = intercept + slope · x by ordinary least squares.
///
/// Assumes exact x, and y with independent errors of one normal distribution (Draper & Smith, *Applied
/// Regression Analysis*, ch. 1). A high R² does not say that y is proportional to x, nor that the line is
/// right: a constant loss of 0.13 CPU also has R² = 1.0000. It is printed because the published tables have
/// it, and is no verdict.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinearFit {
    /// y at x = 0.
    pub intercept: Coefficient,
    /// Change of y per x.
    pub slope: Coefficient,
    /// Share of the variance of y that the line explains, 0..=1; `None` when y is constant.
    pub r_squared: Option<f64>,
    /// Standard deviation of the residuals, divisor n − 2, in the unit of y.
    pub residual_sd: f64,
    /// The F test; `None` when the points leave no residual or y is constant.
    pub f_test: Option<FTest>,
    /// Number of points.
    pub points: usize,
}

impl LinearFit {
    /// y on the line at this x.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept.interval.estimate + self.slope.interval.estimate * x
    }

    /// Fits a line to points that all say as much.
    pub fn of(x: &[f64], y: &[f64], level: Level) -> Result<Self> {
        Self::weighted(x, y, &vec![1.0; x.len()], level)
    }

    /// Fits a line to points of which some say more than others: each counts by its weight, which is one over its
    /// variance, in any unit (Draper & Smith, ch. 9). [`residual_sd`](Self::residual_sd) is that of a point of mean weight.
    /// There must be 3 points, and an x that varies.
    ///
    /// linregress has no weights: each row is multiplied by the root of its own. It inverts without a tolerance and floors
    /// standard errors at an absolute 2.2e-16: raw units with a steep offset or a small unit (seconds per hertz) would
    /// change the result, so the points are centred and scaled. It also needs a y that varies; a constant one is answered
    /// here.
    pub fn weighted(x: &[f64], y: &[f64], weights: &[f64], level: Level) -> Result<Self> {
        let (xs, ys) = points(x, y, 3)?;
        let weights_are_good = weights.iter().all(|weight| weight.is_finite() && *weight > 0.0);
        if weights.len() != x.len() || !weights_are_good {
            return Err(Error::usage(format!("cannot fit a line to {} points by these weights", x.len())));
        }
        if xs.max() - xs.min() <= SPREAD_MIN * largest(&xs) {
            return Err(Error::usage(format!("cannot fit a line over x, which is always {}", xs.mean()))
                .hint("measure at two or more values of x"));
        }
        let count = x.len() as f64;
        let df = count - 2.0;
        if ys.max() <= ys.min() {
            let exactly = |value| Coefficient::new(value, 0.0, df, level);
            return Ok(Self {
                intercept: exactly(ys.mean())?,
                slope: exactly(0.0)?,
                r_squared: None,
                residual_sd: 0.0,
                f_test: None,
                points: x.len(),
            });
        }
        let mean_weight = weights.iter().sum::<f64>() / count;
        let weights: Vec<f64> = weights.iter().map(|weight| weight / mean_weight).collect();
        let of = |values: &[f64]| {
            let mean = values.iter().zip(&weights).map(|(value, weight)| weight * value).sum::<f64>() / count;
            let squares = values.iter().zip(&weights).map(|(value, weight)| weight * (value - mean).powi(2));
            (mean, (squares.sum::<f64>() / (count - 1.0)).sqrt())
        };
        let ((x_mean, x_sd), (y_mean, y_sd)) = (of(x), of(y));
        // linregress wants rows of y, then the regressors, of which the first is the constant.
        let rows = x.iter().zip(y).zip(&weights).flat_map(|((x, y), weight)| {
            [(y - y_mean) / y_sd, 1.0, (x - x_mean) / x_sd].map(|value| value * weight.sqrt())
        });
        let rows: Vec<f64> = rows.collect();
        let model = fit_low_level_regression_model(&rows, x.len(), 3)
            .map_err(|cause| Error::new(ErrorKind::Failed, "cannot fit a line").caused_by(cause))?;
        let (&[level_std, slope_std], &[level_se, slope_se]) = (model.parameters(), model.se()) else {
            return Err(Error::new(
                ErrorKind::Failed,
                "cannot read the fit of a line: it has not two parameters",
            ));
        };
        // Back to the units of the points. Centring makes the estimates independent: their variances add at x = 0.
        let (slope, slope_se) = (slope_std * y_sd / x_sd, slope_se * y_sd / x_sd);
        let intercept = y_mean + level_std * y_sd - slope * x_mean;
        let slope = Coefficient::new(slope, slope_se, df, level)?;
        let f_test = f_test(&slope, df)?;
        Ok(Self {
            intercept: Coefficient::new(intercept, (level_se * y_sd).hypot(x_mean * slope_se), df, level)?,
            slope,
            // The squares of the scaled y add up to one less than their number; that of linregress knows no weights.
            r_squared: Some((1.0 - model.ssr() / (count - 1.0)).clamp(0.0, 1.0)),
            residual_sd: model.scale().sqrt() * y_sd,
            f_test,
            points: x.len(),
        })
    }
}

/// The F test that says the same as the t test of the slope.
fn f_test(slope: &Coefficient, df: f64) -> Result<Option<FTest>> {
    let of = |t: f64| Ok(FTest { value: t * t, p: f_upper_tail(t * t, 1.0, df)? });
    slope.t.map(of).transpose()
}

/// The slope of y = slope · x, which is "proportional" (Eisenhauer 2003, *Regression through the origin*: Σxy / Σx², n − 1
/// degrees of freedom); linregress has no fit without a constant. Assumes what [`LinearFit`] does, and that y is 0 at x = 0.
pub fn slope_through_origin(x: &[f64], y: &[f64], level: Level) -> Result<Coefficient> {
    let (xs, ys) = points(x, y, 2)?;
    let (x_scale, y_scale) = (largest(&xs), largest(&ys));
    if x_scale == 0.0 {
        return Err(Error::usage("cannot fit a line through the origin over x, which is always 0"));
    }
    if y_scale == 0.0 {
        return Coefficient::new(0.0, 0.0, (xs.count() - 1) as f64, level);
    }
    // Scaled, so that squares neither overflow nor vanish.
    let points = || x.iter().zip(y).map(|(x, y)| (x / x_scale, y / y_scale));
    let x_squares: f64 = points().map(|(x, _)| x * x).sum();
    let slope = points().map(|(x, y)| x * y).sum::<f64>() / x_squares;
    let residuals: f64 = points().map(|(x, y)| (y - slope * x).powi(2)).sum();
    let df = (xs.count() - 1) as f64;
    let unit = y_scale / x_scale;
    Coefficient::new(slope * unit, (residuals / df / x_squares).sqrt() * unit, df, level)
}

fn points(x: &[f64], y: &[f64], least: usize) -> Result<(Sample, Sample)> {
    if x.len() != y.len() {
        return Err(Error::usage(format!("cannot fit a line to {} x and {} y values", x.len(), y.len())));
    }
    if x.len() < least {
        return Err(Error::usage(format!("cannot fit a line to {} points", x.len()))
            .hint(format!("at least {least} are needed")));
    }
    Ok((Sample::new(x)?, Sample::new(y)?))
}

fn largest(sample: &Sample) -> f64 {
    sample.max().abs().max(sample.min().abs())
}

#[cfg(test)]
mod tests {
    use super::super::oracles::{Normals, close, oracles};
    use super::*;
    use proptest::prelude::*;

    /// Anscombe 1973, *Graphs in Statistical Analysis*: four sets with the same line, as printed there.
    #[test]
    fn the_anscombe_quartet_has_its_published_line() {
        let quartet: Vec<_> =
            oracles().regressions.iter().filter(|case| case.name.starts_with("anscombe")).collect();
        assert_eq!(quartet.len(), 4);
        for case in quartet {
            let fit = LinearFit::of(&case.x, &case.y, Level::P95).unwrap();
            assert!((fit.slope.interval.estimate - 0.500).abs() < 0.0005, "{}", case.name);
            assert!((fit.intercept.interval.estimate - 3.00).abs() < 0.005, "{}", case.name);
            assert!((fit.r_squared.unwrap() - 0.667).abs() < 0.001, "{}", case.name);
            assert!((fit.slope.p.unwrap() - 0.00217).abs() < 0.00002, "{}", case.name);
        }
    }

    #[test]
    fn fits_agree_with_statsmodels() {
        for case in &oracles().regressions {
            let fit = LinearFit::of(&case.x, &case.y, Level::P95).unwrap();
            for (name, coefficient, expected) in
                [("intercept", fit.intercept, &case.intercept), ("slope", fit.slope, &case.slope)]
            {
                let what = |figure: &str| format!("{}: {figure} of the {name}", case.name);
                close(coefficient.interval.estimate, expected.estimate, &what("estimate"));
                close(coefficient.standard_error, expected.standard_error, &what("standard error"));
                close(coefficient.t.unwrap(), expected.t, &what("t"));
                close(coefficient.p.unwrap(), expected.p, &what("p"));
                close(coefficient.interval.low, expected.low, &what("low end"));
                close(coefficient.interval.high, expected.high, &what("high end"));
            }
            close(fit.r_squared.unwrap(), case.r_squared, &case.name);
            close(fit.residual_sd, case.residual_sd, &case.name);
            close(fit.f_test.unwrap().value, case.f, &case.name);
            close(fit.f_test.unwrap().p, case.f_p, &case.name);
        }
    }

    #[test]
    fn slopes_through_the_origin_agree_with_statsmodels() {
        for case in &oracles().regressions {
            let slope = slope_through_origin(&case.x, &case.y, Level::P95).unwrap();
            close(slope.interval.estimate, case.origin.estimate, &case.name);
            close(slope.standard_error, case.origin.standard_error, &case.name);
            close(slope.t.unwrap(), case.origin.t, &case.name);
            close(slope.p.unwrap(), case.origin.p, &case.name);
            close(slope.interval.low, case.origin.low, &case.name);
            close(slope.interval.high, case.origin.high, &case.name);
        }
    }

    #[test]
    fn equal_weights_make_the_line_of_no_weights() {
        for case in &oracles().regressions {
            let of = LinearFit::of(&case.x, &case.y, Level::P95).unwrap();
            let weighted =
                LinearFit::weighted(&case.x, &case.y, &vec![7.0; case.x.len()], Level::P95).unwrap();
            for (one, other) in [(of.intercept, weighted.intercept), (of.slope, weighted.slope)] {
                close(other.interval.estimate, one.interval.estimate, &case.name);
                close(other.interval.low, one.interval.low, &case.name);
                close(other.standard_error, one.standard_error, &case.name);
            }
            close(weighted.residual_sd, of.residual_sd, &case.name);
            close(weighted.r_squared.unwrap(), of.r_squared.unwrap(), &case.name);
        }
    }

    #[test]
    fn a_weight_stands_for_so_many_points() {
        let (x, y) = ([1.0, 2.0, 3.0, 5.0], [2.0, 3.5, 3.0, 7.0]);
        let one = LinearFit::weighted(&x, &y, &[1.0, 3.0, 1.0, 2.0], Level::P95).unwrap();
        let several = LinearFit::of(
            &[1.0, 2.0, 2.0, 2.0, 3.0, 5.0, 5.0],
            &[2.0, 3.5, 3.5, 3.5, 3.0, 7.0, 7.0],
            Level::P95,
        );
        let several = several.unwrap();
        close(one.slope.interval.estimate, several.slope.interval.estimate, "slope");
        close(one.at(4.0), several.at(4.0), "height");
        for bad in [vec![1.0; 3], vec![1.0, 1.0, 0.0, 1.0], vec![1.0, f64::NAN, 1.0, 1.0]] {
            assert!(LinearFit::weighted(&x, &y, &bad, Level::P95).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn weights_make_the_interval_of_uneven_noise_true() {
        let mut normals = Normals::new(5);
        let x: Vec<f64> = (1..=20).map(|i| f64::from(i) / 10.0).collect();
        let weights: Vec<f64> = x.iter().map(|x| x.powi(-2)).collect();
        let hits = (0..1000).filter(|_| {
            let y: Vec<f64> = x.iter().map(|x| 60.0 * x * (1.0 + 0.02 * normals.draw())).collect();
            LinearFit::weighted(&x, &y, &weights, Level::P95).unwrap().intercept.interval.contains(0.0)
        });
        let hits = hits.count();
        assert!((925..=972).contains(&hits), "{hits} of 1000");
    }

    #[test]
    fn a_constant_y_is_a_flat_line_without_a_test() {
        let fit = LinearFit::of(&[1.0, 2.0, 3.0], &[0.1, 0.1, 0.1], Level::P95).unwrap();
        let flat = fit.slope.interval;
        assert_eq!((flat.estimate, flat.low, flat.high), (0.0, 0.0, 0.0));
        close(fit.intercept.interval.estimate, 0.1, "height");
        assert_eq!((fit.slope.t, fit.slope.p, fit.r_squared, fit.f_test), (None, None, None, None));
    }

    #[test]
    fn an_x_that_does_not_vary_is_refused() {
        for x in [[2.0; 4], [0.0; 4], [1e9, 1e9 + 1e-7, 1e9, 1e9]] {
            let error = LinearFit::of(&x, &[1.0, 2.0, 3.0, 4.0], Level::P95).expect_err("must be refused");
            assert_eq!(error.kind(), ErrorKind::Usage, "{x:?}");
        }
        assert!(slope_through_origin(&[0.0, 0.0], &[1.0, 2.0], Level::P95).is_err());
    }

    #[test]
    fn too_few_or_unpaired_or_infinite_points_are_refused() {
        assert!(LinearFit::of(&[1.0, 2.0], &[1.0, 2.0], Level::P95).is_err());
        assert!(LinearFit::of(&[1.0, 2.0, 3.0], &[1.0, 2.0], Level::P95).is_err());
        assert!(LinearFit::of(&[1.0, 2.0, f64::NAN], &[1.0, 2.0, 3.0], Level::P95).is_err());
        assert!(LinearFit::of(&[1.0, 2.0, 3.0], &[1.0, f64::INFINITY, 3.0], Level::P95).is_err());
        assert!(slope_through_origin(&[1.0], &[1.0], Level::P95).is_err());
    }

    #[test]
    fn points_on_a_line_give_that_line() {
        let x: Vec<f64> = (0..10).map(|i| 0.5 + f64::from(i)).collect();
        let y: Vec<f64> = x.iter().map(|x| 2.0 - 0.75 * x).collect();
        let fit = LinearFit::of(&x, &y, Level::P95).unwrap();
        close(fit.slope.interval.estimate, -0.75, "slope");
        close(fit.intercept.interval.estimate, 2.0, "intercept");
        close(fit.r_squared.unwrap(), 1.0, "R²");
        assert!(fit.slope.p.is_none_or(|p| p < 1e-30));
    }

    #[test]
    fn ninety_five_percent_of_the_slope_intervals_contain_the_slope() {
        let mut normals = Normals::new(21);
        let x: Vec<f64> = (0..12).map(f64::from).collect();
        let hits = (0..2000)
            .filter(|_| {
                let y: Vec<f64> = x.iter().map(|x| 1.0 + 0.4 * x + normals.draw()).collect();
                LinearFit::of(&x, &y, Level::P95).unwrap().slope.interval.contains(0.4)
            })
            .count();
        assert!((1860..=1940).contains(&hits), "{hits} of 2000");
    }

    proptest! {
        /// Hertz or gigahertz, seconds or milliseconds: t, p and R² are the same.
        #[test]
        fn units_and_offsets_do_not_change_the_tests(
            noise in prop::collection::vec(-1.0..1.0_f64, 5..30), x_unit in 1e-12..1e12, y_unit in 1e-12..1e12,
        ) {
            let x: Vec<f64> = (0..noise.len()).map(|i| i as f64).collect();
            let y: Vec<f64> = noise.iter().zip(&x).map(|(noise, x)| 3.0 + x + noise).collect();
            let fit = LinearFit::of(&x, &y, Level::P95).unwrap();
            let scale = |values: &[f64], unit: f64| values.iter().map(|value| value * unit).collect::<Vec<_>>();
            let other = LinearFit::of(&scale(&x, x_unit), &scale(&y, y_unit), Level::P95).unwrap();
            let same = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-7;
            prop_assert!(same(fit.slope.t.unwrap(), other.slope.t.unwrap()));
            prop_assert!(same(fit.slope.interval.estimate * y_unit / x_unit, other.slope.interval.estimate));
            prop_assert!(same(fit.r_squared.unwrap(), other.r_squared.unwrap()));
        }

        #[test]
        fn the_line_passes_through_the_means(
            points in prop::collection::vec((-1e3..1e3, -1e3..1e3), 3..30),
        ) {
            let (x, y): (Vec<f64>, Vec<f64>) = points.into_iter().unzip();
            let fit = LinearFit::of(&x, &y, Level::P95).unwrap();
            let (x_mean, y_mean) = (Sample::new(x).unwrap().mean(), Sample::new(y).unwrap().mean());
            let at_mean = fit.intercept.interval.estimate + fit.slope.interval.estimate * x_mean;
            prop_assert!((at_mean - y_mean).abs() < 1e-6);
            prop_assert!((0.0..=1.0).contains(&fit.r_squared.unwrap()));
        }
    }
}

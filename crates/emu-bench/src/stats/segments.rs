//! Bands of different behaviour: a line for each stretch of x, with as many stretches as the points justify.

use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sample::Sample;

const BANDS_MAX: usize = 4;

/// The fewest different x of a stretch: two make a line without any residual.
const PLACES_MIN: usize = 4;

/// What counts as no residual, relative to the largest y: rounding, and what no measurement resolves.
const RESOLUTION: f64 = 1e-6;

/// A stretch of x and its line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Segment {
    /// The first x of it.
    pub from: f64,
    /// The last x of it.
    pub to: f64,
    /// y at x = 0 on its line.
    pub intercept: f64,
    /// Change of y per x on its line.
    pub slope: f64,
}

/// Sums from which the line of any stretch follows.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    count: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Sums {
    fn with(self, x: f64, y: f64, weight: f64) -> Self {
        Self {
            count: self.count + weight,
            x: self.x + weight * x,
            y: self.y + weight * y,
            xx: self.xx + weight * x * x,
            xy: self.xy + weight * x * y,
            yy: self.yy + weight * y * y,
        }
    }

    fn less(self, other: Self) -> Self {
        Self {
            count: self.count - other.count,
            x: self.x - other.x,
            y: self.y - other.y,
            xx: self.xx - other.xx,
            xy: self.xy - other.xy,
            yy: self.yy - other.yy,
        }
    }

    /// Intercept, slope and sum of squared residuals.
    fn line(self) -> (f64, f64, f64) {
        let (xx, xy, yy) = (
            self.xx - self.x * self.x / self.count,
            self.xy - self.x * self.y / self.count,
            self.yy - self.y * self.y / self.count,
        );
        let slope = if xx > 0.0 { xy / xx } else { 0.0 };
        ((self.y - slope * self.x) / self.count, slope, (yy - slope * xy).max(0.0))
    }
}

/// Divides points into bands, each with a line of its own: of one to four bands those with the least Bayesian information
/// criterion (Schwarz 1978), of which each line costs two parameters and each break one. For each number of bands the breaks
/// are the best ones (Bellman & Roth 1969, *Curve fitting by segmented straight lines*). Points of the same x stay together,
/// and each band has four different x at least. A weight is one over a variance, in any unit.
pub fn segments(x: &[f64], y: &[f64], weights: &[f64]) -> Result<Vec<Segment>> {
    if x.len() != y.len() || x.len() != weights.len() {
        return Err(Error::usage(format!("cannot divide {} x and {} y values into bands", x.len(), y.len())));
    }
    let mean_weight = Sample::new(weights)?.mean();
    let largest = Sample::new(y)?.max().abs().max(Sample::new(y)?.min().abs());
    Sample::new(x)?;
    let mut points: Vec<_> =
        x.iter().zip(y).zip(weights).map(|((x, y), weight)| (*x, *y, weight / mean_weight)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut places: Vec<f64> = points.iter().map(|point| point.0).collect();
    places.dedup();
    // What all places before the i-th add up to.
    let mut before = vec![Sums::default()];
    for place in &places {
        let own = points.iter().filter(|point| point.0.to_bits() == place.to_bits());
        let last = before.last().copied().unwrap_or_default();
        before.push(own.fold(last, |sums, (x, y, weight)| sums.with(*x, *y, *weight)));
    }
    let of = |from: usize, to: usize| match (before.get(from), before.get(to)) {
        (Some(from), Some(to)) => to.less(*from),
        _ => Sums::default(),
    };
    let count = points.len() as f64;
    let floor = (RESOLUTION * largest).powi(2) * count;
    let criterion = |squares: f64, bands: usize| {
        count * ((squares.max(floor)).max(f64::MIN_POSITIVE) / count).ln()
            + (3 * bands - 1) as f64 * count.ln()
    };
    // The best division of the first places into so many bands: its squares and its breaks.
    let mut best: Vec<Option<(f64, Vec<usize>)>> =
        (0..=places.len()).map(|end| (end > 0).then(|| (of(0, end).line().2, vec![0]))).collect();
    let whole = |best: &[Option<(f64, Vec<usize>)>]| best.last().cloned().flatten();
    let mut chosen = whole(&best);
    for number in 2..=BANDS_MAX {
        best = (0..=places.len())
            .map(|end| {
                let first = PLACES_MIN * (number - 1);
                let breaks = (first..=end.checked_sub(PLACES_MIN)?).filter_map(|at| {
                    let (squares, breaks) = best.get(at)?.as_ref()?;
                    Some((squares + of(at, end).line().2, at, breaks))
                });
                let (squares, at, breaks) = breaks.min_by(|a, b| a.0.total_cmp(&b.0))?;
                Some((squares, [breaks.as_slice(), &[at]].concat()))
            })
            .collect();
        if let (Some(one), Some(other)) = (&chosen, whole(&best))
            && criterion(other.0, other.1.len()) < criterion(one.0, one.1.len())
        {
            chosen = Some(other);
        }
    }
    let breaks = chosen.map(|(_, breaks)| breaks).unwrap_or_default();
    let ends = breaks.iter().skip(1).copied().chain([places.len()]);
    Ok(breaks
        .iter()
        .zip(ends)
        .filter_map(|(&from, to)| {
            let (intercept, slope, _) = of(from, to).line();
            Some(Segment { from: *places.get(from)?, to: *places.get(to - 1)?, intercept, slope })
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::super::oracles::Normals;
    use super::*;

    fn tenths(count: u32) -> Vec<f64> {
        (1..=count).map(|tenth| f64::from(tenth) / 10.0).collect()
    }

    #[test]
    fn a_line_with_noise_is_one_band() {
        let mut normals = Normals::new(3);
        let x = tenths(40);
        let once = (0..200)
            .filter(|_| {
                let y: Vec<f64> = x.iter().map(|x| 50.0 * x - 2.0 + normals.draw()).collect();
                segments(&x, &y, &vec![1.0; x.len()]).unwrap().len() == 1
            })
            .count();
        assert!(once >= 180, "{once} of 200");
        let exact: Vec<f64> = x.iter().map(|x| 50.0 * x - 2.0).collect();
        let band = segments(&x, &exact, &[2.0; 40]).unwrap();
        assert_eq!(band.len(), 1);
        assert!((band[0].slope - 50.0).abs() < 1e-9 && (band[0].intercept + 2.0).abs() < 1e-9);
    }

    #[test]
    fn noise_that_grows_with_the_rate_makes_no_band_by_its_weights() {
        let mut normals = Normals::new(8);
        let x: Vec<f64> = tenths(20).into_iter().flat_map(|quota| [quota; 3]).collect();
        let weights: Vec<f64> = x.iter().map(|x| x.powi(-2)).collect();
        let once = (0..200)
            .filter(|_| {
                let y: Vec<f64> = x.iter().map(|x| 60.0 * x * (1.0 + 0.03 * normals.draw())).collect();
                segments(&x, &y, &weights).unwrap().len() == 1
            })
            .count();
        assert!(once >= 190, "{once} of 200");
    }

    /// The paper's case 1.a: [0, 0.5], [0.6, 2.8] and [3.0, 4.0], at full, at least and at full frequency.
    #[test]
    fn three_bands_are_found_where_they_are() {
        let mut normals = Normals::new(4);
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for quota in tenths(40) {
            for _ in 0..3 {
                x.push(quota);
                let rate = if (0.55..2.9).contains(&quota) { 11.0 } else { 54.0 };
                y.push(rate * quota + 0.5 * normals.draw());
            }
        }
        let found: Vec<_> = segments(&x, &y, &vec![1.0; x.len()]).unwrap();
        let ends: Vec<_> = found.iter().map(|band| (band.from, band.to)).collect();
        assert_eq!(ends, [(0.1, 0.5), (0.6, 2.8), (2.9, 4.0)]);
        assert!((found[1].slope - 11.0).abs() < 1.0);
    }

    #[test]
    fn few_or_unpaired_points_are_no_harm() {
        let ones = [1.0; 2];
        assert_eq!(segments(&[1.0, 2.0], &[1.0, 2.0], &ones).unwrap().len(), 1);
        assert_eq!(segments(&[1.0], &[0.0], &ones[1..]).unwrap().len(), 1);
        assert!(segments(&[1.0], &[], &ones[1..]).is_err());
        assert!(segments(&[1.0], &[1.0], &ones).is_err());
        assert!(segments(&[], &[], &[]).is_err());
        assert!(segments(&[1.0, 2.0], &[1.0, f64::NAN], &ones).is_err());
    }
}

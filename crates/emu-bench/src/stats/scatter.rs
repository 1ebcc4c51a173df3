//! Repeated measurements at several values of x: how far they spread, and what that allows to be said of a line.

use std::collections::BTreeMap;

use emu_core::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::distribution::{f_upper_tail, t_critical};
use super::interval::{Interval, Level};
use super::regression::{FTest, LinearFit};
use super::sample::Sample;

/// Limits of the power of the mean with which the spread grows: the noise of few measurements alone would give any power.
const POWERS: (f64, f64) = (0.0, 2.0);

/// What counts as no spread, relative to the mean: rounding.
const RESOLUTION: f64 = 1e-9;

/// The measurements at one x.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// Where they were taken.
    pub x: f64,
    /// How many they are.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, divisor n − 1; `None` for one measurement.
    pub sd: Option<f64>,
}

impl Place {
    /// The measurements by their x, ascending.
    pub fn all(points: impl IntoIterator<Item = (f64, f64)>) -> Result<Vec<Self>> {
        let mut by_x: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for (x, y) in points {
            Sample::new([x])?;
            by_x.entry(x.to_bits()).or_default().push(y);
        }
        let place = |(x, values): (u64, Vec<f64>)| {
            let values = Sample::new(values)?;
            Ok(Self { x: f64::from_bits(x), count: values.count(), mean: values.mean(), sd: values.sd() })
        };
        let mut places = by_x.into_iter().map(place).collect::<Result<Vec<_>>>()?;
        places.sort_by(|one, other| one.x.total_cmp(&other.x));
        Ok(places)
    }

    fn df(&self) -> f64 {
        (self.count - 1) as f64
    }
}

/// How far measurements of the same thing lie apart: a standard deviation that is a power of the mean, pooled over all
/// places, as few measurements at each tell little of their own (Carroll & Ruppert 1988, *Transformation and Weighting
/// in Regression*, ch. 3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scatter {
    power: f64,
    factor: f64,
    df: f64,
}

impl Scatter {
    /// That of these places; `None` where fewer than half have two measurements, or a mean is not above 0.
    pub fn of(places: &[Place]) -> Option<Self> {
        let repeated = || places.iter().filter_map(|place| Some((place, place.sd?)));
        if repeated().count() * 2 < places.len().max(1) || places.iter().any(|place| place.mean <= 0.0) {
            return None;
        }
        let (logs, spreads): (Vec<f64>, Vec<f64>) = repeated()
            .filter(|(place, sd)| *sd > RESOLUTION * place.mean)
            .map(|(place, sd)| (place.mean.ln(), sd.ln()))
            .unzip();
        let line = LinearFit::of(&logs, &spreads, Level::P95);
        let (least, most) = POWERS;
        // Without a line the spread is taken for a share of the mean, as that of rates is.
        let power = line.map_or(1.0, |line| line.slope.interval.estimate).clamp(least, most);
        let df = repeated().map(|(place, _)| place.df()).sum::<f64>();
        let squares: f64 =
            repeated().map(|(place, sd)| place.df() * (sd / place.mean.powf(power)).powi(2)).sum();
        Some(Self { power, factor: (squares / df).sqrt(), df })
    }

    /// The weights of places' means: how often they were measured, by the variance of one measurement.
    pub fn weights(&self, places: &[Place]) -> Vec<f64> {
        places.iter().map(|place| place.count as f64 * self.weight(place)).collect()
    }

    /// The weight of one measurement at a place.
    pub fn weight(&self, place: &Place) -> f64 {
        place.mean.powf(-2.0 * self.power)
    }

    /// The mean of a place with its interval.
    pub fn of_mean(&self, place: &Place, level: Level) -> Result<Interval> {
        let error = self.factor * place.mean.powf(self.power) / (place.count as f64).sqrt();
        Ok(Interval::around(place.mean, t_critical(level.get(), self.df)? * error, level.get()))
    }

    /// Whether means lie off a line by more than their spread explains: the F test for lack of fit (Draper & Smith, § 2.1);
    /// `None` for fewer than three places.
    pub fn lack_of_fit(&self, places: &[Place], line: &LinearFit) -> Result<Option<FTest>> {
        if places.len() < 3 {
            return Ok(None);
        }
        let off =
            |place: &Place| place.count as f64 * self.weight(place) * (place.mean - line.at(place.x)).powi(2);
        let df = (places.len() - 2) as f64;
        let lack = places.iter().map(off).sum::<f64>() / df;
        // Measurements that agree to the last digit are no proof of a spread below the resolution.
        let resolution = places
            .iter()
            .map(|place| (RESOLUTION * place.mean).powi(2) * self.weight(place))
            .fold(0.0, f64::max);
        let value = lack / self.factor.powi(2).max(resolution);
        Ok(Some(FTest { value, p: f_upper_tail(value, df, self.df)? }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::oracles::{Normals, close};
    use super::*;

    /// Three measurements at each tenth up to 2, of this mean and relative spread.
    fn places(normals: &mut Normals, mean: impl Fn(f64) -> f64, share: f64) -> Vec<Place> {
        let tenths = (1..=20).map(|tenth| f64::from(tenth) / 10.0);
        let mut points = Vec::new();
        for x in tenths {
            points.extend((0..3).map(|_| (x, mean(x) * (1.0 + share * normals.draw()))));
        }
        Place::all(points).unwrap()
    }

    fn line(places: &[Place]) -> LinearFit {
        let spread = Scatter::of(places).unwrap();
        let (x, y): (Vec<_>, Vec<_>) = places.iter().map(|place| (place.x, place.mean)).unzip();
        LinearFit::weighted(&x, &y, &spread.weights(places), Level::P95).unwrap()
    }

    #[test]
    fn measurements_of_the_same_x_are_one_place() {
        let places = Place::all([(2.0, 5.0), (-1.0, 1.0), (2.0, 7.0)]).unwrap();
        assert_eq!(places[0], Place { x: -1.0, count: 1, mean: 1.0, sd: None });
        assert_eq!((places[1].count, places[1].mean), (2, 6.0));
        close(places[1].sd.unwrap(), 2.0_f64.sqrt(), "standard deviation");
        assert!(Place::all([(f64::NAN, 1.0)]).is_err() && Place::all([(1.0, f64::NAN)]).is_err());
    }

    #[test]
    fn a_spread_is_found_with_its_power() {
        let mut normals = Normals::new(11);
        let of = |places: &[Place]| Scatter::of(places).unwrap();
        let share = of(&places(&mut normals, |x| 60.0 * x, 0.02));
        assert!((share.power - 1.0).abs() < 0.5 && (share.df - 40.0).abs() < 1e-9, "{share:?}");
        let mut even = places(&mut normals, |x| 60.0 * x, 0.02);
        for place in &mut even {
            place.sd = Some(0.5);
        }
        assert!(of(&even).power.abs() < 1e-9 && (of(&even).factor - 0.5).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_known_of_the_spread_of_single_measurements() {
        let single = Place::all([(1.0, 2.0), (2.0, 4.0), (3.0, 6.0), (3.0, 7.0)]).unwrap();
        assert_eq!(Scatter::of(&single), None);
        assert_eq!(Scatter::of(&[]), None);
        assert_eq!(Scatter::of(&Place::all([(1.0, 0.0), (1.0, 0.0)]).unwrap()), None);
    }

    #[test]
    fn a_bent_line_is_told_from_chance() {
        let mut normals = Normals::new(12);
        let p = |places: &[Place]| {
            Scatter::of(places).unwrap().lack_of_fit(places, &line(places)).unwrap().unwrap().p
        };
        let accused = (0..200).filter(|_| p(&places(&mut normals, |x| 60.0 * x - 2.0, 0.02)) < 0.01).count();
        assert!(accused <= 8, "{accused} of 200");
        for _ in 0..20 {
            let bent = places(&mut normals, |x| if x < 1.05 { 60.0 * x } else { 40.0 * x }, 0.02);
            assert!(p(&bent) < 0.01);
        }
        let exact = Place::all((1..=20).flat_map(|x| [(f64::from(x), f64::from(x)); 2])).unwrap();
        assert!(p(&exact) > 0.5, "nothing lies off it");
    }

    #[test]
    fn intervals_of_means_hold_them() {
        let mut normals = Normals::new(13);
        let mut hits = 0;
        for _ in 0..100 {
            let places = places(&mut normals, |x| 60.0 * x, 0.02);
            let spread = Scatter::of(&places).unwrap();
            hits += places
                .iter()
                .filter(|place| spread.of_mean(place, Level::P95).unwrap().contains(60.0 * place.x))
                .count();
        }
        assert!((1850..=1950).contains(&hits), "{hits} of 2000");
    }
}

//! A line through the rates of a calibration, and what its R² hides.

use emu_bench::stats::{self, Bootstrap, FTest, Interval, Level, LinearFit, Place, Scatter, Segment};
use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Sample;

/// The paper calls 0.9999 ideal and 0.9995 near ideal; below this a line is no model.
const R_SQUARED_MIN: f64 = 0.99;

/// Deviations up to this share are no finding: of quotas from being proportional, of orders, of the end from the begin.
pub(super) const NOTABLE: f64 = 0.05;

/// The largest residual that passes, as a share of the largest rate.
const RESIDUAL_MAX: f64 = 0.05;

/// Chance explains a lack of fit unless it is less likely than this.
const CHANCE_MAX: f64 = 0.01;

/// A line by weights where the settings were measured repeatedly, else by least squares.
pub(super) fn line(places: &[Place]) -> Result<LinearFit> {
    let (x, y): (Vec<f64>, Vec<f64>) = places.iter().map(|place| (place.x, place.mean)).unzip();
    match Scatter::of(places) {
        Some(scatter) => LinearFit::weighted(&x, &y, &scatter.weights(places), Level::P95),
        None => LinearFit::of(&x, &y, Level::P95),
    }
}

/// How far the means of quotas are from the line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Residuals {
    /// The largest, as a share of the largest rate.
    pub largest_share: f64,
    /// The quota where that is.
    pub at_quota: f64,
    /// Whether it is at most 5 %.
    pub pass: bool,
}

impl Residuals {
    pub(super) fn of(fit: &LinearFit, places: &[Place]) -> Result<Self> {
        let most = places.iter().map(|place| place.mean).fold(f64::NEG_INFINITY, f64::max);
        let (share, at_quota) =
            largest(places.iter().map(|place| ((place.mean - fit.at(place.x)) / most, place.x)))?;
        Ok(Self { largest_share: share.abs(), at_quota, pass: share.abs() <= RESIDUAL_MAX })
    }
}

pub(super) fn is_linear(fit: &LinearFit, residuals: &Residuals) -> bool {
    fit.r_squared.is_some_and(|r_squared| r_squared >= R_SQUARED_MIN) && residuals.pass
}

/// A stretch of quotas with a line of its own.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Band {
    /// The stretch and its line.
    #[serde(flatten)]
    pub line: Segment,
    /// The rate per CPU within it, in GFLOPS: the median of its quotas. `None` in records of older emus.
    pub per_cpu: Option<Interval>,
}

/// The published model of some rates, and how far they are from it and from being proportional.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Model {
    /// GFLOPS = intercept + slope · quota by least squares over all samples, as published.
    pub fit: LinearFit,
    /// The same over the means of quotas, each by the weight of its scatter; `None` where quotas were measured once.
    pub weighted: Option<LinearFit>,
    /// The rates by quota.
    #[serde(default)]
    pub places: Vec<Place>,
    /// Whether means lie off the line by more than their scatter explains; `None` where quotas were measured once.
    pub lack_of_fit: Option<FTest>,
    /// The largest rate, in GFLOPS.
    pub max_gflops: f64,
    /// The rate per CPU, in GFLOPS: the median over quotas of rate by quota. `None` in records of older emus.
    pub per_cpu: Option<Interval>,
    /// Quota at which the line is 0: CPUs that are paid for nothing; negative where low quotas get more than their
    /// share.
    pub dead_quota: f64,
    /// Mean deviation from the proportional rate, as a share. Proportional is the quota times the median of rate by
    /// quota: every quota counts alike, and no single one makes all others seem off.
    pub proportional_mean: f64,
    /// The largest such deviation, with its sign.
    pub proportional_worst: f64,
    /// The quota where that is.
    pub worst_quota: f64,
    /// Whether a deviation is above 5 % by more than the scatter explains; `None` where quotas were measured once.
    pub proportional_fails: Option<bool>,
    /// How far points are from the line.
    pub residuals: Residuals,
    /// Stretches of different behaviour, as many as the points justify: none where quotas were measured once, one where
    /// chance explains what is off the line.
    pub bands: Vec<Band>,
    /// Rate per CPU second at the lowest third of quotas relative to the highest third.
    pub clock_ratio: f64,
    /// The interval of the same ratio of means; `None` in records of older emus, and where a third has one sample.
    pub clock_ratio_interval: Option<Interval>,
}

impl Model {
    pub(super) fn of(samples: &[Sample]) -> Result<Self> {
        let (quotas, rates): (Vec<f64>, Vec<f64>) =
            samples.iter().map(|sample| (sample.quota, sample.gflops)).unzip();
        let places = Place::all(quotas.iter().copied().zip(rates.iter().copied()))?;
        let scatter = Scatter::of(&places);
        let line = line(&places)?;
        let lack_of_fit = scatter.map(|scatter| scatter.lack_of_fit(&places, &line)).transpose()?.flatten();
        let per_cpu = per_cpu(&places)?;
        let off = |rate: f64, quota: f64| rate / (per_cpu.estimate * quota) - 1.0;
        let (proportional_worst, worst_quota) =
            largest(places.iter().map(|place| (off(place.mean, place.x), place.x)))?;
        let fails = |scatter: Scatter| -> Result<bool> {
            // One of all quotas is off by chance no more often than 5 % of the time.
            let level = Level::of_each(places.len());
            let ends = places.iter().map(|place| Ok((scatter.of_mean(place, level)?, place.x)));
            let ends = ends.collect::<Result<Vec<_>>>()?;
            let beyond = |(mean, quota): &(Interval, f64)| {
                off(mean.low, *quota) > NOTABLE || off(mean.high, *quota) < -NOTABLE
            };
            Ok(ends.iter().any(beyond))
        };
        Ok(Self {
            fit: LinearFit::of(&quotas, &rates, Level::P95)?,
            weighted: scatter.map(|_| line),
            lack_of_fit,
            max_gflops: stats::Sample::new(rates.as_slice())?.max(),
            per_cpu: Some(per_cpu),
            dead_quota: -line.intercept.interval.estimate / line.slope.interval.estimate,
            proportional_mean: places.iter().map(|place| off(place.mean, place.x).abs()).sum::<f64>()
                / places.len() as f64,
            proportional_worst,
            worst_quota,
            proportional_fails: scatter.map(fails).transpose()?,
            residuals: Residuals::of(&line, &places)?,
            bands: scatter.map_or(Ok(Vec::new()), |scatter| bands(samples, &places, scatter, lack_of_fit))?,
            clock_ratio: low_to_high(samples, |sample| Some(per_second(sample)))?.unwrap_or(1.0),
            clock_ratio_interval: thirds(samples, |sample| Some(per_second(sample)))?
                .and_then(|[low, high]| Interval::of_ratio(&low, &high, Level::P95).ok()),
            places,
        })
    }

    /// The line that counts: by weights, where the scatter is known.
    pub fn line(&self) -> &LinearFit {
        self.weighted.as_ref().unwrap_or(&self.fit)
    }

    /// The quota at which the line is 0, as [`dead_quota`](Self::dead_quota), by the interval of the intercept: the slope is
    /// known far better.
    pub fn dead(&self) -> Interval {
        let LinearFit { intercept, slope, .. } = self.line();
        let Interval { estimate, low, high, level } = intercept.interval;
        let quota = |rate: f64| -rate / slope.interval.estimate;
        Interval { estimate: quota(estimate), low: quota(high), high: quota(low), level }
    }

    /// The quota's rate on the line, in GFLOPS.
    pub fn predicted(&self, quota: f64) -> f64 {
        self.line().at(quota)
    }

    /// Whether the line is a model: R² of 0.99 at least, and no point far away from it.
    pub fn is_linear(&self) -> bool {
        is_linear(&self.fit, &self.residuals)
    }

    /// How far the mean rate at a quota is from being proportional, as a share; `None` where quotas were measured once.
    pub(super) fn off_at(&self, quota: f64, level: Level) -> Option<Interval> {
        let place = self.places.iter().find(|place| place.x.to_bits() == quota.to_bits())?;
        let proportional = self.per_cpu?.estimate * quota;
        let mean = Scatter::of(&self.places)?.of_mean(place, level).ok()?;
        Some(mean.map(|rate| rate / proportional - 1.0))
    }

    /// Whether chance does not explain that points lie off the line; `None` where quotas were measured once.
    pub fn is_surely_off_line(&self) -> Option<bool> {
        self.lack_of_fit.map(|test| test.p < CHANCE_MAX)
    }

    /// Whether no quota is off the proportional rate by more than 5 %.
    pub fn is_proportional(&self) -> bool {
        self.proportional_worst.abs() <= NOTABLE
    }
}

fn per_cpu(places: &[Place]) -> Result<Interval> {
    let shares: Vec<f64> = places.iter().map(|place| place.mean / place.x).collect();
    Interval::of_median(&stats::Sample::new(shares)?, Level::P95, &Bootstrap::new(0))
}

/// The bands of rates; one where chance explains what is off the line.
fn bands(samples: &[Sample], places: &[Place], scatter: Scatter, lack: Option<FTest>) -> Result<Vec<Band>> {
    let points = samples.iter().filter_map(|sample| {
        let place = places.iter().find(|place| place.x.to_bits() == sample.quota.to_bits())?;
        Some((sample.quota, (sample.gflops, scatter.weight(place))))
    });
    let (quotas, (rates, weights)): (Vec<f64>, (Vec<f64>, Vec<f64>)) = points.unzip();
    let mut found = stats::segments(&quotas, &rates, &weights)?;
    if found.len() > 1 && !lack.is_some_and(|test| test.p < CHANCE_MAX) {
        let line = line(places)?;
        let whole = found.first().zip(found.last()).map(|(first, last)| Segment {
            from: first.from,
            to: last.to,
            intercept: line.intercept.interval.estimate,
            slope: line.slope.interval.estimate,
        });
        found = whole.into_iter().collect();
    }
    let band = |line: Segment| {
        let within: Vec<Place> =
            places.iter().filter(|place| (line.from..=line.to).contains(&place.x)).copied().collect();
        Ok(Band { line, per_cpu: Some(per_cpu(&within)?) })
    };
    found.into_iter().map(band).collect()
}

/// Median of a value at the lowest third of quotas / at the highest third; `None` where a sample has no value.
pub(super) fn low_to_high(samples: &[Sample], value: impl Fn(&Sample) -> Option<f64>) -> Result<Option<f64>> {
    Ok(thirds(samples, value)?.map(|[low, high]| low.median() / high.median()))
}

/// A value at the lowest third of quotas, and at the highest; `None` where a sample has none.
fn thirds(samples: &[Sample], value: impl Fn(&Sample) -> Option<f64>) -> Result<Option<[stats::Sample; 2]>> {
    let top = samples.iter().map(|sample| sample.quota).fold(0.0, f64::max);
    let third = |is_of: &dyn Fn(f64) -> bool| {
        let values =
            samples.iter().filter(|sample| is_of(sample.quota)).map(&value).collect::<Option<Vec<_>>>();
        values.map(stats::Sample::new).transpose()
    };
    let low = third(&|quota| quota <= top / 3.0 + 1e-9)?;
    let high = third(&|quota| quota >= top * 2.0 / 3.0 - 1e-9)?;
    Ok(low.zip(high).map(|(low, high)| [low, high]))
}

/// The rate per CPU second.
fn per_second(sample: &Sample) -> f64 {
    sample.gflops / sample.cpus_used
}

pub(super) fn median_of(values: impl Iterator<Item = f64>) -> Result<f64> {
    Ok(stats::Sample::new(values.collect::<Vec<_>>())?.median())
}

/// The value that is furthest from 0, and what belongs to it.
pub(super) fn largest(values: impl Iterator<Item = (f64, f64)>) -> Result<(f64, f64)> {
    values
        .max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))
        .ok_or_else(|| Error::usage("cannot analyse a calibration without samples"))
}

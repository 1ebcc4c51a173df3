//! How far figures are apart, and from when on that is a finding.

use emu_bench::stats::Sample;
use emu_core::{Error, Result};

/// Deviations up to this share are no finding: of quotas from being proportional, of orders, of the end from the begin.
pub(super) const NOTABLE: f64 = 0.05;

pub(super) fn median_of(values: impl Iterator<Item = f64>) -> Result<f64> {
    Ok(Sample::new(values.collect::<Vec<_>>())?.median())
}

pub(super) fn largest(values: impl Iterator<Item = (f64, f64)>) -> Result<(f64, f64)> {
    values
        .max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))
        .ok_or_else(|| Error::usage("cannot analyse a calibration without samples"))
}

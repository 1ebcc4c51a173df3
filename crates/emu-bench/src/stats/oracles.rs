//! Reference values for the tests, made by `testdata/make_oracles.py` with scipy and statsmodels.

use std::sync::OnceLock;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::Deserialize;

use super::distribution::normal_quantile;

/// Agreement asked of every figure, relative to its size.
const TOLERANCE: f64 = 1e-9;

#[derive(Deserialize)]
pub(super) struct Oracles {
    /// (two-sided level, degrees of freedom, t)
    pub(super) t_critical: Vec<(f64, f64, f64)>,
    /// (t, degrees of freedom, p)
    pub(super) t_two_sided: Vec<(f64, f64, f64)>,
    /// (F, degrees of freedom, degrees of freedom, p)
    pub(super) f_upper_tail: Vec<(f64, f64, f64, f64)>,
    /// (share, z)
    pub(super) normal_quantile: Vec<(f64, f64)>,
    pub(super) samples: Vec<SampleCase>,
    /// (n, level, rank from below of the lower end, level reached)
    pub(super) median_ranks: Vec<(u32, f64, u32, f64)>,
    /// (successes, trials, level, low, high)
    pub(super) shares: Vec<(usize, usize, f64, f64, f64)>,
    pub(super) paired: Vec<PairedCase>,
    pub(super) regressions: Vec<RegressionCase>,
    pub(super) equivalence: Vec<EquivalenceCase>,
    pub(super) plans: Vec<PlanCase>,
    pub(super) fidelity: Vec<FidelityCase>,
}

#[derive(Deserialize)]
pub(super) struct SampleCase {
    pub(super) values: Vec<f64>,
    pub(super) mean: f64,
    pub(super) sd: f64,
    pub(super) cv: f64,
    pub(super) median: f64,
    pub(super) mad: f64,
    /// (share, quantile)
    pub(super) quantiles: Vec<(f64, f64)>,
    /// (level, low, high)
    pub(super) mean_intervals: Vec<(f64, f64, f64)>,
}

#[derive(Deserialize)]
pub(super) struct PairedCase {
    pub(super) pairs: Vec<(f64, f64)>,
    pub(super) ratio: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

#[derive(Deserialize)]
pub(super) struct RegressionCase {
    pub(super) name: String,
    pub(super) x: Vec<f64>,
    pub(super) y: Vec<f64>,
    pub(super) intercept: CoefficientCase,
    pub(super) slope: CoefficientCase,
    pub(super) origin: CoefficientCase,
    pub(super) r_squared: f64,
    pub(super) residual_sd: f64,
    pub(super) f: f64,
    pub(super) f_p: f64,
}

#[derive(Deserialize)]
pub(super) struct CoefficientCase {
    pub(super) estimate: f64,
    pub(super) standard_error: f64,
    pub(super) t: f64,
    pub(super) p: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

#[derive(Deserialize)]
pub(super) struct EquivalenceCase {
    pub(super) log_errors: Vec<f64>,
    pub(super) band: f64,
    pub(super) tost_p: f64,
}

#[derive(Deserialize)]
pub(super) struct PlanCase {
    pub(super) half_width: f64,
    pub(super) pairs: usize,
    pub(super) level: f64,
    pub(super) distance: f64,
    pub(super) detectable: f64,
    pub(super) needed: Option<usize>,
}

#[derive(Deserialize)]
pub(super) struct FidelityCase {
    pub(super) cells: Vec<CellCase>,
    pub(super) floor: f64,
    /// (estimate, low, high), as the others
    pub(super) bias: (f64, f64, f64),
    pub(super) error: (f64, f64, f64),
    pub(super) worst: (f64, f64, f64),
    pub(super) elasticity: (f64, f64, f64),
    pub(super) score: (f64, f64, f64),
}

#[derive(Deserialize)]
pub(super) struct CellCase {
    pub(super) target: f64,
    pub(super) ideal: f64,
    pub(super) ratios: Vec<f64>,
}

/// The reference values, read once.
pub(super) fn oracles() -> &'static Oracles {
    static ORACLES: OnceLock<Oracles> = OnceLock::new();
    ORACLES.get_or_init(|| {
        serde_json::from_str(include_str!("../../testdata/oracles.json"))
            .expect("the file matches these types")
    })
}

/// Fails unless `got` is within the tolerance of `expected`.
#[track_caller]
pub(super) fn close(got: f64, expected: f64, what: &str) {
    let off = (got - expected).abs();
    assert!(off <= TOLERANCE * expected.abs(), "{what}: {got} instead of {expected}, off by {off:e}");
}

/// Independent standard normal numbers from a seed.
pub(crate) struct Normals(Pcg64);

impl Normals {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    pub(crate) fn draw(&mut self) -> f64 {
        normal_quantile(self.0.random_range(f64::EPSILON..1.0))
    }
}

impl Iterator for Normals {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        Some(self.draw())
    }
}

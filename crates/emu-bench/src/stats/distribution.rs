//! Student's t, Fisher's F and the normal distribution. Tail areas are the incomplete beta function of statrs. Quantiles of t
//! are solved here: the inverse of statrs can fail to end in extreme tails (statrs issue 435).

use emu_core::{Error, ErrorKind, Result};
use statrs::distribution::{Continuous, ContinuousCDF, Normal, StudentsT};
use statrs::function::beta::checked_beta_reg;

/// Above this the expansion is exact to rounding, while the fraction behind the beta function needs ever more terms.
const DF_EXPANSION: f64 = 10_000.0;

/// Φ(z), the standard normal distribution function.
pub(super) fn normal_cdf(z: f64) -> f64 {
    Normal::standard().cdf(z)
}

/// Φ⁻¹(`share`) for 0 < `share` < 1.
pub(super) fn normal_quantile(share: f64) -> f64 {
    Normal::standard().inverse_cdf(share)
}

/// The t that encloses the central `level`; `df` is at least 1, and need not be a whole number.
pub(super) fn t_critical(level: f64, df: f64) -> Result<f64> {
    let z = normal_quantile(f64::midpoint(1.0, level));
    if df > DF_EXPANSION {
        return Ok(t_expansion(z, df));
    }
    let density = StudentsT::new(0.0, 1.0, df).map_err(|cause| undefined("Student's t", df, cause))?;
    // The tail area falls and is convex for t > 0, and z lies left of every t quantile: Newton's steps all go right and none
    // oversteps, so that the loop ends when rounding stops it.
    let mut t = z;
    loop {
        let next = t + (t_two_sided(t, df)? - (1.0 - level)) / (2.0 * density.pdf(t));
        if next <= t * (1.0 + f64::EPSILON) || !next.is_finite() {
            return Ok(t);
        }
        t = next;
    }
}

/// Quantile of t from the normal quantile `z` (Abramowitz & Stegun 26.7.5).
fn t_expansion(z: f64, df: f64) -> f64 {
    let g1 = (z.powi(3) + z) / 4.0;
    let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + g1 / df + g2 / df.powi(2) + g3 / df.powi(3)
}

/// The two-sided p-value of `t` with `df` degrees of freedom (Abramowitz & Stegun 26.7.1).
pub(super) fn t_two_sided(t: f64, df: f64) -> Result<f64> {
    checked_beta_reg(df / 2.0, 0.5, df / (df + t * t)).map_err(|cause| undefined("Student's t", df, cause))
}

/// The p-value of an F statistic with `df1` and `df2` degrees of freedom (Abramowitz & Stegun 26.6.2).
pub(super) fn f_upper_tail(f: f64, df1: f64, df2: f64) -> Result<f64> {
    checked_beta_reg(df2 / 2.0, df1 / 2.0, df2 / (df2 + df1 * f)).map_err(|cause| undefined("F", df2, cause))
}

fn undefined(name: &str, df: f64, cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(
        ErrorKind::Usage,
        format!("cannot evaluate the {name} distribution with {df} degrees of freedom"),
    )
    .caused_by(cause)
}

#[cfg(test)]
mod tests {
    use super::super::oracles::{close, oracles};
    use super::*;
    use std::f64::consts::PI;

    #[test]
    fn t_quantiles_agree_with_scipy() {
        for &(level, df, expected) in &oracles().t_critical {
            close(t_critical(level, df).unwrap(), expected, &format!("t at {level} with {df} df"));
        }
    }

    #[test]
    fn t_quantiles_agree_with_their_closed_forms() {
        for level in [0.8, 0.9, 0.95, 0.99, 0.999, 0.99999] {
            close(t_critical(level, 1.0).unwrap(), (PI * level / 2.0).tan(), "one degree: Cauchy");
            let two = level * (2.0 / (1.0 - level * level)).sqrt();
            close(t_critical(level, 2.0).unwrap(), two, "two degrees");
        }
    }

    #[test]
    fn t_tail_areas_agree_with_scipy() {
        for &(t, df, expected) in &oracles().t_two_sided {
            close(t_two_sided(t, df).unwrap(), expected, &format!("p of t {t} with {df} df"));
        }
    }

    #[test]
    fn f_tail_areas_agree_with_scipy() {
        for &(f, df1, df2, expected) in &oracles().f_upper_tail {
            close(f_upper_tail(f, df1, df2).unwrap(), expected, &format!("p of F {f} with {df1}, {df2} df"));
        }
    }

    #[test]
    fn normal_quantiles_agree_with_scipy() {
        for &(share, expected) in &oracles().normal_quantile {
            close(normal_quantile(share), expected, &format!("z of {share}"));
            close(normal_cdf(expected), share, &format!("share of {expected}"));
        }
    }

    #[test]
    fn the_expansion_meets_the_exact_quantile_where_it_takes_over() {
        let below = t_critical(0.95, DF_EXPANSION).unwrap();
        close(t_expansion(normal_quantile(0.975), DF_EXPANSION), below, "t at the seam");
    }

    #[test]
    fn degrees_of_freedom_below_zero_are_refused() {
        assert!(t_critical(0.95, -1.0).is_err());
        assert!(t_critical(0.95, f64::NAN).is_err());
        assert!(f_upper_tail(1.0, 0.0, 3.0).is_err());
    }
}

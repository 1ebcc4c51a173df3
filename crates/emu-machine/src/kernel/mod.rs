//! Computations that are measured, without the measuring.
//!
//! The kernels of the HPC Challenge have its counts of work and its rules of what passes (Luszczek et al. 2005,
//! *Introduction to the HPC Challenge benchmark suite*; <https://hpcchallenge.org>).

pub mod arithmetic;
pub mod blocks;
pub mod chase;
pub mod dgemm;
pub mod fft;
pub mod linpack;
pub mod ptrans;
pub mod random_access;
pub mod scatter;
pub mod stream;

mod columns;
mod threads;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use threads::{Share, Window, all_at_once, each_on, on_each_cpu, on_one, on_threads};
use threads::{Span, timed};

/// Half the distance from 1 to the next number: the ε of HPL's checks (`HPL_dlamch(HPL_MACH_EPS)`).
const ROUNDING: f64 = f64::EPSILON / 2.0;

/// Scaled residuals must stay below this, as in HPL and HPCC.
const RESIDUAL_MAX: f64 = 16.0;

/// The larger of two errors; not a number where one of them is not, which `f64::max` would pass over.
fn larger(one: f64, other: f64) -> f64 {
    if one.is_nan() || other <= one { one } else { other }
}

/// One run of a kernel, and what its verification, which is not part of the time, has found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Wall time of the computation.
    pub seconds: f64,
    /// What was done, as HPCC counts it: floating-point operations, updates or bytes.
    pub work: f64,
    /// How wrong the result is, in the unit of the kernel's rule.
    pub error: f64,
    /// The error that a right result stays below, or is at most for a count.
    pub error_max: f64,
}

impl Outcome {
    /// Work per second.
    pub fn rate(&self) -> f64 {
        self.work / self.seconds
    }

    /// Whether the result is right, as far as the rule says. What is not a number is wrong.
    pub fn passes(&self) -> bool {
        self.error <= self.error_max
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use emu_core::{CpuList, Host, Roots};

    /// So many threads, each on any of the CPUs.
    pub(crate) fn threads(count: usize) -> Vec<CpuList> {
        vec![Host::detect(&Roots::system()).unwrap().allowed; count]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_number_is_larger_than_any() {
        assert_eq!(
            (larger(1.0, 2.0).to_bits(), larger(2.0, 1.0).to_bits()),
            (2f64.to_bits(), 2f64.to_bits())
        );
        assert!(larger(f64::NAN, 1.0).is_nan() && larger(1.0, f64::NAN).is_nan());
    }

    #[test]
    fn what_is_not_a_number_does_not_pass() {
        let outcome = |error| Outcome { seconds: 2.0, work: 6.0, error, error_max: 16.0 };
        assert!((outcome(0.0).rate() - 3.0).abs() < 1e-12);
        assert!(outcome(0.1).passes() && !outcome(17.0).passes() && !outcome(f64::NAN).passes());
    }
}

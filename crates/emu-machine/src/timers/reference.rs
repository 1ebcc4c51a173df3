//! The share of a reference machine's performance that this one has, by the size of the problem (P. Luszczek et al.
//! 2011, § 6: of bare metal, in a virtual machine).

use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::drift::Drift;

/// This machine in that of a reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Relative {
    /// The processor of the reference.
    pub reference: String,
    /// Each size that both have computed.
    pub sizes: Vec<RelativeSize>,
}

/// One size on both machines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RelativeSize {
    /// The size, in steps.
    pub steps: u64,
    /// The best performance here in that of the reference; 1 is the same.
    pub share: f64,
    /// Its standard deviation, by the propagation of those of both machines.
    pub sd: f64,
}

impl Relative {
    pub(super) fn new(here: &[Drift], there: &[Drift], reference: &str) -> Result<Self> {
        let sizes: Vec<_> = here
            .iter()
            .filter_map(|here| {
                let there = there.iter().find(|there| there.steps == here.steps && there.best_hz > 0.0)?;
                let share = here.best_hz / there.best_hz;
                let relative = |of: &Drift| of.sd_hz / of.best_hz.max(f64::MIN_POSITIVE);
                let sd = share * relative(here).hypot(relative(there));
                Some(RelativeSize { steps: here.steps, share, sd })
            })
            .collect();
        if sizes.is_empty() {
            return Err(Error::usage("cannot compare with the reference: no size was computed on both")
                .hint("measure it again with this emu"));
        }
        Ok(Self { reference: reference.into(), sizes })
    }
}

#[cfg(test)]
mod tests {
    use super::super::drift::Change;
    use super::*;

    fn drift(steps: u64, best_hz: f64, sd_hz: f64) -> Drift {
        let none = Change { median: 0.0, low: 0.0, high: 0.0, mean: None };
        Drift { steps, descending: none, random: none, best_hz, sd_hz }
    }

    #[test]
    fn shares_are_of_the_best_and_deviations_add_in_quadrature() {
        let here = [drift(1, 30.0, 0.9), drift(2, 50.0, 0.0), drift(8, 1.0, 0.0)];
        let there = [drift(1, 60.0, 2.4), drift(2, 50.0, 5.0), drift(4, 1.0, 0.0)];
        let relative = Relative::new(&here, &there, "x").unwrap();
        let sizes: Vec<_> = relative.sizes.iter().map(|size| (size.steps, size.share)).collect();
        assert_eq!(sizes, [(1, 0.5), (2, 1.0)]);
        assert!((relative.sizes[0].sd - 0.025).abs() < 1e-12 && (relative.sizes[1].sd - 0.1).abs() < 1e-12);
        assert!(Relative::new(&here[2..], &there, "x").is_err());
        assert!(Relative::new(&here[..1], &[drift(1, 0.0, 0.0)], "x").is_err());
    }
}

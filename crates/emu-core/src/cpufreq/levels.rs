//! The frequencies that a policy can be set to, and how to mix two of them.

use crate::host::Policy;
use crate::speed::Hertz;
use crate::unavailable::{Reason, Unavailable};
use crate::zone::Round;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Levels {
    /// A table, ascending, at least one entry.
    Table(Vec<Hertz>),
    /// Anything in between (`intel_pstate`, `amd-pstate`, CPPC), in steps too fine to matter.
    Range(Hertz, Hertz),
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mix {
    pub(crate) low: Hertz,
    pub(crate) high: Hertz,
    /// Share of running time at `high`.
    pub(crate) high_share: f64,
}

impl Mix {
    pub(crate) fn mean(self) -> f64 {
        self.low.as_f64() + self.high_share * (self.high.as_f64() - self.low.as_f64())
    }
}

impl Levels {
    pub(crate) fn of(policy: &Policy) -> Result<Self, Unavailable> {
        if !policy.frequencies.is_empty() {
            return Ok(Self::Table(policy.frequencies.clone()));
        }
        match (policy.hardware_min, policy.hardware_max) {
            (Some(low), Some(high)) if Hertz(0) < low && low <= high => Ok(Self::Range(low, high)),
            _ => Err(Unavailable::new(
                Reason::NoCpufreq,
                format!("{} names neither frequencies nor limits", policy.path.display()),
                "use cpu-hogs, cpu-freeze, fracas or cpu-lim",
            )),
        }
    }

    pub(crate) fn lowest(&self) -> Hertz {
        match self {
            Self::Table(table) => table.first().copied().unwrap_or(Hertz(0)),
            Self::Range(low, _) => *low,
        }
    }

    pub(crate) fn highest(&self) -> Hertz {
        match self {
            Self::Table(table) => table.last().copied().unwrap_or(Hertz(0)),
            Self::Range(_, high) => *high,
        }
    }

    pub(crate) fn round(&self, wanted: Hertz, round: Round) -> Hertz {
        let mix = self.mix(wanted);
        let enough_for_high = match round {
            Round::Down => 1.0,
            Round::Nearest => 0.5,
            Round::Up => 0.0,
        };
        if mix.high_share > enough_for_high { mix.high } else { mix.low }
    }

    /// The two neighbouring levels whose mix has the mean `wanted`; the nearest level alone outside the range.
    pub(crate) fn mix(&self, wanted: Hertz) -> Mix {
        let alone = |level| Mix { low: level, high: level, high_share: 0.0 };
        let inside = wanted.clamp(self.lowest(), self.highest());
        match self {
            Self::Range(..) => alone(Hertz(inside.0 / 1000 * 1000)),
            Self::Table(table) => {
                let above = table.partition_point(|level| *level <= inside);
                match (above.checked_sub(1).and_then(|below| table.get(below)), table.get(above)) {
                    (Some(&low), Some(&high)) if inside > low => {
                        let high_share = (inside.as_f64() - low.as_f64()) / (high.as_f64() - low.as_f64());
                        Mix { low, high, high_share }
                    }
                    (Some(&level), _) | (None, Some(&level)) => alone(level),
                    (None, None) => alone(inside),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table() -> Levels {
        Levels::Table([800, 1000, 1400, 1800, 2200, 2600].map(|mhz| Hertz(mhz * 1_000_000)).to_vec())
    }

    #[test]
    fn a_wish_is_rounded_as_asked() {
        let wish = Hertz(1_500_000_000);
        assert_eq!(table().round(wish, Round::Nearest), Hertz(1_400_000_000));
        assert_eq!(table().round(wish, Round::Up), Hertz(1_800_000_000));
        assert_eq!(table().round(wish, Round::Down), Hertz(1_400_000_000));
        for round in [Round::Nearest, Round::Up, Round::Down] {
            assert_eq!(table().round(Hertz(1_400_000_000), round), Hertz(1_400_000_000));
            assert_eq!(table().round(Hertz(1), round), Hertz(800_000_000));
            assert_eq!(table().round(Hertz(9_000_000_000), round), Hertz(2_600_000_000));
        }
    }

    #[test]
    fn the_papers_example_is_three_quarters_and_one_quarter() {
        let levels = Levels::Table(vec![Hertz(1_200_000_000), Hertz(2_400_000_000)]);
        let mix = levels.mix(Hertz(1_500_000_000));
        assert!((mix.high_share - 0.25).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn a_mix_of_neighbours_has_the_wanted_mean(wanted in 800_000_000u64..=2_600_000_000) {
            let mix = table().mix(Hertz(wanted));
            prop_assert!((mix.mean() - wanted as f64).abs() < 1.0);
            prop_assert!((0.0..1.0).contains(&mix.high_share));
        }
    }
}

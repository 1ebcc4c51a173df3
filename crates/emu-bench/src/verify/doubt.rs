//! Why pairs decide nothing although their interval would.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::outliers::Outliers;

/// Why there is no verdict, where that is not the interval alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Doubt {
    /// Too few pairs were left undisturbed.
    Disturbed {
        /// Pairs that were disturbed to the last.
        disturbed: usize,
        /// All pairs.
        pairs: usize,
    },
    /// Native windows differ among themselves by this share, and with that the interval would not decide.
    Controls(f64),
    /// The median is within the tolerance, and too many windows are far from it.
    Outliers {
        /// Which.
        outliers: Outliers,
        /// Of how many pairs.
        pairs: usize,
    },
    /// The median is within the tolerance, and the mean, which is what a long program gets, is not: off by this share.
    Mean(f64),
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disturbed { disturbed, pairs } => {
                write!(f, "{disturbed} of {pairs} pairs were disturbed, too many for a verdict")
            }
            Self::Controls(bias) => {
                write!(f, "native against native is off by {:+.1}%, too much for a verdict", bias * 100.0)
            }
            Self::Outliers { outliers, pairs } => {
                let percent = outliers.beyond * 100.0;
                write!(f, "{} of {pairs} windows are off by more than {percent:.0}%", outliers.pairs)
            }
            Self::Mean(error) => {
                write!(f, "the median is right, but the mean is off by {:+.1}%", error * 100.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_doubt_is_a_sentence_with_its_numbers() {
        let outliers = Outliers { pairs: 3, beyond: 0.1 };
        for (doubt, words) in [
            (
                Doubt::Disturbed { disturbed: 12, pairs: 15 },
                "12 of 15 pairs were disturbed, too many for a verdict",
            ),
            (Doubt::Controls(0.06), "native against native is off by +6.0%, too much for a verdict"),
            (Doubt::Outliers { outliers, pairs: 15 }, "3 of 15 windows are off by more than 10%"),
            (Doubt::Mean(-0.063), "the median is right, but the mean is off by -6.3%"),
        ] {
            assert_eq!(doubt.to_string(), words);
        }
    }
}

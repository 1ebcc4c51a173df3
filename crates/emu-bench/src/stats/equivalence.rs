//! Whether a ratio is as good as ideal: equivalence by interval inclusion.

use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::Serialize;

use super::interval::{Interval, Level};
use super::power::pairs_needed;

/// How far from the ideal still counts as equal: a share, 0.05 for ±5 %, so a ratio within 0.95 and 1.05.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Band(f64);

impl Band {
    /// ±5 %.
    pub const FIVE_PERCENT: Self = Self(0.05);

    /// A band of ±`share`, above 0 and below 1.
    pub fn new(share: f64) -> Result<Self> {
        if !(share > 0.0 && share < 1.0) {
            return Err(Error::usage(format!("cannot use the tolerance ±{share}"))
                .hint("give a share between 0 and 1; 0.05 is ±5 %"));
        }
        Ok(Self(share))
    }

    /// The smallest ratio within the band.
    pub fn low(self) -> f64 {
        1.0 - self.0
    }

    /// The largest ratio within the band.
    pub fn high(self) -> f64 {
        1.0 + self.0
    }
}

/// What the data say about a ratio that should be 1.
///
/// There is no "no significant difference" here: that is what noisy or scarce data give for any emulation,
/// good or bad. A pass must be shown (Schuirmann 1987, *J. Pharmacokinet. Biopharm.* 15).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The interval lies inside the band: equivalent to the ideal.
    Pass,
    /// The interval lies outside the band: not equivalent.
    Fail,
    /// The interval reaches across a border of the band, or there were too few pairs for an interval of the
    /// level asked for.
    NotEnoughData {
        /// How many pairs in all, those taken included, would decide with a chance of 80 % if the estimate and
        /// the spread stay as they are. `None` when a million would not: the estimate is on the border.
        pairs_needed: Option<usize>,
    },
}

impl Verdict {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::NotEnoughData { .. } => "not enough data",
        }
    }

    /// Judges the interval of emulated / native / ideal from `pairs` pairs.
    ///
    /// The interval at `level` lies inside the band when and only when both of Schuirmann's one-sided tests reject at (1 −
    /// level) / 2: 2.5 % each at 95 %, which is stricter than the 5 % of bioequivalence.
    pub fn of(ratio: &Interval, pairs: usize, band: Band, level: Level) -> Result<Self> {
        let ordered = ratio.low <= ratio.estimate && ratio.estimate <= ratio.high;
        if !(ratio.low >= 0.0 && ratio.estimate > 0.0 && ratio.estimate.is_finite() && ordered) {
            return Err(Error::usage(format!(
                "cannot judge the ratio {} within {} and {}",
                ratio.estimate, ratio.low, ratio.high
            )));
        }
        if !ratio.reaches(level) {
            let least = pairs_for_a_median(level);
            if pairs >= least {
                return Err(Error::usage(format!(
                    "cannot judge at the level {} by an interval of {}",
                    level.get(),
                    ratio.level
                )));
            }
            return Ok(Self::NotEnoughData { pairs_needed: Some(least) });
        }
        if pairs < 2 {
            return Err(Error::usage(format!("cannot judge an interval from {pairs} pairs")));
        }
        if band.low() <= ratio.low && ratio.high <= band.high() {
            return Ok(Self::Pass);
        }
        if ratio.high < band.low() || band.high() < ratio.low {
            return Ok(Self::Fail);
        }
        // Ratios are estimated as logarithms: on that scale the interval shrinks evenly.
        let log = ratio.map(f64::ln);
        let distance = (log.estimate - band.low().ln()).abs().min((band.high().ln() - log.estimate).abs());
        Ok(Self::NotEnoughData { pairs_needed: pairs_needed(log.half_width(), pairs, level, distance)? })
    }

    /// One verdict for several ratios: any fail fails; all must pass for a pass; else the ratio that needs most pairs says how
    /// many. A pass needs no correction for their number, as each had to pass (Berger 1982, intersection-union test).
    pub fn of_all(verdicts: impl IntoIterator<Item = Self>) -> Option<Self> {
        verdicts.into_iter().reduce(|all, one| match (all, one) {
            (Self::Fail, _) | (_, Self::Fail) => Self::Fail,
            (Self::Pass, other) | (other, Self::Pass) => other,
            (Self::NotEnoughData { pairs_needed: one }, Self::NotEnoughData { pairs_needed: other }) => {
                Self::NotEnoughData { pairs_needed: one.zip(other).map(|(one, other)| one.max(other)) }
            }
        })
    }
}

/// The fewest pairs whose whole range is an interval for the median at `level`: 1 − 2^(1−n) ≥ level.
pub(crate) fn pairs_for_a_median(level: Level) -> usize {
    (1.0 - (1.0 - level.get()).log2()).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::super::distribution::t_critical;
    use super::super::oracles::{Normals, oracles};
    use super::super::paired::{Centre, Pair, PairedRatios};
    use super::*;
    use proptest::prelude::*;

    fn judge(low: f64, estimate: f64, high: f64) -> Verdict {
        let ratio = Interval { estimate, low, high, level: 0.95 };
        Verdict::of(&ratio, 10, Band::FIVE_PERCENT, Level::P95).unwrap()
    }

    fn needs_more(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::NotEnoughData { .. })
    }

    #[test]
    fn inclusion_decides() {
        assert_eq!(judge(0.96, 1.0, 1.04), Verdict::Pass);
        assert_eq!(judge(0.95, 1.0, 1.05), Verdict::Pass);
        assert_eq!(judge(0.80, 0.85, 0.90), Verdict::Fail);
        assert_eq!(judge(1.06, 1.07, 1.08), Verdict::Fail);
        assert!(needs_more(judge(0.94, 1.0, 1.06)));
        assert!(needs_more(judge(0.90, 0.94, 0.98)));
        assert!(needs_more(judge(1.0, 1.03, 1.06)));
    }

    /// A difference that is significant (the interval excludes 1) and still within the band passes, and one
    /// that is not significant (the interval contains 1) does not pass for that.
    #[test]
    fn significance_is_not_the_question() {
        assert_eq!(judge(0.97, 0.98, 0.99), Verdict::Pass);
        assert!(needs_more(judge(0.5, 1.0, 2.0)));
    }

    /// Four log errors 0.00, 0.02, 0.02, 0.04: mean 0.02, sd √(0.0008/3) = 0.016330, standard error 0.008165.
    /// Lower test (0.02 − ln 0.95)/se = 8.732, upper test (ln 1.05 − 0.02)/se = 3.526; t(3, 0.025) = 3.182, so
    /// both reject: pass. The interval 0.02 ± 0.02598 says the same: it ends within −0.05129 and 0.04879.
    /// At 99 % t is 5.841 and the upper test does not reject.
    #[test]
    fn two_one_sided_tests_worked_by_hand() {
        let pairs: Vec<Pair> =
            [0.0, 0.02, 0.02, 0.04].map(|e: f64| Pair::new(e.exp(), 1.0).unwrap()).to_vec();
        let ratios = PairedRatios::new(&pairs).unwrap();
        let verdict = |level: Level| {
            let ratio = ratios.ratio(Centre::Mean, level).unwrap();
            (ratio, Verdict::of(&ratio, 4, Band::FIVE_PERCENT, level).unwrap())
        };
        let (ratio, at_95) = verdict(Level::P95);
        assert!(
            (ratio.low.ln() + 0.00598).abs() < 5e-6 && (ratio.high.ln() - 0.04598).abs() < 5e-6,
            "{ratio:?}"
        );
        assert_eq!(at_95, Verdict::Pass);
        assert!(needs_more(verdict(Level::new(0.99).unwrap()).1));
    }

    #[test]
    fn passes_agree_with_the_tests_of_statsmodels() {
        let (mut passed, mut other) = (0, 0);
        for case in &oracles().equivalence {
            let pairs: Vec<Pair> = case.log_errors.iter().map(|e| Pair::new(e.exp(), 1.0).unwrap()).collect();
            let ratio = PairedRatios::new(&pairs).unwrap().ratio(Centre::Mean, Level::P95).unwrap();
            let verdict =
                Verdict::of(&ratio, pairs.len(), Band::new(case.band).unwrap(), Level::P95).unwrap();
            assert_eq!(verdict == Verdict::Pass, case.tost_p <= 0.025, "TOST p = {}", case.tost_p);
            if verdict == Verdict::Pass { passed += 1 } else { other += 1 }
        }
        assert!(passed > 5 && other > 5, "the cases must include both: {passed} passed, {other} did not");
    }

    #[test]
    fn an_interval_below_its_level_is_never_a_verdict() {
        let five = Interval { estimate: 1.0, low: 0.99, high: 1.01, level: 0.9375 };
        let verdict = Verdict::of(&five, 5, Band::FIVE_PERCENT, Level::P95).unwrap();
        assert_eq!(verdict, Verdict::NotEnoughData { pairs_needed: Some(6) });
        let one = Interval { estimate: 0.2, low: 0.2, high: 0.2, level: 0.0 };
        let verdict = Verdict::of(&one, 1, Band::FIVE_PERCENT, Level::new(0.99).unwrap()).unwrap();
        assert_eq!(verdict, Verdict::NotEnoughData { pairs_needed: Some(8) });
    }

    #[test]
    fn an_interval_made_for_a_lower_level_is_refused() {
        let loose = Interval { estimate: 1.0, low: 0.99, high: 1.01, level: 0.9 };
        assert!(Verdict::of(&loose, 12, Band::FIVE_PERCENT, Level::P95).is_err());
    }

    /// Log errors of 0.02 ± 0.03: six pairs do not decide, and as many as they ask for do in four of five runs.
    #[test]
    fn the_pairs_asked_for_decide_four_times_in_five() {
        let planned = Interval::around(0.02, t_critical(0.95, 5.0).unwrap() * 0.03 / 6.0_f64.sqrt(), 0.95);
        let verdict = Verdict::of(&planned.map(f64::exp), 6, Band::FIVE_PERCENT, Level::P95).unwrap();
        let Verdict::NotEnoughData { pairs_needed: Some(needed) } = verdict else { panic!("{verdict:?}") };
        let mut normals = Normals::new(41);
        let passes = (0..1000)
            .filter(|_| {
                let pairs: Vec<Pair> = (0..needed)
                    .map(|_| Pair::new((0.02 + 0.03 * normals.draw()).exp(), 1.0).unwrap())
                    .collect();
                let ratio = PairedRatios::new(&pairs).unwrap().ratio(Centre::Mean, Level::P95).unwrap();
                Verdict::of(&ratio, needed, Band::FIVE_PERCENT, Level::P95).unwrap() == Verdict::Pass
            })
            .count();
        assert!((760..=840).contains(&passes), "{passes} of 1000 with {needed} pairs");
    }

    #[test]
    fn an_interval_that_excludes_nothing_asks_for_more_data() {
        assert_eq!(judge(0.0, 1.0, f64::INFINITY), Verdict::NotEnoughData { pairs_needed: None });
    }

    #[test]
    fn what_is_no_ratio_is_refused() {
        for (low, estimate, high) in [
            (-0.1, 1.0, 2.0),
            (0.0, 0.0, 2.0),
            (f64::NAN, 1.0, 2.0),
            (0.5, f64::INFINITY, f64::INFINITY),
            (1.1, 1.0, 1.2),
            (0.5, f64::NAN, 1.0),
        ] {
            let ratio = Interval { estimate, low, high, level: 0.95 };
            assert!(Verdict::of(&ratio, 10, Band::FIVE_PERCENT, Level::P95).is_err(), "{ratio:?}");
        }
        for bad in [0.0, 1.0, -0.05, f64::NAN] {
            assert!(Band::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_worst_of_several_verdicts_stands_for_all() {
        let more = |pairs_needed| Verdict::NotEnoughData { pairs_needed };
        assert_eq!(Verdict::of_all([]), None);
        assert_eq!(Verdict::of_all([Verdict::Pass, Verdict::Pass]), Some(Verdict::Pass));
        assert_eq!(Verdict::of_all([Verdict::Pass, more(Some(9)), Verdict::Fail]), Some(Verdict::Fail));
        assert_eq!(Verdict::of_all([more(Some(9)), Verdict::Pass, more(Some(30))]), Some(more(Some(30))));
        assert_eq!(Verdict::of_all([more(Some(9)), more(None)]), Some(more(None)));
    }

    proptest! {
        #[test]
        fn more_pairs_than_taken_are_needed(
            estimate in 0.7..1.4_f64, half in 0.001..1.0_f64, pairs in 2_usize..100,
        ) {
            let ratio = Interval { estimate, low: estimate / half.exp(), high: estimate * half.exp(), level: 0.95 };
            match Verdict::of(&ratio, pairs, Band::FIVE_PERCENT, Level::P95).unwrap() {
                Verdict::NotEnoughData { pairs_needed: Some(needed) } => prop_assert!(needed > pairs),
                Verdict::NotEnoughData { pairs_needed: None } => {}
                Verdict::Pass => prop_assert!(ratio.low >= 0.95 && ratio.high <= 1.05),
                Verdict::Fail => prop_assert!(ratio.low > 1.05 || ratio.high < 0.95),
            }
        }

        #[test]
        fn a_narrower_interval_never_turns_a_decision(
            estimate in 0.7..1.4_f64, half in 0.001..0.5_f64, pairs in 2_usize..100,
        ) {
            let judge = |half: f64| {
                let ratio = Interval { estimate, low: estimate / half.exp(), high: estimate * half.exp(), level: 0.95 };
                Verdict::of(&ratio, pairs, Band::FIVE_PERCENT, Level::P95).unwrap()
            };
            let wide = judge(half);
            if !needs_more(wide) {
                prop_assert_eq!(judge(half / 2.0), wide);
            }
        }
    }
}

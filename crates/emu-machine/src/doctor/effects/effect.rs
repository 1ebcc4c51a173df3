//! What one knob does to one kind of work, and what all of that means.

use emu_bench::stats::{Bootstrap, Centre, Interval, Level, Noise, Pair, PairedRatios, Sample};
use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::noise::Kind;
use crate::witness::counting;

/// Changes of the time of an operation that matter, as a share.
const TIME_MIN: f64 = 0.005;

/// Chance that any knob seems to change the noise where none does, and the same for the time of an operation.
const FALSE_ALARM: f64 = 0.05;

/// Resamples of an interval: the ends of one among many comparisons lie far out, and a few must lie beyond.
const RESAMPLES: u32 = 200_000;

/// What one knob does to one kind of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// The knob.
    pub knob: String,
    /// The kind of work.
    pub kind: Kind,
    /// Median over the windows of (max − min) / median, with the knob as found.
    pub found_range: f64,
    /// The same with the knob tuned.
    pub tuned_range: f64,
    /// Noise tuned / noise found, over the pairs: below 1 is calmer. Where so many pairs reach that, its level is such
    /// that the intervals of all knobs and kinds together hold with 95 %.
    pub noise_ratio: Interval,
    /// Time of an operation tuned / found: below 1 is faster. Its level is found in the same way.
    pub time_ratio: Interval,
    /// Every pair of windows, in the order of time. Disturbed ones count only where there are no others.
    pub pairs: Vec<Windows>,
}

/// A window with the knob as found and one with it tuned, next to each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Windows {
    /// Whether the tuned one came first.
    pub tuned_first: bool,
    /// Nanoseconds of an operation in each run, as found.
    pub found_ns: Vec<f64>,
    /// The same, tuned.
    pub tuned_ns: Vec<f64>,
    /// Whether the hypervisor, a limit of our cgroup or heat had a part in one of them.
    pub disturbed: bool,
}

impl Effect {
    pub(super) fn new(
        knob: &str,
        kind: Kind,
        pairs: Vec<Windows>,
        seed: u64,
        comparisons: usize,
    ) -> Result<Self> {
        let noise = |times: &[f64]| Ok::<_, Error>(Noise::of(&Sample::new(times)?)?.range);
        let median = |times: &[f64]| Ok::<_, Error>(Sample::new(times)?.median());
        let each = |of: &dyn Fn(&Windows) -> Result<f64>| {
            counting(&pairs, |pair| pair.disturbed).map(of).collect::<Result<Vec<_>>>()
        };
        let found = each(&|pair| noise(&pair.found_ns))?;
        let tuned = each(&|pair| noise(&pair.tuned_ns))?;
        let found_times = each(&|pair| median(&pair.found_ns))?;
        let tuned_times = each(&|pair| median(&pair.tuned_ns))?;
        Ok(Self {
            knob: knob.to_owned(),
            kind,
            found_range: median(&found)?,
            tuned_range: median(&tuned)?,
            noise_ratio: ratio(&tuned, &found, seed, comparisons)?,
            time_ratio: ratio(&tuned_times, &found_times, seed, comparisons)?,
            pairs,
        })
    }

    /// Whether it is shown to make this work calmer.
    pub fn is_calmer(&self) -> bool {
        self.decides() && self.noise_ratio.high < 1.0
    }

    /// Whether it is shown to make it louder.
    pub fn is_louder(&self) -> bool {
        self.decides() && self.noise_ratio.low > 1.0
    }

    /// Whether it has enough pairs that nothing disturbed.
    fn decides(&self) -> bool {
        self.noise_ratio.reaches(Level::P95) && self.pairs.iter().any(|pair| !pair.disturbed)
    }

    /// By how much it changes the time of an operation, where it is shown to do so by what matters.
    pub fn time_change(&self) -> Option<f64> {
        let change = self.time_ratio.estimate - 1.0;
        (self.decides() && !self.time_ratio.contains(1.0) && change.abs() >= TIME_MIN).then_some(change)
    }
}

/// The middle of the ratios of pairs, at the level that leaves all comparisons together [`FALSE_ALARM`] (Bonferroni),
/// or at 95 % where so few pairs do not reach that.
fn ratio(tuned: &[f64], found: &[f64], seed: u64, comparisons: usize) -> Result<Interval> {
    let pairs = tuned.iter().zip(found).map(|(tuned, found)| Pair::new(*tuned, *found));
    let ratios = PairedRatios::new(&pairs.collect::<Result<Vec<_>>>()?)?;
    let at = |level| ratios.ratio(Centre::Median(Bootstrap { seed, resamples: RESAMPLES }), level);
    let joint = Level::of_each(comparisons);
    match at(joint) {
        Ok(interval) if interval.reaches(joint) => Ok(interval),
        _ => at(Level::P95),
    }
}

pub(super) fn conclusion(effects: &[Effect]) -> String {
    let named = |which: fn(&Effect) -> bool| {
        let names = effects.iter().filter(|effect| which(effect));
        names.map(|effect| format!("{} ({})", effect.knob, effect.kind.name())).collect::<Vec<_>>().join(", ")
    };
    let (calmer, louder) = (named(Effect::is_calmer), named(Effect::is_louder));
    let times: Vec<_> = effects
        .iter()
        .filter_map(|effect| {
            let percent = effect.time_change()? * 100.0;
            Some(format!("{} ({}) by {percent:+.1}%", effect.knob, effect.kind.name()))
        })
        .collect();
    let sentence = |words: &str, what: &str| (!what.is_empty()).then(|| format!("{words}: {what}."));
    let noise =
        [sentence("Shown to make runs calmer here", &calmer), sentence("Shown to make them louder", &louder)];
    let mut sentences: Vec<_> = noise.into_iter().flatten().collect();
    if sentences.is_empty() {
        sentences.push("No knob is shown to change the noise here.".to_owned());
    }
    sentences.extend(sentence("Shown to change the time of an operation", &times.join(", ")));
    if !(calmer.is_empty() && louder.is_empty() && times.is_empty()) {
        sentences.extend(by_chance(effects));
    }
    let unknown = effects.iter().filter(|effect| !effect.is_calmer() && !effect.is_louder()).count();
    if unknown > 0 && unknown < effects.len() {
        sentences.push("Of the rest this many pairs show no effect on the noise.".to_owned());
    }
    let pairs = || effects.iter().flat_map(|effect| &effect.pairs);
    let disturbed = pairs().filter(|pair| pair.disturbed).count() as f64 / pairs().count() as f64 * 100.0;
    if disturbed > 0.0 {
        sentences.push(format!(
            "Steal, a limit of our cgroup or heat disturbed {disturbed:.0}% of the pairs, which do not decide."
        ));
    }
    sentences.join(" ")
}

/// How much of what is shown may be chance; `None` where the levels leave it no more than [`FALSE_ALARM`].
fn by_chance(effects: &[Effect]) -> Option<String> {
    let expected =
        |of: fn(&Effect) -> &Interval| -> f64 { effects.iter().map(|effect| 1.0 - of(effect).level).sum() };
    let (noise, time) = (expected(|effect| &effect.noise_ratio), expected(|effect| &effect.time_ratio));
    // The joint levels add up to it but for rounding.
    (noise.max(time) > FALSE_ALARM * 1.001).then(|| {
        let (comparisons, wrong) = (effects.len() * 2, noise + time);
        format!(
            "With so few pairs about {wrong:.1} of these {comparisons} comparisons would show an effect where there \
             is none."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_time_is_told_where_it_matters() {
        let windows = |tuned: f64| Windows {
            tuned_first: false,
            found_ns: vec![100.0, 101.0, 102.0],
            tuned_ns: [100.0, 101.0, 102.0].map(|time| time * tuned).to_vec(),
            disturbed: false,
        };
        let effect = |tuned: f64| {
            let pairs = (0..6).map(|pair| windows(tuned + f64::from(pair) * 1e-4)).collect();
            Effect::new("fake", Kind::CpuBound, pairs, 1, 1).unwrap()
        };
        assert!((effect(0.95).time_change().unwrap() + 0.04975).abs() < 1e-6);
        assert!(conclusion(&[effect(0.95)]).contains("time of an operation: fake (cpu-bound) by -5.0%."));
        assert_eq!(effect(0.999).time_change(), None, "too small to matter");
        assert_eq!(effect(0.9998).time_change(), None);
    }

    /// An effect by the spread of each tuned window in that of the found one, as one of so many comparisons.
    fn of_spreads(spreads: &[f64], comparisons: usize) -> Effect {
        let window = |spread: f64| vec![100.0 - 10.0 * spread, 100.0, 100.0 + 10.0 * spread];
        let pair = |&spread: &f64| Windows {
            tuned_first: false,
            found_ns: window(1.0),
            tuned_ns: window(spread),
            disturbed: false,
        };
        let pairs = spreads.iter().map(pair).collect();
        Effect::new("fake", Kind::CpuBound, pairs, 1, comparisons).unwrap()
    }

    #[test]
    fn disturbed_pairs_decide_nothing() {
        let mut effect = of_spreads(&[0.5; 9], 1);
        let again = |effect: &Effect| Effect::new("fake", effect.kind, effect.pairs.clone(), 1, 1).unwrap();
        effect.pairs[0].disturbed = true;
        effect.pairs[0].tuned_ns = vec![1.0, 100.0, 900.0];
        let left_out = again(&effect);
        assert!(left_out.is_calmer() && (left_out.tuned_range - 0.1).abs() < 1e-9, "{left_out:?}");
        assert!(conclusion(&[left_out]).ends_with("disturbed 11% of the pairs, which do not decide."));
        effect.pairs.iter_mut().skip(5).for_each(|pair| pair.disturbed = true);
        assert!(
            conclusion(&[again(&effect)]).starts_with("No knob is shown"),
            "four are too few: {effect:?}"
        );
        effect.pairs.iter_mut().for_each(|pair| pair.disturbed = true);
        assert!(conclusion(&[again(&effect)]).starts_with("No knob is shown"), "{effect:?}");
    }

    #[test]
    fn what_one_comparison_shows_many_need_not() {
        let spreads = [[0.75; 9].as_slice(), &[1.3; 3]].concat();
        let (alone, of_many) = (of_spreads(&spreads, 1), of_spreads(&spreads, 16));
        assert!(alone.is_calmer() && !of_many.is_calmer(), "{alone:?} {of_many:?}");
        assert!((1.0 - 0.05 / 16.0..0.999).contains(&of_many.noise_ratio.level), "{of_many:?}");
        let sure = vec![of_spreads(&[0.75; 12], 16); 16];
        let text = conclusion(&sure);
        assert!(text.starts_with("Shown to make runs calmer") && !text.contains("so few pairs"), "{text}");
    }

    #[test]
    fn where_pairs_are_too_few_for_so_many_comparisons_it_is_told() {
        let effect = of_spreads(&[0.75; 6], 16);
        // That of the whole range of six.
        assert!((effect.noise_ratio.level - 0.968_75).abs() < 1e-12);
        let effects = vec![effect; 16];
        let text = conclusion(&effects);
        assert!(text.contains("about 1.0 of these 32 comparisons"), "{text}");
    }
}

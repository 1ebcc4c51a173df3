//! The speed at which this machine is as fast as another one was: predicted from two scores, then measured and corrected.

use std::thread;
use std::time::Duration;

use emu_bench::stats::{Centre, Level, Pair, PairedRatios, Sample};
use emu_core::{CpuId, Error, Host, Result, Session};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Metric, Profile, Scorer, Watch};

fn length_by(metric: &Metric) -> Duration {
    Duration::from_millis(match metric {
        // Four of them make one sample.
        Metric::Geomean => 150,
        Metric::Command(_) => 1000,
        _ => 400,
    })
}

/// Native samples for the prediction, pairs for a correction, and pairs that verify.
const NATIVE: usize = 3;
const PAIRS: usize = 3;
const VERIFYING: usize = 8;

const ROUNDS: usize = 4;

const LOWEST: f64 = 0.001;

/// A speed is right when it is off by less than this: a sample is not better.
const RIGHT: f64 = 0.005;

/// The other machine may be faster by this before it is: scores have their noise.
const AS_FAST: f64 = 0.02;

/// Time for a zone to settle before a sample.
const SETTLING: Duration = Duration::from_millis(60);

/// What this machine is to be like.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// This machine.
    pub host: &'a Host,
    /// The other machine.
    pub profile: &'a Profile,
    /// By which both are judged.
    pub metric: &'a Metric,
    /// The CPU of this machine that is measured.
    pub cpu: CpuId,
}

/// The speed that was found.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Found {
    /// By which both machines were judged.
    pub metric: Metric,
    /// Of this machine's speed.
    pub share: f64,
    /// What was predicted from the scores of both machines alone.
    pub predicted: f64,
    /// The other machine's score.
    pub there: f64,
    /// This machine's, without emulation.
    pub native: f64,
    /// By how much this machine at that share was off, relative, with its 95 % interval.
    pub error: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// By how much it was off by the other metrics of the profile: what a slower clock alone cannot match.
    pub others: Vec<(Metric, f64)>,
}

/// Finds the share at which this machine's score is that of the profile. `engage` begins an emulation of a process at a share.
///
/// # Errors
/// Unavailable, where this machine is slower.
pub fn find(
    wanted: &Wanted<'_>,
    engage: &mut dyn FnMut(f64, &Scorer) -> Result<Session>,
    watch: Watch<'_>,
) -> Result<Found> {
    let Wanted { host, profile, metric, cpu } = wanted;
    let there = profile.score(metric)?;
    let mut scorer = Scorer::start(host, *cpu)?;
    let native = |scorer: &mut Scorer, watch: Watch<'_>| {
        watch(Some(&format!("{metric}, native")))?;
        scorer.score(metric, length_by(metric), &mut || watch(None))
    };
    let mut natives = (0..NATIVE).map(|_| native(&mut scorer, watch)).collect::<Result<Vec<_>>>()?;
    let here = |natives: &[f64]| Sample::new(natives.to_vec()).map(|sample| sample.median());
    let predicted = there / here(&natives)?;
    if predicted > 1.0 + AS_FAST {
        let (faster, name) = (100.0 * (predicted - 1.0), &profile.machine.model);
        return Err(Error::unavailable(format!(
            "this machine is slower by {metric}: {name} is {faster:.0} % faster"
        ))
        .hint("a CPU can only be made slower; choose another metric, or a faster machine"));
    }
    let mut share = rounded(predicted.clamp(LOWEST, 1.0));
    let mut pairs_at = |share: f64, count: usize, natives: &mut Vec<f64>, watch: Watch<'_>| {
        let mut pairs = Vec::with_capacity(count);
        for _ in 0..count {
            let free = native(&mut scorer, watch)?;
            natives.push(free);
            let session = engage(share, &scorer)?;
            thread::sleep(SETTLING + session.status().period * 2);
            watch(Some(&format!("{metric} at {:.1}%", 100.0 * share)))?;
            let slow = scorer.score(metric, length_by(metric), &mut || watch(None));
            session.release().1?;
            pairs.push(Pair::new(slow?, free)?);
        }
        PairedRatios::new(&pairs)
    };
    let mut round = 0;
    let (share, relative) = loop {
        // A first look corrects the prediction; what verifies a speed takes more, and may correct it once more.
        let count = if round == 0 { PAIRS } else { VERIFYING };
        let ratios = pairs_at(share, count, &mut natives, watch)?;
        let relative = ratios.relative_to(there / here(&natives)?)?.ratio(Centre::Mean, Level::P95)?;
        let is_right = relative.contains(1.0) || (relative.estimate - 1.0).abs() < RIGHT;
        let next = rounded((share / relative.estimate).clamp(LOWEST, 1.0));
        let is_last = is_right || (next - share).abs() < RIGHT * share || round + 1 == ROUNDS;
        if round > 0 && is_last {
            break (share, relative);
        }
        (share, round) = (next, round + 1);
    };
    let native = here(&natives)?;
    let [error, low, high] = [relative.estimate, relative.low, relative.high].map(|ratio| ratio - 1.0);
    let mut others = Vec::new();
    let session = engage(share, &scorer)?;
    thread::sleep(SETTLING + session.status().period * 2);
    for other in Metric::MEASURED.iter().filter(|other| other != metric) {
        let Ok(score) = profile.score(other) else { continue };
        watch(Some(&other.to_string()))?;
        let seen = scorer.score(other, length_by(other), &mut || watch(None))?;
        others.push((other.clone(), seen / score - 1.0));
    }
    session.release().1?;
    let metric = (*metric).clone();
    Ok(Found { metric, share, predicted, there, native, error, low, high, others })
}

/// To the digits that are worth writing down.
fn rounded(share: f64) -> f64 {
    let grain = if share < 0.1 { 1e5 } else { 1e4 };
    (share * grain).round() / grain
}

//! What each CPU of a zone delivers, by as few pairs as show it: the check before a program starts there.

use std::time::Duration;

use emu_core::{AsNs, CpuId, Demand, Hertz, Result};
use schemars::JsonSchema;
use serde::Serialize;

use super::pair::{self, Pair, undisturbed};
use super::window::{Side, Window};
use super::{Emulated, Plan, Trial, Watch, findings, take_all};
use crate::worker::Look;
use crate::workload::kernel::QUANTUM;

/// Periods in a window, so that a part of one more or less does not count.
const PERIODS: u32 = 10;

/// The shortest window: the clock of a virtual machine wanders by some percent within less.
const SHORTEST: Duration = Duration::from_millis(200);

/// Disturbed pairs that are taken again, in each round.
const REPEATS: usize = 2;

/// By how much the pairs of a round may differ, as a share: beyond, the machine was of another speed for a moment.
const AGREE: f64 = 0.05;

/// Rounds until two pairs agree; then all of them count.
const ROUNDS: usize = 3;

/// What one CPU delivers.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Delivered {
    /// Which CPU.
    pub cpu: CpuId,
    /// The share that was asked for; of a clock, what it is of the native clock at this moment.
    pub asked: f64,
    /// The share delivered: work under the emulation by work without, at the same core clock where a share is asked for. NaN
    /// (null in JSON), as what follows from it, where others have disturbed every window.
    #[schemars(with = "Option<f64>")]
    pub delivered: f64,
    /// Between which shares it is, by how much the pairs differ.
    #[schemars(with = "[Option<f64>; 2]")]
    pub between: [f64; 2],
    /// Relative error of the speed, `delivered / asked - 1`: −0.01 is one percent too slow.
    #[schemars(with = "Option<f64>")]
    pub error: f64,
    /// The clock that its thread perceives without the emulation; `None` where other tasks left no window for it.
    #[serde(rename = "native_clock_hz")]
    pub native_clock: Option<Hertz>,
    /// The clock that it perceives under the emulation; `None` where either is not known.
    #[serde(rename = "delivered_clock_hz")]
    pub delivered_clock: Option<Hertz>,
    /// Share of the core clock that its thread was given without the emulation; the rest went to other tasks.
    pub free: f64,
    /// The longest time without progress under the emulation, on any of the CPUs.
    #[serde(rename = "longest_stall_ns", with = "AsNs")]
    pub longest_stall: Duration,
}

impl Delivered {
    fn spread(&self) -> f64 {
        let [low, high] = self.between;
        (high - low) / self.delivered
    }
}

/// Measures what an emulation delivers on each CPU of a demand to a thread bound to it, and the length of the windows: in two
/// pairs of opposite order, and in more where these do not agree.
pub fn delivered(
    emulated: &mut dyn Emulated,
    demand: &Demand,
    watch: Watch<'_>,
) -> Result<(Duration, Vec<Delivered>)> {
    let window = (emulated.cycle() * PERIODS).max(SHORTEST);
    let plan = Plan { window, clock_is_emulated: emulated.moves_clock(), ..Plan::new(0) };
    let mut trial = Trial::of("multithread", demand, &plan.setting(emulated, &demand.targets))?;
    (trial.job.active, trial.job.pinned) = (trial.shares.len(), true);
    let orders = [[Side::Native, Side::Emulated], [Side::Emulated, Side::Native]];
    let mut pairs = Vec::new();
    for round in 0..ROUNDS {
        let first = round * orders.len();
        let take = |(number, sides), look: Look<'_>| {
            pair::take(emulated, &trial, &plan, first + number, sides, look)
        };
        let taken = take_all(orders.into_iter().enumerate().collect(), REPEATS, take, watch)?;
        let seen = by_pairs(&trial, &taken, &plan)?;
        // A single pair agrees with itself.
        if undisturbed(&taken).count() == orders.len() && seen.iter().all(|seen| seen.spread() <= AGREE) {
            return Ok((plan.window_of(emulated), seen));
        }
        pairs.extend(taken);
    }
    Ok((plan.window_of(emulated), by_pairs(&trial, &pairs, &plan)?))
}

fn by_pairs(trial: &Trial, pairs: &[Pair], plan: &Plan) -> Result<Vec<Delivered>> {
    let native: Vec<&Window> =
        pairs.iter().filter(|pair| pair.kept).filter_map(|pair| Some(pair.sides()?.0)).collect();
    let mean = |of: &dyn Fn(&Window) -> f64| {
        native.iter().map(|window| of(window)).sum::<f64>() / native.len().max(1) as f64
    };
    // A window may be too disturbed for its clock.
    let clocks: Vec<f64> = native.iter().filter_map(|window| Some(window.clock?.mean_hz())).collect();
    let core_hz = (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64);
    let of_cpu = |(part, finding): (usize, &super::Finding)| {
        let free = mean(&|window| {
            let rate = window.done.parts.get(part).copied().unwrap_or(0.0) / window.done.wall_s();
            rate * window.done.quantum_ns / 1e9 / QUANTUM as f64
        });
        // The figures of disturbed pairs show nothing.
        let ideal = if finding.pairs == 0 { f64::NAN } else { finding.ideal };
        let [delivered, low, high] = [finding.relative.estimate, finding.relative.low, finding.relative.high]
            .map(|ratio| ideal * ratio);
        let native_clock = core_hz.map(|hz| Hertz((hz * free) as u64));
        Delivered {
            cpu: finding.cpu.unwrap_or_default(),
            asked: finding.ideal,
            delivered,
            between: [low, high],
            error: delivered / finding.ideal - 1.0,
            native_clock,
            delivered_clock: native_clock
                .filter(|_| !delivered.is_nan())
                .map(|clock| Hertz((clock.as_f64() * delivered) as u64)),
            free,
            longest_stall: Duration::from_nanos(finding.longest_stall_ns),
        }
    };
    Ok(findings(trial, pairs, plan)?.iter().enumerate().map(of_cpu).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{Taint, testing};
    use super::*;

    #[test]
    fn pairs_that_were_all_disturbed_deliver_nothing_known() {
        let setting = Plan::new(1).setting(&super::super::Nothing, &testing::demand(&[0.4]).targets);
        let mut trial = Trial::of("multithread", &testing::demand(&[0.4]), &setting).unwrap();
        (trial.job.active, trial.job.pinned) = (1, true);
        let mut pairs = [0, 1].map(|number| testing::pair(number, &[1e9], &[0.31e9]));
        let mut seen = |is_disturbed: [bool; 2]| {
            for (pair, is_disturbed) in pairs.iter_mut().zip(is_disturbed) {
                pair.taints = if is_disturbed { vec![Taint::Steal(0.2)] } else { vec![] };
            }
            by_pairs(&trial, &pairs, &Plan::new(1)).unwrap().remove(0)
        };
        let disturbed = seen([true; 2]);
        assert!(disturbed.error.is_nan() && disturbed.between.iter().all(|share| share.is_nan()));
        assert!(disturbed.spread().is_nan() && disturbed.delivered_clock.is_none(), "{disturbed:?}");
        assert!(serde_json::to_value(&disturbed).unwrap()["delivered"].is_null());
        assert!((seen([true, false]).delivered - 0.31).abs() < 1e-9);
    }
}

//! Whether the time of a computation depends on what was computed before: sizes in ascending, descending and random
//! order (P. Luszczek et al. 2011, § 5: |`T_desc`/`T_asc` − 1|).

use emu_bench::stats::{Interval, Level, Sample};
use emu_core::Result;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::problem;

/// The order in which sizes are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The smallest first.
    Ascending,
    /// The largest first.
    Descending,
    /// Shuffled.
    Random,
}

impl Direction {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ascending, Self::Descending, Self::Random];

    /// All of them in the order of a round: each is the first of every third, so that a machine that drifts favours none.
    pub(super) fn of_round(round: u32) -> [Self; 3] {
        let mut all = Self::ALL;
        all.rotate_left(round as usize % Self::ALL.len());
        all
    }
}

/// All sizes once, in one order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pass {
    /// The order.
    pub direction: Direction,
    /// Size in steps and wall time in nanoseconds, in the order of time.
    pub times: Vec<(u64, i64)>,
    /// Whether others had a part of the CPUs meanwhile.
    #[serde(default)]
    pub disturbed: bool,
}

impl Pass {
    pub(super) fn of(direction: Direction, sizes: &[u64], wall: &dyn Clock, rng: &mut Pcg64) -> Result<Self> {
        let mut order = sizes.to_vec();
        match direction {
            Direction::Ascending => order.sort_unstable(),
            Direction::Descending => order.sort_unstable_by(|a, b| b.cmp(a)),
            Direction::Random => order.shuffle(rng),
        }
        let time = |steps| {
            let begin = wall.read(0);
            let result = problem::solve(steps);
            let end = wall.read(0);
            problem::verify(steps, result)?;
            Ok((steps, end - begin))
        };
        Ok(Self { direction, times: order.into_iter().map(time).collect::<Result<_>>()?, disturbed: false })
    }

    fn time(&self, steps: u64) -> Option<f64> {
        self.times.iter().find(|(size, _)| *size == steps).map(|(_, time)| *time as f64)
    }
}

/// How much longer something takes, as a share, over several rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The middle.
    pub median: f64,
    /// The least of all rounds.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// The mean of the rounds that nobody has disturbed, with an interval that allows for the number of sizes and orders
    /// that are compared (Bonferroni); `None` for fewer than two such rounds.
    pub mean: Option<Interval>,
}

impl Change {
    /// The mean, where chance does not explain it.
    pub fn certain(&self) -> Option<Interval> {
        self.mean.filter(|mean| !mean.contains(0.0))
    }
}

/// What the order does to one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// The size, in steps.
    pub steps: u64,
    /// `T_desc`/`T_asc` − 1.
    pub descending: Change,
    /// `T_random`/`T_asc` − 1.
    pub random: Change,
    /// Steps a second: the most over all passes, as published for performance.
    pub best_hz: f64,
    /// Their standard deviation over all passes.
    pub sd_hz: f64,
}

/// What the order does to each size. Passes of one round are compared with each other, and a round in which one was
/// disturbed is left out of the mean. Without a whole round it is an error.
pub(super) fn of(passes: &[Pass], sizes: &[u64]) -> Result<Vec<Drift>> {
    let level = Level::of_each(sizes.len() * (Direction::ALL.len() - 1));
    let drift = |&steps: &u64| {
        let against_ascending = |direction: Direction| -> Result<Change> {
            let ratio = |round: &[Pass]| {
                let time = |meant| round.iter().find(|pass| pass.direction == meant)?.time(steps);
                Some(time(direction)? / time(Direction::Ascending)?.max(1.0) - 1.0)
            };
            let rounds = || passes.chunks(Direction::ALL.len());
            let changes = Sample::new(rounds().filter_map(ratio).collect::<Vec<_>>())?;
            let calm = rounds().filter(|round| !is_disturbed(round)).filter_map(ratio);
            let mean = Sample::new(calm.collect::<Vec<_>>()).and_then(|calm| Interval::of_mean(&calm, level));
            Ok(Change { median: changes.median(), low: changes.min(), high: changes.max(), mean: mean.ok() })
        };
        let rates: Vec<f64> = passes
            .iter()
            .filter_map(|pass| pass.time(steps))
            .map(|time| steps as f64 * 1e9 / time.max(1.0))
            .collect();
        let rates = Sample::new(rates)?;
        Ok(Drift {
            steps,
            descending: against_ascending(Direction::Descending)?,
            random: against_ascending(Direction::Random)?,
            best_hz: rates.max(),
            sd_hz: rates.sd().unwrap_or(0.0),
        })
    };
    sizes.iter().map(drift).collect()
}

/// Whether one of the passes of a round was disturbed.
pub(super) fn is_disturbed(round: &[Pass]) -> bool {
    round.iter().any(|pass| pass.disturbed)
}

#[cfg(test)]
mod tests {
    use super::super::clock::testing::RIGHT;
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn each_pass_computes_every_size_in_its_order() {
        let sizes = [256, 512, 1024, 2048, 4096, 8192];
        let mut rng = Pcg64::seed_from_u64(7);
        let mut order = |direction| {
            let pass = Pass::of(direction, &sizes, &RIGHT, &mut rng).unwrap();
            assert!(pass.times.iter().all(|(_, time)| *time > 0));
            pass.times.into_iter().map(|(steps, _)| steps).collect::<Vec<_>>()
        };
        assert_eq!(order(Direction::Ascending), sizes);
        assert_eq!(order(Direction::Descending), sizes.iter().rev().copied().collect::<Vec<_>>());
        let mut random = order(Direction::Random);
        assert_ne!(random, sizes);
        random.sort_unstable();
        assert_eq!(random, sizes);
    }

    #[test]
    fn noise_in_three_rounds_is_rarely_taken_for_an_order() {
        use rand::RngExt;
        let sizes: Vec<u64> = (1..=8).collect();
        let mut accused = 0;
        for seed in 0..100 {
            let mut rng = Pcg64::seed_from_u64(seed);
            let mut pass = |direction| {
                let times = sizes.iter().map(|size| (*size, rng.random_range(1000..2000)));
                Pass { direction, times: times.collect(), disturbed: false }
            };
            let passes: Vec<_> = (0..3).flat_map(Direction::of_round).map(&mut pass).collect();
            let drift = of(&passes, &sizes).unwrap();
            let is_sure = |drift: &Drift| drift.descending.certain().or(drift.random.certain()).is_some();
            accused += usize::from(drift.iter().any(is_sure));
        }
        assert!(accused <= 12, "{accused} of 100");
    }

    #[test]
    fn a_disturbed_round_is_left_out_of_the_mean() {
        let pass = |direction, time, disturbed| Pass { direction, times: vec![(10, time)], disturbed };
        let round = |slow: i64, disturbed: bool| {
            [
                pass(Direction::Ascending, 100, false),
                pass(Direction::Descending, slow, disturbed),
                pass(Direction::Random, 100, false),
            ]
        };
        let passes: Vec<_> = [(120, false), (121, false), (500, true)]
            .into_iter()
            .flat_map(|(slow, off)| round(slow, off))
            .collect();
        let [drift] = of(&passes, &[10]).unwrap()[..] else { panic!() };
        assert!((drift.descending.high - 4.0).abs() < 1e-12, "{drift:?}");
        assert!((drift.descending.mean.unwrap().estimate - 0.205).abs() < 1e-12, "{drift:?}");
        assert_eq!(of(&passes[3..], &[10]).unwrap()[0].descending.mean, None, "one round is left");
    }

    #[test]
    fn a_drift_is_found_with_its_sign() {
        let pass = |direction, small, large| Pass {
            direction,
            times: vec![(10, small), (20, large)],
            disturbed: false,
        };
        let round = |noise: i64| {
            [
                pass(Direction::Ascending, 100 + noise, 200),
                pass(Direction::Descending, 150 + noise, 200),
                pass(Direction::Random, 80 + noise, 220),
            ]
        };
        let passes: Vec<_> = [0, 0, 40].into_iter().flat_map(round).collect();
        let drift = of(&passes, &[10, 20]).unwrap();
        let close = |change: Change, median: f64| (change.median - median).abs() < 1e-12;
        assert!(close(drift[0].descending, 0.5) && close(drift[0].random, -0.2), "{drift:?}");
        assert!(close(drift[1].descending, 0.0) && close(drift[1].random, 0.1), "{drift:?}");
        assert!((drift[0].descending.low - (190.0 / 140.0 - 1.0)).abs() < 1e-12);
        let [slower, faster] = [drift[0].descending, drift[0].random].map(|change| change.certain().unwrap());
        assert!(slower.low > 0.0 && faster.high < 0.0, "{slower:?} {faster:?}");
        assert!((drift[1].random.certain().unwrap().estimate - 0.1).abs() < 1e-12);
        assert!((drift[0].best_hz - 10.0 * 1e9 / 80.0).abs() < 1e-3 && drift[0].sd_hz > 0.0);
        assert!(of(&[], &[10]).is_err());
        assert!(of(&passes[..1], &[10]).is_err(), "no pass to compare with");
    }
}

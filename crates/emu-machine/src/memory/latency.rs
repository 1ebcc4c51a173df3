//! How long a load takes, by the memory that loads are spread over.

use std::time::{Duration, Instant};

use emu_bench::stats::Sample;
use emu_core::{CpuId, CpuList, Hertz, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::chase::Chase;
use crate::kernel::on_one;
use crate::witness::parted;

/// Steps of the way that are gone before it is timed, at most: once around, unless that takes too long.
const WARM_MAX: u64 = 1 << 20;

/// The fewest steps that are timed at once.
const STEPS_MIN: u64 = 1000;

/// What was measured of loads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Bytes that the loads are spread over.
    pub working_set_bytes: u64,
    /// Median of the samples: nanoseconds from one load to the next, which needs its value.
    pub load_ns: f64,
    /// The same in cycles of the core clock; `None` where that was not measured.
    pub load_cycles: Option<f64>,
    /// One in each round.
    pub samples: Vec<f64>,
    /// Those of rounds in which others had a part of the CPU; they do not count.
    #[serde(default)]
    pub left_out: Vec<f64>,
    /// Whether others had a part of the CPU in every round; all count then.
    #[serde(default)]
    pub disturbed: bool,
}

/// Nanoseconds of a load, on this CPU, over this time.
pub(super) fn load_ns(bytes: u64, cpu: CpuId, length: Duration, seed: u64) -> Result<f64> {
    let only: CpuList = [cpu].into_iter().collect();
    on_one("the pointer chase", &only, || {
        let mut chase = Chase::new(bytes, seed)?;
        chase.walk(chase.lines().min(WARM_MAX));
        let begin = Instant::now();
        chase.walk(STEPS_MIN);
        let each_s = begin.elapsed().as_secs_f64() / STEPS_MIN as f64;
        let steps = ((length.as_secs_f64() / each_s) as u64).max(STEPS_MIN);
        let begin = Instant::now();
        chase.walk(steps);
        let load_ns = begin.elapsed().as_secs_f64() * 1e9 / steps as f64;
        chase.verify().map(|()| load_ns)
    })
}

impl Latency {
    /// From times of loads in nanoseconds, each with whether others disturbed it.
    pub(super) fn of(working_set_bytes: u64, times: &[(f64, bool)], clock: Option<Hertz>) -> Result<Self> {
        let (samples, left_out, disturbed) = parted(times);
        let load_ns = Sample::new(samples.clone())?.median();
        let load_cycles = clock.map(|clock| load_ns * clock.as_f64() / 1e9);
        Ok(Self { working_set_bytes, load_ns, load_cycles, samples, left_out, disturbed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::{Host, Roots};

    #[test]
    fn loads_are_timed_and_told_in_cycles() {
        let cpu = Host::detect(&Roots::system()).unwrap().allowed.first().unwrap();
        let length = Duration::from_micros(200);
        let ns = load_ns(16 << 10, cpu, length, 1).unwrap();
        assert!(ns > 0.0);
        let latency = Latency::of(16 << 10, &[(ns, false)], Some(Hertz(2_000_000_000))).unwrap();
        assert!((latency.load_cycles.unwrap() / ns - 2.0).abs() < 1e-9);
        assert_eq!(Latency::of(128, &[(ns, true)], None).unwrap().load_cycles, None);
        assert!(load_ns(128, 8000, length, 1).is_err());
    }
}

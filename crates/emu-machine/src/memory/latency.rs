//! How long a load takes, by the memory that loads are spread over.

use std::time::{Duration, Instant};

use emu_bench::stats::Sample;
use emu_core::{CpuId, CpuList, Hertz, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kernel::chase::Chase;
use crate::kernel::on_one;

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
    /// In the order they were taken.
    pub samples: Vec<f64>,
    /// Whether others had a part of the CPU meanwhile.
    #[serde(default)]
    pub disturbed: bool,
}

pub(super) fn measure(
    bytes: u64,
    (cpu, clock): (CpuId, Option<Hertz>),
    (length, rounds): (Duration, usize),
    seed: u64,
) -> Result<Latency> {
    let only: CpuList = [cpu].into_iter().collect();
    let samples = on_one("the pointer chase", &only, || {
        let mut chase = Chase::new(bytes, seed)?;
        chase.walk(chase.lines().min(WARM_MAX));
        let begin = Instant::now();
        chase.walk(STEPS_MIN);
        let each_s = begin.elapsed().as_secs_f64() / STEPS_MIN as f64;
        let steps = ((length.as_secs_f64() / each_s) as u64).max(STEPS_MIN);
        let mut samples = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let begin = Instant::now();
            chase.walk(steps);
            samples.push(begin.elapsed().as_secs_f64() * 1e9 / steps as f64);
            chase.verify()?;
        }
        Ok(samples)
    })?;
    let load_ns = Sample::new(samples.clone())?.median();
    let load_cycles = clock.map(|clock| load_ns * clock.as_f64() / 1e9);
    Ok(Latency { working_set_bytes: bytes, load_ns, load_cycles, samples, disturbed: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::{Host, Roots};

    #[test]
    fn loads_are_timed_and_told_in_cycles() {
        let cpu = Host::detect(&Roots::system()).unwrap().allowed.first().unwrap();
        let samples = (Duration::from_micros(200), 3);
        let latency = measure(16 << 10, (cpu, Some(Hertz(2_000_000_000))), samples, 1).unwrap();
        assert_eq!(latency.samples.len(), 3);
        assert!((latency.load_cycles.unwrap() / latency.load_ns - 2.0).abs() < 1e-9);
        assert!(latency.load_ns > 0.0);
        assert_eq!(measure(128, (cpu, None), samples, 1).unwrap().load_cycles, None);
        assert!(measure(128, (8000, None), samples, 1).is_err());
    }
}

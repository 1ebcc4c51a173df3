//! What is tried.

use emu_core::{CpuId, Demand, Error, Hertz, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workload::{Job, Setting, workload};

/// What is tried: a job, and what its CPUs are to deliver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trial {
    /// What the worker does.
    pub job: Job,
    /// The share asked of each CPU.
    pub shares: Vec<(CpuId, f64)>,
    /// The clock that each CPU is to have, of those of which one is asked for: what is judged is whether it is held while
    /// the CPU's own clock moves, and not the share that it was of that clock when the trial was planned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<(CpuId, Hertz)>,
}

impl Trial {
    /// A workload on the CPUs of a demand. Where these have different speeds, each thread or process is bound to a CPU and
    /// judged by its speed, as what free ones get depends on the scheduler; with fewer of them than CPUs it is refused.
    pub fn of(name: &str, demand: &Demand, setting: &Setting) -> Result<Self> {
        let mut job = workload(name)?.job(setting);
        if demand.uniform_share().is_none() {
            if job.active < demand.targets.len() {
                return Err(Error::usage(format!("{name} cannot be judged on CPUs of different speeds"))
                    .hint("give one speed for all CPUs, or use the workload multithread"));
            }
            job.pinned = true;
        }
        let targets = || demand.targets.iter();
        Ok(Self {
            job,
            shares: targets().map(|(&cpu, target)| (cpu, target.share)).collect(),
            clocks: targets().filter_map(|(&cpu, target)| Some((cpu, target.clock?))).collect(),
        })
    }

    pub(super) fn lowest_share(&self) -> f64 {
        self.shares.iter().map(|(_, share)| *share).fold(1.0, f64::min)
    }

    /// Of none in particular, that of the slowest one.
    pub(super) fn clock_of(&self, cpu: Option<CpuId>) -> Option<Hertz> {
        let slowest = || self.shares.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(cpu, _)| *cpu);
        let cpu = cpu.or_else(slowest)?;
        self.clocks.iter().find(|(of, _)| *of == cpu).map(|(_, clock)| *clock)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::demand;
    use super::*;
    use crate::verify::{Nothing, Plan};
    use emu_core::Target;

    #[test]
    fn a_trial_knows_which_clock_is_wanted_of_which_cpu() {
        let targets =
            [(0, 0.4, None), (1, 0.3, Some(Hertz(900_000_000))), (2, 0.5, Some(Hertz(1_500_000_000)))];
        let targets = targets.into_iter().map(|(cpu, share, clock)| (cpu, Target { share, clock })).collect();
        let demand = Demand::new(targets);
        let setting = Plan::new(1).setting(&Nothing, &demand.targets);
        let trial = Trial::of("multithread", &demand, &setting).unwrap();
        let clocks = [Some(0), Some(1), Some(2), None].map(|cpu| trial.clock_of(cpu).map(|clock| clock.0));
        assert_eq!(clocks, [None, Some(900_000_000), Some(1_500_000_000), Some(900_000_000)]);
        let text = serde_json::to_string(&trial).unwrap();
        assert_eq!(serde_json::from_str::<Trial>(&text).unwrap(), trial);
        // Records of shares are as they were.
        assert!(!serde_json::to_string(&Trial { clocks: vec![], ..trial }).unwrap().contains("clocks"));
    }

    #[test]
    fn cpus_of_different_speeds_are_judged_each_on_its_own() {
        let plan = Plan::new(1);
        let unequal = demand(&[0.4, 0.8]);
        let setting = plan.setting(&Nothing, &unequal.targets);
        assert!((setting.share - 0.4).abs() < 1e-9);
        assert!(Trial::of("multithread", &unequal, &setting).unwrap().job.pinned);
        assert!(Trial::of("cpu-loop", &unequal, &setting).is_err());
        assert!(!Trial::of("multithread", &demand(&[0.4, 0.4]), &setting).unwrap().job.pinned);
    }
}

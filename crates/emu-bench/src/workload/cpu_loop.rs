//! One thread that computes without a break.

use emu_core::Result;

use super::part::Chain;
use super::{Job, Running, Setting, Workload};

/// The thread is free to move, which a quota for the sum of the CPUs does not notice: it then runs faster than asked.
pub(super) struct CpuLoop;

impl Workload for CpuLoop {
    fn name(&self) -> &'static str {
        "cpu-loop"
    }

    fn about(&self) -> &'static str {
        "one thread that computes, free to use any CPU of the zone"
    }

    fn job(&self, setting: &Setting) -> Job {
        Job::new(self.name(), &setting.cpus)
    }

    fn start(&self, _job: &Job) -> Result<Box<dyn Running>> {
        Ok(Box::new(Chain::new()))
    }
}

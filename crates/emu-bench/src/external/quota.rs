//! One quota for the sum of the CPUs, as containers set it.

use std::time::Duration;

use emu_core::{Host, MethodId, Pid, Result};

use super::group::Group;
use super::{External, Limit};
use crate::verify::Emulated;

const ID: MethodId = MethodId::new("quota");

pub(super) const EXTERNAL: External = External {
    id: ID,
    summary: "one quota for the sum of the CPUs in periods of 100 ms, as containers have it",
    make: |host, limit| {
        Group::create(host, ID.as_str())?;
        Ok(Box::new(Quota::new(host, &limit)))
    },
};

/// The kernel's default.
const PERIOD_US: u64 = 100_000;

struct Quota {
    host: Host,
    /// Of all CPUs, in a period.
    sum_us: u64,
    group: Option<Group>,
}

impl Quota {
    fn new(host: &Host, limit: &Limit) -> Self {
        let sum_us = (limit.share * limit.cpus.len() as f64 * PERIOD_US as f64).round() as u64;
        Self { host: host.clone(), sum_us, group: None }
    }
}

impl Emulated for Quota {
    fn name(&self) -> String {
        ID.to_string()
    }

    fn period(&self) -> Duration {
        Duration::from_micros(PERIOD_US)
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        let group = Group::create(&self.host, ID.as_str())?;
        if group.version == 2 {
            group.write("cpu.max", &format!("{} {PERIOD_US}", self.sum_us))?;
        } else {
            group.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
            group.write("cpu.cfs_quota_us", &self.sum_us.to_string())?;
        }
        group.take(&self.host, worker)?;
        self.group = Some(group);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        self.group.take().map_or(Ok(()), |group| group.remove())
    }
}

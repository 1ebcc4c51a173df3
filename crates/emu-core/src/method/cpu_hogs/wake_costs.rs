//! The wake-up costs of a set of CPUs, measured and kept for some minutes.

use super::wake_cost::{self, WakeCost};
use crate::cpu_list::{CpuId, CpuList};
use crate::duty::kept::Kept;
use crate::error::Result;
use crate::host::Host;

/// Name of the file in the state folder.
const FILE: &str = "wake-costs.json";

impl WakeCost {
    /// What is assumed where other load does not let it be measured.
    const ASSUMED: Self = Self { visible: 10_000.0, hidden: 4_000.0 };
}

/// The costs on each of `cpus`, in their order: from the state folder where they were measured in the last minutes, else
/// measured now. Where other load does not let them be measured, something is assumed, and `notes` say so.
///
/// # Errors
/// They have to be measured, and a probe does not get its CPU; see [`wake_cost::measure`].
pub(crate) fn of(host: &Host, cpus: &CpuList, notes: &mut Vec<String>) -> Result<Vec<WakeCost>> {
    let mut kept: Kept<CpuId, WakeCost> = Kept::load(host, FILE, WakeCost::is_plausible);
    let missing: CpuList = cpus.iter().filter(|cpu| kept.get(cpu).is_none()).collect();
    if !missing.is_empty() {
        let measured = wake_cost::measure(&missing)?;
        for (cpu, cost) in measured.into_iter().filter_map(|(cpu, cost)| Some((cpu, cost?))) {
            kept.insert(cpu, cost);
        }
        kept.save(host, FILE);
    }
    let cost_on = |cpu| {
        kept.get(&cpu).copied().unwrap_or_else(|| {
            notes.push(format!(
                "what a wake-up costs the tasks could not be measured on the busy CPU {cpu}; {:.0} µs are assumed",
                (WakeCost::ASSUMED.visible + WakeCost::ASSUMED.hidden) / 1e3
            ));
            WakeCost::ASSUMED
        })
    };
    Ok(cpus.iter().map(cost_on).collect())
}

//! The machine, as far as a record may tell.

use emu_core::{CgroupLayout, Host};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What of the host matters to its measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// The processor.
    pub model: String,
    /// CPUs online.
    pub cpus: usize,
    /// Whether cores have several threads.
    pub smt: bool,
    /// Kernel release.
    pub kernel: String,
    /// The hypervisor, if one shows itself.
    pub hypervisor: Option<String>,
    /// Clock source.
    pub clocksource: Option<String>,
    /// Cgroup layout.
    pub cgroups: CgroupLayout,
    /// Driver and governor of each cpufreq policy.
    pub cpufreq: Vec<(String, String)>,
    /// Largest share of a CPU for real-time tasks.
    pub real_time_share: f64,
    /// Whether the run was privileged.
    pub root: bool,
}

impl Machine {
    /// The part of a host's description that belongs into a record.
    pub fn of(host: &Host) -> Self {
        let policies = host.cpufreq.iter().flat_map(|cpufreq| &cpufreq.policies);
        Self {
            model: host.model.clone(),
            cpus: host.online().len(),
            smt: host.cpus.iter().any(|cpu| cpu.siblings.len() > 1),
            kernel: host.kernel.clone(),
            hypervisor: host.hypervisor.clone(),
            clocksource: host.clocks.source.clone(),
            cgroups: host.cgroups.layout,
            cpufreq: policies.map(|policy| (policy.driver.clone(), policy.governor.clone())).collect(),
            real_time_share: host.real_time.largest_share(),
            root: host.privileges.uid == 0,
        }
    }

    /// What differs between two machines, in words.
    pub fn difference(&self, other: &Self) -> String {
        let values = |machine: &Self| match serde_json::to_value(machine) {
            Ok(serde_json::Value::Object(values)) => values,
            _ => serde_json::Map::new(),
        };
        let (ours, theirs) = (values(self), values(other));
        let different = ours.iter().filter(|(name, value)| theirs.get(*name) != Some(value));
        let words = different.map(|(name, value)| {
            format!("{name} {value}, here {}", theirs.get(name).map_or_else(String::new, ToString::to_string))
        });
        words.collect::<Vec<_>>().join("; ")
    }
}

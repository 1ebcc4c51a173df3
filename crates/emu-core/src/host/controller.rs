//! The cgroup controllers that emu knows.

use serde::{Deserialize, Serialize};

/// The controllers that emu uses, and those whose limits tasks may lose when they change their
/// group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Controller {
    /// Bandwidth and weight.
    Cpu,
    /// Usage accounting; part of the core of v2.
    Cpuacct,
    /// Which CPUs may be used.
    Cpuset,
    /// Freezing; part of the core of v2.
    Freezer,
    /// How much memory may be used.
    Memory,
    /// How many tasks there may be.
    Pids,
}

impl Controller {
    pub(super) const ALL: [Self; 6] =
        [Self::Cpu, Self::Cpuacct, Self::Cpuset, Self::Freezer, Self::Memory, Self::Pids];

    /// The kernel's name of the controller.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuacct => "cpuacct",
            Self::Cpuset => "cpuset",
            Self::Freezer => "freezer",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }

    pub(super) fn is_in(self, names: &str) -> bool {
        names.split_whitespace().any(|name| name == self.as_str())
    }
}

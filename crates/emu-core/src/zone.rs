//! What is to be emulated: CPUs with a speed for each, and the tasks meant.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cpu_list::CpuList;
use crate::speed::{Targets, lowest_share, uniform_share};
use crate::sys::Pid;

/// Which tasks a zone is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Tasks {
    /// These processes, their threads, and every child that they will have.
    Processes(Vec<Pid>),
    /// Everything in an existing cgroup, named by its path below the hierarchy (`/user.slice/x.scope`).
    Cgroup(PathBuf),
}

/// Which of the hardware's frequencies stands for one that it does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Round {
    /// The nearest.
    #[default]
    Nearest,
    /// The next lower one.
    Down,
    /// The next higher one.
    Up,
}

/// What a method is asked for; [`Method::check`](crate::method::Method::check) judges it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Demand {
    /// What is wanted of each CPU.
    pub targets: Targets,
    /// Length of one on/off cycle; `None` is the method's default.
    pub period: Option<Duration>,
    /// Whether a real-time throttling limit that is in the way may be lifted while the zone exists.
    pub lift_rt_limit: bool,
    /// Whether the background load, which tasks outside the zone make on its CPUs, is left to them, and the zone gets its
    /// share of the rest. Without it `cpu-hogs` slows them too, and what they use comes out of what is left. `cpu-freq`,
    /// `cpu-gov` and `fracas:shares` cannot do it; all else limits the zone's tasks alone.
    // The name in records.
    #[serde(default, rename = "spare_others")]
    pub exclude_background: bool,
    /// Which hardware frequency `cpu-freq` takes for one that the hardware does not have.
    pub round: Round,
    /// Whether CPUs outside the zone that share a clock with it may be slowed too.
    pub widen_policies: bool,
    /// Whether methods that [leave CPUs idle](crate::Trait::LeavesIdle) hold the clock of the zone's policies at its upper
    /// limit, where a governor would lower it. Without permission they do not, which raises the expected error.
    #[serde(default = "yes")]
    pub hold_clock: bool,
    /// The shortest time for which a speed stays, where it changes: some methods take up a new speed sooner than others.
    #[serde(skip)]
    pub shortest_step: Option<Duration>,
}

fn yes() -> bool {
    true
}

impl Demand {
    /// A demand with the method's defaults.
    pub fn new(targets: Targets) -> Self {
        Self {
            targets,
            period: None,
            lift_rt_limit: false,
            exclude_background: false,
            round: Round::Nearest,
            widen_policies: false,
            hold_clock: true,
            shortest_step: None,
        }
    }

    /// The CPUs concerned.
    pub fn cpus(&self) -> CpuList {
        self.targets.keys().copied().collect()
    }

    /// The one share that all CPUs are to have, or `None` where they differ.
    pub fn uniform_share(&self) -> Option<f64> {
        uniform_share(&self.targets)
    }

    /// The lowest share asked for.
    pub fn lowest_share(&self) -> f64 {
        lowest_share(&self.targets)
    }
}

/// CPUs, a speed for each, and the tasks meant. Zones never share a CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Zone {
    /// What messages and other emus call it.
    pub name: String,
    /// What is wanted.
    pub demand: Demand,
    /// For whom.
    pub tasks: Tasks,
    /// Whether the tasks have not begun yet: then nothing is lost while a method measures what it costs on their CPUs.
    pub is_new: bool,
    /// How much memory the tasks may use together, in bytes, where they are [`Tasks::Processes`]; `None` is as much as before.
    #[serde(default)]
    pub memory: Option<u64>,
}

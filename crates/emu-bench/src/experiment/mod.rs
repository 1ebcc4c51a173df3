//! Experiments: every method on every workload at every speed, in randomised blocks of pairs.
//!
//! A *cell* is a method (or `none`) with a workload, a speed and a number of CPUs. A *block* takes one pair of every cell in
//! random order; see [`verify`](crate::verify) for pairs. The plan is written to the record before anything is measured, and
//! each sample when it is taken: a run that was killed can be continued.

mod blocks;
mod harness;
mod matrix;
pub mod methods;
mod own_costs;
mod request;
mod run;
mod stored;

pub use methods::NONE;
pub(crate) use methods::in_order;
pub use own_costs::OwnCosts;
pub use request::{Cores, Crowd, Part, Repetitions, Request};
pub use run::{Progress, Run, Watch};
pub use stored::{End, Failure, Rows, Seen, Taken};

use std::time::Duration;

use emu_core::{AsNs, Demand, Error, Hertz, MethodId, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::{Band, Level};
use crate::verify::{Plan, Trial};

/// What is measured and how, as it stands in the record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Experiment {
    /// Start of the random numbers.
    pub seed: u64,
    /// Pairs of each cell; controls may have fewer.
    pub repetitions: usize,
    /// Length of a window, at least; each cell has its own.
    #[serde(rename = "window_ns", with = "AsNs")]
    pub window: Duration,
    /// How long work is under way before its window opens, at least.
    #[serde(rename = "lead_ns", with = "AsNs", default)]
    pub lead: Duration,
    /// Length of the window of a granularity spectrum.
    #[serde(rename = "spectrum_ns", with = "AsNs")]
    pub spectrum: Duration,
    /// After this time nothing is repeated, and the run ends with the block under way; zero is no limit.
    #[serde(rename = "budget_ns", with = "AsNs")]
    pub budget: Duration,
    /// How far from the ideal still passes, as a share.
    pub tolerance: f64,
    /// The core clock that 100 % stands for.
    pub reference: Hertz,
    /// The preset by which it was asked for.
    pub preset: Option<String>,
    /// What is measured.
    pub cells: Vec<Cell>,
    /// What cannot be measured here, and why.
    pub unavailable: Vec<Refusal>,
    /// What the harness itself costs here.
    pub own_costs: OwnCosts,
}

/// One method with one workload at one speed on a number of CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The method.
    pub contender: MethodId,
    /// What is asked of it.
    pub demand: Demand,
    /// What the worker does.
    pub trial: Trial,
    /// Length of the method's on/off cycle, the longest where it varies; zero without one.
    #[serde(rename = "period_ns", with = "AsNs")]
    pub period: Duration,
    /// Length of its windows.
    #[serde(rename = "window_ns", with = "AsNs", default)]
    pub window: Duration,
    /// How many pairs are taken.
    pub repetitions: usize,
    /// Whether its progress is looked at closely.
    pub spectrum: bool,
    /// About how long a pair takes.
    #[serde(rename = "pair_ns", with = "AsNs")]
    pub pair_time: Duration,
}

impl Cell {
    /// The workload.
    pub fn workload(&self) -> &str {
        &self.trial.job.workload
    }

    /// How many CPUs it has.
    pub fn cores(&self) -> usize {
        self.trial.job.cpus.len()
    }

    /// The share asked for.
    pub fn share(&self) -> f64 {
        self.demand.lowest_share()
    }
}

/// Something that a method cannot do here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// The method.
    pub contender: MethodId,
    /// What was wanted of it: `50% on 2 CPUs`; empty where it can do nothing that was asked for.
    pub wanted: String,
    /// Why it cannot.
    pub why: String,
    /// What can be done about it.
    pub hint: Option<String>,
}

impl Refusal {
    fn of(contender: MethodId, wanted: String, why: &Error) -> Self {
        Self { contender, wanted, why: why.in_words(), hint: why.hint_text() }
    }
}

impl Experiment {
    /// How the pairs of a cell are taken.
    pub fn plan(&self, cell: &Cell, proc: &std::path::Path) -> Result<Plan> {
        let plan = Plan::new(self.seed);
        Ok(Plan {
            pairs: cell.repetitions,
            window: self.window.max(cell.window),
            lead: plan.lead.max(self.lead),
            repeats: 0,
            tolerance: Band::new(self.tolerance)?,
            level: Level::P95,
            clock_is_emulated: methods::moves_clock(cell.contender),
            proc: proc.to_owned(),
            ..plan
        })
    }
}

//! The JSON that `run`, `attach` and nodes leave: unrounded, times in nanoseconds, clocks in hertz.

use std::ffi::OsString;
use std::time::Duration;

use emu_core::{AsNs, CpuId, Delivered, Expected, MethodId, Status, Stretch, Tasks};
use serde::{Deserialize, Serialize};

use crate::control::Source;
use crate::exit::Exit;
use crate::zone::follow::Follow;
use crate::zone::like::Like;
use crate::zone::options::Options;
use crate::zone::plan::Plan;
use crate::zone::verification::Verification;

/// The version of the JSON of `run`, `attach` and `methods`. In 1 the variant of a method was not part of its name; in 2
/// `verified` was called `delivered`, `set` was called `effective`, and nothing was measured while the program ran.
pub(crate) const FORM: u32 = 3;

/// One emulation from begin to end.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Record {
    /// Version of the form.
    schema: u32,
    /// The version of emu.
    emu: &'static str,
    /// When emu began, RFC 3339 in UTC.
    started: String,
    /// The command that was run; absent for `attach` and a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Vec<String>>,
    /// What was attached to; absent for `run` and a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    attached: Option<Tasks>,
    /// The name of a node; absent for `run` and `attach`.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// What was asked for.
    asked: Asked,
    /// The method that did it.
    method: MethodId,
    /// Whether emu has picked the method.
    automatic: bool,
    /// What was expected of the method beforehand.
    expected: Expected,
    /// What a probe measured beforehand; null without `--verify`.
    pub(super) verified: Option<Verification>,
    /// What the tasks were given while they wanted all that they could get; null where they never did.
    delivered: Option<Delivered>,
    /// What the method did by its own account; null when it never began.
    status: Option<Ended>,
    /// How the speed was found, where it is that of another machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    like: Option<Like>,
    /// How a trace was followed; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<TraceRecord>,
    /// What was delivered at each speed, where that was changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<Stretch>,
    /// What the user was told beside the result.
    pub(super) notes: Vec<String>,
    /// How the command ended; null for `attach` and a node, and where it never began.
    exit: Option<ExitRecord>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Asked {
    /// As on the command line; of a trace, that at its begin.
    speed: String,
    #[serde(flatten)]
    options: Options,
    /// What that is for each CPU.
    cpus: Vec<AskedCpu>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
struct AskedCpu {
    /// Which CPU.
    cpu: CpuId,
    /// Of its reference clock.
    share: f64,
    /// The clock; null where a share was asked for.
    clock_hz: Option<u64>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Ended {
    /// How long the emulation was in force.
    #[serde(rename = "wall_ns", with = "AsNs")]
    wall: Duration,
    #[serde(flatten)]
    status: Status,
}

/// How a trace was followed.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct TraceRecord {
    #[serde(flatten)]
    source: Source,
    /// How often the speed was set.
    changes: u64,
    /// By how much the latest change came late.
    #[serde(rename = "latest_ns", with = "AsNs")]
    latest: Duration,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExitRecord {
    Code(u8),
    Signal(i32),
}

impl Record {
    pub(crate) fn of_command(plan: &Plan, command: &[OsString]) -> Self {
        let words = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Self { command: Some(words), ..Self::new(plan) }
    }

    pub(crate) fn of_tasks(plan: &Plan, tasks: Tasks) -> Self {
        Self { attached: Some(tasks), ..Self::new(plan) }
    }

    pub(crate) fn of_node(plan: &Plan, name: &str) -> Self {
        Self { node: Some(name.to_owned()), ..Self::new(plan) }
    }

    fn new(plan: &Plan) -> Self {
        Self {
            schema: FORM,
            emu: env!("CARGO_PKG_VERSION"),
            started: jiff::Timestamp::now().to_string(),
            command: None,
            attached: None,
            node: None,
            asked: Asked::of(plan),
            method: plan.prepared.method().id(),
            automatic: plan.automatic,
            expected: plan.prepared.expected().clone(),
            verified: None,
            delivered: None,
            status: None,
            like: plan.like.clone(),
            trace: None,
            steps: vec![],
            notes: vec![],
            exit: None,
        }
    }

    /// Adds what was delivered at each speed but the last one, and how a trace was followed.
    pub(super) fn steps(&mut self, stretches: &[Stretch], follow: Option<&Follow>) {
        self.steps = stretches.to_vec();
        self.trace = follow.map(|follow| TraceRecord {
            source: follow.source.clone(),
            changes: follow.changes,
            latest: follow.player.lateness(),
        });
    }

    pub(crate) fn engaged(&mut self, plan: &Plan) {
        self.method = plan.prepared.method().id();
        self.expected = plan.prepared.expected().clone();
    }

    pub(crate) fn status(&mut self, status: &Status, wall: Duration) {
        self.delivered = status.delivered;
        if let Some(from) = self.steps.last().map(|before| before.until) {
            self.steps.push(Stretch::last(status, from, wall.max(from)));
        }
        self.status = Some(Ended { wall, status: status.clone() });
    }

    pub(crate) fn exit(&mut self, exit: Exit) {
        self.exit = match exit {
            Exit::Command(code) => Some(ExitRecord::Code(code)),
            Exit::Signal(number) => Some(ExitRecord::Signal(number)),
            _ => None,
        };
    }
}

impl Asked {
    fn of(plan: &Plan) -> Self {
        let demand = plan.prepared.demand();
        let cpus = demand.targets.iter().map(|(&cpu, target)| AskedCpu {
            cpu,
            share: target.share,
            clock_hz: target.clock.map(|clock| clock.0),
        });
        Self { speed: plan.speed.to_string(), options: Options::of(demand), cpus: cpus.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::plan::testing::{Told, prepared};
    use emu_core::{CpuStatus, Demand, Health, Target};
    use serde_json::json;

    static TOLD: Told = Told {
        name: "cpu-lim:published",
        expected: || Expected {
            error: 0.0123,
            period: Duration::from_millis(100),
            longest_stall: Duration::from_micros(66_667),
            notes: vec![],
        },
    };

    #[test]
    fn a_record_is_complete_and_unrounded() {
        let target = Target { share: 1.0 / 3.0, clock: None };
        let mut demand = Demand::new([(0, target)].into());
        demand.widen_policies = true;
        let plan = Plan {
            speed: "0.33333333".parse().unwrap(),
            trace: None,
            like: None,
            automatic: false,
            prepared: prepared(&TOLD, &demand),
            others: vec![],
        };
        let mut record = Record::of_command(&plan, &["true".into()]);
        record.started = "2026-01-01T00:00:00Z".into();
        record.notes.push("later".into());
        record.status(
            &Status {
                method: MethodId::new("cpu-lim:published"),
                period: Duration::from_millis(100),
                periods: 12,
                missed: 1,
                longest_stall: Duration::from_nanos(66_700_001),
                own_cpu: Duration::from_nanos(123_457),
                burned: Duration::ZERO,
                background: None,
                delivered: None,
                used: Some(0.25),
                cpus: vec![CpuStatus { set: 0.333_21, duty: 0.333_21, ..CpuStatus::new(0, target) }],
                health: Health::Degraded,
                problems: vec!["CPU 0 is hot".into()],
                notes: vec![],
            },
            Duration::from_nanos(1_200_000_001),
        );
        record.exit(Exit::Signal(15));
        assert_eq!(
            serde_json::to_value(&record).unwrap(),
            json!({
                "schema": 3,
                "emu": env!("CARGO_PKG_VERSION"),
                "started": "2026-01-01T00:00:00Z",
                "command": ["true"],
                "asked": {
                    "speed": "33.3333%", "period_ns": null, "lift_rt_limit": false,
                    "spare_others": false, "round": "nearest", "widen_policies": true, "hold_clock": true,
                    "cpus": [{"cpu": 0, "share": 1.0 / 3.0, "clock_hz": null}],
                },
                "method": "cpu-lim:published",
                "automatic": false,
                "expected": {"error": 0.0123, "period_ns": 100_000_000, "longest_stall_ns": 66_667_000},
                "verified": null,
                "delivered": null,
                "status": {
                    "method": "cpu-lim:published", "health": "degraded", "problems": ["CPU 0 is hot"], "notes": [],
                    "delivered": null, "wall_ns": 1_200_000_001, "period_ns": 100_000_000, "periods": 12, "missed": 1,
                    "longest_stall_ns": 66_700_001, "own_cpu_ns": 123_457, "burned_ns": 0,
                    "used_cpus": 0.25, "others_share": null,
                    "cpus": [{
                        "cpu": 0, "asked_share": 1.0 / 3.0, "asked_clock_hz": null, "set": 0.333_21, "delivered": null,
                        "duty": 0.333_21, "clock_hz": null, "set_clock_hz": null, "online": true,
                    }],
                },
                "notes": ["later"],
                "exit": {"signal": 15},
            })
        );
    }
}

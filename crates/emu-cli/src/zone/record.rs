//! The JSON that `run`, `attach` and nodes leave: unrounded, times in nanoseconds, clocks in hertz.

use std::ffi::OsString;
use std::time::Duration;

use emu_core::{CpuId, Delivered, Expected, Health, MethodId, Status, Stretch, Tasks, Trait};
use serde::{Deserialize, Serialize};

use crate::control::Source;
use crate::exit::Exit;
use crate::output::nanos;
use crate::zone::delivered::{Basis, DeliveredRecord, StepCpu, StepRecord};
use crate::zone::follow::Follow;
use crate::zone::like::Like;
use crate::zone::options::Options;
use crate::zone::plan::Plan;
use crate::zone::verification::Verification;

/// The version of the JSON of `run`, `attach` and `methods`. In 1 the variant of a method was not part of its name; in 2
/// `verified` was called `delivered`, `set` was called `effective`, and nothing was measured while the program ran.
pub(crate) const FORM: u32 = 3;

/// One emulation from begin to end.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    expected: ExpectedRecord,
    /// What a probe measured beforehand; null without `--verify`.
    verified: Option<Verification>,
    /// What the tasks were given while they wanted all that they could get; null where they never did.
    delivered: Option<DeliveredRecord>,
    /// What the method did by its own account; null when it never began.
    status: Option<StatusRecord>,
    /// How the speed was found, where it is that of another machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    like: Option<Like>,
    /// How a trace was followed; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<TraceRecord>,
    /// What was delivered at each speed, where that was changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    steps: Vec<StepRecord>,
    /// What the user was told beside the result.
    notes: Vec<String>,
    /// How the command ended; null for `attach` and a node, and where it never began.
    exit: Option<ExitRecord>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Asked {
    /// As on the command line; of a trace, that at its begin.
    speed: String,
    #[serde(flatten)]
    options: Options,
    /// What that is for each CPU.
    cpus: Vec<AskedCpu>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AskedCpu {
    /// Which CPU.
    cpu: CpuId,
    /// Of its reference clock.
    share: f64,
    /// The clock; null where a share was asked for.
    clock_hz: Option<u64>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ExpectedRecord {
    /// Relative error of the speed, either way.
    error: f64,
    /// Length of an on/off cycle; 0 without one.
    period_ns: u64,
    /// The longest time for which tasks are stopped at a stretch.
    longest_stall_ns: u64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct StatusRecord {
    /// Whether the limit was in force.
    health: Health,
    /// What was wrong at some time, in words.
    problems: Vec<String>,
    /// How long the emulation was in force.
    wall_ns: u64,
    /// Length of an on/off cycle; 0 without one.
    period_ns: u64,
    /// Cycles.
    periods: u64,
    /// Cycles that were skipped because the controller came too late.
    missed: u64,
    /// The longest time for which tasks were stopped at a stretch.
    longest_stall_ns: u64,
    /// CPU time of emu itself, beyond what it burns on purpose.
    own_cpu_ns: u64,
    /// CPU time burned on purpose, summed over CPUs.
    burned_ns: u64,
    /// CPU time of all tasks, in CPUs; null before the first look.
    used_cpus: Option<f64>,
    /// The background load as a share of the CPUs, where it is excluded; else null.
    others_share: Option<f64>,
    /// Each CPU.
    cpus: Vec<CpuRecord>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CpuRecord {
    /// Which CPU.
    cpu: CpuId,
    /// What was asked of it last.
    asked_share: f64,
    /// The share that the method has set by its own account.
    set: f64,
    /// What tasks were given on it; null where that cannot be told.
    delivered: Option<DeliveredRecord>,
    /// The share of time in which tasks may run; not `set` where costs are made up for.
    duty: f64,
    /// The core clock measured last, where the method measures it.
    clock_hz: Option<u64>,
    /// The core clock that the method has set.
    set_clock_hz: Option<u64>,
    /// Whether it is still online.
    online: bool,
}

/// How a trace was followed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TraceRecord {
    #[serde(flatten)]
    source: Source,
    /// How often the speed was set.
    changes: u64,
    /// By how much the latest change came late.
    latest_ns: u64,
}

/// How the command ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
            expected: ExpectedRecord::of(plan.prepared.expected()),
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
    pub(crate) fn steps(&mut self, stretches: &[Stretch], follow: Option<&Follow>) {
        let told = |seen: &Delivered| DeliveredRecord::of(seen, Basis::CpuTime);
        let step = |stretch: &Stretch| StepRecord {
            from_ns: nanos(stretch.from),
            until_ns: nanos(stretch.until),
            delivered: stretch.delivered.as_ref().map(told),
            cpus: stretch
                .asked
                .iter()
                .map(|(cpu, target)| StepCpu {
                    cpu: *cpu,
                    asked_share: target.share,
                    delivered: stretch.cpus.get(cpu).map(told),
                })
                .collect(),
        };
        self.steps = stretches.iter().map(step).collect();
        self.trace = follow.map(|follow| TraceRecord {
            source: follow.source.clone(),
            changes: follow.changes,
            latest_ns: nanos(follow.player.lateness()),
        });
    }

    pub(crate) fn engaged(&mut self, plan: &Plan) {
        self.method = plan.prepared.method().id();
        self.expected = ExpectedRecord::of(plan.prepared.expected());
    }

    pub(crate) fn verified(&mut self, verification: &Verification) {
        self.verified = Some(verification.clone());
    }

    pub(crate) fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }

    pub(crate) fn status(&mut self, status: &Status, wall: Duration) {
        let moves_clock = emu_core::method(status.method).is_some_and(|of| of.about().has(Trait::MovesClock));
        let basis = if moves_clock { Basis::CpuTimeAndClock } else { Basis::CpuTime };
        let delivered = |seen: &Delivered| DeliveredRecord::of(seen, basis);
        self.delivered = status.delivered.as_ref().map(delivered);
        if let Some(before) = self.steps.last() {
            let cpus = status.cpus.iter().map(|cpu| StepCpu {
                cpu: cpu.cpu,
                asked_share: cpu.asked.share,
                delivered: cpu.delivered.as_ref().map(delivered),
            });
            let (from_ns, until_ns) = (before.until_ns, nanos(wall).max(before.until_ns));
            let last = StepRecord { from_ns, until_ns, delivered: self.delivered, cpus: cpus.collect() };
            self.steps.push(last);
        }
        self.status = Some(StatusRecord {
            health: status.health,
            problems: status.problems.clone(),
            wall_ns: nanos(wall),
            period_ns: nanos(status.period),
            periods: status.periods,
            missed: status.missed,
            longest_stall_ns: nanos(status.longest_stall),
            own_cpu_ns: nanos(status.own_cpu),
            burned_ns: nanos(status.burned),
            used_cpus: status.used,
            others_share: status.background,
            cpus: status
                .cpus
                .iter()
                .map(|cpu| CpuRecord {
                    cpu: cpu.cpu,
                    asked_share: cpu.asked.share,
                    set: cpu.set,
                    delivered: cpu.delivered.as_ref().map(delivered),
                    duty: cpu.duty,
                    clock_hz: cpu.clock.map(|clock| clock.0),
                    set_clock_hz: cpu.set_clock.map(|clock| clock.0),
                    online: cpu.online,
                })
                .collect(),
        });
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

impl ExpectedRecord {
    pub(crate) fn of(expected: &Expected) -> Self {
        Self {
            error: expected.error,
            period_ns: nanos(expected.period),
            longest_stall_ns: nanos(expected.longest_stall),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::plan::testing::{Told, prepared};
    use emu_core::{CpuStatus, Demand, Target};
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
        record.note("later");
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
                    "health": "degraded", "problems": ["CPU 0 is hot"],
                    "wall_ns": 1_200_000_001, "period_ns": 100_000_000, "periods": 12, "missed": 1,
                    "longest_stall_ns": 66_700_001, "own_cpu_ns": 123_457, "burned_ns": 0,
                    "used_cpus": 0.25, "others_share": null,
                    "cpus": [{
                        "cpu": 0, "asked_share": 1.0 / 3.0, "set": 0.333_21, "delivered": null,
                        "duty": 0.333_21, "clock_hz": null, "set_clock_hz": null, "online": true,
                    }],
                },
                "notes": ["later"],
                "exit": {"signal": 15},
            })
        );
    }
}

//! The energy performance preference: what the processor itself is told where it picks its frequency.

use emu_core::Policy;

use super::{beyond, by_value, policies};
use crate::doctor::{Change, Finding, Knob, Machine, Takes};

pub(in crate::doctor) static EPP: Knob = Knob {
    name: "epp",
    better: "performance on every policy",
    why: "where the processor picks its frequency itself (HWP, CPPC), this hint says how eagerly it saves \
          energy: with any other, the clock follows the load",
    source: "Linux Documentation/admin-guide/pm/intel_pstate.rst (Energy vs Performance Hints), amd-pstate.rst",
    takes: Takes::Tuning,
    look,
};

fn look(machine: &Machine) -> Finding {
    let policies = match policies(machine) {
        Ok(policies) => policies,
        Err(unseen) => return unseen,
    };
    let hinted: Vec<_> =
        policies.into_iter().filter_map(|policy| Some((policy, policy.epp.clone()?))).collect();
    if hinted.is_empty() {
        return Finding::unseen("this driver, or this mode of it, takes no preference");
    }
    // 0 is the number of `performance`.
    let saving = hinted.iter().filter(|(_, epp)| !matches!(epp.as_str(), "performance" | "0"));
    let saving: Vec<&Policy> = saving.map(|(policy, _)| *policy).collect();
    let changes = saving.iter().map(|policy| Change::File {
        path: policy.path.join("energy_performance_preference"),
        value: "performance".into(),
    });
    let changes = changes.collect();
    Finding { hint: beyond(machine, &saving), ..Finding::tune(by_value(hinted.into_iter()), changes) }
}

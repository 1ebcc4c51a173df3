//! The governor of each cpufreq policy.

use emu_core::Policy;

use super::{beyond, by_value, policies};
use crate::doctor::{Change, Finding, Knob, Machine, Takes};

/// What holds the highest frequency, under every driver.
const BEST: &str = "performance";

pub(in crate::doctor) static GOVERNOR: Knob = Knob {
    name: "governor",
    better: "performance, or a fixed frequency, on every policy",
    why: "other governors follow the load: the clock is still rising while a run is measured, and a \
          program that waits gets a slower CPU than one that computes",
    source: "Linux Documentation/admin-guide/pm/cpufreq.rst; Manner & Wirtz, SOSE 2021; llvm.org/docs/Benchmarking",
    takes: Takes::Tuning,
    look,
};

fn look(machine: &Machine) -> Finding {
    let policies = match policies(machine) {
        Ok(policies) => policies,
        Err(unseen) => return unseen,
    };
    let found = by_value(policies.iter().map(|policy| (*policy, name(policy))));
    let moving: Vec<&Policy> = policies.into_iter().filter(|policy| !is_fixed(policy)).collect();
    if let Some(without) = moving.iter().find(|policy| !policy.governors.iter().any(|name| name == BEST)) {
        let hint = format!(
            "the kernel has no `{BEST}` governor for CPUs {}; load it: modprobe cpufreq_{BEST}",
            without.cpus
        );
        return Finding::hand(found, hint);
    }
    let change = |policy: &&Policy| Change::Governor { policy: policy.path.clone(), value: BEST.into() };
    let changes = moving.iter().map(change).collect();
    Finding { hint: beyond(machine, &moving), ..Finding::tune(found, changes) }
}

fn name(policy: &Policy) -> String {
    let fixed = policy.governor != BEST && is_fixed(policy);
    let limit = policy.max.filter(|_| fixed && policy.min == policy.max);
    match limit {
        Some(limit) => format!("{}, held at {limit}", policy.governor),
        None => policy.governor.clone(),
    }
}

/// Whether the frequency does not follow the load: what is set by hand stays, and so does what has no room.
fn is_fixed(policy: &Policy) -> bool {
    let no_room = policy.min.is_some() && policy.min == policy.max;
    no_room || policy.governor == BEST || policy.governor == "userspace"
}

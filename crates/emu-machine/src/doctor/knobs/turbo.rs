//! Frequencies above the nominal one: turbo, boost.

use std::path::PathBuf;

use emu_core::{Policy, Roots};

use super::{beyond, by_value, cpufreq, policies};
use crate::doctor::{Change, Finding, Knob, Machine, Takes};

pub(in crate::doctor) static TURBO: Knob = Knob {
    name: "turbo",
    better: "off",
    why: "how far above its nominal clock a core may go depends on heat, power and what the other cores do; \
          a frequency that cannot be sustained is not repeatable. Runs take longer without",
    source: "Linux Documentation/admin-guide/pm/intel_pstate.rst (Turbo P-states), cpufreq.rst (boost); \
             llvm.org/docs/Benchmarking",
    takes: Takes::Tuning,
    look,
};

fn look(machine: &Machine) -> Finding {
    let host = &machine.host;
    let cpufreq = match cpufreq(host) {
        Ok(cpufreq) => cpufreq,
        Err(unseen) => return unseen,
    };
    // Each driver has its own switch: intel_pstate one to forbid, the others one to allow.
    if let Some(forbidden) = cpufreq.no_turbo {
        return switch(!forbidden, no_turbo(&host.roots), "1");
    }
    if let Some(allowed) = cpufreq.boost {
        return switch(allowed, boost(&host.roots), "0");
    }
    per_policy(machine)
}

fn no_turbo(roots: &Roots) -> PathBuf {
    roots.cpus().join("intel_pstate/no_turbo")
}

pub(crate) fn boost(roots: &Roots) -> PathBuf {
    roots.cpus().join("cpufreq/boost")
}

fn switch(allowed: bool, path: PathBuf, off: &str) -> Finding {
    let change = Change::File { path, value: off.into() };
    Finding::tune(word(allowed), allowed.then_some(change).into_iter().collect())
}

fn per_policy(machine: &Machine) -> Finding {
    let policies = match policies(machine) {
        Ok(policies) => policies,
        Err(unseen) => return unseen,
    };
    let known: Vec<_> = policies.into_iter().filter_map(|policy| Some((policy, policy.boost?))).collect();
    if known.is_empty() {
        return Finding::unseen("this driver has no switch for it; the firmware may have one");
    }
    let on: Vec<&Policy> = known.iter().filter(|(_, allowed)| *allowed).map(|(policy, _)| *policy).collect();
    let changes = on.iter().map(|policy| Change::File { path: policy.path.join("boost"), value: "0".into() });
    let changes = changes.collect();
    let found = by_value(known.into_iter().map(|(policy, on)| (policy, word(on).to_owned())));
    Finding { hint: beyond(machine, &on), ..Finding::tune(found, changes) }
}

fn word(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

//! How deep idle CPUs may sleep.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use emu_core::control_file::probe;
use emu_core::{CpuList, Host, Roots};

use crate::doctor::{Change, Finding, Knob, Machine, Takes};

pub(in crate::doctor) static C_STATES: Knob = Knob {
    name: "c-states",
    better: "only the shallowest; in a guest none",
    why: "a CPU needs up to hundreds of microseconds to wake from a deep state, so that work that waits (I/O, \
          sleeps, messages) varies most. In a guest each idle CPU is taken away and has to be given back; \
          held, it polls and looks busy to the host. On a bare machine the first state is let be, as polling \
          takes turbo and execution units from the others",
    source: "Linux Documentation/admin-guide/pm/cpuidle.rst, power/pm_qos_interface.rst; \
             MongoDB, Repeatable Performance Tests",
    takes: Takes::Tuning,
    look,
};

fn look(machine: &Machine) -> Finding {
    let host = &machine.host;
    let states = states(&host.roots, &machine.cpus);
    if states.is_empty() {
        let who = if host.hypervisor.is_some() { "the hypervisor's" } else { "the firmware's" };
        return Finding::unseen(format!("the kernel picks no idle states here; how CPUs idle is {who}"));
    }
    let names: Vec<_> = states.values().map(|state| state.name.as_str()).collect();
    let deepest = states.values().filter(|state| !state.off).map(|state| state.latency).max().unwrap_or(0);
    let found = format!("{}; up to {deepest} µs to wake up", names.join(", "));
    let limit = limit(host, &states);
    let device = host.roots.dev.join("cpu_dma_latency");
    let in_force = in_force(&device);
    if deepest <= limit || in_force.is_some_and(|value| value <= limit) {
        let held = in_force.filter(|_| deepest > limit);
        let found = held.map_or(found.clone(), |value| format!("{found}, but held at {value} µs"));
        return Finding::ready(found);
    }
    if !device.exists() {
        let hint = format!("there is no {}: boot with processor.max_cstate=1", device.display());
        return Finding::advice(found, hint);
    }
    let others = host.online().difference(&machine.cpus);
    let hint = (!others.is_empty()).then(|| format!("the limit holds for CPUs {others} as well"));
    Finding { hint, ..Finding::tune(found, vec![Change::Latency { path: device, value: limit }]) }
}

/// What a state is, on the CPU where it takes longest.
#[derive(Debug)]
struct IdleState {
    name: String,
    /// Microseconds to leave it.
    latency: i32,
    /// Switched off on every CPU.
    off: bool,
}

fn states(roots: &Roots, cpus: &CpuList) -> BTreeMap<u32, IdleState> {
    let mut states: BTreeMap<u32, IdleState> = BTreeMap::new();
    for cpu in cpus.iter() {
        for number in 0.. {
            let folder = roots.cpus().join(format!("cpu{cpu}/cpuidle/state{number}"));
            let Some(latency) = probe::<i32>(&folder.join("latency")) else { break };
            let off = probe::<u64>(&folder.join("disable")).is_some_and(|disabled| disabled != 0);
            let name = || probe::<String>(&folder.join("name")).unwrap_or_else(|| format!("state{number}"));
            let state = states.entry(number).or_insert_with(|| IdleState { name: name(), latency, off });
            state.latency = state.latency.max(latency);
            state.off &= off;
        }
    }
    states
}

/// Bare: what it takes to leave the first state that is not polling. In a guest nothing: there the first one gives
/// the CPU back to the hypervisor.
fn limit(host: &Host, states: &BTreeMap<u32, IdleState>) -> i32 {
    let first = states.values().find(|state| state.latency > 0).map_or(0, |state| state.latency);
    if host.hypervisor.is_some() { 0 } else { first }
}

/// The limit in force, in microseconds: four bytes in the machine's order.
fn in_force(device: &Path) -> Option<i32> {
    let mut bytes = [0; 4];
    File::open(device).ok()?.read_exact(&mut bytes).ok()?;
    Some(i32::from_ne_bytes(bytes))
}

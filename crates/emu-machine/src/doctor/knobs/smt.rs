//! Threads that share a core.

use emu_core::control_file::probe;

use crate::doctor::{Finding, Knob, Machine, Takes};

pub(in crate::doctor) static SMT: Knob = Knob {
    name: "smt",
    better: "one thread on each core that is measured",
    why: "two threads of a core share its execution units and caches: what runs on the one slows the other \
          by an amount that depends on both",
    source: "Linux Documentation/ABI/testing/sysfs-devices-system-cpu (smt/control); llvm.org/docs/Benchmarking",
    takes: Takes::Hand,
    look,
};

fn look(machine: &Machine) -> Finding {
    let host = &machine.host;
    let control = host.roots.cpus().join("smt/control");
    let active = probe::<u8>(&host.roots.cpus().join("smt/active")) == Some(1);
    let mut seen = machine.cpus.iter().filter_map(|id| host.cpu(id));
    // Where the kernel does not tell which core a CPU belongs to, any may be shared.
    if seen.any(|cpu| cpu.siblings.len() > 1 || active && cpu.core.is_none()) {
        let hint = format!(
            "run on one CPU of each core (see `emu info`) and leave the others of it idle, or echo off > {}. A \
             tuning leaves it alone: programs bound to a CPU that goes offline lose that binding for good",
            control.display()
        );
        return Finding::advice("on: cores have several threads", hint);
    }
    if host.hypervisor.is_some() {
        return Finding::unseen(
            "the guest is shown one thread a core; the host may share cores all the same",
        );
    }
    Finding::ready(match probe::<String>(&control).as_deref() {
        Some("off" | "forceoff") => "off",
        _ => "one thread on each core",
    })
}

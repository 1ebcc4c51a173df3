//! The counter that time is read from.

use crate::doctor::{Change, Finding, Knob, Machine, Takes};

pub(in crate::doctor) static CLOCKSOURCE: Knob = Knob {
    name: "clocksource",
    better: "one that is read without a system call: tsc, kvm-clock, arch_sys_counter",
    why: "reading hpet or acpi_pm is a system call and a slow access to a device, a microsecond and more each \
          time. Where tsc is not offered, the kernel has found it unreliable",
    source: "Linux Documentation/timers/timekeeping.rst",
    takes: Takes::Tuning,
    look,
};

fn look(machine: &Machine) -> Finding {
    let clocks = &machine.host.clocks;
    let Some(source) = &clocks.source else {
        return Finding::unseen("the kernel does not tell it");
    };
    if clocks.fast {
        return Finding::ready(source.clone());
    }
    let found = format!("{source}, of {}", clocks.available.join(", "));
    let path = machine.host.roots.sys.join("devices/system/clocksource/clocksource0/current_clocksource");
    match clocks.available.iter().find(|name| *name == "tsc" || *name == "kvm-clock") {
        Some(fast) => Finding::tune(found, vec![Change::File { path, value: fast.clone() }]),
        None => Finding::advice(found, "time is slow to read here: measure long spans, or count cycles"),
    }
}

//! Who else uses the CPUs: other tasks, and other guests.

use emu_bench::verify::{FOREIGN_MAX, STEAL_MAX};

use crate::doctor::{Finding, Knob, Load, Machine, Takes};

pub(in crate::doctor) static OTHER_LOAD: Knob = Knob {
    name: "load",
    better: "idle CPUs before a run",
    why: "other tasks take time, caches and turbo. The load average lags minutes behind, so the CPU time of a \
          moment is taken here",
    source: "proc_stat(5)",
    takes: Takes::Hand,
    look: look_at_load,
};

fn look_at_load(machine: &Machine) -> Finding {
    match share(machine, |load| load.busy) {
        Err(unseen) => unseen,
        Ok(busy) if busy <= FOREIGN_MAX => Finding::ready(found(busy)),
        Ok(busy) => Finding::hand(found(busy), "end what runs, or wait for its end; `top` shows it"),
    }
}

pub(in crate::doctor) static STEAL: Knob = Knob {
    name: "steal",
    better: "none",
    why: "time in which this guest wanted to run and its host ran another: nothing in the guest can prevent it",
    source: "proc_stat(5); MongoDB, Repeatable Performance Tests",
    takes: Takes::Nothing,
    look: look_at_steal,
};

fn look_at_steal(machine: &Machine) -> Finding {
    if machine.host.hypervisor.is_none() {
        return Finding::ready("no hypervisor");
    }
    match share(machine, |load| load.stolen) {
        Err(unseen) => unseen,
        Ok(stolen) if stolen <= STEAL_MAX => Finding::ready(found(stolen)),
        Ok(stolen) => {
            Finding::hand(found(stolen), "other guests use the host: repeat later, or use a whole one")
        }
    }
}

fn share(machine: &Machine, of: impl Fn(&Load) -> f64) -> Result<f64, Finding> {
    machine.load.as_ref().map(of).ok_or_else(|| Finding::unseen("/proc/stat tells no CPU time"))
}

fn found(share: f64) -> String {
    format!("up to {:.1}% of a CPU's time", share * 100.0)
}

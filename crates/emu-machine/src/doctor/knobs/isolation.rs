//! CPUs that the scheduler leaves alone.

use emu_core::CpuList;

use super::booted;
use crate::doctor::{Finding, Knob, Machine, Takes};

pub(in crate::doctor) static ISOLATION: Knob = Knob {
    name: "isolcpus",
    better: "the measured CPUs isolated, the rest of the system on others",
    why: "the scheduler puts nothing on an isolated CPU by itself, so that runs bound to it are not disturbed \
          by other tasks",
    source: "Linux Documentation/admin-guide/kernel-parameters.txt (isolcpus=)",
    takes: Takes::Reboot,
    look,
};

fn look(machine: &Machine) -> Finding {
    let isolated: CpuList = machine.host.cpus.iter().filter(|cpu| cpu.isolated).map(|cpu| cpu.id).collect();
    if isolated.is_empty() {
        return Finding::advice(
            "no CPU is isolated",
            "boot with isolcpus=LIST; until then bind runs to some CPUs and other work to the rest",
        );
    }
    booted(machine, &isolated, ["are isolated", "are not", "are"], "isolcpus")
}

//! Who picks the idle states.

use emu_core::control_file::probe;

use crate::doctor::{Finding, Knob, Machine, Takes};

pub(in crate::doctor) static IDLE_DRIVER: Knob = Knob {
    name: "idle-driver",
    better: "any; what counts is which states it may use",
    why: "the driver brings the list of idle states and the governor picks one by what it expects; both guess \
          from the past, so that the same wait ends in different states",
    source: "Linux Documentation/admin-guide/pm/cpuidle.rst",
    takes: Takes::Reboot,
    look,
};

fn look(machine: &Machine) -> Finding {
    let folder = machine.host.roots.cpus().join("cpuidle");
    let word = |name: &str| probe::<String>(&folder.join(name)).filter(|word| !word.is_empty());
    match (word("current_driver"), word("current_governor").or_else(|| word("current_governor_ro"))) {
        (Some(driver), Some(governor)) => Finding::fact(format!("{driver}, governor {governor}")),
        (Some(driver), None) => Finding::fact(driver),
        (None, _) => Finding::unseen("the kernel has no cpuidle here"),
    }
}

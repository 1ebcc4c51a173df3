//! CPUs without a periodic tick.

use emu_core::{CpuList, control_file};

use super::booted;
use crate::doctor::{Finding, Knob, Machine, Takes};

pub(in crate::doctor) static NOHZ_FULL: Knob = Knob {
    name: "nohz-full",
    better: "the measured CPUs, with one task each",
    why: "the tick interrupts a running task 100 to 1000 times a second; in one guest that was measured each cost some 15 µs",
    source: "Linux Documentation/timers/no_hz.rst, admin-guide/kernel-parameters.txt (nohz_full=)",
    takes: Takes::Reboot,
    look,
};

fn look(machine: &Machine) -> Finding {
    let path = machine.host.roots.cpus().join("nohz_full");
    let text = match control_file::read_if_present(&path) {
        Ok(None) => return Finding::unseen("the kernel was built without CONFIG_NO_HZ_FULL"),
        Err(error) => return Finding::unseen(error.in_words()),
        Ok(Some(text)) => text,
    };
    // Some kernels print an empty list as `(null)`.
    let Some(tickless) = CpuList::from_kernel(text.trim_start_matches("(null)")) else {
        return Finding::unseen(format!("{} holds `{text}`", path.display()));
    };
    if tickless.is_empty() {
        return Finding::advice("every CPU has its tick", "boot with nohz_full=LIST");
    }
    booted(machine, &tickless, ["stop their tick", "do not", "do"], "nohz_full")
}

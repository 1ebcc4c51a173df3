//! CPUs without a periodic tick.

use super::super::{About, Finding, Knob, Machine, Takes};
use crate::control_file;

/// CPUs without a tick while one task runs.
pub(in crate::doctor) struct NohzFull;

impl Knob for NohzFull {
    fn about(&self) -> &'static About {
        &About {
            name: "nohz-full",
            better: "the measured CPUs, with one task each",
            why: "the tick interrupts a running task 100 to 1000 times a second; in one guest that was measured each cost some 15 µs",
            source: "Linux Documentation/timers/no_hz.rst, admin-guide/kernel-parameters.txt (nohz_full=)",
            takes: Takes::Reboot,
        }
    }

    fn look(&self, machine: &Machine) -> Finding {
        let path = machine.host.roots.cpus().join("nohz_full");
        match control_file::read_if_present(&path) {
            Ok(None) => Finding::unseen("the kernel was built without CONFIG_NO_HZ_FULL"),
            Err(error) => Finding::unseen(error.in_words()),
            // Some kernels print an empty list like this.
            Ok(Some(cpus)) if matches!(cpus.as_str(), "" | "(null)") => {
                Finding::advice("every CPU has its tick", "boot with nohz_full=LIST")
            }
            Ok(Some(cpus)) => Finding::ready(format!("CPUs {cpus} stop their tick")),
        }
    }
}

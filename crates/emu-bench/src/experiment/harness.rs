//! Where emu itself runs while a cell is measured.

use emu_core::{CpuList, Host};

use crate::workload::confine;

/// Keeps this process off the measured CPUs, where there are others. Dropped, it may use all again.
pub(super) struct Harness {
    allowed: CpuList,
}

impl Harness {
    pub(super) fn new(host: &Host) -> Self {
        Self { allowed: host.allowed.clone() }
    }

    /// Moves to the CPUs that are not measured, if there are any.
    pub(super) fn leave(&self, host: &Host, measured: &CpuList) {
        let spare: CpuList = host.allowed.iter().filter(|&cpu| !measured.contains(cpu)).collect();
        // That it fails costs nothing but quiet: the gate sees what disturbs.
        let _ = confine(if spare.is_empty() { &self.allowed } else { &spare });
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        let _ = confine(&self.allowed);
    }
}

//! The kernel's time base, from `/sys/devices/system/clocksource/clocksource0`.

use serde::{Deserialize, Serialize};

use crate::control_file::probe;
use crate::roots::Roots;

/// Clock sources whose counter the vDSO reads in user space: those that set a `vdso_clock_mode` in the kernel's source. A
/// hypervisor may still forbid this for `kvm-clock`.
const FAST: &[&str] = &[
    "tsc",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
    "arch_sys_counter",
    "riscv_clocksource",
    "timebase",
    "tod",
];

/// The clock source in use, and the available ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Clocks {
    /// `current_clocksource`, e.g. `tsc`, `kvm-clock`, `arch_sys_counter`.
    pub source: Option<String>,
    /// `available_clocksource`.
    pub available: Vec<String>,
    /// Whether `CLOCK_MONOTONIC` is read without a system call, judged by the source's name.
    pub fast: bool,
}

pub(super) fn read(roots: &Roots) -> Clocks {
    let dir = roots.sys.join("devices/system/clocksource/clocksource0");
    let source = probe::<String>(&dir.join("current_clocksource")).filter(|name| !name.is_empty());
    let available = probe::<String>(&dir.join("available_clocksource")).unwrap_or_default();
    Clocks {
        fast: source.as_deref().is_some_and(|name| FAST.contains(&name)),
        source,
        available: available.split_whitespace().map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    const DIR: &str = "sys/devices/system/clocksource/clocksource0";

    #[test]
    fn clock_sources_are_read_and_judged_by_name() {
        for (source, fast) in
            [("tsc\n", true), ("arch_sys_counter\n", true), ("hpet\n", false), ("\n", false)]
        {
            let dir = tree(&[
                (&format!("{DIR}/current_clocksource"), source),
                (&format!("{DIR}/available_clocksource"), "tsc kvm-clock acpi_pm \n"),
            ]);
            let clocks = read(&Roots::below(dir.path()));
            assert_eq!(clocks.fast, fast, "{source}");
            assert_eq!(clocks.available, ["tsc", "kvm-clock", "acpi_pm"]);
            assert_eq!(clocks.source.as_deref(), Some(source.trim()).filter(|name| !name.is_empty()));
        }
    }

    #[test]
    fn a_host_that_does_not_report_its_clock_source_has_none() {
        let dir = tree(&[]);
        let clocks = read(&Roots::below(dir.path()));
        assert_eq!(clocks, Clocks { source: None, available: vec![], fast: false });
    }
}

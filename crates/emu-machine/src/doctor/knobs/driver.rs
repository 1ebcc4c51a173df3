//! Which driver sets the frequency, and in which mode.

use super::{by_value, cpufreq};
use crate::doctor::{Finding, Knob, Machine, Takes};

pub(in crate::doctor) static DRIVER: Knob = Knob {
    name: "driver",
    better: "any; it decides what the governors' names mean",
    why: "`powersave` is the lowest frequency under acpi-cpufreq and intel_cpufreq, but an adaptive \
          algorithm under intel_pstate and amd-pstate-epp: a governor can only be judged by its driver",
    source: "Linux Documentation/admin-guide/pm/intel_pstate.rst, amd-pstate.rst; Manner & Wirtz, SOSE 2021",
    takes: Takes::Reboot,
    look,
};

fn look(machine: &Machine) -> Finding {
    let cpufreq = match cpufreq(&machine.host) {
        Ok(cpufreq) => cpufreq,
        Err(unseen) => return unseen,
    };
    let drivers = by_value(cpufreq.policies.iter().map(|policy| (policy, policy.driver.clone())));
    let mode = cpufreq.intel_pstate.as_deref().filter(|mode| *mode != "off");
    Finding::fact(match mode.or(cpufreq.amd_pstate.as_deref().filter(|mode| *mode != "disable")) {
        Some(mode) => format!("{drivers}, {mode} mode"),
        None => drivers,
    })
}

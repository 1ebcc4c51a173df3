//! How often the processor was slowed down for its heat (`drivers/thermal/intel/therm_throt.c`).

use super::super::{About, Finding, Knob, Machine, Takes};
use crate::control_file::probe;
use crate::{CpuList, Host};

/// Thermal throttling.
pub(in crate::doctor) struct Throttling;

impl Knob for Throttling {
    fn about(&self) -> &'static About {
        &About {
            name: "throttling",
            better: "no event while runs are measured",
            why: "a processor that gets too hot lowers its clock by itself, whatever the governor says; the counters \
                  go on counting from the boot, so what matters is that they stand still",
            source: "Linux Documentation/ABI/testing/sysfs-devices-system-cpu (thermal_throttle); Barrett et al., OOPSLA 2017",
            takes: Takes::Hand,
        }
    }

    fn look(&self, machine: &Machine) -> Finding {
        match throttled(&machine.host) {
            Some(0) => Finding::ready("no event since the boot"),
            Some(events) => Finding::fact(format!("{events} events since the boot"))
                .hint("see that the counters stand still; if they do not, cool better or turn turbo off"),
            None if machine.host.hypervisor.is_some() => Finding::unseen("a guest is not shown the counters"),
            None => Finding::unseen("this processor, or its kernel, has no counters of it"),
        }
    }
}

/// Thermal events of all cores and packages since the boot; `None` where the kernel does not count them.
pub fn throttled(host: &Host) -> Option<u64> {
    let online: CpuList = host.online();
    let count = |name: &str| {
        let file = |cpu| host.roots.cpus().join(format!("cpu{cpu}/thermal_throttle/{name}"));
        let counts: Vec<u64> = online.iter().filter_map(|cpu| probe(&file(cpu))).collect();
        (!counts.is_empty()).then_some(counts)
    };
    let cores = count("core_throttle_count");
    // Each CPU of a package shows the package's counter.
    let packages = count("package_throttle_count").map(|counts| counts.into_iter().max().unwrap_or(0));
    if cores.is_none() && packages.is_none() {
        return None;
    }
    Some(cores.into_iter().flatten().sum::<u64>() + packages.unwrap_or(0))
}

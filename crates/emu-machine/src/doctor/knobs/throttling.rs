//! How often the processor was slowed down for its heat (`drivers/thermal/intel/therm_throt.c`).

use std::collections::BTreeMap;

use emu_core::control_file::probe;
use emu_core::{CpuId, Host};

use crate::doctor::{Finding, Knob, Machine, Takes};

pub(in crate::doctor) static THROTTLING: Knob = Knob {
    name: "throttling",
    better: "no event while runs are measured",
    why: "a processor that gets too hot lowers its clock by itself, whatever the governor says; the counters \
          go on counting from the boot, so what matters is that they stand still",
    source: "Linux Documentation/ABI/testing/sysfs-devices-system-cpu (thermal_throttle); Barrett et al., OOPSLA 2017",
    takes: Takes::Hand,
    look,
};

fn look(machine: &Machine) -> Finding {
    match throttled(&machine.host) {
        Some(0) => Finding::ready("no event since the boot"),
        Some(events) => Finding::fact(format!("{events} events since the boot"))
            .hint("see that the counters stand still; if they do not, cool better or turn turbo off"),
        None if machine.host.hypervisor.is_some() => Finding::unseen("a guest is not shown the counters"),
        None => Finding::unseen("this processor, or its kernel, has no counters of it"),
    }
}

/// Thermal events of all cores and packages since the boot; `None` where the kernel does not count them.
pub fn throttled(host: &Host) -> Option<u64> {
    let count = |cpu: CpuId, name: &str| {
        probe::<u64>(&host.roots.cpus().join(format!("cpu{cpu}/thermal_throttle/{name}")))
    };
    let mut cores = Vec::new();
    // Each CPU of a package shows the package's counter.
    let mut packages: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    for cpu in host.cpus.iter().filter(|cpu| cpu.online) {
        cores.extend(count(cpu.id, "core_throttle_count"));
        if let Some(events) = count(cpu.id, "package_throttle_count") {
            let most = packages.entry(cpu.package).or_default();
            *most = events.max(*most);
        }
    }
    let is_counted = !(cores.is_empty() && packages.is_empty());
    is_counted.then(|| cores.into_iter().chain(packages.into_values()).sum())
}

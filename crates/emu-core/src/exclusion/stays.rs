//! What cannot be taken off a CPU: threads of the kernel and interrupts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::control_file;
use crate::cpu_list::CpuList;
use crate::process::{Stat, pids};
use crate::sys::affinity;

/// The kernel's threads that are bound to CPUs of these, by name, and how many others may run there.
pub(super) fn kernel_threads(proc: &Path, cpus: &CpuList) -> (Vec<String>, usize) {
    let (mut bound, mut others) = (BTreeSet::new(), 0);
    for pid in pids(proc).unwrap_or_default() {
        let is_kernel = Stat::read(proc, pid).is_some_and(|stat| stat.is_kernel);
        let Some(now) = is_kernel.then(|| affinity::get(pid).ok()).flatten() else { continue };
        if now.intersection(cpus).is_empty() {
            continue;
        }
        if now.difference(cpus).is_empty() {
            bound.extend(control_file::read(&proc.join(pid.to_string()).join("comm")).ok());
        } else {
            others += 1;
        }
    }
    (bound.into_iter().collect(), others)
}

/// The interrupts that are delivered to CPUs of these: number and names, as `24 (virtio0-input.0)`.
pub(super) fn interrupts(proc: &Path, cpus: &CpuList) -> Vec<String> {
    let mut numbers: Vec<u32> = names(&proc.join("irq")).filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    let told = numbers.into_iter().filter_map(|number| {
        let folder = proc.join("irq").join(number.to_string());
        // Older kernels do not tell where an interrupt is delivered, only where it may be.
        let at = ["effective_affinity_list", "smp_affinity_list"];
        let at = at.iter().find_map(|name| control_file::probe_cpus(&folder.join(name)))?;
        let users: Vec<_> = names(&folder).filter(|name| folder.join(name).is_dir()).collect();
        (!users.is_empty() && !at.intersection(cpus).is_empty())
            .then(|| format!("{number} ({})", users.join(", ")))
    });
    told.collect()
}

fn names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::tree;

    #[test]
    fn interrupts_are_told_that_have_a_user_and_are_delivered_there() {
        let root = tree(&[
            ("irq/default_smp_affinity", "3\n"),
            ("irq/24/effective_affinity_list", "1\n"),
            ("irq/24/smp_affinity_list", "0-1\n"),
            ("irq/24/virtio0-input.0/x", ""),
            ("irq/7/smp_affinity_list", "0-1\n"),
            ("irq/7/ttyS0/x", ""),
            ("irq/9/effective_affinity_list", "0\n"),
        ]);
        let on = |cpus: &str| interrupts(root.path(), &cpus.parse().unwrap());
        assert_eq!(on("0"), ["7 (ttyS0)"]);
        assert_eq!(on("1"), ["7 (ttyS0)", "24 (virtio0-input.0)"]);
        assert_eq!(on("2"), [""; 0]);
    }

    #[test]
    fn each_cpu_has_threads_of_the_kernel_that_are_bound_to_it() {
        let proc = Path::new("/proc");
        // In a container there may be none to see.
        let (bound, _) = kernel_threads(proc, &"0".parse().unwrap());
        assert!(bound.iter().all(|name| !name.contains("/1")), "{bound:?}");
    }
}

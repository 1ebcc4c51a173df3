//! Which CPUs device interrupts may go to.

use std::fs;
use std::path::PathBuf;

use super::super::{About, Change, Finding, Knob, Machine, Takes};
use crate::control_file::probe;
use crate::{CpuList, Roots};

/// Affinity of interrupts.
pub(in crate::doctor) struct IrqAffinity;

impl Knob for IrqAffinity {
    fn about(&self) -> &'static About {
        &About {
            name: "irq-affinity",
            better: "device interrupts on other CPUs than the measured ones",
            why: "an interrupt stops whatever runs, for microseconds to milliseconds, at moments that others decide. \
                  Some cannot be moved: those of each CPU itself, and those that a driver has spread (managed)",
            source: "Linux Documentation/core-api/irq/irq-affinity.rst",
            takes: Takes::Tuning,
        }
    }

    fn look(&self, machine: &Machine) -> Finding {
        let host = &machine.host;
        let quiet = &machine.cpus;
        let others = host.online().difference(quiet);
        let all = interrupts(&host.roots);
        if all.is_empty() {
            return Finding::unseen("the kernel shows no interrupt of a device");
        }
        let there: Vec<_> = all.iter().filter(|(_, cpus)| !cpus.intersection(quiet).is_empty()).collect();
        let found = format!("{} of {} may come to CPUs {quiet}", there.len(), all.len());
        if there.is_empty() {
            return Finding::ready(found);
        }
        if others.is_empty() {
            return Finding::advice(
                found,
                "name the CPUs of your runs with --cpus; the others take the interrupts",
            );
        }
        let changes = there.into_iter().map(|(path, cpus)| {
            let left = Some(cpus.difference(quiet)).filter(|left| !left.is_empty());
            Change::File { path: path.clone(), value: left.unwrap_or_else(|| others.clone()).to_string() }
        });
        Finding::tune(found, changes.collect()).separable()
    }
}

/// The interrupts of devices with the CPUs that they may go to, by number.
fn interrupts(roots: &Roots) -> Vec<(PathBuf, CpuList)> {
    let folder = roots.proc.join("irq");
    let mut numbers: Vec<u32> = fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let lists = numbers.into_iter().map(|number| folder.join(format!("{number}/smp_affinity_list")));
    lists
        .filter_map(|path| {
            let cpus = CpuList::from_kernel(&probe::<String>(&path)?)?;
            Some((path, cpus))
        })
        .collect()
}

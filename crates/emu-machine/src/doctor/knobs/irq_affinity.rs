//! Which CPUs device interrupts may go to.

use std::fs;
use std::path::{Path, PathBuf};

use emu_core::control_file::{probe, probe_cpus};
use emu_core::{CpuList, Roots};

use crate::doctor::{Change, Finding, Knob, Machine, Takes};

/// The daemon that moves interrupts, by the name of its process.
const BALANCER: &str = "irqbalance";

pub(in crate::doctor) static IRQ_AFFINITY: Knob = Knob {
    name: "irq-affinity",
    better: "device interrupts on other CPUs than the measured ones",
    why: "an interrupt stops whatever runs, for microseconds to milliseconds, at moments that others decide. \
          Some cannot be moved: those of each CPU itself, and those that a driver has spread (managed). \
          irqbalance looks at the load of the CPUs every 10 seconds by default, and moves the others again",
    source: "Linux Documentation/core-api/irq/irq-affinity.rst; irqbalance(1)",
    takes: Takes::Tuning,
    look,
};

fn look(machine: &Machine) -> Finding {
    let host = &machine.host;
    let quiet = &machine.cpus;
    let others = host.online().difference(quiet);
    let all = interrupts(&host.roots);
    if all.is_empty() {
        return Finding::unseen("the kernel shows no interrupt of a device");
    }
    let there: Vec<_> = all.iter().filter(|(_, cpus)| !cpus.intersection(quiet).is_empty()).collect();
    let balancer = balancer(&host.roots);
    let moves = balancer.map_or(String::new(), |pid| {
        format!(
            "; {BALANCER} runs (process {pid}) and may move them again: whether it is stopped is for you to decide"
        )
    });
    let found = format!("{} of {} may come to CPUs {quiet}{moves}", there.len(), all.len());
    let mut hints = Vec::new();
    if !there.is_empty() && others.is_empty() {
        hints.push("name the CPUs of your runs with --cpus; the others take the interrupts");
    }
    if balancer.is_some() {
        hints.push(
            "stop irqbalance while runs are measured (systemctl stop irqbalance), or keep it off these CPUs \
             (IRQBALANCE_BANNED_CPULIST); a tuning leaves it alone",
        );
    }
    let hint = Some(hints.join("; ")).filter(|hint| !hint.is_empty());
    if there.is_empty() {
        return Finding { hint, ..Finding::ready(found) };
    }
    if others.is_empty() {
        return Finding::advice(found, hint.unwrap_or_default());
    }
    let changes = there.into_iter().map(|(path, cpus)| {
        let left = Some(cpus.difference(quiet)).filter(|left| !left.is_empty());
        Change::File { path: path.clone(), value: left.unwrap_or_else(|| others.clone()).to_string() }
    });
    Finding { hint, ..Finding::tune(found, changes.collect()).separable() }
}

fn interrupts(roots: &Roots) -> Vec<(PathBuf, CpuList)> {
    let folder = roots.proc.join("irq");
    let lists = numbers(&folder).into_iter().map(|number| folder.join(format!("{number}/smp_affinity_list")));
    lists
        .filter_map(|path| {
            let cpus = probe_cpus(&path)?;
            Some((path, cpus))
        })
        .collect()
}

/// The process of irqbalance, where one runs that can be seen from here: not from a container with processes of its own.
fn balancer(roots: &Roots) -> Option<u32> {
    let name = |pid: u32| probe::<String>(&roots.proc.join(format!("{pid}/comm")));
    numbers(&roots.proc).into_iter().find(|pid| name(*pid).as_deref() == Some(BALANCER))
}

fn numbers(folder: &Path) -> Vec<u32> {
    let mut numbers: Vec<u32> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use crate::doctor::finding::{Finding, State};
    use crate::doctor::tests::{bare, found, machine};

    /// The processes of a machine on which it runs.
    const RUNNING: [(&str, &str); 2] = [("proc/7/comm", "sh\n"), ("proc/812/comm", "irqbalance\n")];

    const BALANCED: &str =
        "; irqbalance runs (process 812) and may move them again: whether it is stopped is for you to decide";

    /// What is found where these CPUs are to be quiet.
    fn quiet(changes: &[(&str, &str)], cpus: &str) -> Finding {
        let (_dir, mut machine) = machine(&bare(changes));
        machine.cpus = cpus.parse().unwrap();
        found(&machine, "irq-affinity")
    }

    #[test]
    fn a_running_irqbalance_is_told_when_interrupts_are_moved() {
        let finding = quiet(&RUNNING, "1");
        assert_eq!((finding.state, finding.changes.len()), (State::Tune, 2));
        assert_eq!(finding.found, format!("2 of 2 may come to CPUs 1{BALANCED}"));
        let hint = finding.hint.unwrap();
        assert!(hint.contains("systemctl stop irqbalance") && !hint.contains("--cpus"), "{hint}");
        let all = quiet(&RUNNING, "0-1");
        let expected = format!("2 of 2 may come to CPUs 0-1{BALANCED}");
        assert_eq!((all.state, all.found), (State::Advice, expected));
        let hint = all.hint.unwrap();
        assert!(hint.contains("--cpus") && hint.contains("systemctl stop irqbalance"), "{hint}");
    }

    #[test]
    fn where_no_interrupt_comes_irqbalance_may_bring_one() {
        let elsewhere = ("proc/irq/8/smp_affinity_list", "1\n");
        let finding = quiet(&[elsewhere, RUNNING[0], RUNNING[1]], "0");
        let expected = format!("0 of 2 may come to CPUs 0{BALANCED}");
        assert_eq!((finding.state, finding.found), (State::Ready, expected));
        assert!(finding.hint.is_some_and(|hint| hint.contains("a tuning leaves it alone")));
        let calm = quiet(&[elsewhere, RUNNING[0]], "0");
        assert_eq!((calm.state, calm.found.as_str()), (State::Ready, "0 of 2 may come to CPUs 0"));
        assert_eq!(calm.hint, None);
    }

    #[test]
    fn what_only_looks_like_irqbalance_is_not_it() {
        for other in [("proc/812/comm", "irqbalance-ui\n"), ("proc/irq/8/comm", "irqbalance\n")] {
            let finding = quiet(&[other], "1");
            assert_eq!((finding.found.as_str(), finding.hint), ("2 of 2 may come to CPUs 1", None));
        }
    }
}

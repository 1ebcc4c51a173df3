//! Memory that may go to disk.

use emu_bench::numbers::rounded_size;
use emu_core::control_file::{self, probe};

use crate::doctor::{Change, Finding, Knob, Machine, Takes};

pub(in crate::doctor) static SWAP: Knob = Knob {
    name: "swap",
    better: "none, or not used before memory is full (swappiness 0)",
    why: "a page that was swapped out costs a read from disk when it is next touched, at a time that depends \
          on everything else on the machine",
    source: "Linux Documentation/admin-guide/sysctl/vm.rst (swappiness)",
    takes: Takes::Tuning,
    look,
};

fn look(machine: &Machine) -> Finding {
    let proc = &machine.host.roots.proc;
    let areas = match control_file::read_if_present(&proc.join("swaps")) {
        Ok(Some(text)) => areas(&text),
        Ok(None) => return Finding::ready("the kernel has none"),
        Err(error) => return Finding::unseen(error.in_words()),
    };
    if areas.is_empty() {
        return Finding::ready("none");
    }
    let used: u64 = areas.iter().sum();
    let path = proc.join("sys/vm/swappiness");
    let swappiness = probe::<u32>(&path);
    let found = match swappiness {
        Some(value) => format!("{} in use, swappiness {value}", rounded_size(used * 1024)),
        None => format!("{} in use", rounded_size(used * 1024)),
    };
    match swappiness {
        Some(0) if used == 0 => Finding::ready(found),
        Some(0) => Finding::hand(found, "bring back what is swapped out: swapoff -a && swapon -a"),
        Some(_) => Finding::tune(found, vec![Change::File { path, value: "0".into() }]),
        None => Finding::hand(found, "turn it off while runs are measured: swapoff -a"),
    }
}

/// KiB used of each area, from `/proc/swaps`: file name, type, size, used, priority.
fn areas(text: &str) -> Vec<u64> {
    let used = |line: &str| line.split_whitespace().rev().nth(1)?.parse().ok();
    text.lines().skip(1).filter_map(used).collect()
}

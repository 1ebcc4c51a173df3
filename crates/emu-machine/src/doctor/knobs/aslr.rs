//! Address space layout randomisation.

use emu_core::control_file::probe;

use crate::doctor::{Change, Finding, Knob, Machine, Takes};

pub(in crate::doctor) static ASLR: Knob = Knob {
    name: "aslr",
    better: "0, to repeat one layout; 2, to compare two programs",
    why: "with random addresses each process has its own conflicts in caches and branch predictors. Without, \
          runs repeat, but one layout is a sample of one: a change of the program changes it too. While it is \
          off, programs started on this machine are easier to attack",
    source: "Linux Documentation/admin-guide/sysctl/kernel.rst (randomize_va_space); llvm.org/docs/Benchmarking; \
             Mytkowicz et al., ASPLOS 2009",
    takes: Takes::Tuning,
    look,
};

fn look(machine: &Machine) -> Finding {
    let path = machine.host.roots.proc.join("sys/kernel/randomize_va_space");
    match probe::<u8>(&path) {
        None => Finding::unseen(format!("there is no {}", path.display())),
        Some(0) => Finding::ready("off"),
        Some(level) => {
            let found = if level == 1 { "on, but for the heap" } else { "on" };
            Finding::tune(found, vec![Change::File { path, value: "0".into() }])
        }
    }
}

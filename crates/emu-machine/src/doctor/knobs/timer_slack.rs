//! By how much a sleep may last longer.

use emu_core::control_file::probe;

use crate::doctor::{Change, Finding, Knob, Machine, Takes};

pub(in crate::doctor) static TIMER_SLACK: Knob = Knob {
    name: "timer-slack",
    better: "1 ns for programs that sleep",
    why: "the kernel may let a sleep of a normal task last longer by its slack, to wake several at once: 50 µs \
          by default, which is 5 % of a millisecond. A tuning sets it for the command that it runs",
    source: "prctl(2), PR_SET_TIMERSLACK",
    takes: Takes::Tuning,
    look,
};

fn look(machine: &Machine) -> Finding {
    let Some(nanos) = probe::<u64>(&machine.host.roots.proc.join("self/timerslack_ns")) else {
        return Finding::unseen("the kernel does not show it (Linux 4.6)");
    };
    let found = if nanos < 1000 { format!("{nanos} ns") } else { format!("{} µs", nanos / 1000) };
    if nanos <= 1 {
        return Finding::ready(found);
    }
    // What is read is the slack of this emu, and commands inherit theirs: it says nothing of the machine.
    Finding::for_command(found, vec![Change::TimerSlack { value: 1 }])
}

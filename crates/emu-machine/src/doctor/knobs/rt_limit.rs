//! How much of a CPU real-time tasks may have.

use crate::doctor::{Finding, Knob, Machine, Takes};

pub(in crate::doctor) static RT_LIMIT: Knob = Knob {
    name: "rt-limit",
    better: "above what real-time programs use; no matter for others",
    why: "a real-time task that uses more is stopped for the rest of the period, 50 ms of each second by \
          default. Without the limit one that does not sleep takes its CPU for good",
    source: "Linux Documentation/scheduler/sched-rt-group.rst, sched-deadline.rst",
    takes: Takes::Hand,
    look,
};

fn look(machine: &Machine) -> Finding {
    let limits = &machine.host.real_time;
    let file = limits.runtime_file.as_ref();
    let Some(file) = file else { return Finding::unseen("the kernel has no limit that can be seen") };
    let share = limits.largest_share();
    if limits.group_runtime.is_some_and(|runtime| runtime.is_zero()) {
        return Finding::fact("none: this cgroup has no budget for real-time tasks");
    }
    let found = if share < 1.0 {
        format!("{:.4}% of each CPU", share * 100.0).replace(".0000%", "%")
    } else {
        "none".to_owned()
    };
    Finding::fact(found)
        .hint(format!("for a real-time benchmark that needs more: echo -1 > {}", file.display()))
}

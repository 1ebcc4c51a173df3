//! Transparent huge pages: when the kernel gives them, and how hard it works for them.

use super::choice;
use crate::doctor::{Change, Finding, Knob, Machine, Takes};

const SOURCE: &str = "Linux Documentation/admin-guide/mm/transhuge.rst";

pub(in crate::doctor) static ENABLED: Knob = Knob {
    name: "thp",
    better: "madvise or never",
    why: "with `always` it depends on how fragmented memory is whether a program gets huge pages, and a kernel \
          thread turns small pages into huge ones while the program runs",
    source: SOURCE,
    takes: Takes::Tuning,
    look: |machine| look(machine, "enabled", &["always"]),
};

pub(in crate::doctor) static DEFRAG: Knob = Knob {
    name: "thp-defrag",
    better: "madvise or never",
    why: "with `always` a page fault may stop to compact memory; with `defer` kernel threads do that beside the \
          run. `madvise` leaves it to programs that ask",
    source: SOURCE,
    takes: Takes::Tuning,
    look: |machine| look(machine, "defrag", &["always", "defer", "defer+madvise"]),
};

/// A file of choices, of which `madvise` does not disturb, and changes least.
fn look(machine: &Machine, file: &str, disturbing: &[&str]) -> Finding {
    let path = machine.host.roots.sys.join("kernel/mm/transparent_hugepage").join(file);
    let Some(chosen) = choice(&path) else {
        return Finding::unseen("the kernel was built without transparent huge pages");
    };
    let disturbs = disturbing.contains(&chosen.as_str());
    let change = Change::Choice { path, value: "madvise".into() };
    Finding::tune(chosen, disturbs.then_some(change).into_iter().collect())
}

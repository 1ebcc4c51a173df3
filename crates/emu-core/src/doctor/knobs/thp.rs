//! Transparent huge pages: when the kernel gives them, and how hard it works for them.

use super::super::finding::{Change, Finding};
use super::super::machine::Machine;
use super::super::{About, Knob, Takes};
use super::choice;

/// One of the files of transparent huge pages.
pub(in crate::doctor) struct Thp {
    file: &'static str,
    /// The values that disturb.
    disturbing: &'static [&'static str],
    /// The value that does not, and changes least.
    calm: &'static str,
    about: About,
}

const SOURCE: &str = "Linux Documentation/admin-guide/mm/transhuge.rst";

/// Who gets huge pages.
pub(in crate::doctor) const ENABLED: Thp = Thp {
    file: "enabled",
    disturbing: &["always"],
    calm: "madvise",
    about: About {
        name: "thp",
        better: "madvise or never",
        why: "with `always` it depends on how fragmented memory is whether a program gets huge pages, and a kernel \
              thread turns small pages into huge ones while the program runs",
        source: SOURCE,
        takes: Takes::Tuning,
    },
};

/// What the kernel does for a huge page that is not there.
pub(in crate::doctor) const DEFRAG: Thp = Thp {
    file: "defrag",
    disturbing: &["always", "defer", "defer+madvise"],
    calm: "madvise",
    about: About {
        name: "thp-defrag",
        better: "madvise or never",
        why: "with `always` a page fault may stop to compact memory; with `defer` kernel threads do that beside the \
              run. `madvise` leaves it to programs that ask",
        source: SOURCE,
        takes: Takes::Tuning,
    },
};

impl Knob for Thp {
    fn about(&self) -> &'static About {
        match self.file {
            "enabled" => &ENABLED.about,
            _ => &DEFRAG.about,
        }
    }

    fn look(&self, machine: &Machine) -> Finding {
        let path = machine.host.roots.sys.join("kernel/mm/transparent_hugepage").join(self.file);
        let Some(chosen) = choice(&path) else {
            return Finding::unseen("the kernel was built without transparent huge pages");
        };
        let disturbs = self.disturbing.contains(&chosen.as_str());
        let change = Change::Choice { path, value: self.calm.into() };
        Finding::tune(chosen, disturbs.then_some(change).into_iter().collect())
    }
}

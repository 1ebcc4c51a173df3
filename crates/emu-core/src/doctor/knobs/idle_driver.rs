//! Who picks the idle states.

use super::super::finding::Finding;
use super::super::machine::Machine;
use super::super::{About, Knob, Takes};
use crate::control_file::probe;

/// The idle driver.
pub(in crate::doctor) struct IdleDriver;

impl Knob for IdleDriver {
    fn about(&self) -> &'static About {
        &About {
            name: "idle-driver",
            better: "any; what counts is which states it may use",
            why: "the driver brings the list of idle states and the governor picks one by what it expects; both guess \
                  from the past, so that the same wait ends in different states",
            source: "Linux Documentation/admin-guide/pm/cpuidle.rst",
            takes: Takes::Reboot,
        }
    }

    fn look(&self, machine: &Machine) -> Finding {
        let folder = machine.host.roots.cpus().join("cpuidle");
        let word = |name: &str| probe::<String>(&folder.join(name)).filter(|word| !word.is_empty());
        match (word("current_driver"), word("current_governor").or_else(|| word("current_governor_ro"))) {
            (Some(driver), Some(governor)) => Finding::fact(format!("{driver}, governor {governor}")),
            (Some(driver), None) => Finding::fact(driver),
            (None, _) => Finding::unseen("the kernel has no cpuidle here"),
        }
    }
}

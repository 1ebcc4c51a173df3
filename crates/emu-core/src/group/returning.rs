//! Gives the cpuset of a zone its CPUs back when they come online again.
//!
//! Version 1 takes a CPU that goes offline out of every cpuset and does not put it back; version 2 does
//! (cgroups-v1/cpusets.rst, "Modifying"; cgroup-v2.rst, `cpuset.cpus.effective`).

use std::path::{Path, PathBuf};

use super::confine;
use super::evicted::Evicted;
use crate::duty::{Command, Controller, Notes};
use crate::sys::time::{self, Nanos};
use crate::{CpuList, Result, control_file};

/// How often it is looked which CPUs are online.
const EVERY: Nanos = 500_000_000;

/// What becomes of the tasks when the last CPU goes.
const EVICTED: &str = "all CPUs of the zone were offline: the kernel let its tasks run elsewhere until one was back, which a \
                       method that slows CPUs does not reach";

/// A cpuset of version 1, and what it is to have.
#[derive(Debug)]
pub(super) struct Returning {
    file: PathBuf,
    /// The CPUs of the zone.
    cpus: CpuList,
    /// Those that it had at the last look.
    has: CpuList,
    /// Those that the kernel has taken out of somebody else's cpuset; of one that is ours it is known without.
    lost: Option<CpuList>,
}

impl Returning {
    /// For a group that was made for the zone.
    pub(super) fn ours(folder: &Path, cpus: CpuList) -> Self {
        Self { file: folder.join(confine::CPUS), has: cpus.clone(), cpus, lost: None }
    }

    /// For somebody else's group: what its owner takes out meanwhile stays out.
    pub(super) fn theirs(folder: &Path, cpus: CpuList) -> Self {
        Self { lost: Some(CpuList::default()), ..Self::ours(folder, cpus) }
    }

    /// The CPUs that the cpuset had at the last look, those put back included.
    pub(super) fn has(&self) -> &CpuList {
        &self.has
    }

    /// Looks after it and its tasks on a thread, until that is dropped or there is nothing to look after. Whether the tasks
    /// were moved out meanwhile is noted.
    ///
    /// # Errors
    /// The thread cannot be made.
    pub(super) fn start(
        mut self,
        online_file: PathBuf,
        mut tasks: Evicted,
        notes: Notes,
    ) -> Result<Controller<()>> {
        Controller::spawn(
            "emu-cpuset",
            (),
            || Ok(()),
            move |(), wait| {
                loop {
                    let (Command::Run(()), generation) = wait.command() else { return Ok(()) };
                    let online = control_file::probe_cpus(&online_file);
                    if online.is_some_and(|online| self.renew(&online).is_none()) {
                        return Ok(());
                    }
                    let followed = if self.has.is_empty() {
                        notes.add(EVICTED.into());
                        tasks.follow()
                    } else {
                        tasks.bring_back().and_then(|()| tasks.remember())
                    };
                    if let Err(error) = followed {
                        notes.add(format!(
                            "tasks that were moved out of the cpuset are not all back: {}",
                            error.in_words()
                        ));
                    }
                    wait.until(time::now() + EVERY, generation);
                }
            },
        )
    }

    /// Puts back what has come back, and returns whether there was anything; `None` when the cpuset is no longer to be
    /// looked after: it has gone, or its owner has given it other CPUs.
    pub(super) fn renew(&mut self, online: &CpuList) -> Option<bool> {
        let Ok(text) = control_file::read_if_present(&self.file) else { return Some(false) };
        let has = CpuList::from_kernel(&text?)?;
        let before = std::mem::replace(&mut self.has, has.intersection(&self.cpus));
        if self.has != has {
            return None;
        }
        let lost = match &mut self.lost {
            None => &self.cpus,
            Some(lost) => {
                *lost = lost.difference(&has).union(&before.difference(online));
                lost
            }
        };
        let back = lost.intersection(online).difference(&has);
        // Refused while the group above has not got them back itself, which it may for a part; then it is tried again.
        let each = back.iter().map(|cpu| [cpu].into_iter().collect());
        for more in std::iter::once(back.clone()).filter(|back| !back.is_empty()).chain(each) {
            let all = self.has.union(&more);
            if all != self.has && control_file::write(&self.file, &all.to_string()).is_ok() {
                self.has = all;
            }
        }
        Some(self.has != has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::tree;
    use std::fs;

    /// What the cpuset of a zone of CPUs 0 to 3 has in the end, when these are online, and in it, one after another.
    fn renewed(new: fn(&Path, CpuList) -> Returning, steps: &[(&str, &str)]) -> String {
        let root = tree(&[("cpuset.cpus", "")]);
        let file = root.path().join("cpuset.cpus");
        let mut returning = new(root.path(), (0..4).collect());
        for (online, has) in steps {
            fs::write(&file, has).unwrap();
            let put_back = returning.renew(&online.parse().unwrap()).unwrap();
            let now = fs::read_to_string(&file).unwrap();
            assert_eq!((put_back, returning.has().to_string()), (now != *has, now), "{steps:?}");
        }
        fs::read_to_string(file).unwrap()
    }

    #[test]
    fn a_cpu_that_comes_back_is_given_back() {
        for new in [Returning::ours, Returning::theirs] {
            let steps = [("0-7", "0-3"), ("0-1,4-7", "0-1")];
            assert_eq!(renewed(new, &steps), "0-1");
            assert_eq!(renewed(new, &[&steps[..], &[("0-2,4-7", "0-1")]].concat()), "0-2");
            assert_eq!(renewed(new, &[&steps[..], &[("0-7", "0-1")]].concat()), "0-3");
        }
    }

    #[test]
    fn what_the_owner_of_a_group_takes_out_stays_out() {
        assert_eq!(renewed(Returning::theirs, &[("0-7", "0-3"), ("0-7", "0-1")]), "0-1");
        // Given back once, and then taken out.
        let steps = [("0-2", "0-2"), ("0-3", "0-2"), ("0-3", "0-3"), ("0-3", "0-2")];
        assert_eq!(renewed(Returning::theirs, &steps), "0-2");
        // Taken out before it went offline.
        assert_eq!(renewed(Returning::theirs, &[("0-3", "0-2"), ("0-2", "0-2"), ("0-3", "0-2")]), "0-2");
        // One of ours has only been offline between two looks.
        assert_eq!(renewed(Returning::ours, &[("0-7", "0-3"), ("0-7", "0-1")]), "0-3");
    }

    #[test]
    fn a_group_that_has_gone_or_has_other_cpus_is_not_looked_after() {
        let root = tree(&[("cpuset.cpus", "4-5")]);
        let mut returning = Returning::theirs(root.path(), (0..4).collect());
        assert_eq!((returning.renew(&(0..3).collect()), returning.has()), (None, &CpuList::default()));
        fs::remove_file(root.path().join("cpuset.cpus")).unwrap();
        assert_eq!(returning.renew(&(0..3).collect()), None);
    }
}

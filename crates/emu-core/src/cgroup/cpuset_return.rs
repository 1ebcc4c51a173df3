//! Looks whether the cpuset of a zone still has its CPUs, and gives them back when they come online again.
//!
//! Version 1 takes a CPU that goes offline out of every cpuset and does not put it back; version 2 does
//! (cgroups-v1/cpusets.rst, "Modifying"; cgroup-v2.rst, `cpuset.cpus.effective`).

use std::path::PathBuf;

use super::confine;
use super::cpuset_repair::CpusetRepair;
use super::folder::Folder;
use crate::control_file;
use crate::cpu_list::CpuList;
use crate::duty::{Command, DutyThread};
use crate::error::Result;
use crate::notes::Notes;
use crate::sys::time::{self, Nanos};

/// How often it is looked which CPUs are online.
const EVERY: Nanos = 500_000_000;

/// What becomes of the tasks when the last CPU of a cpuset of version 1 goes.
const EVICTED: &str = "all CPUs of the zone were offline: the kernel let its tasks run elsewhere until one was back, which a \
                       method that slows CPUs does not reach";

/// A cpuset, and what it is to have.
#[derive(Debug)]
pub(crate) struct CpusetReturn {
    /// Which CPUs its tasks can use.
    file: PathBuf,
    version: u8,
    /// The CPUs of the zone.
    cpus: CpuList,
    /// Those that it had at the last look.
    has: CpuList,
    /// Those that the kernel has taken out of somebody else's cpuset; of one that is ours it is known without.
    lost: Option<CpuList>,
    /// Those of the zone that are online and that it did not have at the last look.
    missing: CpuList,
    notes: Notes,
}

impl CpusetReturn {
    /// For a group that was made for the zone.
    pub(crate) fn ours(folder: &Folder, cpus: CpuList, notes: &Notes) -> Self {
        let file = folder.path.join(confine::in_force(folder.version));
        let (has, missing, notes) = (cpus.clone(), CpuList::default(), notes.clone());
        Self { file, version: folder.version, has, cpus, lost: None, missing, notes }
    }

    /// For somebody else's group: what its owner takes out meanwhile stays out.
    pub(crate) fn theirs(folder: &Folder, cpus: CpuList, notes: &Notes) -> Self {
        Self { lost: Some(CpuList::default()), ..Self::ours(folder, cpus, notes) }
    }

    /// The CPUs that the cpuset had at the last look, those put back included.
    pub(crate) fn has(&self) -> &CpuList {
        &self.has
    }

    /// Looks after it and its tasks on a thread, until that is dropped. Whether the tasks were moved out meanwhile, or may
    /// use other CPUs, is noted.
    ///
    /// # Errors
    /// The thread cannot be made.
    pub(crate) fn start(mut self, online_file: PathBuf, mut tasks: CpusetRepair) -> Result<DutyThread<()>> {
        DutyThread::spawn(
            "emu-cpuset",
            (),
            || Ok(()),
            move |(), wait| {
                loop {
                    let (Command::Run(()), generation) = wait.command() else { return Ok(()) };
                    let online = control_file::probe_cpus(&online_file);
                    // Its owner may give it back what he has taken.
                    let is_ours = online.is_none_or(|online| self.renew(&online).is_some());
                    let followed = if !is_ours || self.version == 2 {
                        Ok(())
                    } else if self.has.is_empty() {
                        self.notes.add_problem(EVICTED.into());
                        tasks.follow()
                    } else {
                        tasks.bring_back().and_then(|()| tasks.remember())
                    };
                    if let Err(error) = followed {
                        self.notes.add_problem(format!(
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
    pub(crate) fn renew(&mut self, online: &CpuList) -> Option<bool> {
        let Ok(text) = control_file::read_if_present(&self.file) else { return Some(false) };
        let has = CpuList::from_kernel(&text?)?;
        let before = std::mem::replace(&mut self.has, has.intersection(&self.cpus));
        if self.has != has {
            self.notes.add_problem(format!(
                "{} is `{has}`: tasks may use CPUs {}, which are not in the zone",
                self.file.display(),
                has.difference(&self.cpus)
            ));
            return None;
        }
        if self.version == 2 {
            // The kernel puts them back itself.
            self.tell_missing(online);
            return Some(false);
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
        self.tell_missing(online);
        Some(self.has != has)
    }

    /// Tells which CPUs are online and not in the cpuset, when they are missing for the second time: the kernel puts them
    /// back after a while.
    fn tell_missing(&mut self, online: &CpuList) {
        let missing = self.cpus.intersection(online).difference(&self.has);
        let still = missing.intersection(&self.missing);
        if !still.is_empty() {
            self.notes.add_problem(format!(
                "{} is `{}`: tasks cannot use CPUs {still} of the zone",
                self.file.display(),
                self.has
            ));
        }
        self.missing = missing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::tree;
    use std::fs;
    use std::path::Path;

    type New = fn(&Folder, CpuList, &Notes) -> CpusetReturn;

    fn folder(path: &Path, version: u8) -> Folder {
        Folder { version, path: path.to_owned() }
    }

    /// What the cpuset of a zone of CPUs 0 to 3 has in the end, when these are online, and in it, one after another.
    fn renewed(new: New, steps: &[(&str, &str)]) -> String {
        let root = tree(&[("cpuset.cpus", "")]);
        let file = root.path().join("cpuset.cpus");
        let mut returning = new(&folder(root.path(), 1), (0..4).collect(), &Notes::default());
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
        for new in [CpusetReturn::ours as New, CpusetReturn::theirs] {
            let steps = [("0-7", "0-3"), ("0-1,4-7", "0-1")];
            assert_eq!(renewed(new, &steps), "0-1");
            assert_eq!(renewed(new, &[&steps[..], &[("0-2,4-7", "0-1")]].concat()), "0-2");
            assert_eq!(renewed(new, &[&steps[..], &[("0-7", "0-1")]].concat()), "0-3");
        }
    }

    #[test]
    fn what_the_owner_of_a_group_takes_out_stays_out() {
        assert_eq!(renewed(CpusetReturn::theirs, &[("0-7", "0-3"), ("0-7", "0-1")]), "0-1");
        // Given back once, and then taken out.
        let steps = [("0-2", "0-2"), ("0-3", "0-2"), ("0-3", "0-3"), ("0-3", "0-2")];
        assert_eq!(renewed(CpusetReturn::theirs, &steps), "0-2");
        // Taken out before it went offline.
        assert_eq!(renewed(CpusetReturn::theirs, &[("0-3", "0-2"), ("0-2", "0-2"), ("0-3", "0-2")]), "0-2");
        // One of ours has only been offline between two looks.
        assert_eq!(renewed(CpusetReturn::ours, &[("0-7", "0-3"), ("0-7", "0-1")]), "0-3");
    }

    #[test]
    fn a_group_that_has_gone_or_has_other_cpus_gets_none_back() {
        let root = tree(&[("cpuset.cpus", "4-5")]);
        let notes = Notes::default();
        let mut returning = CpusetReturn::theirs(&folder(root.path(), 1), (0..4).collect(), &notes);
        assert_eq!((returning.renew(&(0..3).collect()), returning.has()), (None, &CpuList::default()));
        assert!(notes.problems()[0].contains("`4-5`: tasks may use CPUs 4-5"), "{:?}", notes.problems());
        fs::remove_file(root.path().join("cpuset.cpus")).unwrap();
        assert_eq!(returning.renew(&(0..3).collect()), None);
    }

    #[test]
    fn cpus_that_a_cpuset_of_version_2_has_too_many_or_too_few_are_told() {
        let root = tree(&[("cpuset.cpus", "0-3\n"), ("cpuset.cpus.effective", "0-3\n")]);
        let (notes, online) = (Notes::default(), (0..4).collect());
        let mut returning = CpusetReturn::ours(&folder(root.path(), 2), (0..4).collect(), &notes);
        let mut look = |effective: &str, online: &CpuList| {
            fs::write(root.path().join("cpuset.cpus.effective"), effective).unwrap();
            (returning.renew(online), notes.problems().len())
        };
        assert_eq!(look("0-3\n", &online), (Some(false), 0));
        // CPU 3 goes offline and comes back, a little before the kernel puts it back.
        assert_eq!(look("0-2\n", &(0..3).collect()), (Some(false), 0));
        assert_eq!(look("0-2\n", &online), (Some(false), 0));
        assert_eq!(look("0-3\n", &online), (Some(false), 0));
        // The group above loses one.
        assert_eq!(look("0-2\n", &online), (Some(false), 0));
        assert_eq!(look("0-2\n", &online), (Some(false), 1));
        assert_eq!(look("0-5\n", &online), (None, 2));
        assert!(notes.problems()[1].contains("tasks may use CPUs 4-5"), "{:?}", notes.problems());
        assert_eq!(
            fs::read_to_string(root.path().join("cpuset.cpus")).unwrap(),
            "0-3\n",
            "it is only looked at"
        );
    }

    #[test]
    fn a_cpuset_that_its_owner_changes_and_changes_back_is_looked_after_all_the_time() {
        let root = tree(&[("cpuset.cpus", "0-3"), ("cgroup.procs", ""), ("online", "0-7")]);
        let write = |has: &str| fs::write(root.path().join("cpuset.cpus"), has).unwrap();
        let notes = Notes::default();
        let returning = CpusetReturn::theirs(&folder(root.path(), 1), (0..4).collect(), &notes);
        let host = crate::host::testing::host();
        let tasks = CpusetRepair::new(&host.roots.proc, &host.cgroups.hierarchies[0], root.path());
        let _thread = returning.start(root.path().join("online"), tasks).unwrap();
        for other in ["0-5", "0-6"] {
            write(other);
            let told = || notes.problems().iter().any(|problem| problem.contains(&format!("`{other}`")));
            crate::cgroup::testing::wait_until(told);
            write("0-3");
        }
    }
}

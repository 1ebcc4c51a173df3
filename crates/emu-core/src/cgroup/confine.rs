//! Keeping a zone's tasks on its CPUs, by a cpuset or by their affinity.

use std::collections::HashSet;
use std::path::Path;

use crate::control_file;
use crate::cpu_list::CpuList;
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::host::{Controller, Host};
use crate::process::{Stat, is_gone, is_owned, threads};
use crate::sys::Pid;
use crate::sys::{affinity, time};
use crate::undo::{Journal, TaskSet, Undo};
use crate::zone::Zone;

pub(crate) const CPUS: &str = "cpuset.cpus";
const CPUS_EFFECTIVE: &str = "cpuset.cpus.effective";
const MEMS: &str = "cpuset.mems";

/// The first Linux version that restores a task's affinity when it leaves a cpuset ("sched: Always preserve the user requested
/// cpumask").
const KEEPS_AFFINITY: (u32, u32) = (6, 2);

pub(crate) fn keeps_affinity(host: &Host) -> bool {
    host.kernel_version() >= Some(KEEPS_AFFINITY)
}

/// Whether tasks could run on CPUs outside the zone, now or after one comes online.
pub(crate) fn is_needed(host: &Host, zone: &Zone) -> bool {
    let zone = zone.demand.cpus();
    host.cpus.iter().any(|cpu| !zone.contains(cpu.id))
}

/// Whether they could now. The kernel reports only the online CPUs of an affinity: offline ones cannot be excluded and
/// restored.
pub(crate) fn is_needed_now(host: &Host, zone: &Zone) -> bool {
    !host.online().difference(&zone.demand.cpus()).is_empty()
}

/// Gives a new group the CPUs. On version 1 it also needs memory nodes before a task can join.
pub(crate) fn set(folder: &Path, version: u8, cpus: &CpuList) -> Result<()> {
    if version == 1 {
        let above = folder.parent().unwrap_or(folder).join(MEMS);
        control_file::write(&folder.join(MEMS), &control_file::read(&above)?)?;
    }
    control_file::write(&folder.join(CPUS), &cpus.to_string()).map_err(not_all)?;
    check(folder, version, cpus)
}

/// Gives an existing group the CPUs until the session ends.
pub(crate) fn set_in_place(folder: &Path, version: u8, cpus: &CpuList, journal: &Journal) -> Result<()> {
    journal.write_file(&folder.join(CPUS), &cpus.to_string()).map_err(not_all)?;
    check(folder, version, cpus)
}

fn not_all(error: Error) -> Error {
    error.hint(Hint::from("give the cgroup above all CPUs of the zone").or(Hint::OtherCpus))
}

pub(crate) fn in_force(version: u8) -> &'static str {
    if version == 2 { CPUS_EFFECTIVE } else { CPUS }
}

/// Version 2 accepts CPUs that the parent group lacks, and ignores them.
fn check(folder: &Path, version: u8, cpus: &CpuList) -> Result<()> {
    let file = folder.join(in_force(version));
    let got = control_file::read(&file)?;
    if CpuList::from_kernel(&got).as_ref() == Some(cpus) {
        return Ok(());
    }
    Err(not_all(Error::unavailable(format!("{} is `{got}` and not `{cpus}`", file.display()))))
}

/// Records the affinity of a process's threads where leaving a cpuset would not restore it.
pub(crate) fn remember(host: &Host, pid: Pid, journal: &Journal) -> Result<()> {
    if keeps_affinity(host) {
        return Ok(());
    }
    let online = host.online();
    for tid in threads(&host.roots.proc, pid) {
        // The thread has ended.
        let Ok(old) = affinity::get(tid) else { continue };
        if !online.difference(&old).is_empty() {
            // The cpuset of the group changes the affinity, so any value counts as ours.
            record(&host.roots.proc, tid, [old, CpuList::default()], journal)?;
        }
    }
    Ok(())
}

fn record(proc: &Path, tid: Pid, [cpus, ours]: [CpuList; 2], journal: &Journal) -> Result<()> {
    match Stat::read(proc, tid) {
        Some(stat) => journal.record(&Undo::Affinity { tid, starttime: stat.starttime, cpus, ours }),
        None if is_gone(tid) => Ok(()),
        None => Err(Error::unavailable(format!(
            "cannot read when task {tid} began, without which its CPUs could not be put back"
        ))),
    }
}

/// Binds all threads of the processes to the CPUs by their affinity. Their new threads inherit it, but may change it; at the
/// end those that have inherited it are searched for in `task_sets`. `list` lists the processes again for each pass.
pub(crate) fn bind(
    proc: &Path,
    cpus: &CpuList,
    journal: &Journal,
    task_sets: &[TaskSet],
    mut list: impl FnMut() -> Result<Vec<Pid>>,
) -> Result<()> {
    // A child that is born bound within this tick is to be found, too. An older task of the same tick that has chosen just
    // these CPUs would be taken for one, which is rare.
    let since = time::user_ticks().saturating_sub(1);
    let mut binder = Binder { proc, cpus, journal, task_sets, since, made: HashSet::new() };
    let mut bound = HashSet::new();
    for _ in 0..super::folder::PASSES {
        let found: Vec<Pid> = list()?.into_iter().flat_map(|pid| threads(proc, pid)).collect();
        let mut new = false;
        for tid in found {
            if bound.insert(tid) {
                new |= binder.bind(tid)?;
            }
        }
        if !new {
            return Ok(());
        }
    }
    Err(Error::unavailable("cannot bind the tasks to the zone's CPUs: new ones keep coming")
        .hint(Hint::StartInZone))
}

struct Binder<'a> {
    proc: &'a Path,
    cpus: &'a CpuList,
    journal: &'a Journal,
    task_sets: &'a [TaskSet],
    /// The beginning, in clock ticks since boot.
    since: u64,
    /// The bindings so far: from which CPUs to which.
    made: HashSet<[CpuList; 2]>,
}

impl Binder<'_> {
    /// Returns whether the thread had to be bound.
    fn bind(&mut self, tid: Pid) -> Result<bool> {
        let cpus = self.cpus;
        let is_gone = |error: &std::io::Error| error.raw_os_error() == Some(libc::ESRCH);
        let old = match affinity::get(tid) {
            Ok(old) => old,
            Err(error) if is_gone(&error) => return Ok(false),
            Err(error) => return Err(Error::io(format!("cannot read the affinity of task {tid}"), error)),
        };
        if old.difference(cpus).is_empty() {
            return Ok(false);
        }
        if !is_owned(self.proc, tid) {
            return Err(Error::not_permitted(format!(
                "task {tid} is another user's, whom emu does not act for"
            ))
            .hint("be that user, or root"));
        }
        // CPUs that the program has chosen itself stay, as far as they lie in the zone.
        let kept = old.intersection(cpus);
        let new = if kept.is_empty() { cpus.clone() } else { kept };
        let binding = [old, new.clone()];
        if self.made.insert(binding.clone()) {
            for tasks in self.task_sets {
                let (tasks, since, [cpus, ours]) = (tasks.clone(), self.since, binding.clone());
                self.journal.record(&Undo::Inherited { tasks, since, cpus, ours })?;
            }
        }
        record(self.proc, tid, binding, self.journal)?;
        match affinity::set(tid, &new) {
            Ok(()) => Ok(true),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => {
                let is_outside = error.raw_os_error() == Some(libc::EINVAL);
                let failed = Error::io(format!("cannot bind task {tid} to CPUs {new}"), error);
                Err(if is_outside {
                    failed.with_kind(ErrorKind::Unavailable).hint(Hint::OtherCpus.or(
                        "give its cpuset one of them: Cpus_allowed_list in its /proc/PID/status has what it may use",
                    ))
                } else {
                    failed
                })
            }
        }
    }
}

pub(crate) fn is_cpuset(folder: &Path) -> bool {
    folder.join(CPUS).exists()
}

pub(crate) const CONTROLLER: Controller = Controller::Cpuset;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::cpufreq::simulated;
    use crate::host::testing;
    use crate::speed::Target;
    use crate::zone::{Demand, Tasks};

    #[test]
    fn a_task_without_a_record_is_not_bound() {
        let dir = tempfile::tempdir().unwrap();
        let (_, journal) = simulated::journal(dir.path());
        let own = std::process::id() as Pid;
        let record = |tid| record(dir.path(), tid, [CpuList::default(), CpuList::default()], &journal);
        assert!(record(own).unwrap_err().to_string().contains("could not be put back"));
        record(Pid::MAX).unwrap();
    }

    #[test]
    fn a_cpu_that_is_offline_yet_counts_as_a_way_out() {
        let mut host = testing::host();
        let all: Vec<_> = host.cpus.iter().map(|cpu| cpu.id).collect();
        let zone = |cpus: &[usize]| {
            let targets = cpus.iter().map(|&cpu| (cpu, Target { share: 0.5, clock: None })).collect();
            Zone {
                name: String::new(),
                demand: Demand::new(targets),
                tasks: Tasks::Processes(vec![1]),
                is_new: true,
                memory: None,
            }
        };
        assert!(!is_needed(&host, &zone(&all)) && is_needed_now(&host, &zone(&all[1..])));
        host.cpus[0].online = false;
        assert!(is_needed(&host, &zone(&all[1..])) && !is_needed_now(&host, &zone(&all[1..])));
    }

    /// All CPUs, and the first and the last of them; prints that the test is skipped where there is
    /// one only.
    fn two_cpus() -> Option<(CpuList, [CpuList; 2])> {
        let all = affinity::get(0).unwrap();
        let two = [all.first(), all.iter().last()].map(|cpu| cpu.into_iter().collect::<CpuList>());
        if two[0] == two[1] {
            crate::testing::skip("there is one CPU only");
            return None;
        }
        Some((all, two))
    }

    /// A shell that starts children on command.
    struct Shell(Child);

    impl Shell {
        fn start(script: &str) -> Self {
            let shell =
                Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).process_group(0).spawn();
            Self(shell.unwrap())
        }

        fn pid(&self) -> Pid {
            self.0.id() as Pid
        }

        fn tell(&mut self) {
            self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        }

        /// Its children that run `sleep`.
        fn sleepers(&self, count: usize) -> Vec<Pid> {
            let path = format!("/proc/{0}/task/{0}/children", self.pid());
            let deadline = Instant::now() + Duration::from_secs(10);
            loop {
                let text = std::fs::read_to_string(&path).unwrap();
                let mut pids: Vec<Pid> = text.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
                let is_asleep = |pid: &Pid| {
                    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
                };
                pids.retain(is_asleep);
                if pids.len() == count {
                    return pids;
                }
                assert!(Instant::now() < deadline, "{pids:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            let group = rustix::process::Pid::from_child(&self.0);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = self.0.wait();
        }
    }

    #[test]
    fn tasks_born_while_bound_are_freed_but_not_self_bound_ones() {
        let Some((all, [one, other])) = two_cpus() else { return };
        let bound = |pid| affinity::get(pid).unwrap();
        let dir = tempfile::tempdir().unwrap();
        for by_list in [false, true] {
            let (roots, journal) = simulated::journal(dir.path());
            // The second child binds itself; the third bound itself to the zone's CPU before there
            // was a zone. The fourth loses its parent.
            let orphan = dir.path().join("orphan");
            let mut shell = Shell::start(&format!(
                "taskset -c {one} sleep 60 & read a; sleep 60 & taskset -c {other} sleep 60 & \
                 (sleep 60 & echo $! >{}); read a",
                orphan.display()
            ));
            let early = shell.sleepers(1);
            // Later than the children's start times, which count in ticks.
            std::thread::sleep(Duration::from_millis(30));
            let pid = shell.pid();
            let list = roots.sys.join("cgroup.procs");
            let starttime = Stat::read(&roots.proc, pid).unwrap().starttime;
            let tasks = if by_list {
                TaskSet::Members(list.clone())
            } else {
                TaskSet::DescendantsOf { pid, starttime }
            };
            bind(&roots.proc, &one, &journal, &[tasks], || Ok(vec![pid, early[0]])).unwrap();
            assert_eq!(bound(pid), one);
            // Its children are born within the same tick, as those of a program that begins.
            shell.tell();
            let late: Vec<_> = shell.sleepers(3).into_iter().filter(|pid| !early.contains(pid)).collect();
            assert_eq!([late[0], late[1]].map(bound), [one.clone(), other.clone()]);
            let orphan: Pid = std::fs::read_to_string(orphan).unwrap().trim().parse().unwrap();
            let of_another = Shell::start(&format!("exec taskset -c {one} sleep 60"));
            crate::testing::wait_until(|| bound(of_another.pid()) == one);
            let members: Vec<_> =
                late.iter().chain(&early).chain([&pid, &orphan]).map(Pid::to_string).collect();
            std::fs::write(list, members.join("\n")).unwrap();
            journal.undo_all().unwrap();
            assert_eq!([pid, late[0], orphan].map(bound), [(); 3].map(|()| all.clone()), "{by_list}");
            assert_eq!(bound(of_another.pid()), one);
            assert_eq!([early[0], late[1]].map(bound), [one.clone(), other.clone()], "{by_list}");
            assert_eq!(journal.notes(), Vec::<String>::new());
        }
    }

    #[test]
    fn a_task_that_changes_its_affinity_while_bound_keeps_it() {
        let Some((_, [one, other])) = two_cpus() else { return };
        let dir = tempfile::tempdir().unwrap();
        let (roots, journal) = simulated::journal(dir.path());
        let [chosen, dead] = [Shell::start("read a"), Shell::start("read a")];
        bind(&roots.proc, &one, &journal, &[], || Ok(vec![chosen.pid(), dead.pid()])).unwrap();
        affinity::set(chosen.pid(), &other).unwrap();
        affinity::set(dead.pid(), &other).unwrap();
        drop(dead);
        journal.undo_all().unwrap();
        assert_eq!(affinity::get(chosen.pid()).unwrap(), other);
        let notes = journal.notes();
        assert!(notes.len() == 1 && notes[0].contains(&chosen.pid().to_string()), "{notes:?}");
    }
}

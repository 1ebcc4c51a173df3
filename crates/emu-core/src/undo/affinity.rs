//! Undoing changes to the CPU affinity of tasks and of their later children. Nothing here allocates.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::fs::{OFlags, RawDir};
use rustix::io::Errno;
use rustix::thread::{Timespec, nanosleep};

use super::field::Field;
use super::peers::Peers;
use super::places::{Cause, Places, each_number, of_process, open_below};
use super::record::{Step, Task, TaskSetField};
use super::task;
use super::undoer::Undoer;
use crate::cpu_list::{CPU_ID_MAX, CpuId};
use crate::process::{self, FORK, Stat};
use crate::sys::Pid;
use crate::sys::affinity::Mask;

/// How many times tasks are searched: new ones may be created during each search.
const LOOKS: u32 = 100;
/// The process to which orphans are given.
const INIT: Pid = 1;
/// The largest number of ancestors that are followed.
const GENERATIONS: u32 = 64;

struct Binding<'a> {
    proc: BorrowedFd<'a>,
    peers: Option<Peers<'a>>,
    cpus: Mask,
    /// As the kernel reports it: without offline CPUs.
    ours: Mask,
    /// Only tasks that started later have inherited it.
    since: u64,
}

impl<'a> Undoer<'a, '_> {
    pub(super) fn restore_affinity(&mut self, task: Task, cpus: Field<'_>, ours: Option<Field<'_>>) -> bool {
        let restored = self.restore_one(task, cpus, ours);
        match restored {
            Ok(true) | Err(Errno::SRCH | Errno::NOENT) => true,
            Ok(false) => self.note(format_args!(
                "left the CPUs of task {}: it has been bound anew since; it was on CPUs {cpus} before",
                task.pid
            )),
            Err(cause) => {
                self.failed(format_args!("cannot let task {} run on CPUs {cpus}: {}", task.pid, Cause(cause)))
            }
        }
    }

    /// Undoes the change of one task; false where another program has changed the affinity since.
    fn restore_one(&self, task: Task, cpus: Field<'_>, ours: Option<Field<'_>>) -> rustix::io::Result<bool> {
        let (proc, cpus) = (self.places.proc(), parse_cpus(cpus).unwrap_or_default());
        if !task::is_same(proc, task)? {
            return Ok(true);
        }
        if !task::is_ours(proc, task.pid)? {
            return Err(Errno::PERM);
        }
        if let Some(ours) = ours.and_then(parse_cpus) {
            let (now, online) = (Mask::get(task.pid)?, online(self.places));
            if now != ours && now != both(ours, online.as_ref()) {
                return Ok(both(cpus.clone(), online.as_ref()) == now.intersection(&cpus));
            }
            if self.peers.is_some_and(|peers| is_kept(peers, (task.pid, task), &now)) {
                return Ok(true);
            }
        }
        cpus.set(task.pid)?;
        Ok(true)
    }

    /// Restores what the threads of these processes have inherited.
    pub(super) fn restore_processes(&mut self, processes: &[Pid], since: u64, [cpus, ours]: [Field<'_>; 2]) {
        let binding = self.binding(since, [cpus, ours]);
        for &pid in processes {
            match binding.take_from(pid) {
                Ok(_) | Err(Errno::NOENT | Errno::SRCH) => {}
                Err(cause) => {
                    let cause = Cause(cause);
                    self.failed(format_args!("cannot let process {pid} run on CPUs {cpus}: {cause}"));
                }
            }
        }
    }

    fn binding(&self, since: u64, lists: [Field<'_>; 2]) -> Binding<'a> {
        let [cpus, ours] = lists.map(|list| parse_cpus(list).unwrap_or_default());
        let ours = both(ours, online(self.places).as_ref());
        Binding { proc: self.places.proc(), peers: self.peers, cpus, ours, since }
    }

    pub(super) fn restore_inherited(
        &mut self,
        tasks: TaskSetField<'_>,
        since: u64,
        [cpus, ours]: [Field<'_>; 2],
    ) -> bool {
        let (cpus_text, ours_text) = (cpus, ours);
        let binding = self.binding(since, [cpus, ours]);
        let proc = self.places.proc();
        let mut is_last = false;
        for _ in 0..LOOKS {
            let (mut any, mut found, mut refused) = (false, false, None);
            let mut restore = |pid: Pid| {
                any = true;
                match binding.take_from(pid) {
                    Ok(had_it) => found |= had_it,
                    Err(Errno::NOENT | Errno::SRCH) => {}
                    Err(cause) => refused = Some((pid, cause)),
                }
                Ok(())
            };
            let looked = match tasks {
                TaskSetField::All => each_entry(proc, c".", restore),
                TaskSetField::Members(path) => {
                    let Some(members) = self.places.locate(path) else { return false };
                    members.open(OFlags::RDONLY).and_then(|list| each_number(&list, restore))
                }
                TaskSetField::DescendantsOf(ancestor) => each_entry(proc, c".", |pid| {
                    if descends(proc, pid, ancestor, since) { restore(pid) } else { Ok(()) }
                }),
            };
            match (looked, refused) {
                // The group above a threaded one has its processes.
                (Err(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP), _) => return true,
                (Err(cause), _) => {
                    return self.failed(format_args!("cannot look for bound tasks: {}", Cause(cause)));
                }
                // Of all tasks, those of other users were never ours to bind; one that was ours may have become another's.
                (Ok(()), Some((pid, Errno::PERM))) if !found && matches!(tasks, TaskSetField::All) => {
                    return self.note(format_args!(
                        "left the CPUs of process {pid}, which is another user's: it is kept to CPUs {ours_text}"
                    ));
                }
                (Ok(()), Some((pid, cause))) => {
                    let cause = Cause(cause);
                    return self.failed(format_args!(
                        "cannot let the tasks of process {pid} run on CPUs {cpus_text}: {cause}"
                    ));
                }
                (Ok(()), None) if !found && (is_last || !any) => return true,
                (Ok(()), None) => {
                    is_last = !found;
                    if is_last {
                        let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: FORK });
                    }
                }
            }
        }
        self.failed(format_args!("cannot let all tasks run on CPUs {cpus_text}: new ones keep coming"))
    }
}

impl Binding<'_> {
    /// Returns whether a thread had the change, and has it no more.
    fn take_from(&self, process: Pid) -> rustix::io::Result<bool> {
        let (proc, mut found) = (self.proc, false);
        each_entry(proc, of_process(process, "task").as_c_str(), |tid| {
            let may_have_it = |stat: &Stat| stat.starttime > self.since && !stat.is_kernel;
            let now = match Mask::get(tid) {
                Err(Errno::SRCH) => return Ok(()),
                now => now?,
            };
            if now == self.ours
                && self.cpus != self.ours
                && let Some(Stat { starttime, .. }) = task::stat(proc, tid)?.filter(may_have_it)
            {
                let task = Task { pid: tid, starttime };
                if self.peers.is_some_and(|peers| is_kept(peers, (process, task), &now)) {
                    return Ok(());
                }
                if !task::is_ours(proc, tid)? {
                    return Err(Errno::PERM);
                }
                match self.cpus.set(tid) {
                    // In a cpuset without the other CPUs it is told as before, and has them once it leaves.
                    Ok(()) => found |= Mask::get(tid).is_ok_and(|now| now != self.ours),
                    Err(Errno::SRCH) => {}
                    Err(cause) => return Err(cause),
                }
            }
            Ok(())
        })?;
        Ok(found)
    }
}

fn online(places: &Places) -> Option<Mask> {
    let mut buffer = [0; 4096];
    parse_cpus(places.sys_file("devices/system/cpu/online")?.read(&mut buffer).ok()?.into())
}

/// Whether another live session has bound a task of `process` to the CPUs that it has, and puts it back at its own end. What
/// keeps all of the host off some CPUs binds no task of a zone.
fn is_kept(peers: Peers<'_>, (process, task): (Pid, Task), now: &Mask) -> bool {
    let (proc, online) = (peers.places.proc(), online(peers.places));
    let is_now = |ours: Field<'_>| parse_cpus(ours).is_some_and(|ours| both(ours, online.as_ref()) == *now);
    peers.any_step(&mut |step, _| {
        let is_it = match step {
            Step::Affinity { task: bound, ours: Some(ours), .. } => bound == task && is_now(ours),
            Step::Inherited { tasks, since, ours, .. } if task.starttime > since && is_now(ours) => {
                match tasks {
                    TaskSetField::All => false,
                    TaskSetField::Members(path) => peers.places.locate(path).is_some_and(|members| {
                        let mut is_listed = false;
                        let listed = members.open(OFlags::RDONLY).and_then(|list| {
                            each_number(&list, |pid| {
                                is_listed |= pid == process;
                                Ok(())
                            })
                        });
                        listed.is_ok() && is_listed
                    }),
                    TaskSetField::DescendantsOf(ancestor) => descends(proc, process, ancestor, since),
                }
            }
            _ => false,
        };
        is_it.then_some(true)
    })
}

fn each_entry(
    proc: BorrowedFd<'_>,
    folder: &CStr,
    mut each: impl FnMut(Pid) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    let folder = open_below(proc, folder, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&folder, &mut buffer);
    while let Some(entry) = entries.next() {
        if let Some(number) = Field::from(entry?.file_name().to_bytes()).number() {
            each(number)?;
        }
    }
    Ok(())
}

/// Whether a process is `ancestor` or descends from it, also where processes in between have ended. Then it has been given
/// to init, to the emu that adopts, or to another reaper. Such a one is a process of this user, of those that began after
/// `since`; another reaper is older, and of another session. The children of an older shell are of its session.
fn descends(proc: BorrowedFd<'_>, process: Pid, ancestor: Task, since: u64) -> bool {
    let (mut pid, mut child) = (process, None::<Stat>);
    for _ in 0..GENERATIONS {
        let Ok(Some(stat)) = task::stat(proc, pid) else { return false };
        if pid == ancestor.pid && stat.starttime == ancestor.starttime {
            return true;
        }
        // Emu may be so young that it began in the same clock tick.
        let adopts = process::adopter() == Some(pid);
        if adopts || stat.starttime <= since {
            let is_reaper = |child: Stat| adopts || pid == INIT || child.session != stat.session;
            return child.is_some_and(is_reaper) && task::is_ours(proc, process).unwrap_or(false);
        }
        (pid, child) = (stat.parent, Some(stat));
    }
    false
}

fn both(cpus: Mask, others: Option<&Mask>) -> Mask {
    match others {
        Some(others) => cpus.intersection(others),
        None => cpus,
    }
}

pub(super) fn are_cpus(lists: [Field<'_>; 2]) -> Result<(), &'static str> {
    if lists.iter().all(|list| parse_cpus(*list).is_some()) { Ok(()) } else { Err("it is no list of CPUs") }
}

fn parse_cpus(text: Field<'_>) -> Option<Mask> {
    let mut mask = Mask::default();
    let (mut first, mut number) = (None, None::<CpuId>);
    for byte in text.bytes().chain([b',']) {
        match byte {
            b'0'..=b'9' => {
                let value = number.unwrap_or(0) * 10 + CpuId::from(byte - b'0');
                number = Some(value).filter(|&cpu| cpu <= CPU_ID_MAX);
                number?;
            }
            b'-' if first.is_none() => first = Some(number.take()?),
            b',' => {
                let last = number.take()?;
                let first = first.take().unwrap_or(last);
                if first > last {
                    return None;
                }
                (first..=last).for_each(|cpu| mask.insert(cpu));
            }
            _ => return None,
        }
    }
    Some(mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read_as_the_kernel_writes_them() {
        let read = |list: &str| parse_cpus(list.as_bytes().into()).map(|mask| mask.list().to_string());
        for list in ["0", "0-3,8", "1023-1024,8191", "5,7,9-11"] {
            assert_eq!(read(list).as_deref(), Some(list));
        }
        for list in ["", ",", "1,", "3-1", "1-", "-1", "1-2-3", "a", "8192", "18446744073709551616"] {
            assert_eq!(read(list), None, "{list}");
        }
    }
}

//! Undoing groups of tasks: emptying and removing them, returning and continuing their tasks. Nothing here allocates.
//! Lists of tasks change while they are read, as tasks fork and exit: each is read until nothing is left to do.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{AtFlags, FileType, OFlags, RawDir, unlinkat};
use rustix::io::Errno;
use rustix::process::Signal;

use super::field::Field;
use super::places::{Cause, Located, each_number, open_below, write_once};
use super::record::Task;
use super::task;
use super::undoer::{PATIENCE, Undoer, pause};
use crate::sys::Pid;
use crate::sys::signal;
use crate::sys::time::user_ticks;

/// The files of a group that list its tasks. A PID written to one of them joins the group.
pub(super) const MEMBER_FILES: [&[u8]; 3] = [b"cgroup.procs", b"cgroup.threads", b"tasks"];

pub(super) fn is_member_file(name: &[u8]) -> bool {
    MEMBER_FILES.contains(&name)
}

/// Groups within groups that are removed with an outer one: each takes its buffer on the stack.
const DEPTH_MAX: usize = 16;

fn join(members: &OwnedFd, pid: Pid) -> rustix::io::Result<()> {
    let mut text = super::places::FixedText::new();
    // Ten digits always fit.
    let _ = std::fmt::Write::write_fmt(&mut text, format_args!("{pid}"));
    write_once(members, text.as_bytes())
}

/// Moves every task that the group's file lists; returns the last refused one and the reason.
fn move_members(
    group: BorrowedFd<'_>,
    list: &std::ffi::CStr,
    to: &OwnedFd,
) -> rustix::io::Result<Option<(Pid, Errno)>> {
    let mut refused = None;
    let list = open_below(group, list, OFlags::RDONLY)?;
    each_number(&list, |pid| {
        // A task outside our PID namespace is listed as 0; writing that would move this process itself.
        if pid > 0 {
            match join(to, pid) {
                // The task has ended.
                Ok(()) | Err(Errno::SRCH) => {}
                Err(cause) => refused = Some((pid, cause)),
            }
        }
        Ok(())
    })?;
    Ok(refused)
}

impl Undoer<'_, '_> {
    pub(super) fn dissolve(&mut self, path: Field<'_>, members: Field<'_>, return_to: Field<'_>) -> bool {
        let places = self.places;
        let (Some(group), Some(target)) = (places.locate(path), places.locate(return_to)) else {
            return false;
        };
        let deadline = Instant::now() + PATIENCE;
        let mut open = None;
        let mut refused = None;
        // A group that is removed keeps its real-time time for a while, so that the next one would get none: it is given back.
        let give_back = || group.join(b"cpu.rt_runtime_us")?.write(b"0");
        loop {
            let _ = give_back();
            // The kernel removes a group only when no task is in it, which is the only proof.
            let busy = match group.remove_folder() {
                Ok(()) | Err(Errno::NOENT) => return true,
                Err(cause) => cause,
            };
            if open.is_none() {
                open = match self.open_both(&group, &target, return_to) {
                    Ok(open) => open,
                    Err(cause) => {
                        return self.failed(format_args!("cannot empty the group {path}: {}", Cause(cause)));
                    }
                };
                if open.is_none() {
                    return true;
                }
            }
            if let Some((folder, to)) = &open {
                // Nested groups that its tasks have made. Which of them stay does not matter: they are there in the
                // next round, too.
                let _ = remove_inner(folder.as_fd(), members, to, DEPTH_MAX);
                refused = empty(folder.as_fd(), members, to).unwrap_or(refused);
            }
            if !matches!(busy, Errno::BUSY | Errno::NOTEMPTY) || Instant::now() > deadline {
                if let Some((pid, cause)) = refused {
                    let cause = Cause(cause);
                    self.failed(format_args!("cannot move task {pid} of {path} to {return_to}: {cause}"));
                }
                return self.failed(format_args!("cannot remove the group {path}: {}", Cause(busy)));
            }
            pause();
        }
    }

    /// The group's folder, and the file that takes its tasks: that of the parent if the recorded one is gone.
    fn open_both(
        &mut self,
        group: &Located<'_>,
        target: &Located<'_>,
        return_to: Field<'_>,
    ) -> rustix::io::Result<Option<(OwnedFd, OwnedFd)>> {
        let folder = match group.open(OFlags::PATH | OFlags::DIRECTORY) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(None),
            Err(cause) => return Err(cause),
        };
        let to = match target.open(OFlags::WRONLY) {
            Err(Errno::NOENT | Errno::NODEV) => {
                self.note(format_args!("{return_to} is gone: its tasks go to the group above"));
                group.parent().join(target.path.name())?.open(OFlags::WRONLY)?
            }
            to => to?,
        };
        Ok(Some((folder, to)))
    }

    pub(super) fn return_task(&mut self, task: Task, path: Field<'_>) -> bool {
        let Some(members) = self.places.locate(path) else { return false };
        let pid = task.pid;
        let moved = match task::is_same(self.places.proc(), task) {
            Ok(true) => members.open(OFlags::WRONLY).and_then(|members| join(&members, pid)),
            Ok(false) => Ok(()),
            Err(cause) => Err(cause),
        };
        match moved {
            Ok(()) | Err(Errno::SRCH) => true,
            Err(Errno::NOENT | Errno::NODEV) => {
                self.note(format_args!("task {pid} does not return to {path}: that group is gone"))
            }
            Err(cause) => self.failed(format_args!("cannot return task {pid} to {path}: {}", Cause(cause))),
        }
    }

    pub(super) fn continue_all(&mut self, path: Field<'_>) -> bool {
        let Some(members) = self.places.locate(path) else { return false };
        let proc = self.places.proc();
        let begun = user_ticks();
        loop {
            let (mut unsettled, mut refused) = (false, None);
            let looked_at = user_ticks();
            let looked = members.open(OFlags::RDONLY).and_then(|list| {
                each_number(&list, |pid| {
                    match continue_member(proc, pid, looked_at) {
                        // emu cannot have stopped a process that started after this began.
                        Ok(Some(started)) => unsettled |= started <= begun,
                        Ok(None) => {}
                        Err(cause) => refused = Some((pid, Cause(cause))),
                    }
                    Ok(())
                })
            });
            match (looked, refused) {
                // A tick later, the start times tell which processes are older than the list.
                (Ok(()), None) if unsettled => pause(),
                (Ok(()), None) | (Err(Errno::NOENT | Errno::NODEV), _) => return true,
                (Ok(()), Some((pid, cause))) => {
                    return self.failed(format_args!("cannot continue process {pid} of {path}: {cause}"));
                }
                (Err(cause), _) => {
                    return self.failed(format_args!("cannot read {path}: {}", Cause(cause)));
                }
            }
        }
    }
}

/// Empties and removes the groups within a group, bottom up.
fn remove_inner(
    group: BorrowedFd<'_>,
    members: Field<'_>,
    to: &OwnedFd,
    depth: usize,
) -> rustix::io::Result<()> {
    let listed = open_below(group, c".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut buffer = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(&listed, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type() != FileType::Directory || matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let inner = open_below(group, name, OFlags::PATH | OFlags::DIRECTORY)?;
        if depth > 0 {
            remove_inner(inner.as_fd(), members, to, depth - 1)?;
        }
        let _ = empty(inner.as_fd(), members, to);
        match unlinkat(group, name, AtFlags::REMOVEDIR) {
            // Tasks that are just ending are gone in the next round.
            Ok(()) | Err(Errno::BUSY | Errno::NOTEMPTY | Errno::NOENT) => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

fn empty(
    group: BorrowedFd<'_>,
    members: Field<'_>,
    to: &OwnedFd,
) -> rustix::io::Result<Option<(Pid, Errno)>> {
    let refused = if members.is(b"cgroup.procs") {
        move_members(group, c"cgroup.procs", to)
    } else {
        Err(Errno::OPNOTSUPP)
    };
    // `cgroup.procs` of version 2 omits a process whose first thread has ended while others run, and cannot be read
    // in a threaded group (EOPNOTSUPP). The list of threads has all; a thread's number in `cgroup.procs` moves its
    // process.
    if let Ok(Some(refused)) = refused {
        return Ok(Some(refused));
    }
    match move_members(group, c"cgroup.threads", to) {
        Err(Errno::NOENT) => move_members(group, c"tasks", to),
        moved => moved,
    }
}

/// Continues one process of a list that was read at `looked_at`; returns its start time if it started later.
///
/// A process that started before is the listed one, because numbers in use are not given again. One that started
/// since may have the number of a dead one, so it waits for the next look.
fn continue_member(proc: BorrowedFd<'_>, pid: Pid, looked_at: u64) -> rustix::io::Result<Option<u64>> {
    let pidfd = match task::open_number(pid) {
        Ok(Some(pidfd)) => pidfd,
        // A thread has no pidfd of its own; its process is listed as well.
        Ok(None) | Err(Errno::INVAL | Errno::NOENT) => return Ok(None),
        Err(cause) => return Err(cause),
    };
    let Some(stat) = task::stat(proc, pid)? else { return Ok(None) };
    if stat.starttime >= looked_at {
        return Ok(Some(stat.starttime));
    }
    // Whatever its state is: a stop signal may be on its way to a process that still runs.
    match signal::send(pidfd.as_fd(), pid, Signal::CONT) {
        // emu cannot have stopped a process that it may not signal.
        Err(Errno::PERM) if stat.state != b'T' => Ok(None),
        Ok(()) | Err(Errno::SRCH) => Ok(None),
        Err(cause) => Err(cause),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::playground;
    use super::*;

    #[test]
    fn numbers_are_read_across_the_edges_of_the_buffer() {
        let numbers: Vec<Pid> = (99_000..101_500).collect();
        let text = numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let (_dir, roots) = playground();
        let path = roots.sys.join("tasks");
        for end in ["", "\n"] {
            fs::write(&path, format!("{text}{end}")).unwrap();
            let mut found = Vec::new();
            let file = fs::File::open(&path).unwrap().into();
            each_number(&file, |pid| {
                found.push(pid);
                Ok(())
            })
            .unwrap();
            assert_eq!(found, numbers);
        }
    }
}

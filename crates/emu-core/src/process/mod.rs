//! Processes as `/proc` shows them: state, threads, descendants, and which of them emu must not stop.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use nix::sys::signal::kill;

use crate::cpu_list::CpuId;
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::sys::Pid;
use crate::sys::time::{self, Nanos};

/// The fields of `/proc/<pid>/stat` that emu uses (`proc_pid_stat(5)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// `R`, `S`, `T` (stopped), `Z`, …
    pub(crate) state: u8,
    /// The parent: init or a subreaper for a child whose parent has ended.
    pub(crate) parent: Pid,
    /// This and the session are -1 of a task that is just ending.
    pub(crate) group: Pid,
    pub(crate) session: Pid,
    pub(crate) is_kernel: bool,
    /// CPU time of its threads, and of the children that it has waited for, in [`USER_TICK`](crate::sys::time::USER_TICK)s.
    pub(crate) used: u64,
    pub(crate) used_by_children: u64,
    /// The page faults of those children: each has some, however short it lived.
    pub(crate) faults_of_children: u64,
    pub(crate) threads: usize,
    /// The start in clock ticks since boot; distinguishes processes that had the same number.
    pub(crate) starttime: u64,
    /// Whether its end is told to its parent, as that of every child but those that emu makes for itself.
    pub(crate) tells_parent: bool,
    /// The CPU that it runs on, or ran on last.
    pub(crate) cpu: Option<CpuId>,
    /// The scheduling policy, as for `sched_setscheduler(2)`.
    pub(crate) policy: Option<i32>,
}

/// A scheduling policy that goes before the fair one (`sched(7)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelPolicy {
    /// `SCHED_FIFO` or `SCHED_RR`.
    RealTime,
    Deadline,
}

impl KernelPolicy {
    pub(crate) fn of(number: i32) -> Option<Self> {
        match number {
            libc::SCHED_FIFO | libc::SCHED_RR => Some(Self::RealTime),
            libc::SCHED_DEADLINE => Some(Self::Deadline),
            _ => None,
        }
    }
}

/// Longer than the line of `/proc/<pid>/stat` can be: a name of 64 bytes and 51 numbers of up to 20 digits.
pub(crate) const STAT_MAX: usize = 1200;

/// `PF_KTHREAD` of the flags in `/proc/<pid>/stat` (include/linux/sched.h).
pub(crate) const KERNEL_THREAD: u64 = 0x0020_0000;

impl Stat {
    /// Whether it is a child of this process that the program made, or an orphan that this process has adopted.
    fn is_child(&self) -> bool {
        self.parent == std::process::id() as Pid && self.tells_parent
    }

    /// Of a process whose first thread has exited, that one is left as a zombie while others run: it is counted among them.
    pub(crate) fn has_ended(&self) -> bool {
        self.state == b'X' || self.state == b'Z' && self.threads <= 1
    }

    pub(crate) fn read(proc: &Path, pid: Pid) -> Option<Self> {
        // One read has the whole line: the kernel makes it in one piece.
        let mut line = [0; STAT_MAX];
        let mut file = File::open(proc.join(pid.to_string()).join("stat")).ok()?;
        let length = file.read(&mut line).ok()?;
        Self::parse(line.get(..length)?)
    }

    /// Parses the line. The name is in parentheses and may contain any bytes, parentheses too. Allocates nothing, as an
    /// emulation is undone without.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let name_end = line.iter().rposition(|&byte| byte == b')')?;
        let rest = std::str::from_utf8(line.get(name_end + 1..)?).ok()?;
        let mut fields = [""; 50];
        fields.iter_mut().zip(rest.split_ascii_whitespace()).for_each(|(field, word)| *field = word);
        // The manual counts the state as field 3.
        let field = |number: usize| fields.get(number - 3).copied().filter(|field| !field.is_empty());
        let sum = |[one, other]: [&str; 2]| one.parse::<u64>().ok()?.checked_add(other.parse().ok()?);
        Some(Self {
            state: *field(3)?.as_bytes().first()?,
            parent: field(4)?.parse().ok()?,
            group: field(5)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            is_kernel: field(9)?.parse::<u64>().ok()? & KERNEL_THREAD != 0,
            used: sum([field(14)?, field(15)?])?,
            used_by_children: sum([field(16)?, field(17)?])?,
            faults_of_children: sum([field(11)?, field(13)?])?,
            threads: field(20)?.parse().ok()?,
            starttime: field(22)?.parse().ok()?,
            tells_parent: field(38).is_some_and(|signal| signal != "0"),
            cpu: field(39).and_then(|cpu| cpu.parse().ok()),
            policy: field(41).and_then(|policy| policy.parse().ok()),
        })
    }
}

/// A process and those that it descends from, the nearest first, as `proc` shows them.
pub fn line_of(proc: &Path, mut pid: Pid) -> Vec<Pid> {
    let mut line = Vec::new();
    while pid > 0 && !line.contains(&pid) {
        line.push(pid);
        pid = Stat::read(proc, pid).map_or(0, |stat| stat.parent);
    }
    line
}

/// Whether this process's user may change the task, as the kernel has it for users without capabilities
/// (`check_same_owner`, kernel/sched/syscalls.c): emu may have some (`setcap`) that the emu that undoes a change has
/// not. A task that has ended may be changed: nothing comes of it. One of which nothing can be read may not.
pub(crate) fn is_owned(proc: &Path, tid: Pid) -> bool {
    let own = nix::unistd::geteuid();
    if own.is_root() {
        return true;
    }
    match fs::read(proc.join(tid.to_string()).join("status")) {
        Ok(status) => has_user(&status, own.as_raw()).unwrap_or(false),
        Err(_) => is_gone(tid),
    }
}

/// Whether the kernel knows no task of this number.
pub(crate) fn is_gone(tid: Pid) -> bool {
    kill(nix::unistd::Pid::from_raw(tid), None) == Err(nix::errno::Errno::ESRCH)
}

/// Whether a task with this `/proc/<pid>/status` has the user as its real or effective one: the owner of the files
/// there is root for a process that must not be dumped. Allocates nothing, as an emulation is undone without.
pub(crate) fn has_user(status: &[u8], user: u32) -> Option<bool> {
    let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
    let mut ids = line.split(|&byte| byte == b'\t').filter(|id| !id.is_empty());
    let mut id = || std::str::from_utf8(ids.next()?).ok()?.parse::<u32>().ok();
    Some([id()?, id()?].contains(&user))
}

pub(crate) fn check_targets(proc: &Path, pids: impl IntoIterator<Item = Pid>) -> Result<()> {
    let own = std::process::id() as Pid;
    let own_line = line_of(proc, own);
    for pid in pids {
        let what = match pid {
            1 => "is init, on which everything depends",
            _ if pid == own => "is emu itself",
            _ if own_line.contains(&pid) => "is one that emu itself descends from",
            _ if Stat::read(proc, pid).is_some_and(|stat| stat.is_kernel) => "is a thread of the kernel",
            _ if !is_owned(proc, pid) => {
                let message = format!("process {pid} is another user's, whom emu does not act for");
                return Err(Error::not_permitted(message).hint("be that user, or root"));
            }
            _ => continue,
        };
        return Err(Error::usage(format!("cannot emulate a slower CPU for process {pid}: it {what}"))
            .hint(Hint::from("name the program's own process or cgroup").or(Hint::StartInZone)));
    }
    Ok(())
}

/// The process that is the parent of what its descendants leave behind, where this is that one or its guardian; else 0.
static ADOPTER: AtomicI32 = AtomicI32::new(0);

/// The parent of orphans: that process, and for its guardian, once it has ended, the one that has taken both over.
pub(crate) fn adopter() -> Option<Pid> {
    match ADOPTER.load(Ordering::Relaxed) {
        0 => None,
        own if own == std::process::id() as Pid => Some(own),
        _ => Some(nix::unistd::getppid().as_raw()),
    }
}

/// Makes this process the parent of descendants that lose theirs (`PR_SET_CHILD_SUBREAPER`, prctl(2)), so that a daemon does
/// not leave the zone of the command that has started it.
///
/// From then on every child of this process that is younger than the processes of a zone counts as theirs. It is for a
/// program that starts one command, and it has to wait for those children.
///
/// # Errors
/// The kernel refuses, as where a sandbox forbids the call.
pub fn adopt_orphans() -> Result<()> {
    nix::sys::prctl::set_child_subreaper(true)
        .map_err(|e| Error::io("cannot become the parent of what the command leaves behind", e.into()))?;
    ADOPTER.store(std::process::id() as Pid, Ordering::Relaxed);
    Ok(())
}

/// How often members are read again, in nanoseconds for each so many of them: they may have ended.
const LOOK_AT_MEMBERS: Nanos = 1_000_000_000;
const LOOKED_AT: usize = 64;

/// How often all other processes are read again, too: a number may have been given to another process. For that the
/// kernel must have come round to it, which shows unless it came all the way round between two looks.
const LOOK_AT_ALL: Nanos = 10_000_000_000;

/// Some processes and all their descendants: a process is a member when its parent is, or when it is in a process
/// group or session that a member has made. So an orphan is recognized, unless parent and child both appeared between
/// the same two looks *and* the child is in no member's group or session. Only a cgroup has no such gap.
#[derive(Debug)]
pub(crate) struct Descendants {
    proc: PathBuf,
    members: BTreeMap<Pid, Stat>,
    /// Numbers of members that may be process groups or sessions: kept after the member's end while they are in use.
    lines: HashSet<Pid>,
    /// Processes that are known not to be members.
    others: HashSet<Pid>,
    /// Whether they are what this process was told to adopt the orphans of, and not a process of emu's own.
    adopts: bool,
    /// When the first member started: older processes cannot be descendants.
    eldest: u64,
    /// The last process number that the kernel had given out before the last look, where all that have one were listed.
    last_pid: Option<Pid>,
    given_out: LastPid,
    next_of_members: Nanos,
    next_of_all: Nanos,
}

impl Descendants {
    pub(crate) fn of(proc: &Path, pids: &[Pid]) -> Result<Self> {
        let mut members = BTreeMap::new();
        for &pid in pids {
            let stat = Stat::read(proc, pid).filter(|stat| !stat.has_ended());
            let stat = stat.ok_or_else(|| Error::usage(format!("there is no process {pid}")))?;
            if process_of(proc, pid).is_some_and(|process| process != pid) {
                return Err(Error::usage(format!("{pid} is a thread, not a process"))
                    .hint("name its process; all threads go with it"));
            }
            members.insert(pid, stat);
        }
        let mut descendants = Self {
            proc: proc.to_owned(),
            adopts: adopter().is_some() && members.values().any(Stat::is_child),
            lines: members.keys().copied().collect(),
            eldest: members.values().map(|stat| stat.starttime).min().unwrap_or(0),
            members,
            others: HashSet::new(),
            last_pid: None,
            given_out: LastPid::of(proc),
            next_of_members: 0,
            next_of_all: 0,
        };
        descendants.look()?;
        Ok(descendants)
    }

    pub(crate) fn members(&self) -> &BTreeMap<Pid, Stat> {
        &self.members
    }

    /// Adds new members and drops those that have ended.
    pub(crate) fn look(&mut self) -> Result<()> {
        let (now, before) = (time::now(), self.given_out.seen);
        let last_pid = self.given_out.settled(now);
        let came_round = self.given_out.seen < before;
        let all = came_round || now >= self.next_of_all;
        let members = all || now >= self.next_of_members;
        // If no number has been given out since, there is no new process.
        if !members && last_pid.is_some() && last_pid == self.last_pid {
            return Ok(());
        }
        let alive: HashSet<Pid> = pids(&self.proc)?.into_iter().collect();
        self.members.retain(|pid, _| alive.contains(pid));
        self.others.retain(|pid| !all && alive.contains(pid));
        let mut strangers = Vec::new();
        for &pid in alive.difference(&self.others) {
            let known = self.members.get(&pid).map(|stat| stat.starttime);
            if known.is_some() && !members {
                continue;
            }
            match Stat::read(&self.proc, pid) {
                Some(stat) if known == Some(stat.starttime) => drop(self.members.insert(pid, stat)),
                Some(stat) => {
                    self.members.remove(&pid);
                    strangers.push((pid, stat));
                }
                None => drop(self.members.remove(&pid)),
            }
        }
        self.adopt(strangers);
        if members {
            let in_use: HashSet<Pid> =
                self.members.iter().flat_map(|(&pid, stat)| [pid, stat.group, stat.session]).collect();
            self.lines.retain(|line| in_use.contains(line));
            self.next_of_members = now + LOOK_AT_MEMBERS * (1 + self.members.len() / LOOKED_AT) as Nanos;
        }
        if all {
            self.next_of_all = now + LOOK_AT_ALL;
        }
        self.last_pid = last_pid;
        Ok(())
    }

    pub(crate) fn forget(&mut self, pid: Pid) {
        self.members.remove(&pid);
    }

    fn adopt(&mut self, mut strangers: Vec<(Pid, Stat)>) {
        let own = std::process::id() as Pid;
        loop {
            let before = strangers.len();
            strangers.retain(|(pid, stat)| {
                let related = self.members.contains_key(&stat.parent)
                    || self.adopts && stat.is_child()
                    || self.lines.contains(&stat.group)
                    || self.lines.contains(&stat.session);
                let belongs = related && stat.starttime >= self.eldest && *pid != own;
                if belongs {
                    self.members.insert(*pid, *stat);
                    self.lines.insert(*pid);
                }
                !belongs
            });
            if strangers.len() == before {
                break;
            }
        }
        self.others.extend(strangers.into_iter().map(|(pid, _)| pid));
    }
}

/// The numbers of the processes.
pub(crate) fn pids(proc: &Path) -> Result<Vec<Pid>> {
    let entries = fs::read_dir(proc).map_err(|e| Error::file("list", proc, e))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// The task whose `/proc/<tid>/cgroup` tells where a process is: not its first thread once that has ended, which stays where it
/// was on version 2, and is shown in the root group on version 1.
pub(crate) fn living_thread(proc: &Path, pid: Pid) -> Pid {
    let has_ended = |tid| Stat::read(proc, tid).is_some_and(|stat| matches!(stat.state, b'Z' | b'X'));
    if !has_ended(pid) {
        return pid;
    }
    threads(proc, pid).into_iter().find(|&tid| !has_ended(tid)).unwrap_or(pid)
}

/// The numbers of a process's threads; empty when it has ended.
pub(crate) fn threads(proc: &Path, pid: Pid) -> Vec<Pid> {
    pids(&proc.join(pid.to_string()).join("task")).unwrap_or_default()
}

/// The time of a task on CPUs and on run queues: the first two numbers of `/proc/<tid>/schedstat`
/// (Documentation/scheduler/sched-stats.rst). They are up to date for a task that is not running.
pub(crate) fn times_in_schedstat(text: &str) -> Option<(Nanos, Nanos)> {
    let mut numbers = text.split_ascii_whitespace();
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// What follows `name:` in `/proc/<tid>/status` (`proc_pid_status(5)`).
pub(crate) fn status_field(proc: &Path, tid: Pid, name: &str) -> Option<String> {
    let status = fs::read(proc.join(tid.to_string()).join("status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(value.trim().to_owned())
}

/// The process of a thread.
pub(crate) fn process_of(proc: &Path, tid: Pid) -> Option<Pid> {
    status_field(proc, tid, "Tgid")?.parse().ok()
}

/// The last process number given out in this PID namespace: the last field of `/proc/loadavg` (`proc_loadavg(5)`).
#[derive(Debug)]
pub(crate) struct LastPid {
    /// `None` where it is not believed.
    file: Option<PathBuf>,
    /// As it was read the last time, and since when it has been so.
    seen: Option<Pid>,
    since: Nanos,
}

/// How long a fork may be under way, in nanoseconds. The child has its number and the affinity that its parent had, and is
/// not listed yet (`copy_process`). That takes a millisecond at most, and a tick more where the parent is preempted in it.
pub(crate) const FORK: Nanos = 10_000_000;

impl LastPid {
    /// Believed where making a thread changes it: some file systems for containers show a file of their own.
    pub(crate) fn of(proc: &Path) -> Self {
        let believed = Self { file: Some(proc.join("loadavg")), seen: None, since: 0 };
        let before = believed.read();
        let made = thread::Builder::new().spawn(|| {}).is_ok_and(|thread| thread.join().is_ok());
        if made && believed.read() != before { believed } else { Self { file: None, ..believed } }
    }

    pub(crate) fn is_believed(&self) -> bool {
        self.file.is_some()
    }

    /// The number where every process that has one is listed by now; `None` while one may not be, or where it is not told.
    pub(crate) fn settled(&mut self, now: Nanos) -> Option<Pid> {
        let seen = self.read();
        if seen != self.seen {
            (self.seen, self.since) = (seen, now);
        }
        seen.filter(|_| now >= self.since + FORK)
    }

    pub(crate) fn read(&self) -> Option<Pid> {
        fs::read_to_string(self.file.as_ref()?).ok()?.split_ascii_whitespace().last()?.parse().ok()
    }
}

#[cfg(test)]
mod tests;

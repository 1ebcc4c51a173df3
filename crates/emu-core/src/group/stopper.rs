//! Stopping and continuing all processes of a zone.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::family::threads;
use super::members::{Member, Members, Sent};
use super::{PASSES, Stat};
use crate::Result;
use crate::duty::Notes;
use crate::duty::holder::{Held, Hold};
use crate::duty::sleepers::{Census, times_in_schedstat};
use crate::sys::time::{self, Nanos};
use crate::sys::times::process_cpu_time;
use crate::zone::Pid;

/// Up to so many processes, each is asked whether somebody else has stopped it before we do. With more, one of each
/// process group is, as job control stops whole groups: a look at a process costs as much as stopping it.
const ASK_EACH: usize = 32;

/// With more than [`ASK_EACH`] processes, their CPU time is looked at in every so manieth hold. Over fewer it could not be
/// told who sleeps and who waits for a turn.
const LOOK_EVERY: u64 = 16;

/// After this time a stop signal has acted, if a thread that runs was chosen to take it.
///
/// `SIGSTOP` to a process with several threads acts when one of them takes it, and the kernel may choose a sleeping
/// one, which first has to get a CPU, while the others compute on. Not looked at before: the kernel brings the CPU time
/// of a thread that runs up to date at each tick and when it leaves the CPU.
const IN_TIME: Nanos = 200_000;

/// A process that used so much CPU time after that was stopped late.
const LATE: Nanos = 50_000;

/// A process that used so much CPU time from one look to the next is at work.
const WORK: Nanos = 1_000_000;

/// So is one that waited for a CPU for more than this part of the time that tasks ran for: it has not had its turn.
const WAITING_PART: f64 = 0.5;

/// The stop signals that a terminal sends, as bits of `ShdPnd`. `SIGSTOP` is not among them because one that is
/// pending is our own.
const TERMINAL_STOPS: u64 = bit(Signal::TSTP) | bit(Signal::TTIN) | bit(Signal::TTOU);

const fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// Stops all processes of a zone by `SIGSTOP` and continues them by `SIGCONT`. Dropping it continues those that it
/// has stopped.
///
/// Parents are stopped before their children and continued after them, so that no process of the zone sees
/// another one stopped: a shell would take it for a job to be put aside. But for that, those at work are continued first,
/// while the CPUs are idle: beside hundreds that only go on sleeping, the kernel would wake two of them on the same CPU and
/// leave another one idle for some ms. Where there are many, most of the sleeping ones have been continued before.
///
/// Those at work are continued in another order each time: the kernel prefers those that come last, and where there are
/// more than run until the next hold, always the same ones would hardly ever get a turn.
#[derive(Debug)]
pub(crate) struct Stopper {
    proc: PathBuf,
    members: Members,
    /// The CPUs of the zone.
    cpus: usize,
    /// Holds so far.
    holds: u64,
    /// From when on tasks ran after the last hold, and for how long they have run in all since CPU times were looked at.
    free: Option<Nanos>,
    ran: Nanos,
    /// CPU time used in the last hold by those that were stopped late.
    leaked: Nanos,
    /// Whether CPU times have been looked at in this hold, or were not due.
    is_looked_at: bool,
    notes: Notes,
}

impl Stopper {
    /// Nothing is stopped yet.
    pub(crate) fn new(proc: &Path, members: Members, cpus: usize, notes: Notes) -> Self {
        Self {
            proc: proc.to_owned(),
            members,
            cpus,
            holds: 0,
            free: None,
            ran: 0,
            leaked: 0,
            is_looked_at: false,
            notes,
        }
    }

    /// Stops all that may be stopped and are known; notes those that have ended. Returns whether there were such that were
    /// not stopped before.
    fn stop_known(&mut self, dead: &mut HashSet<Pid>, groups: &mut HashMap<Pid, bool>) -> bool {
        let mut are_new = false;
        let ask_each = self.members.len() <= ASK_EACH;
        for member in self
            .members
            .iter_mut()
            .filter(|member| member.is_proven() && !member.is_judged && !member.is_held)
        {
            member.is_judged = true;
            let is_stopped = || is_stopped(&self.proc, member.pid);
            let is_put_aside = if ask_each {
                is_stopped()
            } else {
                // One of a group tells that nobody of it has to be asked.
                group_of(member.pid).is_some_and(|group| *groups.entry(group).or_insert_with(is_stopped))
                    && is_stopped()
            };
            if is_put_aside {
                continue;
            }
            match member.signal(&self.proc, Signal::STOP) {
                Sent::Yes => {
                    are_new = true;
                    member.is_held = true;
                    member.signalled = time::now();
                }
                Sent::Gone => drop(dead.insert(member.pid)),
                Sent::Refused => self.notes.add(format!(
                    "process {} may not be stopped and runs at full speed: it has changed its user, or descriptors are short",
                    member.pid
                )),
            }
        }
        are_new
    }

    /// Notes what those have used that may be stopped late, when the others have been stopped; unless that is too late.
    fn look_at_threads(&mut self, deadline: Nanos) {
        self.members.iter_mut().for_each(|member| member.at_stop = None);
        if self.members.len() > ASK_EACH {
            return;
        }
        let proc = &self.proc;
        let threaded: Vec<_> = self
            .members
            .iter_mut()
            .filter(|member| member.is_held && thread_count(proc, member.pid) > 1)
            .collect();
        let Some(look) = threaded.iter().map(|member| member.signalled + IN_TIME).max() else { return };
        if look < deadline {
            std::thread::sleep(time::span(look - time::now()));
            for member in threaded {
                member.at_stop = cpu_time(member.pid);
            }
        }
    }

    /// Lets those be stopped whom the user has put aside while we held them.
    fn leave_put_aside(&mut self) {
        let mut groups = HashMap::new();
        let ask_each = self.members.len() <= ASK_EACH;
        let proc = &self.proc;
        for member in self.members.iter_mut().filter(|member| member.is_held) {
            let wants = || wants_to_stop(proc, member.pid);
            let is_put_aside = if ask_each {
                wants()
            } else {
                group_of(member.pid).is_some_and(|group| *groups.entry(group).or_insert_with(wants))
                    && wants()
            };
            member.is_held = !is_put_aside;
        }
    }

    /// Continues what we have stopped.
    fn continue_held(&mut self) {
        let members: Vec<_> = self.members.iter().map(Usage::of).collect();
        for some in one_after_another(&members, self.holds) {
            self.continue_some(|pid| some.contains(&pid));
        }
        self.continue_some(|_| true);
    }

    /// Continues those that we have stopped and that are meant, and returns how many these are. One that may not be
    /// signalled is tried again the next time.
    fn continue_some(&mut self, is_meant: impl Fn(Pid) -> bool) -> usize {
        let mut dead = HashSet::new();
        let mut count = 0;
        for member in self.members.iter_mut().rev().filter(|member| member.is_held && is_meant(member.pid)) {
            // Before, because it may send this thread off the CPU.
            member.signalled = time::now();
            if member.let_go(&self.proc) == Sent::Gone {
                dead.insert(member.pid);
            }
            count += 1;
        }
        self.members.forget_dead(&dead);
        count
    }

    /// Notes who has used how much CPU time since the last look; now and then, if there are many.
    fn look_at_usage(&mut self) {
        self.holds += 1;
        self.leaked = 0;
        let are_many = self.members.len() > ASK_EACH;
        if are_many && self.holds % LOOK_EVERY != 1 {
            return;
        }
        let ran = std::mem::take(&mut self.ran) as f64;
        for member in self.members.iter_mut().filter(|member| member.is_held) {
            // Few are all continued at once, whether they wait or not.
            if are_many && let Some(waited) = waiting_time(&self.proc, member.pid) {
                let lately = member.waited.map_or(0, |before| waited - before) as f64;
                member.waited_part = if ran > 0.0 { lately / ran } else { 0.0 };
                member.waited = Some(waited);
            }
            if let Some(used) = cpu_time(member.pid) {
                member.lately = member.used.map(|before| used - before);
                member.used = Some(used);
                let since_stop = member.at_stop.map_or(0, |at_stop| used - at_stop);
                if since_stop > LATE {
                    self.leaked += IN_TIME + since_stop;
                }
            }
        }
    }

    /// Who has been signalled since `begin`: when, and the CPU time used lately. In the order of time.
    fn signalled_since(&self, begin: Nanos) -> Vec<(Nanos, f64)> {
        let meant = self.members.iter().filter(|member| member.signalled >= begin);
        // All alike as long as nothing is known.
        let weight = |member: &Member| member.lately.unwrap_or(0).max(0) as f64 + 1.0;
        let mut signalled: Vec<_> = meant.map(|member| (member.signalled, weight(member))).collect();
        signalled.sort_unstable_by_key(|(moment, _)| *moment);
        signalled
    }
}

impl Hold for Stopper {
    fn hold(&mut self, deadline: Nanos) -> Result<Held> {
        let begin = time::now();
        self.members.iter_mut().for_each(|member| member.is_judged = false);
        let mut groups = HashMap::new();
        let mut is_sure = false;
        for _ in 0..PASSES {
            let complete = self.members.refresh()?;
            let mut dead = HashSet::new();
            let are_new = self.stop_known(&mut dead, &mut groups);
            self.members.forget_dead(&dead);
            // Before it was stopped, one may have made another.
            if complete && dead.is_empty() && !are_new {
                is_sure = true;
                break;
            }
        }
        let from = moment_of_work(self.signalled_since(begin).into_iter().rev(), self.cpus);
        let from = from.unwrap_or_else(time::now);
        self.ran += self.free.take().map_or(0, |free| from - free);
        self.look_at_threads(deadline);
        Ok(Held { from, is_sure })
    }

    fn let_sleepers_go(&mut self) -> f64 {
        if self.members.len() <= ASK_EACH {
            return 0.0;
        }
        self.look_at_usage();
        self.is_looked_at = true;
        let asleep = asleep(self.members.iter().map(Usage::of));
        if asleep.is_empty() {
            return 0.0;
        }
        self.leave_put_aside();
        let all = self.members.len().max(1);
        self.continue_some(|pid| asleep.contains(&pid)) as f64 / all as f64
    }

    fn let_go(&mut self) -> Result<Nanos> {
        self.leave_put_aside();
        if !std::mem::take(&mut self.is_looked_at) {
            self.look_at_usage();
        }
        let begin = time::now();
        self.continue_held();
        let free = moment_of_work(self.signalled_since(begin).into_iter(), self.cpus);
        let free = free.unwrap_or_else(time::now);
        self.free = Some(free);
        Ok(free)
    }

    fn release(&mut self) -> Result<()> {
        self.leave_put_aside();
        self.continue_held();
        self.members.release()
    }

    fn leaked(&self) -> Nanos {
        self.leaked
    }

    fn census(&mut self, turn: usize) -> Census {
        let pids: Vec<_> = self.members.iter().map(|member| member.pid).collect();
        if pids.len() <= ASK_EACH {
            let threads: Vec<_> = pids.iter().flat_map(|&pid| threads(&self.proc, pid)).collect();
            return Census::of(threads.len(), &threads, turn);
        }
        // To list the threads of hundreds of processes would take too long: one of each process that is looked at.
        let count = pids.iter().map(|&pid| thread_count(&self.proc, pid)).sum();
        Census::of(count, &pids, turn).map(|pid| {
            let threads = threads(&self.proc, pid);
            threads.get(turn % threads.len().max(1)).copied().unwrap_or(pid)
        })
    }
}

impl Drop for Stopper {
    fn drop(&mut self) {
        self.continue_held();
    }
}

/// A process, its parent, and whether it has used so much CPU time lately that it is at work, as all are of which
/// nothing is known.
#[derive(Debug, Clone, Copy)]
struct Usage {
    pid: Pid,
    parent: Pid,
    is_at_work: bool,
}

impl Usage {
    fn of(member: &Member) -> Self {
        let is_at_work = is_at_work(member.lately, member.waited_part);
        Self { pid: member.pid, parent: member.parent, is_at_work }
    }
}

/// Whether a process works that used so much CPU time `lately`, and waited for a CPU for this part of the time.
fn is_at_work(lately: Option<Nanos>, waited_part: f64) -> bool {
    waited_part > WAITING_PART || lately.is_none_or(|lately| lately > WORK)
}

/// Those that have no children here, in sets that are to be continued one after another, each from its end: first those
/// at work, then the others, and of either another one first after each hold.
fn one_after_another(members: &[Usage], hold: u64) -> [HashSet<Pid>; 4] {
    let parents: HashSet<_> = members.iter().map(|one| one.parent).collect();
    let childless = members.iter().filter(|one| !parents.contains(&one.pid));
    let (at_work, others): (Vec<_>, Vec<_>) = childless.partition(|one| one.is_at_work);
    let set = |some: &[&Usage]| some.iter().map(|one| one.pid).collect();
    let in_turn = |all: &[&Usage]| {
        let (begin, end) = all.split_at(first_in_turn(hold, all.len()));
        [set(begin), set(end)]
    };
    let ([first, second], [third, fourth]) = (in_turn(&at_work), in_turn(&others));
    [first, second, third, fourth]
}

/// Those that are not at work, nor are any of their descendants here. Parents come before their children.
fn asleep(members: impl DoubleEndedIterator<Item = Usage>) -> HashSet<Pid> {
    let (mut asleep, mut waiting) = (HashSet::new(), HashSet::new());
    for one in members.rev() {
        if one.is_at_work || waiting.contains(&one.pid) {
            waiting.insert(one.parent);
        } else {
            asleep.insert(one.pid);
        }
    }
    asleep
}

/// Which of `count` comes first in a hold. The golden ratio spreads them evenly, however many holds there have been
/// (Knuth, The Art of Computer Programming, volume 3, section 6.4, theorem S).
fn first_in_turn(hold: u64, count: usize) -> usize {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let turn = (hold as f64 * GOLDEN).fract();
    ((turn * count as f64) as usize).min(count)
}

/// The moment until which tasks had the CPUs, of those that were stopped, the last one first; or from which on, of those
/// that were continued, the first one first. Each comes with its moment and the CPU time that it used lately.
///
/// Signalling many takes so long that it matters when those that work are reached. CPUs are kept busy until the last of
/// them are stopped, and from when the first are continued on: so it is the mean over as many of these as occupy all
/// CPUs. One occupies as much of a CPU as it has used beside the busiest.
fn moment_of_work(signalled: impl Iterator<Item = (Nanos, f64)> + Clone, cpus: usize) -> Option<Nanos> {
    let most = signalled.clone().map(|(_, used)| used).fold(0.0, f64::max);
    let (begin, _) = signalled.clone().next()?;
    let (mut sum, mut occupied) = (0.0, 0.0);
    for (moment, used) in signalled {
        let part = (used / most).min(cpus as f64 - occupied);
        sum += part * (moment - begin) as f64;
        occupied += part;
    }
    (occupied > 0.0).then(|| begin + (sum / occupied) as Nanos)
}

/// The CPU time of a process, its ended threads included.
pub(crate) fn cpu_time(pid: Pid) -> Option<Nanos> {
    process_cpu_time(pid).map(time::nanos)
}

/// For how long the first thread of a process has waited for a CPU; `None` where the kernel does not count that.
fn waiting_time(proc: &Path, pid: Pid) -> Option<Nanos> {
    let text = fs::read_to_string(proc.join(format!("{pid}/schedstat"))).ok()?;
    times_in_schedstat(&text).map(|(_, waited)| waited)
}

fn is_stopped(proc: &Path, pid: Pid) -> bool {
    Stat::read(proc, pid).is_some_and(|stat| stat.state == b'T')
}

/// Whether a terminal has asked the process to stop while it was held.
fn wants_to_stop(proc: &Path, pid: Pid) -> bool {
    let status = fs::read(proc.join(pid.to_string()).join("status")).unwrap_or_default();
    pending(&String::from_utf8_lossy(&status)) & TERMINAL_STOPS != 0
}

/// The link count of a folder is two and one for each folder in it.
fn thread_count(proc: &Path, pid: Pid) -> usize {
    fs::metadata(proc.join(pid.to_string()).join("task"))
        .map_or(0, |task| task.nlink().saturating_sub(2) as usize)
}

fn group_of(pid: Pid) -> Option<Pid> {
    nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid))).ok().map(nix::unistd::Pid::as_raw)
}

/// The signals that wait for a process as a whole, from `/proc/<pid>/status`.
fn pending(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes with their parents, and whether they are at work.
    fn family<const N: usize>(all: [(Pid, Pid, bool); N]) -> impl DoubleEndedIterator<Item = Usage> {
        all.into_iter().map(|(pid, parent, is_at_work)| Usage { pid, parent, is_at_work })
    }

    #[test]
    fn those_without_children_are_continued_first_that_work() {
        let members = [(10, 1, true), (11, 10, true), (12, 10, false), (13, 12, true), (14, 12, false)];
        let members: Vec<_> = family(members).collect();
        assert_eq!(one_after_another(&members, 0), [[].into(), [11, 13].into(), [].into(), [14].into()]);
        assert!(one_after_another(&[], 1).iter().all(HashSet::is_empty));
    }

    #[test]
    fn each_is_continued_first_in_its_turn_and_the_others_after_it_in_a_circle() {
        for count in [1, 2, 3, 16, 500] {
            let members: Vec<_> = (0..count).map(|pid| Usage { pid, parent: -1, is_at_work: true }).collect();
            let mut firsts = vec![0; count as usize];
            for hold in 0..20 * count as u64 {
                let sets = one_after_another(&members, hold);
                let from_its_end = |some: &HashSet<Pid>| {
                    members.iter().rev().map(|one| one.pid).filter(|pid| some.contains(pid)).collect()
                };
                let order: Vec<_> = sets.iter().flat_map::<Vec<Pid>, _>(from_its_end).collect();
                assert_eq!(order.len(), members.len());
                assert!(
                    order.iter().zip(order.iter().skip(1)).all(|(a, b)| (b + 1) % count == *a),
                    "{order:?}"
                );
                firsts[order[0] as usize] += 1;
            }
            assert!(firsts.iter().all(|first| (17..=23).contains(first)), "{firsts:?}");
        }
    }

    #[test]
    fn who_waits_for_a_turn_is_at_work() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("7")).unwrap();
        for (text, time) in [("100 2500 3\n", Some(2_500)), ("100\n", None), ("a b c", None), ("", None)] {
            fs::write(dir.path().join("7/schedstat"), text).unwrap();
            assert_eq!(waiting_time(dir.path(), 7), time, "{text:?}");
        }
        assert_eq!(waiting_time(dir.path(), 8), None);
        assert!(is_at_work(None, 0.0) && is_at_work(Some(2 * WORK), 0.0) && is_at_work(Some(0), 0.9));
        assert!(!is_at_work(Some(WORK / 2), 0.1));
    }

    #[test]
    fn cpus_are_at_work_until_those_are_stopped_that_occupy_all_of_them() {
        let stopped = |all: &[(Nanos, f64)], cpus| moment_of_work(all.iter().copied().rev(), cpus);
        let continued = |all: &[(Nanos, f64)], cpus| moment_of_work(all.iter().copied(), cpus);
        let busy: Vec<_> = (0..=100).map(|moment| (moment, 5.0)).collect();
        assert_eq!((stopped(&busy, 1), continued(&busy, 1)), (Some(100), Some(0)));
        assert_eq!((stopped(&busy, 5), continued(&busy, 5)), (Some(98), Some(2)));
        // Those that sleep do not matter, wherever they are, and no more CPUs are occupied than there are workers.
        let few = [(0, 0.0), (10, 4.0), (30, 4.0), (100, 0.0)];
        assert_eq!((stopped(&few, 2), continued(&few, 2)), (Some(20), Some(20)));
        assert_eq!((stopped(&few, 9), continued(&few, 9)), (Some(20), Some(20)));
        // Half of the second CPU.
        assert_eq!(stopped(&[(0, 2.0), (30, 4.0), (60, 2.0)], 2), Some(30));
        assert_eq!(stopped(&[(0, 4.0), (30, 2.0)], 1), Some(15));
        assert_eq!(stopped(&[], 2), None);
    }

    #[test]
    fn those_asleep_are_continued_early_unless_a_descendant_is_at_work() {
        let members = [(10, 1, false), (11, 10, false), (12, 10, false), (13, 12, true), (14, 12, false)];
        assert_eq!(asleep(family(members)), [11, 14].into());
        assert_eq!(asleep(family([(10, 1, false), (11, 10, false)])), [10, 11].into());
        assert!(asleep(family([])).is_empty());
    }
}

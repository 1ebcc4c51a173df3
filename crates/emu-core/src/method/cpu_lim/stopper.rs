//! Stopping and continuing all processes of a zone.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::members::{Member, Members, Sent};
use super::turns::{Process, asleep, moment_of_work, one_after_another};
use crate::ablation::{Correction, is_off};
use crate::cgroup::PASSES;
use crate::duty::Census;
use crate::duty::{Stop, Stopped};
use crate::error::Result;
use crate::notes::Notes;
use crate::process::{Stat, status_field, threads, times_in_schedstat};
use crate::sys::Pid;
use crate::sys::time::{self, Nanos};
use crate::sys::times::process_cpu_time;

/// Up to so many processes, each is asked whether somebody else has stopped it before we do. With more, one of each
/// process group is, as job control stops whole groups: a look at a process costs as much as stopping it.
const ASK_EACH: usize = 32;

/// With more than [`ASK_EACH`] processes, their CPU time is looked at in every so manieth stop. Over fewer it could not be
/// told who sleeps and who waits for a turn.
const LOOK_EVERY: u64 = 16;

/// How long after `SIGSTOP` a process counts as stopped if a running thread took the signal.
///
/// The kernel may choose a sleeping thread, which must first be scheduled while the others compute. CPU time is not read
/// earlier: for a running thread it is updated only at ticks and when it leaves the CPU.
const IN_TIME: Nanos = 200_000;

/// A process that used so much CPU time after that was stopped late.
const LATE: Nanos = 50_000;

/// The stop signals that a terminal sends, as bits of `ShdPnd`. `SIGSTOP` is not among them because one that is
/// pending is our own.
const TERMINAL_STOPS: u64 = bit(Signal::TSTP) | bit(Signal::TTIN) | bit(Signal::TTOU);

const fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// Stops all processes of a zone by `SIGSTOP` and continues them by `SIGCONT`; dropping it continues those stopped.
///
/// Parents are stopped before their children and continued after them, so that no process of the zone sees another
/// one stopped: a shell would take it for a job to be put aside. But for that, those at work are continued first,
/// while the CPUs are idle: beside hundreds that only go on sleeping, the kernel would wake two of them on the same
/// CPU and leave another one idle for some ms. Where there are many, most of the sleeping ones have been continued
/// before. The order changes each time: the kernel prefers those that come last, and where there are more than run
/// until the next stop, always the same ones would hardly ever get a turn.
#[derive(Debug)]
pub(crate) struct Stopper {
    proc: PathBuf,
    members: Members,
    /// The process of each thread that the last census has listed.
    processes: HashMap<Pid, Pid>,
    cpus: usize,
    stops: u64,
    /// From when on tasks ran after the last stop, and for how long they have run in all since CPU times were looked at.
    free: Option<Nanos>,
    ran: Nanos,
    /// CPU time used in the last stop by those that were stopped late.
    overrun: Nanos,
    /// Whether CPU times have been looked at in this stop, or were not due.
    is_looked_at: bool,
    notes: Notes,
}

impl Stopper {
    pub(crate) fn new(proc: &Path, members: Members, cpus: usize, notes: Notes) -> Self {
        Self {
            proc: proc.to_owned(),
            members,
            processes: HashMap::new(),
            cpus,
            stops: 0,
            free: None,
            ran: 0,
            overrun: 0,
            is_looked_at: false,
            notes,
        }
    }

    /// Returns whether it stopped any that were not stopped before.
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
            match member.stop(&self.proc) {
                Sent::Yes => {
                    are_new = true;
                    member.is_held = true;
                    member.signalled = time::now();
                }
                Sent::Gone => drop(dead.insert(member.pid)),
                Sent::Refused => self.notes.add_problem(format!(
                    "process {} could not be stopped and ran at full speed: it has changed its user, descriptors are short, or a sandbox forbids the call",
                    member.pid
                )),
            }
        }
        are_new
    }

    /// What those have used that may be stopped late, when the others have been stopped; unless that is too late.
    fn look_at_threads(&mut self, deadline: Nanos) {
        self.members.iter_mut().for_each(|member| member.at_stop = None);
        if self.members.len() > ASK_EACH || is_off(Correction::Leaked) {
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
            time::sleep(time::span(look - time::now()));
            for member in threaded {
                member.at_stop = cpu_time(member.pid);
            }
        }
    }

    /// Lets those be stopped whom the user has put aside while we stopped them.
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

    fn continue_held(&mut self) {
        let members: Vec<_> = self.members.iter().map(Process::of).collect();
        let members = if is_off(Correction::TurnOrder) { Vec::new() } else { members };
        for some in one_after_another(&members, self.stops) {
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
            if member.resume(&self.proc) == Sent::Gone {
                dead.insert(member.pid);
            }
            count += 1;
        }
        self.members.forget_dead(&dead);
        count
    }

    /// Notes who has used how much CPU time since the last look; now and then, if there are many.
    fn look_at_usage(&mut self) {
        self.stops += 1;
        self.overrun = 0;
        let are_many = self.members.len() > ASK_EACH;
        if are_many && self.stops % LOOK_EVERY != 1 {
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
                    self.overrun += IN_TIME + since_stop;
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

impl Stop for Stopper {
    fn stop(&mut self, deadline: Nanos) -> Result<Stopped> {
        let begin = time::now();
        self.members.iter_mut().for_each(|member| member.is_judged = false);
        let mut groups = HashMap::new();
        let mut is_confirmed = false;
        for _ in 0..PASSES {
            let complete = self.members.refresh()?;
            let mut dead = HashSet::new();
            let are_new = self.stop_known(&mut dead, &mut groups);
            self.members.forget_dead(&dead);
            // Before it was stopped, one may have made another.
            if complete && dead.is_empty() && !are_new {
                is_confirmed = true;
                break;
            }
        }
        let from = moment_of_work(self.signalled_since(begin).into_iter().rev(), self.cpus);
        let from = from.filter(|_| !is_off(Correction::MomentOfWork)).unwrap_or_else(time::now);
        self.ran += self.free.take().map_or(0, |free| from - free);
        self.look_at_threads(deadline);
        Ok(Stopped { from, is_confirmed })
    }

    fn resume_sleepers(&mut self) -> f64 {
        if self.members.len() <= ASK_EACH {
            return 0.0;
        }
        self.look_at_usage();
        self.is_looked_at = true;
        let asleep = asleep(self.members.iter().map(Process::of));
        if asleep.is_empty() {
            return 0.0;
        }
        self.leave_put_aside();
        let all = self.members.len().max(1);
        self.continue_some(|pid| asleep.contains(&pid)) as f64 / all as f64
    }

    fn resume(&mut self) -> Result<Nanos> {
        self.leave_put_aside();
        if !std::mem::take(&mut self.is_looked_at) {
            self.look_at_usage();
        }
        let begin = time::now();
        self.continue_held();
        let free = moment_of_work(self.signalled_since(begin).into_iter(), self.cpus);
        let free = free.filter(|_| !is_off(Correction::MomentOfWork)).unwrap_or_else(time::now);
        self.free = Some(free);
        Ok(free)
    }

    fn release(&mut self) -> Result<()> {
        self.leave_put_aside();
        self.continue_held();
        self.members.release()
    }

    fn overrun(&self) -> Nanos {
        self.overrun
    }

    fn set_busy(&mut self, busy: &[Pid]) {
        if is_off(Correction::RunnerSignals) {
            return;
        }
        let mut of_process: HashMap<Pid, Vec<Pid>> = HashMap::new();
        for &tid in busy {
            if let Some(&pid) = self.processes.get(&tid) {
                of_process.entry(pid).or_default().push(tid);
            }
        }
        for member in self.members.iter_mut() {
            member.set_runners(&self.proc, of_process.get(&member.pid).map_or(&[], Vec::as_slice));
        }
    }

    fn census(&mut self, turn: usize) -> Census {
        let pids: Vec<_> = self.members.iter().map(|member| member.pid).collect();
        self.processes.clear();
        if pids.len() <= ASK_EACH {
            let mut all = Vec::new();
            for &pid in &pids {
                let threads = threads(&self.proc, pid);
                self.processes.extend(threads.iter().map(|&tid| (tid, pid)));
                all.extend(threads);
            }
            return Census::of(all.len(), &all, turn);
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

/// The CPU time of a process, its ended threads included.
fn cpu_time(pid: Pid) -> Option<Nanos> {
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

/// Whether a terminal has asked the process to stop while it was stopped.
fn wants_to_stop(proc: &Path, pid: Pid) -> bool {
    let pending = status_field(proc, pid, "ShdPnd").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    pending.unwrap_or(0) & TERMINAL_STOPS != 0
}

/// The link count of a folder is two and one for each folder in it.
fn thread_count(proc: &Path, pid: Pid) -> usize {
    fs::metadata(proc.join(pid.to_string()).join("task"))
        .map_or(0, |task| task.nlink().saturating_sub(2) as usize)
}

fn group_of(pid: Pid) -> Option<Pid> {
    nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid))).ok().map(nix::unistd::Pid::as_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_a_process_waited_is_read_where_it_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("7")).unwrap();
        for (text, time) in [("100 2500 3\n", Some(2_500)), ("100\n", None), ("a b c", None), ("", None)] {
            fs::write(dir.path().join("7/schedstat"), text).unwrap();
            assert_eq!(waiting_time(dir.path(), 7), time, "{text:?}");
        }
        assert_eq!(waiting_time(dir.path(), 8), None);
    }
}

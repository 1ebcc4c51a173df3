//! CPU-Lim as published: each process by itself, by its CPU time over its lifetime.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use super::members::{Members, Sent};
use super::{members, notes_on, period};
use crate::duty::{Command, Counters, DutyThread, Grid, Wait, plan, settle_duty_thread, status};
use crate::error::Result;
use crate::host::Host;
use crate::method::{About, Emulation, Expected, Method, Plan, Trait};
use crate::method_id::MethodId;
use crate::notes::Notes;
use crate::speed::Targets;
use crate::status::Status;
use crate::sys::Pid;
use crate::sys::time::{self, Nanos};
use crate::sys::times::process_cpu_time;
use crate::unavailable::Unavailable;
use crate::zone::Demand;

pub(in crate::method) struct CpuLimPublished;

pub(crate) const ID: MethodId = MethodId::new("cpu-lim:published");

const ABOUT: About = About {
    summary: "stops each process while its CPU time over its whole life is above the speed: as in the paper, with its \
              known errors",
    acts_on: "processes",
    continuous: true,
    traits: &[
        Trait::StopsTasks,
        Trait::LeavesIdle,
        Trait::SendsSignals,
        Trait::JudgesLifetimes,
        Trait::Published,
    ],
    needs: "permission to signal the processes; nothing else",
    limits: &[
        "one speed for all CPUs of the zone",
        "sleep becomes credit; k processes get k times the speed, and n threads together what one should get",
        "what others have stopped may be continued",
        "every process is looked at in each period",
    ],
    source: super::ABOUT.source,
};

/// How often it decides; the publication does not say.
const PERIOD: Duration = Duration::from_millis(10);

const NOTE: &str = "as published, each process is judged alone, by its CPU time over its whole life: \
    sleep becomes credit, several processes or threads do not keep to the speed, and every process is looked at in each period";

impl Method for CpuLimPublished {
    fn id(&self) -> MethodId {
        ID
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn check(&self, host: &Host, demand: &Demand) -> Result<Plan, Unavailable> {
        let period = period(demand, PERIOD)?;
        let share = plan::uniform_share(&demand.targets)?;
        let mut notes = notes_on(host, demand);
        notes.push(NOTE.into());
        let cpus = demand.targets.len().max(1) as f64;
        let error = (1.0 - 1.0 / cpus).max(0.05);
        let longest_stall = period.mul_f64(1.0 / share);
        Ok(Plan::new(Expected { error, period, longest_stall, notes }, move |host, zone, journal| {
            let targets = zone.demand.targets.clone();
            let mut notes = plan::notes_on(&targets);
            let (members, more_notes) = members(host, zone, journal, &mut notes)?;
            notes.push(NOTE.into());
            let look = members.look();
            let counters = Arc::new(Counters::default());
            let (seen, said, cpus) = (Arc::clone(&counters), more_notes.clone(), zone.demand.cpus());
            let theirs = host.clone();
            // Begins with a decision about each process.
            let begin = move || {
                settle_duty_thread(&theirs, &cpus, &said);
                let (proc, grid) = (theirs.roots.proc.clone(), Grid::new(time::now(), time::nanos(period)));
                let mut rule =
                    Rule { proc, members, grid, held_since: HashMap::new(), counters: seen, notes: said };
                rule.decide(share)?;
                Ok(rule)
            };
            let thread = DutyThread::spawn("emu-lim", share, begin, |mut rule, wait| rule.run(wait))?;
            let cpus_folder = host.roots.cpus();
            Ok(Box::new(Published {
                thread,
                counters,
                look,
                period,
                targets,
                notes,
                more_notes,
                cpus_folder,
            }))
        }))
    }
}

struct Published {
    thread: DutyThread<f64>,
    counters: Arc<Counters>,
    look: Arc<AtomicBool>,
    period: Duration,
    targets: Targets,
    notes: Vec<String>,
    more_notes: Notes,
    cpus_folder: PathBuf,
}

impl Emulation for Published {
    fn retarget(&mut self, targets: &Targets) -> Result<()> {
        let share = plan::uniform_share(targets).map_err(|why| why.into_error(ID))?;
        self.counters.restart();
        self.thread.set(share);
        self.targets.clone_from(targets);
        Ok(())
    }

    fn status(&self) -> Status {
        let mut status = status::of(ID, self.period, &self.counters, &self.targets, &self.cpus_folder);
        status.notes.extend_from_slice(&self.notes);
        status.add_all(&self.more_notes);
        if let Some(why) = self.thread.ended() {
            status.end(status::ended(&why));
        }
        status
    }

    fn look(&self) {
        self.look.store(true, Ordering::Relaxed);
    }

    fn release(mut self: Box<Self>) -> Result<()> {
        self.thread.stop()
    }
}

/// The state of the thread. Dropping it continues what it has stopped.
struct Rule {
    proc: PathBuf,
    members: Members,
    grid: Grid,
    held_since: HashMap<Pid, Nanos>,
    counters: Arc<Counters>,
    notes: Notes,
}

impl Rule {
    fn run(&mut self, wait: &Wait<f64>) -> Result<()> {
        let mut index = 1;
        loop {
            let (Command::Run(share), generation) = wait.command() else {
                self.continue_held();
                return self.members.release();
            };
            if !wait.until(self.grid.begin(index), generation) {
                continue;
            }
            self.decide(share)?;
            let reached = self.grid.index(time::now()).max(index);
            self.counters.missed.fetch_add((reached - index) as u64, Ordering::Relaxed);
            self.counters.periods.fetch_add(1, Ordering::Relaxed);
            self.counters.cpu.store(time::thread_cpu(), Ordering::Relaxed);
            index = reached + 1;
        }
    }

    /// Stops every process whose usage has reached `share`, and continues every one of ours that is below.
    fn decide(&mut self, share: f64) -> Result<()> {
        self.members.refresh()?;
        let (now, since_boot) = (time::now(), time::user_ticks() as Nanos * time::USER_TICK);
        let (mut dead, mut stopped, mut all) = (HashSet::new(), 0, 0);
        for member in self.members.iter_mut().filter(|member| member.is_proven()) {
            let lifetime = since_boot - (member.starttime() as Nanos).saturating_mul(time::USER_TICK);
            let Some(used) = process_cpu_time(member.pid).map(time::nanos) else { continue };
            // Nobody is stopped at full speed, however many CPUs it uses: emu may be about to be stopped.
            let reached = share < 1.0 && is_reached(used, lifetime, share);
            all += 1;
            stopped += i64::from(reached);
            if reached == member.is_held {
                continue;
            }
            match member.signal(&self.proc, if reached { Signal::STOP } else { Signal::CONT }) {
                Sent::Yes => {
                    member.is_held = reached;
                    if reached {
                        self.held_since.insert(member.pid, now);
                    } else if let Some(since) = self.held_since.remove(&member.pid) {
                        self.counters.longest_stop.fetch_max(now - since, Ordering::Relaxed);
                    }
                }
                Sent::Gone => drop(dead.insert(member.pid)),
                Sent::Refused => {
                    self.notes.add_problem(format!("process {} may not be signalled", member.pid));
                }
            }
        }
        self.members.forget_dead(&dead);
        self.held_since.retain(|pid, _| !dead.contains(pid));
        // Whoever is stopped stays so until the next decision.
        let period = self.grid.period();
        self.counters.elapsed.fetch_add(period, Ordering::Relaxed);
        self.counters.stopped.fetch_add(period * stopped / all.max(1), Ordering::Relaxed);
        Ok(())
    }

    fn continue_held(&mut self) {
        for member in self.members.iter_mut().filter(|member| member.is_held) {
            // Who has ended needs nothing; what fails is in the journal.
            let _ = member.resume(&self.proc);
        }
    }
}

impl Drop for Rule {
    fn drop(&mut self) {
        self.continue_held();
    }
}

fn is_reached(used: Nanos, lifetime: Nanos, share: f64) -> bool {
    // The start is known to a tick only; a process is never younger than one.
    used as f64 >= share * lifetime.max(time::USER_TICK) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_stopped_when_its_usage_reaches_the_threshold() {
        let second = 1_000_000_000;
        assert!(is_reached(second / 2, second, 0.5));
        assert!(!is_reached(second / 2 - 1, second, 0.5));
        // The flaw: a minute of sleep is credit for half a minute at full speed.
        assert!(!is_reached(29 * second, 60 * second, 0.5));
    }

    #[test]
    fn a_newborn_process_is_not_stopped_for_being_young() {
        assert!(!is_reached(1_000_000, 0, 0.5));
    }
}

//! CPU-Hogs: one real-time burner for each CPU takes away what a slower CPU would not have.

mod background_load;
mod burn_loop;
mod burner;
mod clock_meter;
mod wake_cost;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{About, Emulation, Expected, Method, Plan, Trait};
use crate::ablation::{Correction, is_off};
use crate::cgroup::{TaskGroup, Usage, can_have, is_same_everywhere};
use crate::cpu_list::{CpuId, CpuList};
use crate::duty::idle_pusher::IdlePusher;
use crate::duty::{Grid, PERIOD_MIN, check_period, detuned};
use crate::error::{Error, Result};
use crate::hint::{Hint, Setting};
use crate::host::{Controller, Host, RealTime};
use crate::method_id::MethodId;
use crate::notes::Notes;
use crate::speed::{Targets, lowest_share};
use crate::status::{CpuStatus, Health, Status};
use crate::sys::refused;
use crate::sys::time::{self, Nanos};
use crate::unavailable::{Reason, Unavailable};
use crate::undo::Journal;
use crate::zone::{Demand, Tasks, Zone};
use background_load::{BackgroundLoad, Used};
use burn_loop::{PRIORITY, Settings};
use burner::Burner;

pub(super) struct CpuHogs;

pub(super) const ID: MethodId = MethodId::new("cpu-hogs");

const ABOUT: About = About {
    summary: "a real-time burner on each CPU, closed loop, takes what a slower CPU would not have",
    acts_on: "CPU",
    continuous: true,
    traits: &[Trait::PerCpu, Trait::Burns, Trait::SlowsOthers],
    needs: "CAP_SYS_NICE or RLIMIT_RTPRIO, and a real-time budget for our cgroup",
    limits: &[
        "everything else on the zone's CPUs is slowed too; what it uses comes out of what is left, as on a slower CPU, or, where \
         the background load is excluded, is left to it, and the zone gets its share of the rest",
        "real-time tasks of priority 10 and above, and deadline tasks, are not slowed",
        "tasks get nothing for (1 - speed) of each period: bursts shorter than a period see full speed or none",
        "memory bandwidth and paced I/O fall with the speed instead of staying as they are",
        "takes the zone's CPUs for some 30 ms before the first program of a boot begins, where tasks run for less than 1 ms of a \
         period: what a wake-up costs is measured then; again before the next ones, and then every ten minutes, in 0.3 s, or up \
         to 0.6 s where other load disturbs it",
        "burns power; SMT siblings outside the zone share their core with a burner",
        "speeds below what the kernel's real-time limits leave (5 % as shipped; more with a small budget of our cgroup) need these lifted, and cannot \
         be had beside a fair server (from Linux 6.12 on) that keeps as much",
    ],
    source: "Buchert, Nussbaum, Gustedt: Methods for Emulation of Multi-Core CPU Performance, HPCC 2011",
};

/// A wake-up was seen to cost some 25 µs on a guest whose timers are slow: a quarter of a percent of this.
const PERIOD: Duration = Duration::from_millis(10);

/// A burner that gives up no more than this is no problem.
const DROPPED: Duration = Duration::from_millis(1);

const UNTOLD: &str = "what tasks outside the zone have cannot be told now, as with a CPU offline or without the zone's \
                      cgroup: they are slowed too";

/// What the kernel's real-time limit must leave beyond the burn, so that a burner is never throttled.
const LIMIT_MARGIN: f64 = 0.0005;

/// What `sched_rt_runtime_us` holds when nothing limits real-time tasks.
const UNLIMITED: &str = "-1";

impl Method for CpuHogs {
    fn id(&self) -> MethodId {
        ID
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn check(&self, host: &Host, demand: &Demand) -> Result<Plan, Unavailable> {
        let period = detuned(check_period(demand.period.unwrap_or(PERIOD), PERIOD_MIN)?);
        check_real_time(host, demand)?;
        check_real_time_limit(host.real_time.rttime_limit, period)?;
        if demand.exclude_background {
            check_account(host)?;
        }
        let burn = period.mul_f64(1.0 - demand.lowest_share());
        let mut notes = vec![];
        let outside = host.siblings_outside(&demand.cpus());
        if !outside.is_empty() {
            notes.push(format!(
                "CPUs {outside} share a core with the zone and are not in it: a burner slows them, and they the zone"
            ));
        }
        let share = demand.lowest_share();
        // Measured: on several CPUs, what else runs there, with the threads that it has change their CPU, takes 0.3 % of each
        // from the tasks.
        let taken = if demand.targets.len() > 1 && !demand.exclude_background { 0.003 } else { 0.0 };
        let unknown = wake_cost::unknown(host, demand, period);
        let error = 0.004 + taken / share + unknown / (period.as_secs_f64() * share);
        let expected = Expected { error, period, longest_stall: burn, notes };
        Ok(Plan::new(expected, move |host, zone, journal| {
            Ok(Box::new(Hogs::engage(period, host, zone, journal)?))
        }))
    }
}

impl Hogs {
    fn engage(period: Duration, host: &Host, zone: &Zone, journal: &Journal) -> Result<Self> {
        let cpus = zone.demand.cpus();
        let limits = host.real_time.clone();
        let lifts = zone.demand.lift_rt_limit.then(|| journal.clone());
        match (&lifts, &limits.runtime_file) {
            // Lifted by another emu, and so not seen as a limit: it must not come back while this zone exists.
            (_, Some(file)) if limits.runtime.is_none() && journal.is_shared(file) => {
                journal.write_file(file, UNLIMITED)?;
            }
            (Some(journal), _) => lift(&limits, zone.demand.lowest_share(), journal)?,
            (None, _) => {}
        }
        let mut notes = Vec::new();
        let costs = wake_cost::of(host, zone, period, &mut notes)?;
        let is_excluded = zone.demand.exclude_background;
        let mut controllers = vec![Controller::Cpuset];
        controllers.extend(is_excluded.then_some(Controller::Cpuacct));
        let group = TaskGroup::create(host, zone, &controllers, journal)?;
        let background =
            is_excluded.then(|| account(host, &group, zone, time::nanos(period))).transpose()?.map(Arc::new);
        let grid = Grid::new(time::now(), time::nanos(period));
        // Where the background load is excluded, emu's threads are part of it.
        let has_one_cpu =
            host.allowed == cpus && cpus.len() == 1 && !is_excluded && !is_off(Correction::OwnTime);
        let burners = zone
            .demand
            .targets
            .iter()
            .zip(costs)
            .enumerate()
            .map(|(place, ((&cpu, &target), cost))| {
                let settings = Settings::new(grid, target);
                let background = background.clone().map(|background| (background, place));
                let waker =
                    (cpus.len() > 1).then(|| IdlePusher::beside_burner(cpu, group.notes())).transpose()?;
                Ok((cpu, Burner::start(cpu, settings, cost, background, waker, has_one_cpu)?))
            })
            .collect::<Result<BTreeMap<_, _>>>()?;
        let (targets, more_notes) = (zone.demand.targets.clone(), group.notes().clone());
        Ok(Self { grid, targets, limits, lifts, burners, background, notes, more_notes })
    }
}

fn check_account(host: &Host) -> Result<(), Unavailable> {
    if host.task_time.is_none() {
        return Err(Unavailable::new(
            Reason::NoController,
            "the kernel does not tell the background load of a CPU: it has neither cpuacct nor /proc/schedstat",
            Hint::LeaveOut(Setting::ExcludeBackground)
                .or("use a method that slows nobody else, as cpu-freeze"),
        ));
    }
    if !can_have(host, Controller::Cpuacct) {
        return Err(Unavailable::new(
            Reason::NoPrivilege,
            "no cgroup can be made that tells the zone's CPU time",
            Hint::Root.or(Hint::LeaveOut(Setting::ExcludeBackground)),
        ));
    }
    Ok(())
}

fn account(host: &Host, group: &TaskGroup, zone: &Zone, period: Nanos) -> Result<BackgroundLoad> {
    let untold = || {
        Error::unavailable(
            "cannot exclude the background load: the CPU time of the zone's group or of its CPUs is not told",
        )
        .hint(Hint::LeaveOut(Setting::ExcludeBackground))
    };
    // Tasks that are accounted elsewhere would pass for background load, and not be slowed at all.
    if let Tasks::Cgroup(path) = &zone.tasks
        && !is_same_everywhere(host, path)?
    {
        return Err(Error::unavailable(format!(
            "cannot exclude the background load: the cgroup {} has other tasks in one hierarchy than in another",
            path.display()
        ))
        .hint(Hint::LeaveOut(Setting::ExcludeBackground).or("attach to the processes")));
    }
    let cpus = zone.demand.cpus();
    let tasks = group.folder(Controller::Cpuacct).and_then(Usage::open).ok_or_else(untold)?;
    let all = host.task_time.clone().ok_or_else(untold)?;
    let burners = cpus.len();
    let read = move || Some(Used { all: all.read(&cpus)?, zone: tasks.read()? });
    BackgroundLoad::new(burners, period, Box::new(read)).ok_or_else(untold)
}

fn check_real_time(host: &Host, demand: &Demand) -> Result<(), Unavailable> {
    let limits = &host.real_time;
    if !host.privileges.sys_nice && limits.rtprio_limit < PRIORITY as u64 {
        return Err(Unavailable::new(
            Reason::NoPrivilege,
            format!("real-time priority needs CAP_SYS_NICE or RLIMIT_RTPRIO of at least {PRIORITY}"),
            Hint::RealTime(PRIORITY as u64),
        ));
    }
    if limits.group_runtime == Some(Duration::ZERO) {
        return Err(Unavailable::new(
            Reason::RealTimeLimit,
            "our cgroup has no real-time budget (cpu.rt_runtime_us is 0)",
            "write a budget to cpu.rt_runtime_us of the group and its parents, or run emu in the root group",
        ));
    }
    host.check_calls(&refused::NEEDED_BY_BURNERS)?;
    host.check_cpu_time()?;
    check_limits(limits, demand.lift_rt_limit, demand.lowest_share())
}

/// Whether a burner may compute for nearly a period at a stretch. The kernel counts in ticks, and ends emu where it is more.
fn check_real_time_limit(limit: Option<Duration>, period: Duration) -> Result<(), Unavailable> {
    let needed = period + time::tick() * 2;
    match limit.filter(|limit| *limit < needed) {
        None => Ok(()),
        Some(limit) => Err(Unavailable::new(
            Reason::RealTimeLimit,
            format!("RLIMIT_RTTIME ends a real-time thread after {limit:?}, and the period is {period:?}"),
            Hint::from(format!("raise the limit to {} µs (ulimit -R)", needed.as_micros()))
                .or("ask for a shorter period"),
        )),
    }
}

fn check_limits(limits: &RealTime, is_lifted: bool, share: f64) -> Result<(), Unavailable> {
    let most = if is_lifted { limits.unthrottled_share() } else { limits.largest_share() };
    if !is_in_the_way(most, share) {
        return Ok(());
    }
    let asked = format!("{:.2}% is below {:.2}%", share * 100.0, (1.0 - most) * 100.0);
    if is_in_the_way(limits.unthrottled_share(), share) {
        return Err(Unavailable::new(
            Reason::RealTimeLimit,
            format!(
                "{asked}, which the kernel's fair server keeps for normal tasks on each CPU, whatever else is lifted"
            ),
            "ask for more, use another method, or write less to runtime in each CPU's folder of \
             /sys/kernel/debug/sched/fair_server",
        ));
    }
    let is_budget = limits.group_share() <= most && limits.group_share() < limits.system_share();
    Err(match (limits.group_runtime, limits.group_period) {
        (Some(runtime), Some(period)) if is_budget => Unavailable::new(
            Reason::RealTimeLimit,
            format!(
                "{asked}, which the real-time budget of our cgroup leaves other tasks (cpu.rt_runtime_us is {} of a \
                 cpu.rt_period_us of {})",
                runtime.as_micros(),
                period.as_micros()
            ),
            Hint::from("ask for more")
                .or("write a larger budget to cpu.rt_runtime_us of the group and its parents")
                .or("use another method")
                .or(Hint::LiftRtLimit),
        ),
        _ => Unavailable::new(
            Reason::RealTimeLimit,
            format!("{asked}, which the kernel's real-time limit keeps for other tasks"),
            Hint::from("ask for more").or("use another method").or(Hint::LiftRtLimit),
        ),
    })
}

/// Whether a limit of real-time tasks to the share `most` of a CPU keeps burners from leaving no more than `share`. A
/// speed exactly at the limit is within reach: the burner's own overhead is part of its burn.
fn is_in_the_way(most: f64, share: f64) -> bool {
    share + LIMIT_MARGIN < 1.0 - most
}

/// Lifts the kernel's limit for all real-time tasks for the time of the zone, where it is in the way of so small a
/// share. While it is lifted, budgets of groups do not count either.
fn lift(limits: &RealTime, share: f64, journal: &Journal) -> Result<()> {
    match &limits.runtime_file {
        Some(file) if is_in_the_way(limits.throttled_share(), share) => {
            journal.write_file(file, UNLIMITED).map(drop)
        }
        _ => Ok(()),
    }
}

struct Hogs {
    grid: Grid,
    targets: Targets,
    limits: RealTime,
    /// Keeps what lifting a limit changes, where that was allowed.
    lifts: Option<Journal>,
    burners: BTreeMap<CpuId, Burner>,
    background: Option<Arc<BackgroundLoad>>,
    notes: Vec<String>,
    more_notes: Notes,
}

impl Emulation for Hogs {
    fn retarget(&mut self, targets: &Targets) -> Result<()> {
        let lowest = lowest_share(targets);
        check_limits(&self.limits, self.lifts.is_some(), lowest).map_err(|why| why.into_error(ID))?;
        if let Some(journal) = &self.lifts {
            lift(&self.limits, lowest, journal)?;
        }
        self.grid = self.grid.anew(time::now()).unwrap_or(self.grid);
        for (cpu, burner) in &self.burners {
            if let Some(&target) = targets.get(cpu) {
                burner.set(Settings::new(self.grid, target));
            }
        }
        self.targets.clone_from(targets);
        Ok(())
    }

    fn status(&self) -> Status {
        let mut status = Status {
            background: self.background.as_ref().map(|background| background.mean_share()),
            notes: self.notes.clone(),
            ..Status::new(ID, time::span(self.grid.period()))
        };
        status.add_all(&self.more_notes);
        if self.background.as_ref().is_some_and(|background| !background.is_told()) {
            status.add_problem(UNTOLD.to_owned());
        }
        let mut ended = 0;
        let (mut offline, mut kept_back, mut dropped) = (Vec::new(), Vec::new(), Duration::ZERO);
        for (&cpu, burner) in &self.burners {
            let counters = burner.counters();
            let read = |counter: &std::sync::atomic::AtomicI64| time::span(counter.load(Ordering::Relaxed));
            status.periods = status.periods.max(counters.periods.load(Ordering::Relaxed));
            status.missed += counters.missed.load(Ordering::Relaxed);
            status.longest_stall = status.longest_stall.max(read(&counters.longest_stop));
            let burned = read(&counters.burned);
            status.own_cpu += read(&counters.cpu).saturating_sub(burned);
            status.burned += burned;
            let online = burner.is_on_its_cpu();
            if !online {
                offline.push(cpu);
            }
            if burner.dropped() > DROPPED {
                kept_back.push(cpu);
                dropped = dropped.max(burner.dropped());
            }
            let why = burner.ended();
            if let Some(why) = &why {
                ended += 1;
                status.add_problem(format!(
                    "the burner of CPU {cpu} has ended, and the CPU is not slowed any more: {why}"
                ));
            }
            if let Some(&asked) = self.targets.get(&cpu) {
                status.cpus.push(CpuStatus {
                    set: if why.is_some() { 1.0 } else { counters.effective() },
                    duty: if why.is_some() { 1.0 } else { counters.duty() },
                    clock: burner.clock(),
                    online,
                    ..CpuStatus::new(cpu, asked)
                });
            }
        }
        let list = |cpus: Vec<CpuId>| cpus.into_iter().collect::<CpuList>();
        if !offline.is_empty() {
            status.add_problem(format!(
                "offline: {:#}; burners wait for it, and tasks bound to it may run elsewhere unslowed",
                list(offline)
            ));
        }
        if !kept_back.is_empty() {
            status.add_problem(format!(
                "{:#}: burners were kept from running, and up to {dropped:.1?} of what each owed was given up",
                list(kept_back)
            ));
        }
        if ended > 0 && ended == self.burners.len() {
            status.health = Health::Ended;
        }
        status
    }

    fn release(self: Box<Self>) -> Result<()> {
        let mut first_error = Ok(());
        for (_, burner) in self.burners {
            first_error = first_error.and(burner.stop());
        }
        first_error
    }
}

#[cfg(test)]
mod tests;

//! CPU-Gov: two neighbouring hardware frequencies in turn, so that their mean is the one wanted; below the
//! lowest one, that one and freezing.

mod policy_loop;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{About, Emulation, Expected, Method, Plan, Trait};
use crate::cgroup::{FreezerStop, TaskGroup};
use crate::cpu_list::CpuList;
use crate::cpufreq::{self, Control, Mix, Wish};
use crate::duty::{Counters, DutyLoop, DutyThread, Grid, PERIOD_MAX, check_period, plan};
use crate::error::Result;
use crate::host::{Controller, Host};
use crate::method_id::MethodId;
use crate::notes::Notes;
use crate::speed::{Hertz, Targets};
use crate::status::{CpuStatus, Status};
use crate::sys::time;
use crate::unavailable::{Reason, Unavailable};
use crate::undo::Journal;
use crate::zone::{Demand, Zone};
use policy_loop::Settings;

pub(super) struct CpuGov;

pub(super) const ID: MethodId = MethodId::new("cpu-gov");

const ABOUT: About = About {
    summary: "alternates the two hardware frequencies next to the one wanted; freezes below the lowest",
    acts_on: "CPU",
    continuous: true,
    traits: &[Trait::PerCpu, Trait::MovesClock, Trait::SlowsOthers],
    needs: "cpufreq and root; a cgroup freezer for speeds below the lowest frequency",
    limits: &[
        "CPUs of one cpufreq policy share a frequency",
        "everything else on the zone's CPUs is slowed too",
        "below the lowest frequency tasks are stopped for part of each period, as with cpu-freeze",
        "above the base frequency the hardware may not sustain what it is set to (turbo)",
    ],
    source: "Buchert, Nussbaum, Gustedt: Methods for Emulation of Multi-Core CPU Performance, HPCC 2011",
};

/// The default period. A change of frequency costs a system call and a transition; at 20 ms both vanish.
const PERIOD: Duration = Duration::from_millis(20);

/// A period must be so many transitions long, or the hardware would be under way for a noticeable part of it.
const LATENCIES: u32 = 100;

/// The shortest period where nothing else sets one.
const PERIOD_LEAST: Duration = Duration::from_millis(2);

/// Levels closer to the wanted one than this share are taken alone.
const EXACT: f64 = 1e-4;

/// The ratio that is the furthest from any ratio of small numbers.
const GOLDEN: f64 = 1.618_033_988_749_895;

#[derive(Debug, Clone, PartialEq)]
struct PolicyPlan {
    period: Duration,
    /// Share of time in which tasks are not frozen.
    running: f64,
    /// What each policy does while they run, in the order of the wishes.
    mixes: Vec<Mix>,
}

impl PolicyPlan {
    /// The plan for a demand. CPUs below their lowest frequency are frozen for a part of the time; all tasks
    /// are then frozen together, and CPUs that want more run faster in between.
    fn new(demand: &Demand, wishes: &[Wish]) -> Result<Self, Unavailable> {
        let latency =
            wishes.iter().filter_map(|wish| wish.policy.transition_latency).max().unwrap_or_default();
        let least = (latency * LATENCIES).max(PERIOD_LEAST);
        let wanted = demand.period.unwrap_or(PERIOD.max(least).min(PERIOD_MAX));
        let period = check_period(wanted, least)?;
        let running = wishes
            .iter()
            .map(|wish| wish.wanted.as_f64() / wish.levels.lowest().as_f64().max(1.0))
            .fold(1.0, f64::min);
        let mixes = wishes.iter().map(|wish| mix(wish, running)).collect::<Result<_, _>>()?;
        Ok(Self { period, running, mixes })
    }

    fn freezes(&self) -> bool {
        self.running < 1.0
    }

    /// The periods of the alternation. Beside freezing they are longer than those of the freezer by the golden
    /// ratio: with the same period, tasks could run at the high frequency only and be frozen at the low one.
    fn grid(&self) -> Grid {
        let period = if self.freezes() { self.period.mul_f64(GOLDEN) } else { self.period };
        Grid::new(time::now(), time::nanos(period))
    }
}

/// What a policy does while tasks run, if they run for a share `running` of the time.
fn mix(wish: &Wish, running: f64) -> Result<Mix, Unavailable> {
    let while_running = wish.wanted.as_f64() / running;
    let highest = wish.levels.highest();
    if wish.wanted.as_f64() > highest.as_f64() * (1.0 + EXACT) {
        return Err(Unavailable::new(
            Reason::SpeedOutOfReach,
            format!(
                "CPUs {} cannot be set to {}: their highest frequency is {highest}",
                wish.policy.cpus, wish.wanted
            ),
            "ask for less, or for a share such as 80%",
        ));
    }
    if while_running > highest.as_f64() * (1.0 + EXACT) {
        return Err(Unavailable::new(
            Reason::UnequalSpeeds,
            format!(
                "another CPU of the zone is frozen for {:.0} % of the time, in the rest of which CPUs {} cannot reach {}",
                (1.0 - running) * 100.0,
                wish.policy.cpus,
                wish.wanted
            ),
            "put CPUs of so different speeds into zones of their own, or use cpu-hogs",
        ));
    }
    let mix = wish.levels.mix(Hertz(while_running.round() as u64));
    let near = |level: Hertz| (level.as_f64() / while_running - 1.0).abs() < EXACT;
    match (near(mix.low), near(mix.high)) {
        (true, _) => Ok(Mix { high: mix.low, high_share: 0.0, ..mix }),
        (_, true) => Ok(Mix { low: mix.high, high_share: 0.0, ..mix }),
        _ => Ok(mix),
    }
}

impl Method for CpuGov {
    fn id(&self) -> MethodId {
        ID
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn check(&self, host: &Host, demand: &Demand) -> Result<Plan, Unavailable> {
        let wishes = cpufreq::wishes(host, demand)?;
        cpufreq::check_untuned(host, &wishes)?;
        let plan = PolicyPlan::new(demand, &wishes)?;
        let mut notes = Vec::new();
        for (wish, mix) in wishes.iter().zip(&plan.mixes) {
            notes.extend(cpufreq::caveats(&wish.policy, mix.high));
        }
        let mut error: f64 = 0.01;
        let longest_stall = if plan.freezes() {
            TaskGroup::check(host, &[Controller::Freezer])?;
            notes.push(format!(
                "below the lowest frequency: tasks are frozen for {:.1} % of the time",
                (1.0 - plan.running) * 100.0
            ));
            error = error.max(plan::expected_error(plan.period, plan.running, demand.targets.len()));
            plan.period.mul_f64(1.0 - plan.running)
        } else {
            Duration::ZERO
        };
        let expected = Expected { error, period: plan.period, longest_stall, notes };
        Ok(Plan::new(expected, move |host, zone, journal| {
            Ok(Box::new(Governor::engage(&plan, &wishes, host, zone, journal)?))
        }))
    }
}

impl Governor {
    fn engage(
        plan: &PolicyPlan,
        wishes: &[Wish],
        host: &Host,
        zone: &Zone,
        journal: &Journal,
    ) -> Result<Self> {
        let (duty_loop, mut notes, more_notes) = if plan.freezes() {
            let (stopper, cost, more_notes) = FreezerStop::measured(host, zone, journal)?;
            let cycle = (plan.period, plan.running, cost);
            let duty_loop =
                DutyLoop::start("emu-gov-freeze", host, zone, cycle, stopper, journal, more_notes.clone())?;
            (Some(duty_loop), Vec::new(), more_notes)
        } else {
            let group = TaskGroup::create(host, zone, &[Controller::Cpuset], journal)?;
            (None, Vec::new(), group.notes().clone())
        };
        let grid = plan.grid();
        let mut policies = Vec::with_capacity(wishes.len());
        for (wish, &mix) in wishes.iter().zip(&plan.mixes) {
            cpufreq::stop_boost(host, wish, mix.high, journal, &mut notes)?;
            let mut control = Control::take(&wish.policy, journal)?;
            control.prepare(&[mix.low, mix.high])?;
            let (zone, settings) = (zone.demand.cpus(), Settings { grid, mix });
            let (cpus, wanted) = (wish.policy.cpus.clone(), wish.wanted);
            let setter = control.setter();
            let (alternator, counters) =
                policy_loop::start(host, &zone, &cpus, setter, settings, &more_notes)?;
            control.confirm(&[mix.low, mix.high])?;
            policies.push(PolicyGroup { cpus, wanted, mix, control, alternator, counters });
        }
        let demand = zone.demand.clone();
        let (host, journal) = (host.clone(), journal.clone());
        let plan = plan.clone();
        Ok(Self { host, demand, journal, plan, policies, duty_loop, notes, more_notes })
    }
}

struct PolicyGroup {
    cpus: CpuList,
    wanted: Hertz,
    mix: Mix,
    control: Control,
    alternator: DutyThread<Settings>,
    counters: Arc<Counters>,
}

impl PolicyGroup {
    /// Mean frequency while tasks run.
    fn mean(&self) -> f64 {
        if self.alternator.is_finished() {
            return self.control.current().unwrap_or(self.mix.high).as_f64();
        }
        let counters = &self.counters;
        if self.mix.low == self.mix.high || counters.elapsed.load(Ordering::Relaxed) == 0 {
            return self.mix.mean();
        }
        // `duty` is the share not spent at the low level.
        Mix { high_share: counters.duty(), ..self.mix }.mean()
    }
}

struct Governor {
    host: Host,
    demand: Demand,
    journal: Journal,
    plan: PolicyPlan,
    policies: Vec<PolicyGroup>,
    duty_loop: Option<DutyLoop>,
    notes: Vec<String>,
    more_notes: Notes,
}

impl Governor {
    fn change(&mut self, targets: &Targets, is_paused: bool) -> Result<()> {
        let refuse = |why: Unavailable| why.into_error(ID);
        let demand =
            Demand { targets: targets.clone(), period: Some(self.plan.period), ..self.demand.clone() };
        let wishes = cpufreq::wishes(&self.host, &demand).map_err(refuse)?;
        let plan = PolicyPlan::new(&demand, &wishes).map_err(refuse)?;
        if plan.freezes() && self.duty_loop.is_none() {
            return Err(crate::error::Error::unavailable(
                "cannot go below the lowest frequency: the zone was made without a freezer",
            )
            .hint("start with a speed below the lowest frequency, or use cpu-hogs"));
        }
        let mut wanted = self.policies.iter_mut().zip(&wishes).zip(&plan.mixes);
        let prepared = wanted.try_for_each(|((policy, wish), mix)| {
            if !is_paused {
                cpufreq::stop_boost(&self.host, wish, mix.high, &self.journal, &mut self.notes)?;
            }
            policy.control.prepare(&[mix.low, mix.high])
        });
        if let Err(error) = prepared {
            for policy in &mut self.policies {
                // What cannot be put back shows in the status.
                let _ = policy.control.prepare(&[policy.mix.low, policy.mix.high]);
            }
            return Err(error);
        }
        if let Some(duty_loop) = &self.duty_loop {
            duty_loop.set(plan.running);
        }
        let grid = plan.grid();
        for ((policy, wish), &mix) in self.policies.iter_mut().zip(&wishes).zip(&plan.mixes) {
            policy.alternator.set(Settings { grid, mix });
            (policy.mix, policy.wanted) = (mix, wish.wanted);
        }
        (self.plan, self.demand) = (plan, demand);
        Ok(())
    }
}

impl Emulation for Governor {
    fn retarget(&mut self, targets: &Targets) -> Result<()> {
        self.change(targets, false)
    }

    fn pause(&mut self, free: &Targets) -> Result<()> {
        self.change(free, true)
    }

    fn period(&self) -> Duration {
        self.plan.period
    }

    fn running(&self) -> f64 {
        self.plan.running
    }

    fn status(&self) -> Status {
        let stopping = self.duty_loop.as_ref().map(|h| h.status(ID, &self.demand.targets, &[]));
        let frozen_cpu =
            |cpu| stopping.as_ref().and_then(|s| s.cpus.iter().find(|seen: &&CpuStatus| seen.cpu == cpu));
        let mut status = Status {
            missed: stopping.as_ref().map_or(0, |status| status.missed),
            longest_stall: stopping.as_ref().map_or(Duration::ZERO, |status| status.longest_stall),
            own_cpu: stopping.as_ref().map_or(Duration::ZERO, |status| status.own_cpu),
            notes: self.notes.clone(),
            ..Status::new(ID, self.plan.period)
        };
        match &stopping {
            // It tells what the alternators have to tell, too.
            Some(stopping) => {
                stopping.problems.iter().for_each(|problem| status.add_problem(problem.clone()));
                status.notes.extend_from_slice(&stopping.notes);
            }
            None => status.add_all(&self.more_notes),
        }
        for policy in &self.policies {
            let counters = &policy.counters;
            status.periods = status.periods.max(counters.periods.load(Ordering::Relaxed));
            status.missed += counters.missed.load(Ordering::Relaxed);
            status.own_cpu += time::span(counters.cpu.load(Ordering::Relaxed));
            if let Err(error) = policy.control.check(&[policy.mix.low, policy.mix.high]) {
                status.add_problem(error.in_words());
            }
            if policy.alternator.is_finished() {
                status.add_problem(format!(
                    "CPUs {} stay at one frequency: the kernel refused a change",
                    policy.cpus
                ));
            }
            for cpu in policy.cpus.iter() {
                let Some(&asked) = self.demand.targets.get(&cpu) else { continue };
                let frozen = frozen_cpu(cpu);
                let running = frozen.map_or(1.0, |seen| seen.set);
                let mean = policy.mean();
                let set = asked.share * running * mean / policy.wanted.as_f64().max(1.0);
                status.cpus.push(CpuStatus {
                    set,
                    duty: frozen.map_or(1.0, |seen| seen.duty),
                    set_clock: Some(Hertz(mean as u64)),
                    online: cpufreq::is_online(&self.host, cpu),
                    ..CpuStatus::new(cpu, asked)
                });
            }
        }
        status
    }

    fn release(self: Box<Self>) -> Result<()> {
        let mut first_error = self.duty_loop.map_or(Ok(()), DutyLoop::stop);
        for mut policy in self.policies {
            first_error = first_error.and(policy.alternator.stop());
        }
        first_error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpufreq::{Levels, simulated};
    use crate::speed::Target;

    fn wish(mhz: u64) -> Wish {
        let policy = simulated::policy(0, "0", &[800, 1000, 1400, 1800, 2200, 2600]);
        let levels = Levels::of(&policy).unwrap();
        Wish { policy, levels, wanted: Hertz(mhz * 1_000_000) }
    }

    fn demand() -> Demand {
        Demand::new([(0, Target { share: 0.5, clock: None })].into())
    }

    #[test]
    fn within_the_range_nothing_is_frozen_and_the_mean_is_right() {
        let plan = PolicyPlan::new(&demand(), &[wish(1500)]).unwrap();
        assert!(!plan.freezes());
        assert!((plan.mixes[0].mean() - 1.5e9).abs() < 1.0);
    }

    #[test]
    fn a_level_that_the_hardware_has_is_taken_alone() {
        let plan = PolicyPlan::new(&demand(), &[wish(1800)]).unwrap();
        assert_eq!(plan.mixes[0].low, plan.mixes[0].high);
    }

    #[test]
    fn below_the_lowest_frequency_freezing_makes_up_for_the_rest() {
        let plan = PolicyPlan::new(&demand(), &[wish(400)]).unwrap();
        assert!((plan.running - 0.5).abs() < 1e-9);
        assert_eq!(plan.mixes[0].low, Hertz(800_000_000));
    }

    #[test]
    fn a_faster_cpu_beside_a_frozen_one_makes_up_for_the_freezing() {
        let plan = PolicyPlan::new(&demand(), &[wish(400), wish(1000)]).unwrap();
        assert!((plan.mixes[1].mean() * plan.running - 1e9).abs() < 1e5);
    }

    #[test]
    fn a_cpu_that_cannot_make_up_for_the_freezing_is_refused() {
        let refused = PolicyPlan::new(&demand(), &[wish(400), wish(2000)]).unwrap_err();
        assert_eq!(refused.reason, Reason::UnequalSpeeds);
    }

    #[test]
    fn a_period_is_at_least_a_hundred_transitions() {
        let mut slow = wish(1500);
        slow.policy.transition_latency = Some(Duration::from_millis(1));
        assert_eq!(PolicyPlan::new(&demand(), &[slow.clone()]).unwrap().period, Duration::from_millis(100));
        let short = Demand { period: Some(Duration::from_millis(50)), ..demand() };
        assert_eq!(PolicyPlan::new(&short, &[slow]).unwrap_err().reason, Reason::PeriodOutOfReach);
    }
}

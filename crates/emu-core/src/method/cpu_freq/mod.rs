//! CPU-Freq: the nearest frequency that the hardware has.

use std::time::Duration;

use super::{About, Emulation, Expected, Method, Plan, Trait};
use crate::cgroup::TaskGroup;
use crate::cpu_list::CpuList;
use crate::cpufreq::{self, Control, Wish};
use crate::error::Result;
use crate::hint::{Hint, Setting};
use crate::host::{Controller, Host};
use crate::method_id::MethodId;
use crate::notes::Notes;
use crate::speed::{Hertz, Targets};
use crate::status::{CpuStatus, Status};
use crate::unavailable::{Reason, Unavailable};
use crate::undo::Journal;
use crate::zone::Round;
use crate::zone::{Demand, Zone};

pub(super) struct CpuFreq;

pub(super) const ID: MethodId = MethodId::new("cpu-freq");

const ABOUT: About = About {
    summary: "sets the nearest frequency that the hardware has",
    acts_on: "CPU",
    continuous: false,
    traits: &[Trait::PerCpu, Trait::MovesClock, Trait::SlowsOthers],
    needs: "cpufreq and root",
    limits: &[
        "only the frequencies that the hardware has, none below its lowest",
        "CPUs of one cpufreq policy share a frequency",
        "everything else on the zone's CPUs is slowed too",
    ],
    source: "Buchert, Nussbaum, Gustedt: Methods for Emulation of Multi-Core CPU Performance, HPCC 2011",
};

impl Method for CpuFreq {
    fn id(&self) -> MethodId {
        ID
    }

    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn check(&self, host: &Host, demand: &Demand) -> Result<Plan, Unavailable> {
        let wishes = cpufreq::wishes(host, demand)?;
        cpufreq::check_untuned(host, &wishes)?;
        let mut notes = Vec::new();
        let mut worst: f64 = 0.0;
        let mut set = Vec::with_capacity(wishes.len());
        for wish in wishes {
            let level = level(&wish, demand.round)?;
            let error = level.as_f64() / wish.wanted.as_f64() - 1.0;
            worst = worst.max(error.abs());
            if error.abs() > EXACT {
                notes.push(format!(
                    "CPUs {}: {level} stands for {}, {:+.1} % off",
                    wish.policy.cpus,
                    wish.wanted,
                    error * 100.0
                ));
            }
            notes.extend(cpufreq::caveats(&wish.policy, level));
            set.push((wish, level));
        }
        let expected =
            Expected { error: worst, period: Duration::ZERO, longest_stall: Duration::ZERO, notes };
        Ok(Plan::new(expected, move |host, zone, journal| {
            Ok(Box::new(SetFrequencies::engage(&set, host, zone, journal)?))
        }))
    }
}

/// Levels further from the wanted one than this share of it are told to the user.
const EXACT: f64 = 1e-3;

fn level(wish: &Wish, round: Round) -> Result<Hertz, Unavailable> {
    let level = wish.levels.round(wish.wanted, round);
    let error = level.as_f64() / wish.wanted.as_f64() - 1.0;
    let (refused, side, end) = match round {
        Round::Nearest => (false, "", level),
        Round::Down => (error > EXACT, "lower", wish.levels.lowest()),
        Round::Up => (error < -EXACT, "higher", wish.levels.highest()),
    };
    if !refused {
        return Ok(level);
    }
    Err(Unavailable::new(
        Reason::SpeedOutOfReach,
        format!(
            "CPUs {} have no frequency of {} or {side}: the table ends at {end}",
            wish.policy.cpus, wish.wanted
        ),
        Hint::LeaveOut(Setting::Round).or("use cpu-gov"),
    ))
}

struct SetPolicy {
    cpus: CpuList,
    wanted: Hertz,
    level: Hertz,
    control: Control,
}

impl SetPolicy {
    /// Sets a level and reads it back, as the kernel clamps in silence.
    fn set(&mut self, level: Hertz) -> Result<()> {
        self.control.prepare(&[level])?;
        self.control.set(level)?;
        self.level = level;
        self.control.confirm(&[level])
    }
}

struct SetFrequencies {
    host: Host,
    demand: Demand,
    journal: Journal,
    set: Vec<SetPolicy>,
    notes: Vec<String>,
    /// Those of the zone's group.
    more_notes: Notes,
}

impl SetFrequencies {
    fn engage(levels: &[(Wish, Hertz)], host: &Host, zone: &Zone, journal: &Journal) -> Result<Self> {
        let group = TaskGroup::create(host, zone, &[Controller::Cpuset], journal)?;
        let mut notes = Vec::new();
        let mut set = Vec::with_capacity(levels.len());
        for &(ref wish, level) in levels {
            cpufreq::stop_boost(host, wish, level, journal, &mut notes)?;
            let control = Control::take(&wish.policy, journal)?;
            let mut one = SetPolicy { cpus: wish.policy.cpus.clone(), wanted: wish.wanted, level, control };
            one.set(level)?;
            set.push(one);
        }
        let (host, demand, journal) = (host.clone(), zone.demand.clone(), journal.clone());
        let more_notes = group.notes().clone();
        Ok(Self { host, demand, journal, set, notes, more_notes })
    }
}

impl SetFrequencies {
    fn change(&mut self, targets: &Targets, is_paused: bool) -> Result<()> {
        let demand = Demand { targets: targets.clone(), ..self.demand.clone() };
        let refuse = |why: Unavailable| why.into_error(ID);
        let wishes = cpufreq::wishes(&self.host, &demand).map_err(refuse)?;
        let levels: Vec<_> =
            wishes.iter().map(|wish| level(wish, demand.round)).collect::<Result<_, _>>().map_err(refuse)?;
        for (wish, level) in wishes.iter().zip(&levels).filter(|_| !is_paused) {
            cpufreq::stop_boost(&self.host, wish, *level, &self.journal, &mut self.notes)?;
        }
        let old: Vec<_> = self.set.iter().map(|one| one.level).collect();
        if let Err(error) = self.set.iter_mut().zip(levels).try_for_each(|(one, level)| one.set(level)) {
            for (one, level) in self.set.iter_mut().zip(old) {
                // What cannot be set back shows in the status.
                let _ = one.control.set(level);
                one.level = level;
            }
            return Err(error);
        }
        for (one, wish) in self.set.iter_mut().zip(&wishes) {
            one.wanted = wish.wanted;
        }
        self.demand = demand;
        Ok(())
    }
}

impl Emulation for SetFrequencies {
    fn retarget(&mut self, targets: &Targets) -> Result<()> {
        self.change(targets, false)
    }

    fn pause(&mut self, free: &Targets) -> Result<()> {
        self.change(free, true)
    }

    fn period(&self) -> Duration {
        Duration::ZERO
    }

    fn status(&self) -> Status {
        let notes = self.notes.clone();
        let mut status = Status { notes, ..Status::new(ID, Duration::ZERO) };
        status.add_all(&self.more_notes);
        for one in &self.set {
            if let Err(error) = one.control.check(&[one.level]) {
                status.add_problem(error.in_words());
            }
            let set_clock = one.control.current().ok();
            for cpu in one.cpus.iter() {
                let Some(&asked) = self.demand.targets.get(&cpu) else { continue };
                // Under another governor no frequency is told: it may be the highest one.
                let part = |clock: Hertz| asked.share * clock.as_f64() / one.wanted.as_f64();
                let online = cpufreq::is_online(&self.host, cpu);
                let set = set_clock.map_or(1.0, part);
                let seen = CpuStatus { set, duty: 1.0, set_clock, online, ..CpuStatus::new(cpu, asked) };
                status.cpus.push(seen);
            }
        }
        status
    }

    fn release(self: Box<Self>) -> Result<()> {
        // The journal sets the policies back.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Cpufreq;
    use crate::host::testing;
    use crate::speed::Target;

    fn host() -> Host {
        let mut host = testing::host();
        host.privileges.uid = 0;
        host.cpufreq = Some(Cpufreq {
            policies: vec![cpufreq::simulated::policy(0, "0-1", &[800, 1000, 1400, 1800, 2200, 2600])],
            boost: None,
            intel_pstate: None,
            no_turbo: None,
            amd_pstate: None,
        });
        host
    }

    fn demand(cpus: &[usize], target: Target) -> Demand {
        Demand::new(cpus.iter().map(|cpu| (*cpu, target)).collect())
    }

    #[test]
    fn the_rounding_error_is_told_beforehand() {
        let target = Target { share: 0.5, clock: Some(Hertz(1_500_000_000)) };
        let plan = CpuFreq.check(&host(), &demand(&[0, 1], target)).unwrap();
        let expected = plan.expected();
        assert!((expected.error - 0.0667).abs() < 1e-3, "{expected:?}");
        assert!(expected.notes[0].contains("1.400 GHz stands for 1.500 GHz"), "{:?}", expected.notes);
        let up = Demand { round: Round::Up, ..demand(&[0, 1], target) };
        assert!((CpuFreq.check(&host(), &up).unwrap().expected().error - 0.2).abs() < 1e-3);
    }

    #[test]
    fn a_frequency_beyond_the_table_becomes_its_end_or_is_refused() {
        let target = |mhz: u64| Target { share: 0.1, clock: Some(Hertz(mhz * 1_000_000)) };
        let check = |mhz, round| CpuFreq.check(&host(), &Demand { round, ..demand(&[0, 1], target(mhz)) });
        let plan = check(400, Round::Nearest).unwrap();
        let expected = plan.expected();
        assert!(
            expected.notes[0].contains("800.0 MHz stands for 400.0 MHz, +100.0 % off"),
            "{:?}",
            expected.notes
        );
        assert!(check(400, Round::Up).is_ok() && check(3000, Round::Down).is_ok());
        for (mhz, round) in [(400, Round::Down), (3000, Round::Up)] {
            assert_eq!(check(mhz, round).unwrap_err().reason, Reason::SpeedOutOfReach);
        }
    }

    #[test]
    fn part_of_a_policy_is_refused_unless_widening_is_asked_for() {
        let target = Target { share: 0.5, clock: None };
        let refused = CpuFreq.check(&host(), &demand(&[0], target)).unwrap_err();
        assert_eq!(refused.reason, Reason::UnequalSpeeds);
        assert!(refused.detail.contains("CPUs 1 share"), "{}", refused.detail);
        let widened = Demand { widen_policies: true, ..demand(&[0], target) };
        assert!(CpuFreq.check(&host(), &widened).is_ok());
    }

    #[test]
    fn background_load_cannot_be_excluded() {
        let target = Target { share: 0.5, clock: None };
        let excluding = Demand { exclude_background: true, ..demand(&[0, 1], target) };
        assert_eq!(CpuFreq.check(&host(), &excluding).unwrap_err().reason, Reason::SlowsOthers);
        assert!(CpuFreq.check(&host(), &demand(&[0, 1], target)).is_ok());
    }

    #[test]
    fn a_pause_leaves_boost_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (roots, journal) = cpufreq::simulated::journal(dir.path());
        let mut host = host();
        host.roots = roots;
        let switch = host.roots.cpus().join("cpufreq/boost");
        let found = host.cpufreq.as_mut().unwrap();
        found.boost = Some(true);
        let policy = &mut found.policies[0];
        policy.path = switch.with_file_name("policy0");
        let files = cpufreq::simulated::Simulated::new(&policy.path, "userspace");
        std::fs::write(&switch, "1\n").unwrap();
        let control = Control::take(policy, &journal).unwrap();
        let (wanted, level) = (Hertz(1_300_000_000), Hertz(1_400_000_000));
        let demand = demand(&[0, 1], Target { share: 0.5, clock: None });
        let cpus = "0-1".parse().unwrap();
        let set = vec![SetPolicy { cpus, wanted, level, control }];
        let (notes, more_notes) = (Vec::new(), Notes::default());
        let targets = |share: f64| [0, 1].map(|cpu| (cpu, Target { share, clock: None })).into();
        let mut emulation = SetFrequencies { host, demand, journal, set, notes, more_notes };
        let seen = |emulation: &SetFrequencies| {
            let boost = std::fs::read_to_string(&switch).unwrap();
            (files.get("scaling_setspeed"), boost.trim().to_owned(), emulation.notes.len())
        };
        emulation.pause(&targets(1.0)).unwrap();
        assert_eq!(seen(&emulation), ("2600000".into(), "1".into(), 0));
        emulation.retarget(&targets(0.5)).unwrap();
        assert_eq!(seen(&emulation), ("1400000".into(), "1".into(), 0));
        emulation.retarget(&targets(1.0)).unwrap();
        assert_eq!(seen(&emulation), ("2600000".into(), "0".into(), 1));
    }

    #[test]
    fn a_host_without_cpufreq_is_refused_with_the_reason() {
        let mut host = host();
        host.cpufreq = None;
        let target = Target { share: 0.5, clock: None };
        assert_eq!(CpuFreq.check(&host, &demand(&[0], target)).unwrap_err().reason, Reason::NoCpufreq);
    }
}

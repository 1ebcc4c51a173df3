//! Control of the CPU frequency through cpufreq policies: what `cpu-freq` and `cpu-gov` share, and the clock held under methods
//! that leave CPUs idle (Documentation/admin-guide/pm/cpufreq.rst).

mod control;
mod hold;
mod levels;
#[cfg(test)]
pub(crate) mod simulated;
mod tunables;

pub use control::select_governor;
pub(crate) use control::{Control, Setter};
pub(crate) use hold::{HeldClock, HoldPlan};
pub(crate) use levels::{Levels, Mix};

use std::path::Path;

use crate::control_file;
use crate::cpu_list::{CpuId, CpuList};
use crate::error::Result;
use crate::hint::{Hint, Setting};
use crate::host::{Host, Policy};
use crate::speed::{Hertz, Target};
use crate::unavailable::{Reason, Unavailable};
use crate::undo::tuning_below;
use crate::undo::{Journal, Undo};
use crate::zone::Demand;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wish {
    pub(crate) policy: Policy,
    pub(crate) levels: Levels,
    pub(crate) wanted: Hertz,
}

/// The policies of a demand and the frequency wanted of each. A share is one of the policy's highest frequency, turbo included
/// where the driver counts it in (`cpuinfo_max_freq`); a clock is taken as it is.
pub(crate) fn wishes(host: &Host, demand: &Demand) -> Result<Vec<Wish>, Unavailable> {
    let Some(cpufreq) = &host.cpufreq else {
        let why = match &host.hypervisor {
            Some(hypervisor) => {
                format!("there is no cpufreq here: {hypervisor} does not let this guest set its clock")
            }
            None => "there is no cpufreq here: the kernel has no frequency driver for this processor".into(),
        };
        return Err(Unavailable::new(Reason::NoCpufreq, why, "use cpu-hogs, cpu-freeze, fracas or cpu-lim"));
    };
    if demand.exclude_background {
        return Err(Unavailable::new(
            Reason::SlowsOthers,
            "a frequency is that of all tasks on a CPU: the background load cannot be excluded",
            Hint::LeaveOut(Setting::ExcludeBackground).or("use another method"),
        ));
    }
    let cpus = demand.cpus();
    let mut wishes: Vec<Wish> = Vec::new();
    for (&cpu, target) in &demand.targets {
        let Some(policy) = cpufreq.policy_of(cpu) else {
            return Err(Unavailable::new(
                Reason::NoCpufreq,
                format!("CPU {cpu} has no cpufreq policy"),
                Hint::OtherCpus.or("use another method"),
            ));
        };
        let levels = Levels::of(policy)?;
        let wanted = wanted(*target, &levels);
        match wishes.iter().find(|wish| wish.policy.path == policy.path) {
            None => wishes.push(Wish { policy: policy.clone(), levels, wanted }),
            Some(wish) if wish.wanted == wanted => {}
            Some(wish) => {
                return Err(Unavailable::new(
                    Reason::UnequalSpeeds,
                    format!("CPUs {} share one clock and cannot have different speeds", wish.policy.cpus),
                    "give the CPUs of a policy one speed, or use cpu-hogs",
                ));
            }
        }
    }
    for wish in &wishes {
        check_whole(&wish.policy, &cpus, &host.online(), demand.widen_policies)?;
        if !may_write(host) {
            return Err(Unavailable::new(
                Reason::NoPrivilege,
                format!("{} can only be written by root", wish.policy.path.display()),
                Hint::Root.or("use cpu-lim"),
            ));
        }
    }
    Ok(wishes)
}

fn may_write(host: &Host) -> bool {
    host.privileges.uid == 0 || host.privileges.dac_override
}

/// Refuses policies of which a tuning holds a file: each would take the other's changes for somebody else's.
pub(crate) fn check_untuned(host: &Host, wishes: &[Wish]) -> Result<(), Unavailable> {
    let folders: Vec<_> = wishes.iter().map(|wish| wish.policy.path.as_path()).collect();
    // Who cannot look fails with the reason when the journal is opened.
    if let Ok(Some((tuning, place))) = tuning_below(&host.roots, &folders)
        && let Some(Wish { policy, .. }) = wishes.get(place)
    {
        return Err(Unavailable::new(
            Reason::Tuned,
            format!(
                "emu {} holds the frequency of CPUs {} tuned ({}, for {})",
                tuning.pid, policy.cpus, tuning.method, tuning.name
            ),
            Hint::EndTuning,
        ));
    }
    Ok(())
}

fn wanted(target: Target, levels: &Levels) -> Hertz {
    target.clock.unwrap_or_else(|| Hertz((levels.highest().as_f64() * target.share).round() as u64))
}

/// Refuses a zone that holds only part of a policy: the rest would be slowed too.
fn check_whole(policy: &Policy, zone: &CpuList, online: &CpuList, widen: bool) -> Result<(), Unavailable> {
    let outside = policy.cpus.intersection(online).difference(zone);
    if outside.is_empty() || widen {
        return Ok(());
    }
    Err(Unavailable::new(
        Reason::UnequalSpeeds,
        format!("CPUs {outside} share a clock with the zone's CPUs and are not in it"),
        Hint::AddCpus.or(Hint::WidenPolicies),
    ))
}

/// A CPU that cannot be taken offline has no such file.
pub(crate) fn is_online(host: &Host, cpu: CpuId) -> bool {
    control_file::probe::<u8>(&host.roots.cpus().join(format!("cpu{cpu}/online"))) != Some(0)
}

pub(crate) fn caveats(policy: &Policy, level: Hertz) -> Vec<String> {
    let mut caveats = Vec::new();
    if let Some(base) = policy.base.filter(|base| level > *base) {
        caveats.push(format!(
            "CPUs {}: {level} is above the base frequency of {base}: turbo, which the hardware may not sustain",
            policy.cpus
        ));
    }
    if let Some(limit) = policy.bios_limit.filter(|limit| level > *limit) {
        caveats.push(format!("CPUs {}: the firmware limits the clock to {limit}", policy.cpus));
    }
    if policy.transition_latency.is_none() {
        caveats.push(format!("CPUs {}: the driver does not tell how long a change takes", policy.cpus));
    }
    caveats
}

/// Where a policy is to run at the top of its table, boost would take it beyond.
pub(crate) fn stop_boost(
    host: &Host,
    wish: &Wish,
    level: Hertz,
    journal: &Journal,
    notes: &mut Vec<String>,
) -> Result<()> {
    let Some(cpufreq) = &host.cpufreq else { return Ok(()) };
    if level < wish.levels.highest() || !matches!(wish.levels, Levels::Table(_)) {
        return Ok(());
    }
    let own = (
        wish.policy.path.join("boost"),
        std::slice::from_ref(&wish.policy),
        format!("CPUs {}", wish.policy.cpus),
    );
    let common = (
        host.roots.cpus().join("cpufreq/boost"),
        cpufreq.policies.as_slice(),
        "the whole machine".to_owned(),
    );
    let is_on = |allowed: Option<bool>| allowed == Some(true);
    // Turned off by another emu, it must not come back when that one ends.
    let is_held = |allowed: Option<bool>, switch: &Path| allowed.is_some() && journal.is_shared(switch);
    let (switch, policies, scope) = if is_on(wish.policy.boost) || is_held(wish.policy.boost, &own.0) {
        own
    } else if is_on(cpufreq.boost) || is_held(cpufreq.boost, &common.0) {
        common
    } else {
        return Ok(());
    };
    // The kernel moves the upper limit of each policy to the new end of its range when boost is switched
    // (`cpufreq_boost_set_sw`), also when it is switched back: the limits are undone after it.
    for policy in policies {
        let ends = [policy.hardware_max, policy.frequencies.last().copied()];
        if let (Some(old), [Some(_), _] | [_, Some(_)]) = (policy.max, ends) {
            let new = ends.into_iter().flatten().map(|end| (end.0 / 1000).to_string()).collect();
            let path = policy.path.join("scaling_max_freq");
            journal.record(&Undo::File { path, old: (old.0 / 1000).to_string(), new })?;
        }
    }
    if journal.write_file(&switch, "0")? == "0" {
        let note = format!("boost is off for {scope} while the zone exists");
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing;

    #[test]
    fn a_policy_that_a_tuning_holds_is_refused_and_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut host = testing::host();
        let (roots, _emulation) = simulated::journal(dir.path());
        host.roots = roots;
        let wishes = [0, 1].map(|number| {
            let mut policy = simulated::policy(number, &number.to_string(), &[800, 2600]);
            policy.path = host.roots.cpus().join(format!("cpufreq/policy{number}"));
            std::fs::create_dir_all(&policy.path).unwrap();
            std::fs::write(policy.path.join("scaling_governor"), "powersave\n").unwrap();
            Wish { levels: Levels::of(&policy).unwrap(), wanted: Hertz(1), policy }
        });
        let tuning = Journal::open(&host.roots, &CpuList::default(), "doctor tune", "make").unwrap();
        check_untuned(&host, &wishes).unwrap();
        tuning.write_file(&wishes[1].policy.path.join("scaling_governor"), "performance").unwrap();
        check_untuned(&host, &wishes[..1]).unwrap();
        let refusal = check_untuned(&host, &wishes).unwrap_err();
        assert_eq!(refusal.reason, Reason::Tuned);
        assert!(refusal.detail.contains("CPUs 1") && refusal.detail.contains("make"), "{refusal}");
        tuning.undo_all().unwrap();
        check_untuned(&host, &wishes).unwrap();
    }

    #[test]
    fn boost_stays_off_until_the_last_emu_that_needs_it_off_ends() {
        for first_ends_first in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let mut host = testing::host();
            let (roots, first) = simulated::journal(dir.path());
            let second = Journal::open(&roots, &"1".parse().unwrap(), "cpu-freq", "other").unwrap();
            host.roots = roots;
            let cpufreq = host.roots.cpus().join("cpufreq");
            let switch = cpufreq.join("boost");
            std::fs::create_dir_all(cpufreq.join("policy0")).unwrap();
            std::fs::write(&switch, "1\n").unwrap();
            let limit = cpufreq.join("policy0/scaling_max_freq");
            std::fs::write(&limit, "2200000\n").unwrap();
            let mut policy = simulated::policy(0, "0", &[800, 2600]);
            policy.path = cpufreq.join("policy0");
            let wish =
                Wish { levels: Levels::of(&policy).unwrap(), wanted: Hertz(1), policy: policy.clone() };
            // As each finds the machine: boost has moved the limit when the second looks.
            for (journal, boost, max) in [(&first, true, 2_200_000_000), (&second, false, 2_600_000_000)] {
                let policies = vec![Policy { max: Some(Hertz(max)), ..policy.clone() }];
                let boost = Some(boost);
                host.cpufreq = Some(crate::host::Cpufreq {
                    policies,
                    boost,
                    intel_pstate: None,
                    no_turbo: None,
                    amd_pstate: None,
                });
                let mut notes = Vec::new();
                stop_boost(&host, &wish, Hertz(2_600_000_000), journal, &mut notes).unwrap();
                assert_eq!(notes.len(), 1);
                std::fs::write(&limit, "2600000\n").unwrap();
            }
            let read = |path: &Path| std::fs::read_to_string(path).unwrap().trim().to_owned();
            let (one, other) = if first_ends_first { (first, second) } else { (second, first) };
            one.undo_all().unwrap();
            assert_eq!(read(&switch), "0");
            std::fs::write(&limit, "2600000\n").unwrap();
            other.undo_all().unwrap();
            assert_eq!((read(&switch), read(&limit)), ("1".into(), "2200000".into()));
            assert_eq!([one.notes(), other.notes()].concat(), Vec::<String>::new());
        }
    }

    #[test]
    fn boost_is_switched_off_only_for_the_top_of_a_table() {
        let dir = tempfile::tempdir().unwrap();
        let mut host = testing::host();
        let (roots, journal) = simulated::journal(dir.path());
        host.roots = roots;
        let cpufreq = host.roots.cpus().join("cpufreq");
        std::fs::create_dir_all(cpufreq.join("policy0")).unwrap();
        let write = |file: &str, value: &str| std::fs::write(cpufreq.join(file), value).unwrap();
        write("boost", "1\n");
        write("policy0/scaling_max_freq", "2200000\n");
        let mut policy = simulated::policy(0, "0", &[800, 2600]);
        policy.path = cpufreq.join("policy0");
        policy.max = Some(Hertz(2_200_000_000));
        let (policies, boost) = (vec![policy.clone()], Some(true));
        host.cpufreq = Some(crate::host::Cpufreq {
            policies,
            boost,
            intel_pstate: None,
            no_turbo: None,
            amd_pstate: None,
        });
        let wish = Wish { levels: Levels::of(&policy).unwrap(), wanted: Hertz(1), policy };
        let read = |file: &str| std::fs::read_to_string(cpufreq.join(file)).unwrap().trim().to_owned();
        let mut notes = Vec::new();
        stop_boost(&host, &wish, Hertz(800_000_000), &journal, &mut notes).unwrap();
        assert_eq!((read("boost").as_str(), notes.len()), ("1", 0));
        stop_boost(&host, &wish, Hertz(2_600_000_000), &journal, &mut notes).unwrap();
        assert_eq!((read("boost").as_str(), notes.len()), ("0", 1));
        // What the kernel does when boost comes back.
        write("policy0/scaling_max_freq", "2600000\n");
        journal.undo_all().unwrap();
        assert_eq!((read("boost"), read("policy0/scaling_max_freq")), ("1".into(), "2200000".into()));
    }
}

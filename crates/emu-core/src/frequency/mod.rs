//! Control of the CPU frequency through cpufreq policies: what `cpu-freq` and `cpu-gov` share
//! (Documentation/admin-guide/pm/cpufreq.rst).

pub(crate) mod alternator;
mod control;
mod levels;
#[cfg(test)]
pub(crate) mod simulated;

pub(crate) use control::Control;
pub(crate) use levels::{Levels, Mix};

use crate::method::{Reason, Unavailable};
use crate::{CpuList, Demand, Hertz, Host, Journal, Policy, Result, Target};

/// What is wanted of one policy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wish {
    pub(crate) policy: Policy,
    pub(crate) levels: Levels,
    /// The mean frequency wanted.
    pub(crate) wanted: Hertz,
}

/// The policies of a demand and the frequency wanted of each.
///
/// A share is one of the policy's highest frequency, turbo included where the driver counts it in
/// (`cpuinfo_max_freq`); a clock is taken as it is.
///
/// # Errors
/// No cpufreq, a CPU without policy, no privilege, a zone that holds part of a policy without
/// `widen_policies`, or CPUs of one policy with different targets.
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
    let cpus = demand.cpus();
    let mut wishes: Vec<Wish> = Vec::new();
    for (&cpu, target) in &demand.targets {
        let Some(policy) = cpufreq.policy_of(cpu) else {
            return Err(Unavailable::new(
                Reason::NoCpufreq,
                format!("CPU {cpu} has no cpufreq policy"),
                "choose other CPUs, or another method",
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
        if host.privileges.uid != 0 && !host.privileges.dac_override {
            return Err(Unavailable::new(
                Reason::NoPrivilege,
                format!("{} can only be written by root", wish.policy.path.display()),
                "run as root, or use cpu-lim",
            ));
        }
    }
    Ok(wishes)
}

/// What a target means in hertz.
fn wanted(target: Target, levels: &Levels) -> Hertz {
    target.clock.unwrap_or_else(|| Hertz((levels.highest().as_f64() * target.share).round() as u64))
}

/// Refuses a zone that holds only part of a policy, as the rest would be slowed too.
fn check_whole(policy: &Policy, zone: &CpuList, online: &CpuList, widen: bool) -> Result<(), Unavailable> {
    let outside = policy.cpus.intersection(online).difference(zone);
    if outside.is_empty() || widen {
        return Ok(());
    }
    Err(Unavailable::new(
        Reason::UnequalSpeeds,
        format!("CPUs {outside} share a clock with the zone's CPUs and are not in it"),
        "take them into --cpus, or pass --widen to have them slowed too",
    ))
}

/// The highest frequency of a policy, which 100 % stands for.
pub(crate) fn highest(policy: &Policy) -> Option<Hertz> {
    Levels::of(policy).ok().map(|levels| levels.highest())
}

/// What the user should know about running a policy at `level`.
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

/// Turns boost off while a policy stands at the top of its table, where the hardware would go beyond it.
///
/// # Errors
/// The switch cannot be written.
pub(crate) fn stop_boost(host: &Host, wish: &Wish, journal: &Journal, notes: &mut Vec<String>) -> Result<()> {
    let at_top = wish.wanted >= wish.levels.highest() && matches!(wish.levels, Levels::Table(_));
    if !at_top {
        return Ok(());
    }
    let (switch, scope) = if wish.policy.boost == Some(true) {
        (wish.policy.path.join("boost"), format!("CPUs {}", wish.policy.cpus))
    } else if host.cpufreq.as_ref().is_some_and(|cpufreq| cpufreq.boost == Some(true)) {
        (host.roots.cpus().join("cpufreq/boost"), "the whole machine".to_owned())
    } else {
        return Ok(());
    };
    journal.write_file(&switch, "0")?;
    notes.push(format!("boost is off for {scope} while the zone exists"));
    Ok(())
}

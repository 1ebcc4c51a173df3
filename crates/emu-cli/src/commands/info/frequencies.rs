//! What the host's frequency control can do, in sentences for `emu info`.

use emu_bench::grouped;
use emu_bench::numbers::{percent, span};
use emu_core::{CpuList, Cpufreq, Hertz, Policy};

const STEPS_SHOWN: usize = 12;

/// A sentence or a few for each kind of policy, and for the switches of the whole machine.
pub(super) fn sentences(cpufreq: Option<&Cpufreq>) -> Vec<String> {
    let Some(cpufreq) = cpufreq.filter(|cpufreq| !cpufreq.policies.is_empty()) else {
        let none = "none, as in most virtual machines: the hardware clock cannot be set from here, so cpu-freq and \
                    cpu-gov cannot work; the other methods need none";
        return vec![none.into()];
    };
    let kinds = grouped(&cpufreq.policies, |one, other| is_same(one, other));
    let mut sentences: Vec<_> = kinds.iter().flat_map(|kind| of_kind(kind)).collect();
    for (switch, name) in [(cpufreq.boost, "boost"), (cpufreq.no_turbo.map(|off| !off), "turbo")] {
        let on = "on: the clock may exceed what is set; a zone at the top of the table turns it off";
        sentences.extend(switch.map(|is_on| format!("{name} is {}", if is_on { on } else { "off" })));
    }
    for (mode, name) in [(&cpufreq.intel_pstate, "intel_pstate"), (&cpufreq.amd_pstate, "amd_pstate")] {
        sentences.extend(mode.iter().map(|mode| format!("{name} is {mode}")));
    }
    sentences
}

/// Whether two policies differ in their CPUs only.
fn is_same(one: &Policy, other: &Policy) -> bool {
    let likened = Policy {
        path: one.path.clone(),
        cpus: one.cpus.clone(),
        domain: one.domain.clone(),
        ..other.clone()
    };
    *one == likened && (one.cpus.len() == 1) == (other.cpus.len() == 1)
}

fn of_kind(kind: &[&Policy]) -> Vec<String> {
    let Some(first) = kind.first() else { return vec![] };
    let all: CpuList = kind.iter().flat_map(|policy| policy.cpus.iter()).collect();
    let range = match (first.hardware_min, first.hardware_max) {
        (Some(min), Some(max)) => format!(", {min} to {max}"),
        _ => String::new(),
    };
    let steps = match first.frequencies.len() {
        0 => String::new(),
        count => format!(" in {count} steps"),
    };
    let governor = if first.governor.is_empty() { "unknown" } else { &first.governor };
    let mut sentences = vec![format!("CPUs {all}: {}, governor {governor}{range}{steps}", first.driver)];
    if (2..=STEPS_SHOWN).contains(&first.frequencies.len()) {
        let gigahertz = |level: &Hertz| format!("{}", (level.as_f64() / 1e6).round() / 1e3);
        let steps: Vec<_> = first.frequencies.iter().map(gigahertz).collect();
        sentences.push(format!("steps: {} GHz", steps.join(", ")));
    }
    sentences.push(domains(kind));
    sentences.push(control(first));
    let ends = (first.frequencies.first().copied().or(first.hardware_min), first.hardware_max);
    if let (Some(lowest), Some(highest)) = ends {
        let share = percent(lowest.as_f64() / highest.as_f64());
        sentences
            .push(format!("below {share} ({lowest}) cpu-gov freezes tasks too, and cpu-freq has nothing"));
    }
    for policy in kind {
        if let Some(limit) = policy.bios_limit.filter(|limit| Some(*limit) < policy.hardware_max) {
            sentences.push(format!("the firmware limits CPUs {} to {limit}", policy.cpus));
        }
    }
    sentences
}

fn domains(kind: &[&Policy]) -> String {
    let is_alone = |policy: &&&Policy| policy.cpus.len() == 1;
    if !kind.iter().all(|policy| is_alone(&policy)) {
        let sets: Vec<_> = kind.iter().map(|policy| policy.cpus.to_string()).collect();
        return format!(
            "CPUs {} share a clock: they get one speed, all in the zone or with --widen",
            sets.join(" and CPUs ")
        );
    }
    let coupled = kind.iter().find_map(|policy| policy.domain.as_ref().filter(|domain| domain.len() > 1));
    match coupled {
        Some(domain) => format!(
            "each CPU can be set by itself, but CPUs {domain} share a clock in hardware: the fastest wish counts for all"
        ),
        None => "each CPU has a clock of its own and can have a speed of its own".into(),
    }
}

fn control(policy: &Policy) -> String {
    let way = if policy.governors.iter().any(|governor| governor == "userspace") {
        "set by the userspace governor"
    } else {
        "set by minimum = maximum, as there is no userspace governor"
    };
    match policy.transition_latency {
        Some(latency) => format!("{way}; a change takes {}", span(latency)),
        None => format!("{way}; the driver does not tell how long a change takes"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn policy(number: usize, cpus: &str) -> Policy {
        let mhz = |mhz: u64| Hertz(mhz * 1_000_000);
        Policy {
            path: format!("/sys/devices/system/cpu/cpufreq/policy{number}").into(),
            cpus: cpus.parse().unwrap(),
            domain: None,
            driver: "acpi-cpufreq".into(),
            governor: "schedutil".into(),
            governors: vec!["userspace".into(), "schedutil".into()],
            frequencies: [800, 1400, 2600].map(mhz).to_vec(),
            hardware_min: Some(mhz(800)),
            hardware_max: Some(mhz(2600)),
            min: None,
            max: None,
            base: None,
            bios_limit: None,
            transition_latency: Some(Duration::from_micros(10)),
            boost: None,
            epp: None,
        }
    }

    fn text(policies: Vec<Policy>) -> String {
        let cpufreq =
            Cpufreq { policies, boost: Some(true), intel_pstate: None, no_turbo: None, amd_pstate: None };
        sentences(Some(&cpufreq)).join("\n")
    }

    #[test]
    fn equal_policies_are_told_once_with_what_they_mean() {
        let told = text(vec![policy(0, "0"), policy(1, "1")]);
        assert_eq!(
            told,
            "CPUs 0-1: acpi-cpufreq, governor schedutil, 800.0 MHz to 2.600 GHz in 3 steps\n\
             steps: 0.8, 1.4, 2.6 GHz\n\
             each CPU has a clock of its own and can have a speed of its own\n\
             set by the userspace governor; a change takes 10µs\n\
             below 30.8% (800.0 MHz) cpu-gov freezes tasks too, and cpu-freq has nothing\n\
             boost is on: the clock may exceed what is set; a zone at the top of the table turns it off"
        );
    }

    #[test]
    fn shared_clocks_and_odd_drivers_are_told() {
        let mut coupled = policy(4, "4");
        coupled.domain = Some("4-5".parse().unwrap());
        let clamped = Policy {
            driver: "intel_pstate".into(),
            governors: vec!["performance".into()],
            frequencies: vec![],
            transition_latency: None,
            bios_limit: Some(Hertz(1_000_000_000)),
            ..policy(6, "6")
        };
        let told = text(vec![policy(0, "0-1"), policy(2, "2-3"), coupled, clamped]);
        for said in [
            "CPUs 0-1 and CPUs 2-3 share a clock: they get one speed",
            "CPUs 4-5 share a clock in hardware",
            "CPUs 6: intel_pstate, governor schedutil, 800.0 MHz to 2.600 GHz\n",
            "set by minimum = maximum",
            "the driver does not tell how long a change takes",
            "the firmware limits CPUs 6 to 1.000 GHz",
        ] {
            assert!(told.contains(said), "{said}: {told}");
        }
    }
}

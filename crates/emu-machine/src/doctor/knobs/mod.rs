//! The knobs, one file for each, and what several of them share. No file here imports another knob.

mod aslr;
pub(super) mod c_states;
pub(super) mod cgroup;
pub(super) mod clock;
pub(super) mod clocksource;
pub(super) mod driver;
pub(super) mod epp;
pub(super) mod governor;
pub(super) mod idle_driver;
pub(super) mod irq_affinity;
pub(super) mod isolation;
pub(super) mod load;
pub(super) mod nohz_full;
pub(super) mod rt_limit;
pub(super) mod smt;
pub(super) mod swap;
pub(super) mod thp;
pub(super) mod throttling;
pub(super) mod timer_slack;
pub(super) mod turbo;
pub(super) mod virtualisation;

use std::collections::BTreeMap;
use std::path::Path;

use emu_core::control_file::{chosen, probe};
use emu_core::{CpuList, Cpufreq, Error, Host, Policy, Result};

use super::finding::Finding;
use super::knob::Knob;
use super::machine::Machine;

/// All knobs, in the order in which they are changed. The preference for energy comes before the governor, which
/// may forbid to change it, and turbo after it, as some kernels allow turbo again with a new governor.
pub static KNOBS: &[&Knob] = &[
    &driver::DRIVER,
    &epp::EPP,
    &governor::GOVERNOR,
    &turbo::TURBO,
    &clock::CLOCK,
    &throttling::THROTTLING,
    &smt::SMT,
    &c_states::C_STATES,
    &idle_driver::IDLE_DRIVER,
    &isolation::ISOLATION,
    &nohz_full::NOHZ_FULL,
    &irq_affinity::IRQ_AFFINITY,
    &aslr::ASLR,
    &swap::SWAP,
    &thp::ENABLED,
    &thp::DEFRAG,
    &timer_slack::TIMER_SLACK,
    &clocksource::CLOCKSOURCE,
    &rt_limit::RT_LIMIT,
    &cgroup::CGROUP,
    &load::OTHER_LOAD,
    &load::STEAL,
    &virtualisation::VIRTUALISATION,
];

/// The knob of that name.
pub fn knob(name: &str) -> Result<&'static Knob> {
    KNOBS.iter().find(|knob| knob.name == name).copied().ok_or_else(|| {
        let names: Vec<_> = KNOBS.iter().map(|knob| knob.name).collect();
        Error::usage(format!("there is no knob `{name}`")).hint(format!("one of {}", names.join(", ")))
    })
}

fn cpufreq(host: &Host) -> Result<&Cpufreq, Finding> {
    host.cpufreq.as_ref().ok_or_else(|| {
        Finding::unseen(match &host.hypervisor {
            Some(hypervisor) => format!("{hypervisor} shows this guest no cpufreq"),
            None => "the kernel has no frequency driver for this processor".to_owned(),
        })
    })
}

fn policies(machine: &Machine) -> Result<Vec<&Policy>, Finding> {
    let all = &cpufreq(&machine.host)?.policies;
    let is_quiet = |policy: &&Policy| !policy.cpus.intersection(&machine.cpus).is_empty();
    let policies: Vec<_> = all.iter().filter(is_quiet).collect();
    if policies.is_empty() {
        return Err(Finding::unseen(format!("the frequency driver has no policy for CPUs {}", machine.cpus)));
    }
    Ok(policies)
}

/// The hint that changes reach beyond the quiet CPUs, where they do: the CPUs of a policy are set together.
fn beyond(machine: &Machine, changed: &[&Policy]) -> Option<String> {
    let all: CpuList = changed.iter().flat_map(|policy| policy.cpus.iter()).collect();
    let others = all.intersection(&machine.host.online()).difference(&machine.cpus);
    (!others.is_empty())
        .then(|| format!("CPUs {others} share a policy with CPUs {}, and change as well", machine.cpus))
}

/// What policies hold, each value with its CPUs where there are several: `powersave on 0-3, performance on 4-7`.
fn by_value<'a>(values: impl Iterator<Item = (&'a Policy, String)>) -> String {
    let mut cpus: BTreeMap<String, CpuList> = BTreeMap::new();
    for (policy, value) in values {
        let list = cpus.entry(value).or_default();
        *list = list.iter().chain(policy.cpus.iter()).collect();
    }
    match cpus.len() {
        1 => cpus.into_keys().collect(),
        _ => cpus.iter().map(|(value, cpus)| format!("{value} on {cpus}")).collect::<Vec<_>>().join(", "),
    }
}

/// Whether all quiet CPUs are among those that a parameter of the kernel names, in the words of what these are or do.
fn booted(machine: &Machine, cpus: &CpuList, [all, not, some]: [&str; 3], parameter: &str) -> Finding {
    let others = machine.cpus.difference(cpus);
    if others.is_empty() {
        return Finding::ready(format!("CPUs {cpus} {all}"));
    }
    Finding::advice(
        format!("CPUs {cpus} {all}, {others} {not}"),
        format!(
            "boot with {parameter}=LIST; until then name with --cpus those that {some}, and bind runs to them"
        ),
    )
}

fn choice(path: &Path) -> Option<String> {
    let text = probe::<String>(path)?;
    chosen(text.as_bytes()).map(|word| String::from_utf8_lossy(word).into_owned())
}

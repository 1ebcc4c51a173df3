//! Zones on different CPUs that share a clock.

use crate::cpu_list::CpuList;
use crate::error::{Error, Result};
use crate::hint::Hint;
use crate::host::{Cpufreq, Host};
use crate::method::{self, About, Trait};
use crate::undo::LiveSession;

/// Refuses a zone whose clock another emulation sets, or that would set the clock of one.
pub(super) fn check_clocks(host: &Host, cpus: &CpuList, about: &About, others: &[LiveSession]) -> Result<()> {
    let Some(cpufreq) = &host.cpufreq else { return Ok(()) };
    let sets_clock = |method: &str| method::find(method).is_ok_and(|of| of.about().has(Trait::MovesClock));
    others.iter().filter(|other| !other.is_tuning()).try_for_each(|other| {
        conflict(cpufreq, (cpus, about.has(Trait::MovesClock)), (other, sets_clock(&other.method)))
    })
}

fn conflict(
    cpufreq: &Cpufreq,
    (cpus, moves): (&CpuList, bool),
    (other, moves_too): (&LiveSession, bool),
) -> Result<()> {
    let shared = |which: bool, from: &CpuList, to: &CpuList| {
        if which { cpufreq.moved_with(from).intersection(to) } else { CpuList::default() }
    };
    let (theirs, ours) = (shared(moves, cpus, &other.cpus), shared(moves_too, &other.cpus, cpus));
    if theirs.is_empty() && ours.is_empty() {
        return Ok(());
    }
    let other = format!("emu {}: {} for {}", other.pid, other.what(), other.name);
    let what = if ours.is_empty() {
        format!(
            "the clock of CPUs {cpus} cannot be set: it is that of CPUs {theirs}, which another emulation has, {other}"
        )
    } else {
        format!("the clock of CPUs {ours} is set by another emulation, {other}")
    };
    Err(Error::unavailable(what).hint(Hint::OtherCpus.or("end that emulation first")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpufreq::simulated;
    use crate::host::Policy;

    #[test]
    fn a_zone_that_sets_clocks_and_another_zone_share_none() {
        let of = |number: usize, cpus: &str, domain: &str| Policy {
            domain: Some(domain.parse().unwrap()),
            ..simulated::policy(number, cpus, &[800, 2600])
        };
        // The hardware coordinates the clocks of CPUs 2 and 3, which are two policies.
        let policies = vec![of(0, "0-1", "0-1"), of(2, "2", "2-3"), of(3, "3", "2-3")];
        let cpufreq = Cpufreq { policies, boost: None, intel_pstate: None, no_turbo: None, amd_pstate: None };
        for (one, other, is_shared) in [("0", "1", true), ("2", "3", true), ("0", "2-3", false)] {
            let cpus: CpuList = one.parse().unwrap();
            let other = LiveSession {
                pid: 7,
                cpus: other.parse().unwrap(),
                method: "cpu-freq".into(),
                name: "node a".into(),
            };
            for (moves, moves_too) in [(true, false), (false, true), (true, true), (false, false)] {
                let outcome = conflict(&cpufreq, (&cpus, moves), (&other, moves_too));
                assert_eq!(outcome.is_err(), is_shared && (moves || moves_too), "{one} and {}", other.cpus);
                if let Err(error) = outcome {
                    assert!(error.to_string().contains("emu 7"), "{error}");
                }
            }
        }
    }
}

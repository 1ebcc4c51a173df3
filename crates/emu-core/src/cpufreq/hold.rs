//! Holding the clock of CPUs that tasks are kept off for a part of the time: to a governor that follows the load they look
//! idle, and it would lower the clock that the speed is a share of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::may_write;
use crate::control_file;
use crate::cpu_list::{CpuId, CpuList};
use crate::error::{Error, Result};
use crate::host::{Host, Policy};
use crate::speed::Hertz;
use crate::status::Status;
use crate::undo::{Journal, Undo};
use crate::zone::Demand;

const MIN: &str = "scaling_min_freq";
const MAX: &str = "scaling_max_freq";

/// Governors that keep one frequency whatever the load is, under the generic drivers.
const FIXED: [&str; 3] = ["performance", "powersave", "userspace"];

/// Drivers whose `powersave` follows the load (Documentation/admin-guide/pm/intel_pstate.rst, amd-pstate.rst).
const OWN_POWERSAVE: [&str; 2] = ["intel_pstate", "amd-pstate-epp"];

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HoldPlan {
    /// Policies to be held at their upper limit.
    policies: Vec<Policy>,
    /// The part of the clock that may be lost where it is not held.
    pub(crate) loss: f64,
    pub(crate) notes: Vec<String>,
}

impl HoldPlan {
    /// For tasks that are kept off the CPUs of the demand for a part of each period.
    pub(crate) fn of(host: &Host, demand: &Demand) -> Self {
        let cpus = demand.cpus();
        let policies = host.cpufreq.iter().flat_map(|cpufreq| &cpufreq.policies);
        let moving: Vec<&Policy> = policies
            .filter(|policy| !policy.cpus.intersection(&cpus).is_empty() && follows_load(policy))
            .collect();
        let mut alike: BTreeMap<_, Vec<CpuId>> = BTreeMap::new();
        for policy in &moving {
            alike.entry((policy.governor.as_str(), range(policy))).or_default().extend(policy.cpus.iter());
        }
        let alike = alike.into_iter().map(|(key, cpus)| (key, cpus.into_iter().collect::<CpuList>()));
        let why_not = match (demand.hold_clock, may_write(host)) {
            (false, _) => "as asked",
            (true, false) => "only root may hold it",
            (true, true) => {
                let notes = alike.map(|((governor, (_, high)), cpus)| {
                    format!("the clock of {cpus:#} is held at {high}: {governor} would lower it, as they look idle")
                });
                let notes = notes.collect();
                return Self { policies: moving.into_iter().cloned().collect(), loss: 0.0, notes };
            }
        };
        let mut plan = Self::default();
        for ((governor, (low, high)), cpus) in alike {
            let loss = 1.0 - low.as_f64() / high.as_f64().max(1.0);
            plan.loss = plan.loss.max(loss);
            plan.notes.push(format!(
                "the clock of {cpus:#} is not held, {why_not}: {governor} may lower it to {low}, as they look idle, and \
                 the tasks would be up to {:.0}% slower than asked",
                100.0 * loss
            ));
        }
        plan
    }

    /// Where holding fails, the emulation goes on without it: the status tells of it.
    pub(crate) fn engage(&self, journal: &Journal) -> HeldClock {
        let mut held = HeldClock::default();
        for policy in &self.policies {
            match hold(policy, journal) {
                Ok(limit) => held.limits.push(limit),
                Err(error) => {
                    held.problems.push(format!(
                        "the clock of {:#} is not held: {}",
                        policy.cpus,
                        error.in_words()
                    ));
                }
            }
        }
        held
    }
}

/// The clock of a zone, held. The journal lets it go.
#[derive(Debug, Default)]
pub(crate) struct HeldClock {
    limits: Vec<Limit>,
    problems: Vec<String>,
}

#[derive(Debug)]
struct Limit {
    cpus: CpuList,
    file: PathBuf,
    value: String,
}

impl HeldClock {
    pub(crate) fn tell(&self, status: &mut Status) {
        for Limit { cpus, file, value } in &self.limits {
            // It cannot be read while all CPUs of the policy are offline; then nothing runs there.
            if let Some(now) = control_file::read(file).ok().filter(|now| now != value) {
                let file = file.display();
                status.add_problem(format!(
                    "the clock of {cpus:#} is held no longer: {file} is `{now}` and was set to `{value}`"
                ));
            }
        }
        self.problems.iter().for_each(|problem| status.add_problem(problem.clone()));
    }
}

/// Raises the lower limit to the upper one. The governor stays, with its tunables.
fn hold(policy: &Policy, journal: &Journal) -> Result<Limit> {
    let (file, value) = (policy.path.join(MIN), control_file::read(&policy.path.join(MAX))?);
    let old = control_file::read(&file)?;
    // Where firmware or heat lowers the upper limit, the kernel shows the lower one as no higher. It is ours all the same.
    let levels = policy.frequencies.iter().chain(&policy.base).map(|level| (level.0 / 1000).to_string());
    let new = levels.filter(|level| *level != old).chain([value.clone()]).collect();
    journal.record(&Undo::File { path: file.clone(), old, new })?;
    let now = journal.write_file(&file, &value)?;
    if now == value {
        return Ok(Limit { cpus: policy.cpus.clone(), file, value });
    }
    Err(Error::unavailable(format!("{} reads `{now}` after `{value}` was written", file.display())))
}

fn follows_load(policy: &Policy) -> bool {
    let is_fixed = FIXED.contains(&policy.governor.as_str());
    let is_own = policy.governor == "powersave" && OWN_POWERSAVE.contains(&policy.driver.as_str());
    let (low, high) = range(policy);
    (!is_fixed || is_own) && low < high
}

/// The limits of a policy; one that the kernel does not tell is none.
fn range(policy: &Policy) -> (Hertz, Hertz) {
    let low = policy.min.or(policy.hardware_min).unwrap_or(Hertz(0));
    (low, policy.max.or(policy.hardware_max).unwrap_or(Hertz(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::super::simulated;
    use super::*;
    use crate::host::testing;
    use crate::method_id::MethodId;
    use crate::speed::Target;
    use std::fs;
    use std::path::Path;
    use std::time::Duration;

    /// A host with a policy for each of two CPUs, below `dir`, and the journal of an emulation there.
    fn host(dir: &Path, governor: &str) -> (Host, Journal) {
        let (roots, journal) = simulated::journal(dir);
        let mut host = testing::host();
        host.roots = roots;
        let policies = [0, 1].map(|number| {
            let path = host.roots.cpus().join(format!("cpufreq/policy{number}"));
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(MIN), "800000\n").unwrap();
            fs::write(path.join(MAX), "2200000\n").unwrap();
            let known = simulated::policy(number, &number.to_string(), &[800, 1800, 2200, 2600]);
            Policy { path, governor: governor.into(), max: Some(Hertz(2_200_000_000)), ..known }
        });
        host.cpufreq = Some(crate::host::Cpufreq {
            policies: policies.into(),
            boost: None,
            intel_pstate: None,
            no_turbo: None,
            amd_pstate: None,
        });
        (host, journal)
    }

    fn demand(cpus: &[CpuId]) -> Demand {
        Demand::new(cpus.iter().map(|&cpu| (cpu, Target { share: 0.25, clock: None })).collect())
    }

    fn limit(host: &Host, number: usize) -> String {
        let file = host.roots.cpus().join(format!("cpufreq/policy{number}/{MIN}"));
        fs::read_to_string(file).unwrap().trim().to_owned()
    }

    fn problems(held: &HeldClock) -> Vec<String> {
        let mut status = Status::new(MethodId::new("test"), Duration::ZERO);
        held.tell(&mut status);
        status.problems
    }

    #[test]
    fn the_zones_clock_is_held_at_its_limit_and_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let (host, journal) = host(dir.path(), "schedutil");
        let plan = HoldPlan::of(&host, &demand(&[1]));
        assert_eq!((plan.loss, plan.notes.len()), (0.0, 1));
        assert!(plan.notes[0].contains("CPU 1 is held at 2.200 GHz"), "{:?}", plan.notes);
        let held = plan.engage(&journal);
        assert_eq!((limit(&host, 0), limit(&host, 1)), ("800000".into(), "2200000".into()));
        assert_eq!(problems(&held), Vec::<String>::new());
        journal.undo_all().unwrap();
        assert_eq!(limit(&host, 1), "800000");
    }

    #[test]
    fn a_clock_let_go_by_others_is_a_problem_and_is_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let (host, journal) = host(dir.path(), "ondemand");
        let held = HoldPlan::of(&host, &demand(&[0])).engage(&journal);
        // As the kernel shows it when the upper limit has fallen.
        fs::write(host.roots.cpus().join(format!("cpufreq/policy0/{MIN}")), "1800000\n").unwrap();
        let problems = problems(&held);
        assert!(problems[0].contains("CPU 0 is held no longer"), "{problems:?}");
        journal.undo_all().unwrap();
        assert_eq!((limit(&host, 0), journal.notes().len()), ("800000".into(), 0));
    }

    #[test]
    fn a_clock_that_two_zones_hold_is_let_go_by_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let (host, first) = host(dir.path(), "schedutil");
        let second = Journal::open(&host.roots, &"1".parse().unwrap(), "cpu-freeze", "other").unwrap();
        let plan = HoldPlan::of(&host, &demand(&[0]));
        let both = [plan.engage(&first), plan.engage(&second)];
        first.undo_all().unwrap();
        assert_eq!(limit(&host, 0), "2200000");
        assert_eq!(both.iter().flat_map(problems).count(), 0);
        second.undo_all().unwrap();
        assert_eq!(limit(&host, 0), "800000");
    }

    #[test]
    fn a_clock_that_may_not_be_held_raises_the_error_and_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (mut host, journal) = host(dir.path(), "conservative");
        let left = HoldPlan::of(&host, &Demand { hold_clock: false, ..demand(&[0, 1]) });
        (host.privileges.uid, host.privileges.dac_override) = (1000, false);
        let refused = HoldPlan::of(&host, &demand(&[0, 1]));
        for (plan, why) in [(&left, "as asked"), (&refused, "only root")] {
            assert!((plan.loss - (1.0 - 800.0 / 2200.0)).abs() < 1e-9);
            assert_eq!(plan.notes.len(), 1, "policies that are alike are told of together");
            assert!(plan.notes[0].contains("CPUs 0-1") && plan.notes[0].contains(why), "{:?}", plan.notes);
            assert_eq!(problems(&plan.engage(&journal)), Vec::<String>::new());
            assert_eq!(limit(&host, 0), "800000");
        }
    }

    #[test]
    fn a_limit_that_cannot_be_written_is_a_problem_and_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let (host, journal) = host(dir.path(), "schedutil");
        let plan = HoldPlan::of(&host, &demand(&[0, 1]));
        fs::remove_file(host.roots.cpus().join(format!("cpufreq/policy0/{MIN}"))).unwrap();
        let problems = problems(&plan.engage(&journal));
        assert!(problems.len() == 1 && problems[0].contains("CPU 0 is not held: cannot"), "{problems:?}");
        assert_eq!(limit(&host, 1), "2200000");
    }

    #[test]
    fn only_a_clock_that_can_fall_is_held() {
        let policy = simulated::policy(0, "0", &[800, 2600]);
        let with = |driver: &str, governor: &str| Policy {
            driver: driver.into(),
            governor: governor.into(),
            ..policy.clone()
        };
        for governor in ["schedutil", "ondemand", "conservative", "interactive"] {
            assert!(follows_load(&with("acpi-cpufreq", governor)), "{governor}");
        }
        for governor in FIXED {
            assert!(!follows_load(&with("acpi-cpufreq", governor)), "{governor}");
        }
        for driver in OWN_POWERSAVE {
            assert!(follows_load(&with(driver, "powersave")) && !follows_load(&with(driver, "performance")));
        }
        assert!(!follows_load(&Policy { min: policy.max, ..policy }));
    }
}

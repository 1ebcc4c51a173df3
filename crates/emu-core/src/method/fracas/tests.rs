//! What is refused, on hosts that are described; and real tasks, where real groups can be made.

mod real;

use super::shares::check_weights;
use super::*;
use crate::host::testing;
use crate::speed::Target;
use proptest::prelude::*;

fn targets(shares: &[f64]) -> Targets {
    shares.iter().map(|&share| Target { share, clock: None }).enumerate().collect()
}

const BEST: &dyn Method = &Fracas::PER_CPU;
const PUBLISHED: &dyn Method = &Fracas::PUBLISHED;
const SHARES: &dyn Method = &FracasShares;

/// What is asked of one of the methods.
struct Asked {
    method: &'static dyn Method,
    demand: Demand,
}

impl Asked {
    fn check(&self, host: &Host) -> Result<Expected, Unavailable> {
        self.method.check(host, &self.demand).map(|plan| plan.expected().clone())
    }
}

fn demand(shares: &[f64], period_ms: Option<u64>, method: &'static dyn Method) -> Asked {
    let period = period_ms.map(Duration::from_millis);
    Asked { method, demand: Demand { period, ..Demand::new(targets(shares)) } }
}

/// The refusal on a host whose v1 hierarchies can be written.
fn refused(asked: &Asked) -> Unavailable {
    asked.check(&testing::host()).unwrap_err()
}

#[test]
fn a_quota_below_the_kernels_least_is_refused_with_advice() {
    let why = refused(&demand(&[0.05], Some(10), BEST));
    assert_eq!(why.reason, Reason::PeriodOutOfReach);
    let least = Hint::Period(Duration::from_millis(20)..=Duration::from_secs(1));
    assert_eq!(why.hint, least.or("ask for at least 10.00%".to_owned()));
    let period = |asked: Asked| asked.check(&testing::host()).unwrap().period;
    // Quotas of 1 ms, which is less than most ticks.
    let in_force = |period_us, detuned_us| {
        Duration::from_micros(if time::tick().as_millis() > 1 { detuned_us } else { period_us })
    };
    assert_eq!(period(demand(&[0.05], Some(20), BEST)), in_force(20_000, 20_039));
    assert_eq!(period(demand(&[1.0 / 3.0], Some(3), BEST)), in_force(3_000, 3_005));
}

#[test]
fn periods_out_of_the_kernels_bounds_are_refused() {
    for period in
        [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999), Duration::from_secs(3600)]
    {
        let mut asked = demand(&[1.0], None, BEST);
        asked.demand.period = Some(period);
        assert_eq!(refused(&asked).reason, Reason::PeriodOutOfReach, "{period:?}");
    }
}

#[test]
fn the_default_period_grows_where_the_speed_is_low() {
    let period = |share| period_for(None, &targets(&[share]), 1).unwrap();
    assert_eq!((period(0.5), period(0.1), period(0.02), period(0.001)), (20_000, 20_000, 53_000, 1_000_000));
    let why = period_for(None, &targets(&[0.0005]), 1).unwrap_err();
    assert_eq!(why.reason, Reason::SpeedOutOfReach);
    assert_eq!(why.hint, Hint::from("ask for at least 0.10%"));
}

#[test]
fn the_default_period_grows_where_the_speed_is_high() {
    let period = |share| period_for(None, &targets(&[share]), 1).unwrap();
    let tick_us = time::tick().as_micros() as f64;
    for share in [0.9, 0.95, 0.99] {
        let left_out = (1.0 - share) * period(share) as f64;
        assert!(left_out >= 0.75 * tick_us - 1.0 || period(share) == 100_000, "{share}");
    }
    assert_eq!(period(1.0), 20_000);
    assert_eq!(period_for(Some(Duration::from_millis(20)), &targets(&[0.99]), 1).unwrap(), 20_000);
}

#[test]
fn one_quota_for_all_needs_less_of_a_period_than_one_each() {
    assert!(period_for(Some(Duration::from_millis(10)), &targets(&[0.05, 0.05]), 1).is_ok());
    assert!(period_for(Some(Duration::from_millis(10)), &targets(&[0.05, 0.05]), 2).is_err());
}

#[test]
fn unequal_speeds_need_cpuset_and_a_group_for_each_cpu() {
    let unequal = demand(&[0.4, 0.8], None, BEST);
    assert!(unequal.check(&testing::host()).is_ok());
    assert_eq!(refused(&demand(&[0.4, 0.8], None, PUBLISHED)).reason, Reason::UnequalSpeeds);
    let mut host = testing::host();
    host.cgroups.hierarchies.retain(|hierarchy| !hierarchy.controllers.contains(&Controller::Cpuset));
    assert_eq!(unequal.check(&host).unwrap_err().reason, Reason::UnequalSpeeds);
}

#[test]
fn a_host_without_the_cpu_controller_is_refused() {
    let mut host = testing::host();
    host.cgroups.hierarchies.retain(|hierarchy| !hierarchy.controllers.contains(&Controller::Cpu));
    for method in [BEST, PUBLISHED, SHARES] {
        assert_eq!(demand(&[0.4], None, method).check(&host).unwrap_err().reason, Reason::NoController);
    }
}

/// An ordinary user's scope on cgroup v2 that has these controllers; the groups above are root's.
fn host_in_scope(controllers: &str) -> Host {
    let changes = [
        ("proc/self/cgroup", "0::/scope\n"),
        ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n"),
        ("sys/fs/cgroup/scope/cgroup.controllers", controllers),
        ("sys/fs/cgroup/scope/cgroup.procs", "77\n"),
        ("sys/fs/cgroup/scope/cgroup.subtree_control", ""),
        ("sys/fs/cgroup/scope/cgroup.type", "domain\n"),
    ];
    testing::host_of(&testing::with(testing::VM_V1, &changes))
}

#[test]
fn undelegated_controllers_are_refused_with_the_way_out() {
    let (equal, unequal) = ([0.4, 0.4], [0.4, 0.8]);
    let refused = |controllers, shares: &[f64], method| {
        let why = demand(shares, None, method).check(&host_in_scope(controllers)).unwrap_err();
        let is_way_out = |hint: &Hint| matches!(hint, Hint::OwnGroup(names) if !names.is_empty());
        let has_way_out = match &why.hint {
            Hint::AnyOf(hints) => hints.iter().any(is_way_out),
            one => is_way_out(one),
        };
        assert!(has_way_out, "{}", why.hint);
        why.reason
    };
    for method in [BEST, PUBLISHED, SHARES] {
        assert_eq!(refused("memory\n", &equal, method), Reason::NoController);
        assert!(demand(&equal, None, method).check(&host_in_scope("cpu memory\n")).is_ok());
    }
    assert_eq!(refused("memory\n", &unequal, BEST), Reason::NoController);
    assert_eq!(refused("cpu memory\n", &unequal, BEST), Reason::UnequalSpeeds);
    let delegated = host_in_scope("cpuset cpu memory\n");
    assert!(demand(&unequal, None, BEST).check(&delegated).is_ok());
}

#[test]
fn speeds_are_rounded_in_refusals() {
    let why = refused(&demand(&[0.946_560_000_260_493_4], Some(1), BEST));
    assert!(why.detail.starts_with("94.66% of a period of 1ms"), "{}", why.detail);
    let why = check_weights(&targets(&[0.000_012_345_67]), 2).unwrap_err();
    assert_eq!(why.detail, "0.0012% is below the 0.0100% that cgroup weights can give");
}

#[test]
fn weights_have_no_period_and_a_lowest_speed() {
    assert_eq!(refused(&demand(&[0.4], Some(20), SHARES)).reason, Reason::PeriodOutOfReach);
    let why = check_weights(&targets(&[0.00005]), 2).unwrap_err();
    assert_eq!(why.reason, Reason::SpeedOutOfReach);
    assert!(check_weights(&targets(&[0.0001]), 2).is_ok() && check_weights(&targets(&[0.00005]), 1).is_ok());
}

#[test]
fn known_errors_are_told_beforehand() {
    let expected = |asked: &Asked| asked.check(&testing::host()).unwrap();
    let published = expected(&demand(&[0.5, 0.5], None, PUBLISHED));
    assert!((published.error - 1.0).abs() < 1e-9 && published.notes[0].contains("100% instead of 50%"));
    let shares = expected(&demand(&[0.5, 0.5], None, SHARES));
    assert!((shares.error - 1.0 / 3.0).abs() < 1e-9 && shares.notes[0].contains("33.3%"));
    assert!(expected(&demand(&[0.5, 0.5], None, BEST)).error < 0.02);
    for word in ["real-time", "wakes up", "EINVAL"] {
        assert!(ABOUT.limits.iter().any(|limit| limit.contains(word)), "{word}");
    }
}

proptest! {
    /// Whatever period is accepted or chosen, each group's quota is one that the kernel takes.
    #[test]
    fn an_accepted_period_gives_every_group_a_valid_quota(
        shares in proptest::collection::vec(0.0001f64..=1.0, 1..8),
        period in proptest::option::of(1_000u64..2_000_000),
        one in any::<bool>(),
    ) {
        let groups = if one { 1 } else { shares.len() };
        let targets = targets(&shares);
        if let Ok(period_us) = period_for(period.map(Duration::from_micros), &targets, groups) {
            prop_assert!((1_000..=1_000_000).contains(&period_us));
            for share in shares_of(&targets, groups) {
                prop_assert!(share * period_us as f64 >= 999.0);
            }
        }
    }
}

//! What is refused, on hosts that are described; and what is told.

use super::*;
use crate::cpufreq::simulated;
use crate::host::testing;
use crate::speed::Target;

fn demand(share: f64) -> Demand {
    Demand::new([(0, Target { share, clock: None })].into())
}

#[test]
fn a_burner_is_not_ended_by_the_limit_on_its_time() {
    let [short, long] = [200, 400].map(Duration::from_millis);
    assert!(check_real_time_limit(None, long).is_ok());
    assert!(check_real_time_limit(Some(long), short).is_ok());
    let refused = check_real_time_limit(Some(short), long).unwrap_err();
    assert!(refused.to_string().contains("RLIMIT_RTTIME"), "{refused}");
}

#[test]
fn burners_are_refused_where_their_cpu_time_is_limited() {
    let host = Host { cpu_time_limit: Some(Duration::from_secs(60)), ..testing::host() };
    let refused = CpuHogs.check(&host, &demand(0.4)).unwrap_err();
    assert_eq!(refused.reason, Reason::CpuTimeLimit);
    assert!(refused.detail.contains("RLIMIT_CPU ends a process after 60s"), "{refused}");
    let host = Host { cpu_time_limit: None, ..host };
    assert!(CpuHogs.check(&host, &demand(0.4)).is_ok());
}

#[test]
fn without_privilege_the_missing_capability_is_named() {
    let mut host = testing::host();
    host.privileges.sys_nice = false;
    host.real_time.rtprio_limit = 0;
    let refused = CpuHogs.check(&host, &demand(0.4)).unwrap_err();
    assert_eq!(refused.reason, Reason::NoPrivilege);
    assert_eq!(refused.hint, Hint::RealTime(PRIORITY as u64));
}

#[test]
fn background_load_is_excluded_only_where_the_kernel_tells_it() {
    let excluding = Demand { exclude_background: true, ..demand(0.4) };
    let check = |files: &[(&str, &str)]| {
        let dir = testing::tree(&testing::with(testing::VM_V1, files));
        let mut host = Host::detect(&crate::roots::Roots::below(dir.path())).unwrap();
        assert!(CpuHogs.check(&host, &demand(0.4)).is_ok());
        let told = CpuHogs.check(&host, &excluding).map_err(|why| why.reason);
        host.cgroups.hierarchies.iter_mut().for_each(|hierarchy| hierarchy.writable = false);
        (told.map(drop), CpuHogs.check(&host, &excluding).map(drop).map_err(|why| why.reason))
    };
    let percpu = [
        ("sys/fs/cgroup/cpuacct/cpuacct.usage_percpu", "10 20\n"),
        ("sys/fs/cgroup/cpuacct/release_agent", "\n"),
    ];
    assert_eq!(check(&percpu), (Ok(()), Err(Reason::NoPrivilege)));
    assert_eq!(check(&[]).0, Err(Reason::NoController));
}

#[test]
fn the_lowest_speed_is_what_the_real_time_limit_leaves() {
    let mut host = testing::host();
    host.privileges.sys_nice = true;
    host.real_time.group_runtime = None;
    host.real_time.runtime = Some(Duration::from_millis(950));
    host.real_time.period = Some(Duration::from_secs(1));
    assert!(CpuHogs.check(&host, &demand(0.05)).is_ok());
    let refused = CpuHogs.check(&host, &demand(0.03)).unwrap_err();
    assert_eq!(refused.reason, Reason::RealTimeLimit);
    assert!(refused.detail.contains("5.00%"), "{}", refused.detail);
    let lifted = Demand { lift_rt_limit: true, ..demand(0.03) };
    assert!(CpuHogs.check(&host, &lifted).is_ok());
}

#[test]
fn no_limit_that_can_be_lifted_helps_against_the_fair_server() {
    let mut host = testing::host();
    let (runtime, period) = (Duration::from_millis(50), Duration::from_secs(1));
    host.real_time.fair_server = Some(crate::host::FairServer { runtime, period });
    let lifted = |share| CpuHogs.check(&host, &Demand { lift_rt_limit: true, ..demand(share) });
    assert!(lifted(0.05).is_ok());
    let refused = lifted(0.03).unwrap_err();
    assert_eq!(refused.reason, Reason::RealTimeLimit);
    assert!(refused.detail.contains("fair server"), "{}", refused.detail);
    assert!(!refused.hint.to_string().contains(&Hint::LiftRtLimit.to_string()));
}

fn hogs(burners: BTreeMap<CpuId, Burner>) -> Hogs {
    Hogs {
        grid: Grid::new(0, 1),
        targets: demand(0.4).targets,
        limits: testing::host().real_time,
        lifts: None,
        burners,
        background: None,
        notes: vec![],
        more_notes: Notes::default(),
    }
}

#[test]
fn a_cpu_whose_burner_has_ended_is_not_taken_for_a_slow_one() {
    let failed = || Burner::failed(Error::unavailable("the kernel refuses"));
    let status = hogs([(0, failed())].into()).status();
    assert_eq!((status.health, status.cpus[0].set, status.cpus[0].duty), (Health::Ended, 1.0, 1.0));
    assert!(
        status.problems[0].contains("CPU 0 has ended") && status.problems[0].ends_with("the kernel refuses")
    );
    let healthy = hogs([].into()).status();
    assert_eq!((healthy.health, healthy.problems.len()), (Health::Holding, 0));
}

#[test]
fn speeds_out_of_reach_are_refused_while_it_runs_too() {
    let mut hogs = hogs([].into());
    hogs.limits.runtime = Some(Duration::from_millis(950));
    hogs.limits.period = Some(Duration::from_secs(1));
    assert!(hogs.retarget(&demand(0.5).targets).is_ok());
    assert!(hogs.retarget(&demand(0.02).targets).is_err());
    assert_eq!(hogs.targets, demand(0.5).targets, "nothing changes then");
}

#[test]
fn a_group_without_real_time_budget_is_refused() {
    let mut host = testing::host();
    host.privileges.sys_nice = true;
    host.real_time.group_runtime = Some(Duration::ZERO);
    assert_eq!(CpuHogs.check(&host, &demand(0.4)).unwrap_err().reason, Reason::RealTimeLimit);
}

#[test]
fn a_small_budget_of_the_group_bounds_the_speed_and_is_named() {
    let mut host = testing::host();
    host.real_time.group_runtime = Some(Duration::from_millis(100));
    host.real_time.group_period = Some(Duration::from_secs(1));
    assert!(CpuHogs.check(&host, &demand(0.9)).is_ok());
    let refused = CpuHogs.check(&host, &demand(0.8)).unwrap_err();
    assert_eq!(refused.reason, Reason::RealTimeLimit);
    for part in ["80.00%", "90.00%", "cpu.rt_runtime_us is 100000", "cpu.rt_period_us of 1000000"] {
        assert!(refused.detail.contains(part), "{part} in {}", refused.detail);
    }
    let lifted = Demand { lift_rt_limit: true, ..demand(0.8) };
    assert!(CpuHogs.check(&host, &lifted).is_ok());
    host.real_time.group_runtime = Some(Duration::from_millis(950));
    let refused = CpuHogs.check(&host, &demand(0.03)).unwrap_err();
    assert!(!refused.detail.contains("budget"), "{}", refused.detail);
}

#[test]
fn the_limit_is_lifted_where_it_is_in_the_way_only() {
    let dir = tempfile::tempdir().unwrap();
    let (roots, journal) = simulated::journal(dir.path());
    testing::write(&roots.sys, "sched_rt_runtime_us", b"950000\n");
    let file = roots.sys.join("sched_rt_runtime_us");
    let held = || std::fs::read_to_string(&file).unwrap().trim().to_owned();
    let host = testing::host();
    let limits = RealTime { runtime_file: Some(file.clone()), ..host.real_time };
    lift(&limits, 0.4, &journal).unwrap();
    assert_eq!(held(), "950000");
    lift(&limits, 0.03, &journal).unwrap();
    assert_eq!(held(), "-1");
    // Speeds that need it may come again.
    lift(&limits, 0.4, &journal).unwrap();
    assert_eq!(held(), "-1");
    journal.undo_all().unwrap();
    assert_eq!(held(), "950000");
}

#[test]
fn tasks_above_the_burners_priority_are_told() {
    let priority = format!("priority {PRIORITY}");
    assert!(ABOUT.limits.iter().any(|limit| limit.contains(&priority) && limit.contains("deadline")));
}

#[test]
fn periods_out_of_reach_are_refused() {
    let host = testing::host();
    for period in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(3600)] {
        let demand = Demand { period: Some(period), ..demand(0.4) };
        assert_eq!(CpuHogs.check(&host, &demand).unwrap_err().reason, Reason::PeriodOutOfReach);
    }
}

//! Real tasks in real groups. Bounds from above are tight, as a quota is only exceeded by an error of ours; those
//! from below are wide, as a machine has other things to do.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use super::*;
use crate::prepared::Prepared;
use crate::roots::Roots;
use crate::session::Session;
use crate::status::Status;
use crate::testing::{Busy, in_some_attempt, skip, wait_until};

/// Two tests at a time would compete for the CPUs.
static ALONE: Mutex<()> = Mutex::new(());

/// CPUs that they use from now on, on average over a second.
fn rate(busy: &Busy) -> f64 {
    let (begin, before) = (Instant::now(), busy.used());
    thread::sleep(Duration::from_secs(1));
    busy.used().saturating_sub(before).as_secs_f64() / begin.elapsed().as_secs_f64()
}

fn assert_held(busy: &Busy, wanted: f64) {
    assert_rate(busy, held(wanted));
}

/// A virtual machine that its host stops for a moment counts that as CPU time of whoever was running; so not
/// every second has to be right, but one of a few.
fn assert_rate(busy: &Busy, wanted: Range<f64>) {
    let mut rates = Vec::new();
    for _ in 0..5 {
        rates.push(rate(busy));
        if rates.last().is_some_and(|rate| wanted.contains(rate)) {
            return;
        }
    }
    panic!("{rates:?} CPUs used, not in {wanted:?}");
}

/// The machine, with a state folder of its own, when the demand can be met here.
fn host(demand: &Asked) -> Option<(tempfile::TempDir, Host)> {
    let state = tempfile::tempdir().unwrap();
    let host = Host::detect(&Roots { state: state.path().to_owned(), ..Roots::system() }).unwrap();
    if let Err(why) = host.check_cpus(&demand.demand.cpus()) {
        skip(&why.to_string());
        return None;
    }
    if let Err(why) = demand.check(&host) {
        skip(&format!("{why}; {}", why.hint));
        return None;
    }
    Some((state, host))
}

fn engage(host: &Host, demand: &Asked, tasks: Tasks) -> Session {
    let prepared = Prepared::new(demand.method, host, &demand.demand).unwrap();
    Session::engage(&prepared, "test", tasks).unwrap()
}

/// Checks what busy tasks use under a demand, in CPUs, and that nothing is left of it; returns the last status.
fn status_under(demand: &Asked, (processes, threads): (usize, usize), wanted: Range<f64>) -> Option<Status> {
    let _alone = ALONE.lock();
    let (_state, host) = host(demand)?;
    let busy = Busy::start(processes, threads);
    let groups = || fs::read_to_string(format!("/proc/{}/cgroup", busy.pids()[0])).unwrap();
    let before = groups();
    let session = engage(&host, demand, Tasks::Processes(busy.pids()));
    let name = groups().split(['/', '\n']).find(|part| part.starts_with("emu-")).unwrap().to_owned();
    // Threads are spread within two periods, and a little more on a busy machine.
    thread::sleep(Duration::from_millis(300));
    assert_rate(&busy, wanted);
    let (status, released) = session.release();
    released.unwrap();
    assert_eq!(groups(), before);
    for hierarchy in &host.cgroups.hierarchies {
        let left = fs::read_dir(&hierarchy.own).unwrap().flatten().map(|entry| entry.file_name());
        let left: Vec<_> = left.filter(|left| left.to_string_lossy().starts_with(&name)).collect();
        assert!(left.is_empty(), "{left:?} in {}", hierarchy.own.display());
    }
    Some(status)
}

/// Not more than asked for, and less only as far as others take the CPUs: on a machine that does a dozen other
/// things on each of them.
fn held(wanted: f64) -> Range<f64> {
    (wanted * 0.25).min(0.08)..wanted * 1.08 + 0.02
}

#[test]
fn a_thread_on_one_cpu_gets_its_share() {
    let demand = demand(&[0.3], None, BEST);
    let Some(status) = status_under(&demand, (1, 1), held(0.3)) else { return };
    assert_eq!(status.period, Duration::from_millis(20));
    assert!(status.periods > 20 && (status.cpus[0].duty - 0.3).abs() < 0.02, "{status:?}");
}

#[test]
fn one_thread_on_two_cpus_is_slowed_as_much_as_two() {
    let demand = demand(&[0.3, 0.3], None, BEST);
    if status_under(&demand, (1, 1), held(0.3)).is_some() {
        status_under(&demand, (1, 2), held(0.6));
    }
}

#[test]
fn four_processes_share_two_slow_cpus() {
    let demand = demand(&[0.3, 0.3], None, BEST);
    let Some(status) = status_under(&demand, (4, 1), held(0.6)) else { return };
    assert!(status.own_cpu < Duration::from_millis(200), "{status:?}");
}

#[test]
fn a_lone_thread_runs_on_the_faster_of_two_cpus() {
    status_under(&demand(&[0.1, 0.3], None, BEST), (1, 1), 0.14..0.34);
}

#[test]
fn as_published_a_thread_on_two_cpus_is_too_fast_and_told_so() {
    let demand = demand(&[0.2, 0.2], None, PUBLISHED);
    let Some(status) = status_under(&demand, (1, 1), 0.25..0.45) else { return };
    assert!(status.notes.iter().any(|note| note.contains("40% instead of 20%")), "{:?}", status.notes);
}

#[test]
fn by_weight_a_thread_has_a_rival_that_ends_with_the_session() {
    let demand = demand(&[0.3], None, SHARES);
    // A rival takes what others leave, so only an idle machine holds the share.
    let Some(status) = status_under(&demand, (1, 1), 0.01..0.42) else { return };
    assert!(status.burned > Duration::from_millis(100), "{status:?}");
}

#[test]
fn new_speeds_hold_within_two_periods_and_can_be_undone() {
    in_some_attempt(|| {
        let _alone = ALONE.lock();
        let demand = demand(&[0.2], Some(50), BEST);
        let Some((_state, host)) = host(&demand) else { return };
        let busy = Busy::start(1, 1);
        let mut session = engage(&host, &demand, Tasks::Processes(busy.pids()));
        assert_held(&busy, 0.2);
        for (share, wanted) in [(0.6, 0.6), (1.0, 1.0), (0.1, 0.1)] {
            let begin = Instant::now();
            session.retarget(&targets(&[share])).unwrap();
            // Two periods, and as much for a busy machine.
            assert!(begin.elapsed() < Duration::from_millis(200), "{:?}", begin.elapsed());
            thread::sleep(Duration::from_millis(50));
            assert_held(&busy, wanted);
        }
        let error = session.retarget(&targets(&[0.01])).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Usage);
        assert_held(&busy, 0.1);
        session.release().1.unwrap();
        assert_rate(&busy, 0.12..1.1);
    });
}

#[test]
fn a_thousand_new_speeds_wait_for_nothing_and_give_no_more() {
    in_some_attempt(|| {
        let _alone = ALONE.lock();
        let demand = demand(&[0.5], None, BEST);
        let Some((_state, host)) = host(&demand) else { return };
        let busy = Busy::start(1, 1);
        let mut session = engage(&host, &demand, Tasks::Processes(busy.pids()));
        let window = session.status().period * 2;
        // A turn ends at the tick after its quota is used up, and may have begun before the window.
        let most = window.mul_f64(0.8) + 2 * time::span(time::nanos(time::tick()));
        let (mut times, mut marks) = (Vec::new(), vec![(Instant::now(), busy.used())]);
        for turn in 0..1_000 {
            let speed = targets(&[if turn % 2 == 0 { 0.8 } else { 0.5 }]);
            let begin = Instant::now();
            session.retarget(&speed).unwrap();
            times.push(begin.elapsed());
            thread::sleep(Duration::from_millis(1));
            let (at, used) = *marks.last().unwrap();
            if at.elapsed() >= window {
                let (now, now_used) = (Instant::now(), busy.used());
                let more = (now - at).saturating_sub(window);
                let got = now_used.saturating_sub(used);
                assert!(got <= most + more, "{got:?} of {:?}", now - at);
                marks.push((now, now_used));
            }
        }
        times.sort_unstable();
        // A busy machine may take the CPU away from the test itself.
        assert!(times[900] <= Duration::from_millis(1), "{:?}", &times[880..]);
        wait_until(|| (session.status().cpus[0].duty - 0.5).abs() < 0.02);
        assert_held(&busy, 0.5);
        session.release().1.unwrap();
    });
}

#[test]
fn a_thread_born_later_is_slowed_and_spread_too() {
    in_some_attempt(|| {
        let _alone = ALONE.lock();
        let demand = demand(&[0.25, 0.25], None, BEST);
        let Some((_state, host)) = host(&demand) else { return };
        let busy = Busy::after(Duration::from_millis(1_500), 1, 2);
        let session = engage(&host, &demand, Tasks::Processes(busy.pids()));
        assert!(busy.used() < Duration::from_millis(500), "the second thread was born before the session");
        thread::sleep(Duration::from_secs(2));
        assert_held(&busy, 0.5);
        // One CPU alone gives a quarter.
        assert_rate(&busy, 0.26..0.56);
        session.release().1.unwrap();
    });
}

#[test]
fn threads_of_a_bound_program_stay_on_its_cpu() {
    in_some_attempt(|| {
        let _alone = ALONE.lock();
        // Unequal, so that the groups are bound when the threads are born.
        let demand = demand(&[0.3, 0.1], None, BEST);
        let Some((_state, host)) = host(&demand) else { return };
        if !crate::cgroup::confine::keeps_affinity(&host) {
            skip("before Linux 6.2 the kernel forgets what threads are bound to");
            return;
        }
        let busy = Busy::after(Duration::from_millis(1_000), 1, 8);
        let slow: CpuList = demand.demand.cpus().iter().skip(1).collect();
        let threads = || crate::process::threads(&host.roots.proc, busy.pids()[0]);
        for tid in threads() {
            crate::sys::affinity::set(tid, &slow).unwrap();
        }
        let session = engage(&host, &demand, Tasks::Processes(busy.pids()));
        wait_until(|| threads().len() >= 8);
        thread::sleep(Duration::from_millis(300));
        for tid in threads() {
            assert_eq!(crate::sys::affinity::get(tid).unwrap(), slow);
        }
        assert_rate(&busy, held(0.1));
        // They are known to be bound now, and are again what they were.
        session.release().1.unwrap();
        for tid in threads() {
            assert_eq!(crate::sys::affinity::get(tid).unwrap(), slow);
        }
    });
}

/// A group of the test's own in every hierarchy of version 1 that matters, or in version 2.
struct OwnGroup(Vec<PathBuf>, PathBuf);

impl OwnGroup {
    fn make(host: &Host, name: &str) -> Option<Self> {
        let own = &hierarchy_for(host, Controller::Cpu)?.own;
        let path = own.strip_prefix(&hierarchy_for(host, Controller::Cpu)?.mount).unwrap();
        let name = format!("emu-test-{name}-{}", std::process::id());
        let mut folders = Vec::new();
        for hierarchy in &host.cgroups.hierarchies {
            let folder = hierarchy.mount.join(path).join(&name);
            if let Err(cause) = fs::create_dir(&folder) {
                skip(&format!("cannot make {}: {cause}", folder.display()));
                return None;
            }
            folders.push(folder);
        }
        Some(Self(folders, PathBuf::from("/").join(path).join(&name)))
    }

    fn file(&self, name: &str) -> Option<PathBuf> {
        self.0.iter().map(|folder| folder.join(name)).find(|file| file.exists())
    }
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        for folder in &self.0 {
            let begin = Instant::now();
            while fs::remove_dir(folder).is_err() && begin.elapsed() < Duration::from_secs(2) {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

#[test]
fn somebody_elses_group_gets_its_values_back() {
    let _alone = ALONE.lock();
    let demand = demand(&[0.25], Some(40), BEST);
    let Some((_state, host)) = host(&demand) else { return };
    let Some(group) = OwnGroup::make(&host, "adopted") else { return };
    let Some(quota) = group.file("cpu.cfs_quota_us").or(group.file("cpu.max")) else {
        println!("skipped: no quota in a group of version 1 or 2");
        return;
    };
    let procs = quota.with_file_name("cgroup.procs");
    let before = fs::read_to_string(&quota).unwrap();
    let busy = Busy::start(1, 1);
    fs::write(&procs, busy.pids()[0].to_string()).unwrap();
    let session = engage(&host, &demand, Tasks::Cgroup(group.1.clone()));
    let written = fs::read_to_string(&quota).unwrap();
    let written: u64 = written.split_whitespace().next().unwrap().parse().unwrap();
    // A quarter, and what stalls cost the tasks.
    assert!((10_000..=10_150).contains(&written), "{written}");
    assert_held(&busy, 0.25);
    session.release().1.unwrap();
    assert_eq!(fs::read_to_string(&quota).unwrap(), before);
}

#[test]
fn a_lower_limit_above_is_noted_and_kept_to() {
    let _alone = ALONE.lock();
    let demand = demand(&[0.5], Some(20), BEST);
    let Some((_state, host)) = host(&demand) else { return };
    let Some(group) = OwnGroup::make(&host, "outer") else { return };
    let Some(quota) = group.file("cpu.cfs_quota_us") else {
        println!("skipped: the cpu controller is not on version 1");
        return;
    };
    fs::write(&quota, "20000").unwrap();
    let busy = Busy::start(1, 1);
    for folder in &group.0 {
        // A cpuset without CPUs takes nobody; there the tasks stay where they are.
        let _ = fs::write(folder.join("cgroup.procs"), busy.pids()[0].to_string());
    }
    let session = engage(&host, &demand, Tasks::Processes(busy.pids()));
    let status = session.status();
    assert!(
        status.problems.iter().any(|problem| problem.contains("limits everything in it to 0.20 CPUs")),
        "{:?}",
        status.problems
    );
    assert!((status.cpus[0].set - 0.2).abs() < 1e-9);
    assert_held(&busy, 0.2);
    session.release().1.unwrap();
}

/// Attaches to a busy program in a group that has a limit of `quota` of 100 ms, where that can be had.
fn attached_with(
    demand: &Asked,
    name: &str,
    quota: &str,
    test: impl FnOnce(Session, &Busy, &dyn Fn(&str) -> Option<PathBuf>),
) {
    let _alone = ALONE.lock();
    let Some((_state, host)) = host(demand) else { return };
    let Some(group) = OwnGroup::make(&host, name) else { return };
    let Some(file) = group.file("cpu.cfs_quota_us") else {
        println!("skipped: the cpu controller is not on version 1");
        return;
    };
    fs::write(&file, quota).unwrap();
    let busy = Busy::start(1, demand.demand.targets.len());
    for folder in &group.0 {
        let cpuset = folder.join("cpuset.mems");
        if cpuset.exists() {
            for name in ["cpuset.mems", "cpuset.cpus"] {
                let above = folder.parent().unwrap().join(name);
                fs::write(folder.join(name), fs::read_to_string(above).unwrap()).unwrap();
            }
        }
        fs::write(folder.join("cgroup.procs"), busy.pids()[0].to_string()).unwrap();
    }
    test(engage(&host, demand, Tasks::Cgroup(group.1.clone())), &busy, &|name| group.file(name));
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), quota);
}

#[test]
fn an_attached_group_with_a_limit_of_its_own_is_not_raised() {
    let demand = demand(&[0.8], Some(20), BEST);
    attached_with(&demand, "own", "20000", |mut session, busy, file| {
        let told = |session: &Session| {
            let status = session.status();
            assert!((status.cpus[0].set - 0.2).abs() < 1e-9, "{:?}", status.cpus);
            assert_eq!(status.health, crate::status::Health::Degraded);
            assert!(status.problems[0].contains("was 0.2000 CPUs"), "{:?}", status.problems);
        };
        told(&session);
        assert_held(busy, 0.2);
        session.retarget(&targets(&[1.0])).unwrap();
        // What is in force stays as it is: nothing tells that two periods are over.
        thread::sleep(session.status().period * 2);
        told(&session);
        assert_eq!(fs::read_to_string(file("cpu.cfs_quota_us").unwrap()).unwrap().trim(), "4000");
        session.retarget(&targets(&[0.1])).unwrap();
        wait_until(|| session.status().health == crate::status::Health::Holding);
        session.release().1.unwrap();
    });
}

#[test]
fn the_limit_of_an_attached_group_bounds_the_groups_of_its_cpus() {
    let demand = demand(&[0.4, 0.4], Some(20), BEST);
    attached_with(&demand, "sum", "20000", |session, busy, file| {
        let status = session.status();
        assert!(status.problems[0].contains("to 0.20 CPUs"), "{:?}", status.problems);
        let effective: f64 = status.cpus.iter().map(|cpu| cpu.set).sum();
        assert!(effective <= 0.2 + 1e-9, "{:?}", status.cpus);
        assert_eq!(fs::read_to_string(file("cpu.cfs_quota_us").unwrap()).unwrap().trim(), "20000");
        assert_held(busy, 0.2);
        session.release().1.unwrap();
    });
}

#[test]
fn a_quota_that_somebody_else_rewrites_is_told_and_counted() {
    let demand = demand(&[0.25], Some(40), BEST);
    let _alone = ALONE.lock();
    let Some((_state, host)) = host(&demand) else { return };
    let busy = Busy::start(1, 1);
    let session = engage(&host, &demand, Tasks::Processes(busy.pids()));
    let hierarchy = hierarchy_for(&host, Controller::Cpu).unwrap();
    let group = crate::cgroup::testing::home(&host, busy.pids()[0], Controller::Cpu);
    let (file, unlimited) =
        if hierarchy.version == 2 { ("cpu.max", "max") } else { ("cpu.cfs_quota_us", "-1") };
    assert_eq!(session.status().health, crate::status::Health::Holding);
    fs::write(group.join(file), unlimited).unwrap();
    let status = session.status();
    assert_eq!((status.health, status.cpus[0].set), (crate::status::Health::Degraded, 1.0));
    assert!(status.problems[0].contains("no limit instead of 0.25"), "{:?}", status.problems);
    session.release().1.unwrap();
}

#[test]
fn a_quota_of_the_programs_own_is_done_with_and_named() {
    in_some_attempt(|| {
        let demand = demand(&[0.4], Some(20), BEST);
        let _alone = ALONE.lock();
        let Some((_state, host)) = host(&demand) else { return };
        if hierarchy_for(&host, Controller::Cpu).unwrap().version == 2 {
            skip("version 2 lets a group have less than one below it");
            return;
        }
        let busy = Busy::start(1, 1);
        let mut session = engage(&host, &demand, Tasks::Processes(busy.pids()));
        let group = crate::cgroup::testing::home(&host, busy.pids()[0], Controller::Cpu);
        let quota_us = || fs::read_to_string(group.join("cpu.cfs_quota_us")).unwrap().trim().parse::<u64>();
        let join = |group: &Path| fs::write(group.join("cgroup.procs"), busy.pids()[0].to_string()).unwrap();
        let own = group.join("own");
        fs::create_dir(&own).unwrap();
        // Not while the quota of a group at rest is in force.
        wait_until(|| fs::write(own.join("cpu.cfs_quota_us"), "20000").is_ok());
        join(&own);
        // Busy for 20 ms of 100 ms, it is at rest in between.
        wait_until(|| quota_us() == Ok(4_000));
        let is_named = |status: &Status, what: &str| status.problems.iter().any(|told| told.contains(what));
        wait_until(|| is_named(&session.status(), "own has a quota of 20 % of a CPU"));
        let status = session.status();
        assert!(!is_named(&status, "could not be looked after"), "{:?}", status.problems);
        session.retarget(&targets(&[0.1])).unwrap();
        wait_until(|| is_named(&session.status(), "none above it may have less"));
        assert!(!is_named(&session.status(), "somebody else"), "{:?}", session.status().problems);
        join(&group);
        fs::remove_dir(&own).unwrap();
        wait_until(|| !is_named(&session.status(), "could not be looked after"));
        assert_held(&busy, 0.1);
        session.release().1.unwrap();
    });
}

#[test]
fn a_sleeping_program_has_a_lower_quota_until_it_is_used_up() {
    in_some_attempt(|| {
        let demand = demand(&[0.5], Some(20), BEST);
        let _alone = ALONE.lock();
        let Some((_state, host)) = host(&demand) else { return };
        let mut sleeper = Busy::after(Duration::from_secs(2), 1, 1);
        let session = engage(&host, &demand, Tasks::Processes(sleeper.pids()));
        let hierarchy = hierarchy_for(&host, Controller::Cpu).unwrap();
        let group = crate::cgroup::testing::home(&host, sleeper.pids()[0], Controller::Cpu);
        let file = group.join(if hierarchy.version == 2 { "cpu.max" } else { "cpu.cfs_quota_us" });
        let quota_us = || {
            let text = fs::read_to_string(&file).unwrap();
            text.split_whitespace().next().unwrap().parse::<u64>().unwrap()
        };
        wait_until(|| sleeper.used() < Duration::from_millis(20) && quota_us() < 5_000);
        assert!((session.status().cpus[0].duty - 0.5).abs() < 0.02, "what a busy program gets is told");
        wait_until(|| sleeper.used() > Duration::from_millis(20) && quota_us() >= 10_000);
        sleeper.0[0].kill().unwrap();
        wait_until(|| quota_us() < 5_000);
        assert_eq!(session.status().problems, Vec::<String>::new());
        session.release().1.unwrap();
    });
}

#[test]
fn a_rewritten_weight_and_a_dead_burner_are_told_and_counted() {
    let demand = demand(&[0.25], None, SHARES);
    let _alone = ALONE.lock();
    let Some((_state, host)) = host(&demand) else { return };
    let busy = Busy::start(1, 1);
    let session = engage(&host, &demand, Tasks::Processes(busy.pids()));
    let zone = crate::cgroup::testing::home(&host, busy.pids()[0], Controller::Cpu);
    let rival = zone.with_file_name(format!("{}-rival0", zone.file_name().unwrap().display()));
    let version = hierarchy_for(&host, Controller::Cpu).unwrap().version;
    let file = if version == 2 { "cpu.weight" } else { "cpu.shares" };
    let status = session.status();
    assert_eq!(status.health, crate::status::Health::Holding, "{:?}", status.problems);
    let weight: u64 = fs::read_to_string(rival.join(file)).unwrap().trim().parse().unwrap();
    fs::write(zone.join(file), weight.to_string()).unwrap();
    let status = session.status();
    assert_eq!(status.health, crate::status::Health::Degraded);
    assert!((status.cpus[0].set - 0.5).abs() < 0.01, "{:?}", status.cpus);
    let pid = fs::read_to_string(rival.join("cgroup.procs")).unwrap().trim().parse().unwrap();
    crate::cgroup::testing::signal(pid, libc::SIGKILL);
    wait_until(|| session.status().health == crate::status::Health::Ended);
    assert!((session.status().cpus[0].set - 1.0).abs() < 1e-9);
    session.release().1.unwrap();
}

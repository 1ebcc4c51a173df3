use super::*;
use crate::testing::eventually;

fn process(parent: Pid, ticks: Nanos) -> ProcessTime {
    ProcessTime {
        parent,
        starttime: 7,
        cpu_time: 0,
        used: ticks * USER_TICK,
        faults_of_children: 0,
        reaps: true,
    }
}

fn used(before: &[(Pid, ProcessTime)], after: &[(Pid, ProcessTime)]) -> Option<Nanos> {
    let reading = |processes: &[(Pid, ProcessTime)]| Reading {
        processes: processes.iter().copied().collect(),
        ..Reading::default()
    };
    reading(before).used_until(&reading(after), false).map(|used| used / USER_TICK)
}

#[test]
fn the_time_of_children_is_counted_once() {
    let before = [(1, process(0, 10)), (2, process(1, 50))];
    // The child has computed for 5 ticks and lives; has ended and was waited for; has ended and was not.
    assert_eq!(used(&before, &[(1, process(0, 10)), (2, process(1, 55))]), Some(5));
    assert_eq!(used(&before, &[(1, process(0, 68))]), Some(8));
    assert_eq!(used(&[(2, process(0, 50)), (3, process(0, 1))], &[(3, process(0, 4))]), None);
    let ignores = ProcessTime { reaps: false, ..process(0, 15) };
    assert_eq!(used(&before, &[(1, ignores)]), None, "its parent does not have it");
    // A new one counts from its first instruction.
    assert_eq!(used(&before, &[(1, process(0, 11)), (2, process(1, 50)), (3, process(1, 4))]), Some(5));
}

#[test]
fn what_orphans_have_used_is_with_what_adopts_them() {
    let reading = |pid, ticks, adopted: i64| Reading {
        processes: [(1, process(0, 10)), (pid, process(9, ticks))].into(),
        adopted: Some(adopted * USER_TICK),
        ..Reading::default()
    };
    // Each has a child and ends.
    assert_eq!(reading(2, 3, 20).used_until(&reading(5, 1, 60), false), Some(38 * USER_TICK));
    // One that others have waited for.
    assert_eq!(reading(2, 3, 20).used_until(&reading(5, 1, 20), false), None);
}

#[test]
fn what_a_group_has_used_counts_where_processes_do_not_tell() {
    let group = |used_by_group: i64| Reading { used_by_group: Some(used_by_group), ..Reading::default() };
    let with = |ticks| Reading { processes: [(2, process(0, ticks))].into(), ..group(5 * USER_TICK) };
    // A child that nobody has waited for; and a process that has left the group.
    assert_eq!(with(50).used_until(&group(9 * USER_TICK), false), Some(4 * USER_TICK));
    assert_eq!(with(50).used_until(&with(57), false), Some(7 * USER_TICK));
}

#[test]
fn children_that_are_not_reaped_may_have_used_anything() {
    let reading = |has_unreaped: bool, last_pid| Reading {
        processes: [(1, ProcessTime { reaps: !has_unreaped, ..process(0, 10) })].into(),
        is_whole: true,
        last_pid,
        ..Reading::default()
    };
    let window = |before: (bool, Option<Pid>), after: (bool, Option<Pid>)| {
        let window = reading(before.0, before.1).until(&reading(after.0, after.1));
        (window.is_whole, window.used)
    };
    assert_eq!(window((false, None), (false, None)), (true, Some(0)));
    assert_eq!(window((true, Some(5)), (true, Some(5))), (true, Some(0)), "no process was born");
    for (before, after) in [
        ((true, Some(5)), (true, Some(6))),
        ((false, None), (true, Some(5))),
        ((true, Some(5)), (false, None)),
        ((true, None), (true, None)),
    ] {
        assert_eq!(window(before, after), (false, None));
    }
}

#[test]
fn a_parent_without_the_account_of_its_child_is_known() {
    let parent = |faults| ProcessTime { faults_of_children: faults, ..process(0, 10) };
    let before = [(1, parent(4)), (2, process(1, 0))].into();
    let after = |processes: &[(Pid, ProcessTime)]| {
        Reading { processes: processes.iter().copied().collect(), ..Reading::default() }
            .without_children(&before)
    };
    assert_eq!(after(&[(1, parent(4))]), [1]);
    assert_eq!(
        after(&[(1, parent(4)), (2, ProcessTime { starttime: 8, ..process(1, 0) })]),
        [1],
        "another one"
    );
    for waited in [&[(1, parent(9))][..], &[(1, parent(4)), (2, process(1, 0))], &[]] {
        assert!(after(waited).is_empty(), "{waited:?}");
    }
}

#[test]
fn a_process_that_ignores_the_end_of_its_children_is_seen() {
    let host = Host::detect(&crate::roots::Roots::system()).unwrap();
    let watch = Watch::new(&host, &Tasks::Processes(Vec::new()), CpuList::default(), false).unwrap();
    for (action, reaps) in [("--ignore-signal=CHLD", false), ("--default-signal=CHLD", true)] {
        let mut sleeps = std::process::Command::new("env").args([action, "sleep", "30"]).spawn().unwrap();
        eventually("it is seen", || watch.reaps(sleeps.id() as Pid) == reaps);
        sleeps.kill().unwrap();
        sleeps.wait().unwrap();
    }
}

#[test]
fn what_a_process_used_before_it_joined_does_not_count() {
    let reading = |processes: &[(Pid, ProcessTime)]| Reading {
        processes: processes.iter().copied().collect(),
        began: 500,
        is_whole: true,
        ..Reading::default()
    };
    let before = reading(&[(1, process(0, 10))]);
    let joined = reading(&[(1, process(0, 12)), (2, process(0, 400))]);
    let window = before.until(&joined);
    assert_eq!((window.used, window.is_whole), (None, false));
    let born = ProcessTime { starttime: 498, ..process(1, 3) };
    let window = before.until(&reading(&[(1, process(0, 12)), (3, born)]));
    assert_eq!((window.used, window.is_whole), (Some(5 * USER_TICK), true));
    assert_eq!(joined.until(&joined).used, Some(0));
}

#[test]
fn a_thread_that_is_in_both_readings_has_a_window() {
    let time = |at, run, wait, cpu| ThreadTime { at, run, wait, cpu };
    let before =
        Reading { threads: [(5, time(100, 10, 1, 0)), (6, time(100, 0, 0, 0))].into(), ..Reading::default() };
    let after = Reading {
        at: 50,
        threads: [(5, time(200, 40, 8, 1)), (7, time(200, 9, 9, 0))].into(),
        ..Reading::default()
    };
    let window = before.until(&after);
    assert_eq!(window.length, 50);
    assert_eq!(window.tasks, [TaskWindow { tid: 5, cpus: (0, 1), wall: 100, run: 30, wait: 7 }]);
}

#[test]
fn only_what_stays_outside_has_left() {
    let reading = |outside: &[(Pid, &str)]| Reading {
        outside: outside.iter().map(|(pid, group)| (*pid, (*group).into())).collect(),
        ..Reading::default()
    };
    let (before, after) = (reading(&[(5, "/a"), (6, "/a")]), reading(&[(6, "/b"), (7, "/a")]));
    assert_eq!(before.outside_until(&after).collect::<Vec<_>>(), [(6, Path::new("/b"))]);
}

#[test]
fn of_many_threads_some_are_read_twice_in_turn() {
    let host = Host::detect(&crate::roots::Roots::system()).unwrap();
    let none = Tasks::Processes(Vec::new());
    let mut watch = Watch::new(&host, &none, CpuList::default(), false).unwrap();
    let all: Vec<Pid> = (1..=100).collect();
    let rounds: Vec<_> = (0..5).map(|_| watch.chosen(&all)).collect();
    assert!(rounds.iter().all(|chosen| chosen.len() <= THREADS_MAX), "{rounds:?}");
    for pair in rounds.windows(2) {
        let again = pair[1].iter().filter(|tid| pair[0].contains(tid)).count();
        assert!(again >= THREADS_MAX / 2, "{rounds:?}");
    }
    assert!(all.iter().all(|tid| rounds.iter().any(|chosen| chosen.contains(tid))));
    assert_eq!(watch.chosen(&all[..9]), all[..9]);
}

#[test]
fn this_process_is_read() {
    let host = Host::detect(&crate::roots::Roots::system()).unwrap();
    let own = std::process::id() as Pid;
    let mut watch = Watch::new(&host, &Tasks::Processes(vec![own]), host.allowed.clone(), false).unwrap();
    let before = watch.read(false);
    let begin = std::time::Instant::now();
    while begin.elapsed() < std::time::Duration::from_millis(30) {
        std::hint::black_box(());
    }
    let window = before.until(&watch.read(false));
    let run: Nanos = window.tasks.iter().map(|task| task.run).sum();
    assert!(window.length >= 30_000_000 && run > 0, "{window:?}");
}

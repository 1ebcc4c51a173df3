use super::*;
use crate::delivery::asked::Way;
use crate::speed::{Target, Targets};

const SECOND: Nanos = 1_000_000_000;

const CLOCK: Way = Way { moves_clock: true, stops: false, is_of_rest: false };

fn asked(shares: &[f64], stops: bool) -> Asked {
    let shares = shares.iter().copied().enumerate().collect();
    Asked { shares, stops, is_of_rest: false, period: 10_000_000 }
}

/// A task on a CPU that ran and waited for these parts of a second.
fn task(cpu: CpuId, run: f64, wait: f64) -> TaskWindow {
    let part = |part: f64| (part * SECOND as f64) as Nanos;
    TaskWindow { tid: 7, cpus: (cpu, cpu), wall: SECOND, run: part(run), wait: part(wait) }
}

fn window(tasks: &[TaskWindow]) -> Window {
    let used = Some(tasks.iter().map(|task| task.run).sum());
    let (tasks, out_of_reach) = (tasks.to_vec(), CpuList::default());
    Window { length: SECOND, tasks, is_whole: true, used, out_of_reach }
}

fn share(seen: Option<Delivered>) -> Option<f64> {
    seen.map(|seen| (seen.share * 1e3).round() / 1e3)
}

#[test]
fn a_busy_task_tells_what_its_cpu_gives() {
    let mut account = Account::new(asked(&[0.4, 0.8], false));
    for _ in 0..3 {
        assert_eq!(account.add(&window(&[task(0, 0.4, 0.6)])), None);
    }
    assert_eq!((share(account.cpu(0)), share(account.cpu(1))), (Some(0.4), None));
    let seen = account.zone().unwrap();
    assert!(seen.low < 0.4 && 0.4 < seen.high && seen.high - seen.low < 0.01, "{seen:?}");
    assert_eq!((seen.observed, seen.asked), (Duration::from_secs(3), 0.4));
    assert!(account.problems().is_empty());
}

#[test]
fn a_task_that_sleeps_tells_nothing() {
    for stops in [false, true] {
        let mut account = Account::new(asked(&[0.4], stops));
        assert_eq!(account.add(&window(&[task(0, 0.2, 0.1)])), None);
        assert_eq!(account.zone(), None);
        assert!(account.used().is_some_and(|used| (used - 0.2).abs() < 1e-9));
        assert!(account.problems().is_empty());
    }
}

#[test]
fn tasks_bound_to_some_of_the_cpus_are_due_the_share_of_those() {
    let window = |run: f64| Window {
        used: Some((run * SECOND as f64) as Nanos),
        // Of many, only a part is read.
        is_whole: false,
        out_of_reach: [0, 2].into_iter().collect(),
        ..window(&[task(1, 0.1, 0.9), task(1, 0.1, 0.9), task(1, 0.1, 0.9)])
    };
    let asked = || asked(&[0.4, 0.3, 0.4], false);
    for (run, off, told) in [
        (0.3, None, Some(0.3)),
        (0.2, Some(Off::Slow), Some(0.2)),
        // What is more may be of tasks that are not bound.
        (0.6, None, None),
        (1.5, Some(Off::Fast), Some(0.5)),
    ] {
        let mut account = Account::new(asked());
        assert_eq!((account.add(&window(run)), share(account.zone())), (off, told), "{run}");
    }
}

#[test]
fn a_single_window_does_not_stand_for_a_long_time() {
    let mut account = Account::new(asked(&[0.4], false));
    account.add(&window(&[task(0, 0.2, 0.8)]));
    assert_eq!((share(account.zone()), share(account.cpu(0))), (Some(0.2), Some(0.2)));
    // What it did later is not known.
    for _ in 0..2 {
        account.add(&Window { used: None, ..window(&[]) });
    }
    assert_eq!((account.zone(), account.cpu(0), account.used()), (None, None, None));
    account.add(&window(&[task(0, 0.4, 0.6)]));
    let seen = account.zone().unwrap();
    assert!(seen.low < 0.25 && 0.35 < seen.high, "{seen:?}");
}

#[test]
fn stopped_time_is_no_sleep() {
    let mut account = Account::new(asked(&[0.4], true));
    account.add(&window(&[task(0, 0.39, 0.005)]));
    assert_eq!(share(account.zone()), Some(0.39));
    let mut account = Account::new(asked(&[0.4], false));
    account.add(&window(&[task(0, 0.38, 0.01)]));
    assert_eq!(account.zone(), None, "it neither runs nor waits, and is not stopped");
}

#[test]
fn tasks_that_share_a_cpu_are_summed() {
    let mut account = Account::new(asked(&[0.5, 0.5], false));
    account.add(&window(&[task(0, 0.25, 0.75), task(0, 0.25, 0.74), task(1, 0.1, 0.0)]));
    assert_eq!((share(account.cpu(0)), share(account.cpu(1))), (Some(0.5), None));
}

#[test]
fn tasks_that_move_tell_of_the_zone() {
    let moved = |run, wait| TaskWindow { cpus: (0, 1), ..task(1, run, wait) };
    let mut account = Account::new(asked(&[0.5, 0.5], false));
    account.add(&window(&[moved(0.5, 0.5), moved(0.4, 0.6), task(0, 0.1, 0.1)]));
    assert_eq!((share(account.zone()), account.cpu(0)), (Some(0.5), None));
    let mut account = Account::new(asked(&[0.5, 0.5], false));
    account.add(&window(&[moved(0.5, 0.5)]));
    assert_eq!(share(account.zone()), Some(0.5));
}

#[test]
fn tasks_that_are_bound_to_one_cpu_tell_nothing_of_others() {
    let light = TaskWindow { cpus: (0, 1), ..task(1, 0.05, 0.0) };
    let mut account = Account::new(asked(&[0.4, 0.4], false));
    assert_eq!(account.add(&window(&[task(0, 0.2, 0.8), task(0, 0.2, 0.8), light])), None);
    // Of more threads than are read, a part is seen.
    let some = Window { is_whole: false, ..window(&[task(0, 0.2, 0.8), task(0, 0.2, 0.8)]) };
    assert_eq!(account.add(&some), None);
    assert_eq!((account.zone(), account.problems()), (None, Vec::new()));
}

#[test]
fn a_task_that_shares_its_cpu_with_short_ones_is_not_too_slow() {
    let moved = TaskWindow { cpus: (0, 1), ..task(1, 0.2, 0.8) };
    for (used, seen) in [(0.39, None), (0.25, Some(Off::Slow))] {
        let mut account = Account::new(asked(&[0.4, 0.4], false));
        let used = Some((used * SECOND as f64) as Nanos);
        assert_eq!(account.add(&Window { used, ..window(&[moved]) }), seen);
    }
}

#[test]
fn what_lives_shortly_beside_busy_tasks_counts_in_the_zone() {
    let mut account = Account::new(asked(&[0.4, 0.4], false));
    let busy = window(&[task(0, 0.4, 0.6), task(1, 0.2, 0.8)]);
    assert_eq!(account.add(&Window { used: busy.used.map(|used| used + SECOND / 5), ..busy }), None);
    assert_eq!((share(account.zone()), account.cpu(1)), (Some(0.4), None));
}

#[test]
fn short_processes_tell_when_they_use_all() {
    let mut account = Account::new(asked(&[0.5, 0.5], true));
    let short = |used: f64| Window { used: Some((used * SECOND as f64) as Nanos), ..window(&[]) };
    account.add(&short(0.7));
    assert_eq!(account.zone(), None);
    account.add(&short(0.99));
    assert_eq!(share(account.zone()), Some(0.495));
    assert_eq!(account.add(&short(1.6)), Some(Off::Fast));
}

#[test]
fn threads_that_come_and_go_are_a_reason_where_most_is_theirs() {
    let told = |used: &[f64]| {
        let mut account = Account::new(asked(&[0.3], true));
        for &seen in used {
            let tasks = window(&[task(0, seen, 0.0)]);
            let off = account.add(&Window { used: Some(SECOND), ..tasks });
            assert_eq!(off, Some(Off::Fast));
        }
        account.problems()[0].ends_with("between two looks")
    };
    assert!(told(&[0.1, 0.1, 0.9]));
    // The last look has no thread of a program that ends.
    assert!(!told(&[0.9, 0.9, 0.9, 0.0]));
    let mut many = Account::new(asked(&[0.3], true));
    many.add(&Window { used: Some(SECOND), is_whole: false, ..window(&[task(0, 0.01, 0.0)]) });
    assert!(many.problems().iter().all(|told| !told.contains("between two looks")));
}

#[test]
fn what_is_too_fast_is_told_at_once_and_kept() {
    let mut account = Account::new(asked(&[0.3, 0.3], true));
    assert_eq!(account.add(&window(&[task(0, 0.97, 0.0)])), Some(Off::Fast));
    assert!(account.has_unexplained_excess());
    account.fast.reason = Some("it is free".into());
    assert!(!account.has_unexplained_excess());
    let told = ["for 1.0 s the tasks ran too fast, at 323 % of the speed asked: it is free"];
    assert_eq!(account.problems(), told);
    account.restart(asked(&[0.5, 0.5], true));
    for _ in 0..20 {
        assert_eq!(account.add(&window(&[task(0, 0.5, 0.0)])), None);
    }
    assert_eq!(account.problems(), told);
    // Outside the zone, and not busy by what it waits for.
    assert_eq!(account.add(&window(&[task(3, 0.7, 0.0)])), Some(Off::Fast));
}

#[test]
fn what_is_too_slow_is_told_when_it_lasts() {
    let mut account = Account::new(asked(&[0.4], false));
    let slow = window(&[task(0, 0.2, 0.8)]);
    for _ in 0..3 {
        assert_eq!(account.add(&slow), Some(Off::Slow));
        account.add(&window(&[task(0, 0.4, 0.6)]));
    }
    assert_eq!(account.slow.longest, SECOND);
    assert!(!account.has_unexplained_excess());
    assert!(account.problems()[0].starts_with("the tasks were given 30.0 % instead of 40.0 %"));
    account.add(&slow);
    account.add(&slow);
    assert_eq!(account.problems(), ["for 5.0 s the tasks ran too slow, at 50 % of the speed asked"]);
}

#[test]
fn a_method_that_moves_the_clock_leaves_all_cpu_time() {
    let targets: Targets = [(0, crate::speed::Target { share: 0.4, clock: None })].into();
    let mut account = Account::new(Asked::of(&targets, CLOCK, 1.0, Duration::ZERO));
    assert_eq!(account.add(&window(&[task(0, 0.99, 0.005)])), None);
    assert_eq!(share(account.zone()), Some(0.99));
}

#[test]
fn a_small_excess_that_lasts_is_one_too() {
    let mut account = Account::new(asked(&[0.4], true));
    for _ in 0..4 {
        assert_eq!(account.add(&window(&[task(0, 0.436, 0.0)])), None);
    }
    assert!(account.has_unexplained_excess());
    account.restart(asked(&[0.42], true));
    assert_eq!(account.add(&window(&[task(0, 0.436, 0.0)])), None);
    assert!(!account.has_unexplained_excess());
}

#[test]
fn of_a_part_of_the_threads_the_processes_tell() {
    let part = |used: Option<f64>| Window {
        is_whole: false,
        used: used.map(|used| (used * SECOND as f64) as Nanos),
        ..window(&[task(0, 0.01, 0.99), task(1, 0.01, 0.99)])
    };
    let mut account = Account::new(asked(&[0.4, 0.4], false));
    assert_eq!(account.add(&part(Some(0.79))), None);
    assert_eq!(share(account.zone()), Some(0.395), "what the others ran is in the sum");
    assert_eq!(account.add(&part(Some(1.9))), Some(Off::Fast));
    assert_eq!(account.add(&part(None)), None);
}

#[test]
fn limits_that_meet_on_a_cpu_are_not_its_own() {
    let mut account = Account::new(asked(&[0.4, 0.4], true));
    let two = [task(1, 0.4, 0.2), TaskWindow { tid: 8, ..task(1, 0.4, 0.2) }];
    assert_eq!(account.add(&window(&two)), None);
    assert_eq!((share(account.zone()), share(account.cpu(1))), (Some(0.4), None));
}

#[test]
fn what_escapes_is_told_at_targets_that_change_often() {
    let mut account = Account::new(asked(&[0.3], false));
    let short =
        Window { length: SECOND / 5, ..window(&[TaskWindow { wall: SECOND / 5, ..task(0, 0.2, 0.0) }]) };
    for _ in 0..3 {
        assert_eq!(account.add(&short), Some(Off::Fast));
        account.restart(asked(&[0.35], false));
    }
    assert!(account.problems().concat().contains("too fast"), "{:?}", account.problems());
}

#[test]
fn tasks_on_other_cpus_are_named_and_counted() {
    let mut account = Account::new(asked(&[0.3], false));
    let stray = |tid| TaskWindow { tid, ..task(5, 0.5, 0.0) };
    let asleep = TaskWindow { tid: 99, ..task(5, 0.001, 0.0) };
    let comes_back = TaskWindow { tid: 98, cpus: (5, 0), ..task(0, 0.5, 0.0) };
    let mut tasks: Vec<_> = (1..=6).map(stray).collect();
    tasks.extend([asleep, comes_back]);
    account.note_strays(&window(&tasks), |_| "busy".into());
    let problems = account.problems();
    assert_eq!(problems.len(), 5, "{problems:?}");
    assert_eq!(problems[0], "task 1 (busy) runs on CPU 5, outside the zone");
    assert_eq!(problems[4], "2 other processes have left the zone");
}

#[test]
fn a_task_that_moves_between_speeds_is_not_judged_by_one() {
    for (run, told) in
        [(0.3, Some(None)), (0.45, None), (0.8, Some(Some(Off::Fast))), (0.2, Some(Some(Off::Slow)))]
    {
        let mut account = Account::new(asked(&[0.3, 0.6], false));
        let off = account.add(&window(&[task(0, run, 1.0 - run)]));
        assert_eq!(account.zone().map(|_| off), told, "{run}");
        // It may have ended on the other one.
        let moved = TaskWindow { cpus: (0, 1), ..task(1, run, 1.0 - run) };
        let mut account = Account::new(asked(&[0.3, 0.6], false));
        let off = account.add(&window(&[moved]));
        assert_eq!((off, account.zone().is_some()), (told.flatten(), !(0.3..=0.6).contains(&run)), "{run}");
    }
}

#[test]
fn a_few_free_tasks_are_not_the_speed_of_a_zone() {
    let moved = |cpu| TaskWindow { cpus: (cpu, cpu + 1), ..task(cpu + 1, 1.0, 0.0) };
    let mut account = Account::new(asked(&[0.5; 4], false));
    assert_eq!(account.add(&window(&[moved(0), moved(2)])), Some(Off::Fast));
}

#[test]
fn less_is_right_beside_a_background_load() {
    let share = Asked { is_of_rest: true, ..asked(&[0.4], false) };
    let mut account = Account::new(share.clone());
    for _ in 0..3 {
        assert_eq!(account.add(&window(&[task(0, 0.28, 0.72)])), None);
    }
    assert!(account.problems().is_empty() && account.zone().is_some());
    assert_eq!(account.add(&window(&[task(0, 0.9, 0.1)])), Some(Off::Fast));
}

#[test]
fn clocks_that_stop_tasks_too_have_their_part_of_the_time() {
    let targets = [(0, Target { share: 0.2, clock: None })].into();
    let mut account = Account::new(Asked::of(&targets, CLOCK, 0.5, Duration::from_millis(10)));
    assert_eq!(account.add(&window(&[task(0, 0.5, 0.0)])), None);
    assert_eq!(share(account.zone()), Some(0.5));
}

#[test]
fn short_lives_count_beside_a_busy_task() {
    let mut account = Account::new(asked(&[0.3], false));
    let beside = Window { used: Some(SECOND * 3 / 10), ..window(&[task(0, 0.15, 0.85)]) };
    assert_eq!(account.add(&beside), None);
    assert_eq!((share(account.zone()), share(account.cpu(0))), (Some(0.3), Some(0.3)));
}

use super::*;
use crate::cgroup::Folder;
use crate::cgroup::Owner;
use crate::cpufreq::simulated;
use crate::host::testing::{tree, write};
use std::path::PathBuf;
use tempfile::TempDir;

const FREE: StopCost = StopCost::new(0.0, 0.0);

const STAT: &str = "usage_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n";

fn group(size: usize, ceiling: Option<f64>) -> (TempDir, QuotaGroup) {
    let root = tree(&[("cpu.max", ""), ("cpu.stat", STAT)]);
    let folder = Folder { version: 2, path: root.path().to_owned() };
    let bandwidth = Bandwidth::open(&folder, Some(&folder), Owner::Us).unwrap();
    (root, QuotaGroup::new(bandwidth, size, ceiling, Some(FREE)))
}

fn max(root: &TempDir) -> String {
    std::fs::read_to_string(root.path().join("cpu.max")).unwrap()
}

#[test]
fn a_share_becomes_a_quota_and_all_of_a_cpu_none() {
    let (root, mut one) = group(1, None);
    one.ask(1.0, 20_000).unwrap();
    assert_eq!((max(&root), one.duty()), ("max 20000".into(), 1.0));
    one.ask(0.4, 20_000).unwrap();
    assert!(max(&root).starts_with("8000 20000"));
    let (root, mut four) = group(4, None);
    four.ask(4.0 * 0.25, 20_000).unwrap();
    assert!(max(&root).starts_with("20000 20000"), "a whole CPU of four is a quota");
    assert!((four.duty() - 0.25).abs() < 1e-12);
}

#[test]
fn a_ceiling_is_kept_to_and_shows_in_what_is_delivered() {
    let (root, mut one) = group(1, Some(0.333_33));
    one.ask(0.4, 100_000).unwrap();
    assert_eq!(max(&root), "33333 100000");
    assert!((one.effective() - 0.333_33).abs() < 1e-9);
    let (root, mut one) = group(1, Some(3.0));
    one.ask(1.0, 100_000).unwrap();
    assert_eq!(max(&root), "max 100000");
}

#[test]
fn what_stalls_cost_does_not_raise_a_quota_above_a_ceiling() {
    let (root, mut one) = group(1, Some(0.333_339));
    one.stall_cost = Some(StopCost::new(30_000.0, 15_000.0));
    one.ask(0.333, 100_000).unwrap();
    assert_eq!(max(&root), "33333 100000");
}

#[test]
fn a_limit_that_somebody_else_has_written_is_told_and_left() {
    let (root, mut one) = group(1, None);
    one.ask(0.4, 20_000).unwrap();
    assert_eq!(one.look().unwrap(), None);
    write(root.path(), "cpu.max", b"max 100000\n");
    let told = one.look().unwrap().unwrap();
    assert!(told.contains("cpu.max: no limit instead of 0.4000 CPUs"), "{told}");
    assert_eq!((one.effective(), one.duty()), (1.0, 1.0));
    write(root.path(), "cpu.max", b"30000 100000\n");
    assert!(one.look().unwrap().unwrap().contains("0.3000 CPUs instead"));
    assert!((one.effective() - 0.3).abs() < 1e-9);
    for count in 0..200 {
        assert!(!two_seconds(&root, &mut one, count, 100_000), "what is not ours is not corrected");
    }
    // The group is ours: whoever asks for something else gets it.
    one.ask(0.5, 20_000).unwrap();
    assert_eq!((one.look().unwrap(), one.effective(), max(&root)), (None, 0.5, "10000 20000".into()));
}

#[test]
fn a_full_quota_written_by_others_to_a_group_at_rest_is_told() {
    let (root, mut one) = group(1, None);
    one.tick = Duration::from_millis(4);
    one.begin(0.5, 20_000).unwrap();
    assert!(!max(&root).starts_with("10000 "), "{}", max(&root));
    assert_eq!(one.look().unwrap(), None);
    write(root.path(), "cpu.max", b"10000 20000\n");
    let told = one.look().unwrap().unwrap();
    assert!(told.contains("cpu.max: 0.5000 CPUs are in force while its tasks sleep, too"), "{told}");
}

/// A group that somebody else has made, with his limit, and its folder.
fn attached(size: usize, limit: &str) -> (TempDir, PathBuf, QuotaGroup) {
    let dir = tempfile::tempdir().unwrap();
    let (roots, journal) = simulated::journal(dir.path());
    write(&roots.sys, "cpu.max", limit.as_bytes());
    write(&roots.sys, "cpu.stat", STAT.as_bytes());
    let folder = Folder { version: 2, path: roots.sys.clone() };
    let bandwidth = Bandwidth::open(&folder, Some(&folder), Owner::Other(journal)).unwrap();
    (dir, roots.sys, QuotaGroup::new(bandwidth, size, None, Some(FREE)))
}

#[test]
fn the_owner_s_limit_of_a_group_is_never_raised() {
    let (_dir, folder, mut one) = attached(1, "50000 100000\n");
    let max = || std::fs::read_to_string(folder.join("cpu.max")).unwrap();
    for asked in [0.8, 1.0] {
        one.ask(asked, 20_000).unwrap();
        assert_eq!((max().as_str(), one.effective()), ("10000 20000", 0.5));
        assert!(one.shortfall().unwrap().contains("was 0.5000 CPUs"), "{:?}", one.shortfall());
    }
    one.ask(0.25, 20_000).unwrap();
    assert_eq!((max().as_str(), one.effective(), one.shortfall()), ("5000 20000", 0.25, None));
    // Meanwhile its owner allows it more, or all.
    // Told in the same way as often as it is looked at, also in the period that emu has chosen.
    for (limit, now) in [("6000 20000\n", "0.3000"), ("90000 100000\n", "0.9000")] {
        write(&folder, "cpu.max", limit.as_bytes());
        for _ in 0..2 {
            let told = one.look().unwrap().unwrap();
            assert!(told.contains(&format!("cpu.max: {now} CPUs instead of 0.2500 CPUs")), "{told}");
        }
    }
    one.ask(1.0, 20_000).unwrap();
    assert_eq!(max(), "18000 20000");
    write(&folder, "cpu.max", b"max 100000\n");
    assert!(one.look().unwrap().is_some());
    one.ask(1.0, 20_000).unwrap();
    assert_eq!((max().as_str(), one.shortfall()), ("max 20000", None));
    let (_dir, folder, mut four) = attached(4, "150000 100000\n");
    four.ask(4.0 * 0.8, 20_000).unwrap();
    assert_eq!(std::fs::read_to_string(folder.join("cpu.max")).unwrap(), "30000 20000");
}

#[test]
fn stalls_grow_with_the_tick() {
    let (ms, none) = (Duration::from_millis, Duration::ZERO);
    assert_eq!(longest_stall(0.5, 20_000, none), ms(10));
    // A turn of 2 ms that ends at a tick 4 ms later is paid for with 54 ms: measured on Linux 6.18, 55 ms.
    assert_eq!(longest_stall(0.1, 20_000, ms(4)).as_millis(), 54);
    assert_eq!(longest_stall(1.0, 20_000, ms(4)), none);
}

/// Lets the group's counters go on by two seconds in which it used `usage_us` and was always throttled.
fn two_seconds(root: &TempDir, one: &mut QuotaGroup, count: u64, usage_us: u64) -> bool {
    let stat = format!(
        "usage_usec {}\nnr_periods {}\nnr_throttled {}\nthrottled_usec 0\n",
        count * usage_us,
        count * 100,
        count * 100
    );
    write(root.path(), "cpu.stat", stat.as_bytes());
    // The window ends now, and began two seconds ago.
    if let Some(mark) = &mut one.mark {
        mark.at = time::now() - 2_000_000_000;
    }
    one.end_window().unwrap()
}

#[test]
fn a_group_that_gets_too_little_is_given_more_up_to_a_bound() {
    let (root, mut one) = group(1, None);
    one.ask(0.5, 20_000).unwrap();
    let mut written = false;
    for count in 0..200 {
        written |= two_seconds(&root, &mut one, count, 980_000);
        one.renew().unwrap();
    }
    assert!(written);
    assert!(one.duty() > 0.505 && one.duty() <= 0.52 + 1e-9, "{}", one.duty());
    assert!((one.effective() - 0.49).abs() < 0.001, "{}", one.effective());
}

#[test]
fn a_quota_makes_up_for_what_its_stalls_cost() {
    let (root, mut one) = group(1, None);
    one.stall_cost = Some(StopCost::new(30_000.0, 15_000.0));
    // One stall in each period, after turns of more than a tick.
    one.ask(0.5, 100_000).unwrap();
    assert_eq!(max(&root), "50045 100000");
    assert!((one.effective() - 0.5).abs() < 1e-12);
    for count in 0..20 {
        two_seconds(&root, &mut one, count, 1_000_900);
        one.renew().unwrap();
    }
    assert_eq!(max(&root), "50045 100000", "what it makes up for is not corrected away");
    assert!((one.effective() - 0.5).abs() < 1e-6, "{}", one.effective());
    one.stall_cost = Some(StopCost::new(400_000.0, 0.0));
    one.ask(0.5, 100_000).unwrap();
    assert_eq!(max(&root), "50150 100000");
    one.ask(0.999_9, 100_000).unwrap();
    assert_eq!(max(&root), "99995 100000", "there is still a limit");
    one.ask(1.0, 100_000).unwrap();
    assert_eq!((max(&root).as_str(), one.effective()), ("max 100000", 1.0));
}

#[test]
fn stalls_are_counted_as_the_kernel_s_ticks_make_them() {
    const PERIODS: u32 = 1_000;
    // Turns end at the first tick by which what may be used is used up, `phase` after a period begins or later.
    let simulated = |run: f64, phase: f64| {
        let (mut rest, mut stalls) = (0.0, 0);
        for _ in 0..PERIODS {
            rest += run;
            if rest > 0.0 {
                rest -= phase + (rest - phase).max(0.0).ceil();
                stalls += 1;
            }
        }
        f64::from(stalls) / f64::from(PERIODS)
    };
    for run in [0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.5, 3.0] {
        let phases = (0..32).map(|k| (f64::from(k) + 0.5) / 32.0);
        let mean = phases.map(|phase| simulated(run, phase)).sum::<f64>() / 32.0;
        assert!((stalls_per_period(run, 1.0) - mean).abs() < 0.1, "{run}: {mean}");
    }
}

#[test]
fn new_shares_wait_for_a_period_to_begin_and_no_longer() {
    let (_root, mut one) = group(1, None);
    one.ask(0.5, 20_000).unwrap();
    let begin = time::now();
    at_period_start(&mut [(&mut one, 0.25)], &|| false, |group, share| group.ask(*share, 20_000)).unwrap();
    let waited = time::now() - begin;
    assert!(waited >= 20_000_000, "no period began: {waited} ns");
    assert!((one.duty() - 0.25).abs() < 1e-12);
}

#[test]
fn what_was_left_unused_is_paid_on_top() {
    let (root, mut one) = group(1, None);
    one.tick = Duration::from_millis(4);
    one.ask(0.5, 20_000).unwrap();
    let settled = |one: &mut QuotaGroup| {
        if one.settle().unwrap() {
            one.renew().unwrap();
        }
        max(&root)
    };
    assert!(settled(&mut one).starts_with("10000 20000"));
    std::thread::sleep(Duration::from_millis(24));
    write(root.path(), "cpu.stat", STAT.replace("usage_usec 0", "usage_usec 1000").as_bytes());
    assert!(settled(&mut one).starts_with("10000 20000"));
    one.book_unused(true);
    assert!(settled(&mut one).starts_with("16000 20000"), "half a period, of which two writes forgive 4 ms");
    one.ask(0.25, 20_000).unwrap();
    assert!(settled(&mut one).starts_with("5000 20000"), "new speeds owe nothing of before");
}

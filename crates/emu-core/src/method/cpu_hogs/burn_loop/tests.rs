//! When a burner burns, and of what.

use std::time::Duration;

use super::*;
use crate::host::Host;
use crate::method::cpu_hogs::clock_meter::READINGS;
use crate::notes::Notes;
use crate::roots::Roots;
use crate::speed::Hertz;

const MS: Nanos = 1_000_000;

fn settings(share: f64, clock: Option<u64>) -> Settings {
    Settings::new(Grid::new(0, MS), Target { share, clock: clock.map(Hertz) })
}

/// A burner whose wake-ups usually cost 8 µs that it sees and 2 µs that it does not.
fn burning(seen: &Seen, background: Option<(Arc<BackgroundLoad>, usize)>) -> Loop<'_> {
    let cost = WakeCost { visible: 8_000.0, hidden: 2_000.0 };
    Loop::new(0, cost, seen, TimerPrearm::new().unwrap(), background, None, false)
}

#[test]
fn what_other_threads_of_emu_compute_is_taken_from_the_tasks() {
    let seen = Seen::default();
    let mut this = burning(&seen, None);
    let compute = || std::iter::repeat_with(time::thread_cpu).find(|cpu| *cpu > 5 * MS);
    assert_eq!(this.taken_by_emu(0, MS), 0, "emu has other CPUs");
    this.emu = Some(0);
    this.rest();
    std::thread::spawn(compute).join().unwrap();
    assert_eq!(this.taken_by_emu(0, MS), MS);
    this.rest();
    assert!(this.taken_by_emu(0, 3_600_000 * MS) >= 4 * MS, "the rest is made up for later");
    this.emu = Some(time::process_cpu() - 1_000 * MS);
    assert_eq!(this.taken_by_emu(0, MS) + this.unpaid, PAYMENTS * MS, "not without end");
}

/// Periods that a burner sleeps through which owes nothing yet, in a period of 1 ms.
fn skipped(share: f64, clock: Option<u64>, next_clock: Nanos) -> i64 {
    skipped_beside(share, clock, next_clock, None)
}

/// The same where others have nearly all time.
fn skipped_beside(
    share: f64,
    clock: Option<u64>,
    next_clock: Nanos,
    background: Option<(Arc<BackgroundLoad>, usize)>,
) -> i64 {
    let had = if background.is_some() { 0.999_999 } else { 0.0 };
    let seen = Seen::default();
    let mut this = burning(&seen, background);
    this.clock.next = next_clock;
    if let Some(clock) = clock {
        for _ in 0..READINGS {
            this.clock.add(clock as f64 / share);
        }
    }
    this.periods_to_skip(settings(share, clock), (1.0 - beside(share, had)) * MS as f64)
}

#[test]
fn a_burn_is_worth_its_wake_up() {
    let never = time::now() + 3_600_000 * MS;
    // 30 µs are worth one: 20 µs and what it costs.
    assert_eq!([0.5, 0.97, 0.99, 1.0].map(|share| skipped(share, None, never)), [0, 0, 2, 1 << 20]);
}

#[test]
fn an_overlong_burn_is_not_made_up_for_without_end() {
    let seen = Seen::default();
    let mut this = burning(&seen, None);
    this.clock.next = Nanos::MAX;
    this.ledger.settle(60e9);
    // Two periods, and the one that would be burned in anyway.
    assert_eq!(this.periods_to_skip(settings(0.5, None), 0.5 * MS as f64), 4);
}

#[test]
fn cpu_time_between_burns_is_booked_and_its_usual_part_learned() {
    let seen = Seen::default();
    let mut this = burning(&seen, None);
    this.ledger.charge(1e6, 1e6, 0.5);
    // Far from usual, and yet taken from the tasks.
    assert!((this.settle_wake_up(100_000.0) - 2_000.0).abs() < 1e-9);
    assert!((this.ledger.owed() - 400_000.0).abs() < 1e-6);
    for _ in 0..500 {
        this.settle_wake_up(12_000.0);
    }
    assert!((this.ledger.owed() + 5_600_000.0).abs() < 1e-3);
    assert!((this.cost() - 15_000.0).abs() < 1.0, "{}", this.cost());
}

#[test]
fn at_low_speeds_a_cpu_pulls_tasks_but_not_after_each_burn() {
    let seen = Seen::default();
    let mut this = burning(&seen, None);
    let next = time::now() + 3_600_000 * MS;
    this.look(0.1, next);
    assert_eq!(this.next_look, 0, "nobody is there to look");
    let cpu = Host::detect(&Roots::system()).unwrap().allowed.iter().next().unwrap();
    this.pusher = Some(IdlePusher::beside_burner(cpu, &Notes::default()).unwrap());
    this.look(0.3, next);
    assert_eq!(this.next_look, 0, "the speed is high");
    this.look(0.1, next);
    let due = this.next_look;
    this.look(0.1, next);
    assert!(due > 0 && due == this.next_look);
    let begin = std::time::Instant::now();
    while this.pusher.as_ref().unwrap().cpu() == 0 {
        assert!(begin.elapsed() < Duration::from_secs(10), "it does not look");
        std::thread::sleep(Duration::from_millis(1));
    }
    this.next_look = 0;
    this.look(0.1, next);
    assert!(this.looked > 0);
    let booked = -this.ledger.owed();
    assert!(booked > 0.0 && booked <= LOOK_COST_MAX as f64, "{booked}");
}

#[test]
fn the_share_is_of_what_others_leave() {
    assert!((beside(0.4, 0.0) - 0.4).abs() < 1e-12 && (beside(1.0, 0.3) - 1.0).abs() < 1e-12);
    // Of the half that others leave, 40 % are 20 % of all.
    assert!((beside(0.4, 0.5) - (0.5 + 0.2)).abs() < 1e-12);
}

#[test]
fn a_burner_looks_again_however_much_others_have() {
    let never = time::now() + 3_600_000 * MS;
    let read = || Some(crate::method::cpu_hogs::background_load::Used::default());
    let background = Arc::new(BackgroundLoad::new(1, MS, Box::new(read)).unwrap());
    let most = background.every() / MS;
    for share in [0.4, 0.999_999] {
        assert_eq!(skipped_beside(share, None, never, Some((Arc::clone(&background), 0))), most);
    }
    assert_eq!(skipped_beside(1.0, None, never, Some((background, 0))), 1 << 20);
}

#[test]
fn a_target_in_hertz_has_the_clock_measured_at_any_speed() {
    let later = time::now() + 3_600_000 * MS;
    assert_eq!(skipped(0.95, Some(1), later), 0);
    // 70 µs are worth one in which the clock is measured.
    assert_eq!([0.5, 0.95].map(|share| skipped(share, Some(1), 0)), [0, 1]);
    assert_eq!([0.999_999, 1.0].map(|share| skipped(share, Some(1), 0)), [1005, 1005]);
}

#[test]
fn the_share_follows_a_clock_only_when_that_is_sure() {
    const REFERENCE: f64 = 3e9;
    let target = Target { share: 0.4, clock: Some(Hertz(1_200_000_000)) };
    let full = Target { share: 1.0, clock: Some(Hertz(3_000_000_000)) };
    let share = |clocks: &[f64]| {
        let seen = Seen::default();
        let mut this = burning(&seen, None);
        this.clock.next = Nanos::MAX;
        for clock in clocks {
            this.clock.add(*clock);
        }
        let skips = |target| this.periods_to_skip(Settings::new(Grid::new(0, MS), target), 0.0);
        (this.clock.share(target), skips(target).max(skips(full)))
    };
    let spoiled = REFERENCE / 10.0;
    // A hypervisor has taken the CPU away: of three readings two say that it is slower than asked for.
    assert_eq!(share(&[]), (0.4, SKIPPED_UNSURE));
    assert_eq!(share(&[spoiled, REFERENCE, spoiled]), (0.4, SKIPPED_UNSURE));
    let mostly_spoiled =
        [spoiled, spoiled, spoiled, spoiled, spoiled, REFERENCE, REFERENCE, REFERENCE, REFERENCE];
    assert_eq!(share(&mostly_spoiled), (0.4, SKIPPED_UNSURE));
    let slower = REFERENCE * 0.8;
    let (followed, skipped) =
        share(&[slower, slower, spoiled, slower, spoiled, slower, slower, spoiled, slower]);
    assert!((followed - 0.5).abs() < 1e-12 && skipped > SKIPPED_UNSURE, "{followed}, {skipped}");
}

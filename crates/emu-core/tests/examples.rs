//! The examples do what they show.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

#[path = "../examples/slow_child.rs"]
#[expect(dead_code, unreachable_pub, reason = "a program of its own, whose main is not this one's")]
mod slow_child;

#[path = "../examples/nodes.rs"]
#[expect(dead_code, unreachable_pub, reason = "a program of its own, whose main is not this one's")]
mod nodes;

#[path = "../examples/two_zones.rs"]
#[expect(dead_code, unreachable_pub, reason = "a program of its own, whose main is not this one's")]
mod two_zones;

#[path = "../examples/retarget.rs"]
#[expect(dead_code, unreachable_pub, reason = "a program of its own, whose main is not this one's")]
mod retarget;

#[path = "../examples/watch_status.rs"]
#[expect(dead_code, unreachable_pub, reason = "a program of its own, whose main is not this one's")]
mod watch_status;

use std::sync::{Mutex, PoisonError};

use emu_core::{Error, ErrorKind, Health, Result, Status, Stretch};

/// Held by a test that emulates: they take the same CPUs.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs an example until it was right, a few times at most: on a shared machine others take their part of a CPU now and then.
fn until_right<T>(run: impl Fn() -> Result<T>, is_right: impl Fn(&T) -> bool) -> Option<T> {
    let mut tries = 0;
    loop {
        match run() {
            Err(why) if matches!(why.kind(), ErrorKind::Unavailable | ErrorKind::NotPermitted) => {
                skip(&why);
                return None;
            }
            ended => {
                let ended = ended.unwrap();
                tries += 1;
                if is_right(&ended) || tries == 4 {
                    return Some(ended);
                }
            }
        }
    }
}

/// Says why a test does not run, which `EMU_NO_SKIP` forbids.
fn skip(why: &Error) {
    assert!(std::env::var_os("EMU_NO_SKIP").is_none(), "{}", why.in_words());
    eprintln!("skipped: {}", why.in_words());
}

#[test]
fn a_slow_child_runs_at_the_share_asked_for() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let shares = |status: &Status| {
        [Some(status.cpus[0].set), status.delivered.as_ref().map(|delivered| delivered.share)]
    };
    let are_right = |status: &Status| {
        status.health == Health::Holding
            && shares(status).iter().flatten().all(|share| (0.3..0.5).contains(share))
    };
    let Some(ended) = until_right(slow_child::run, |ended| are_right(&ended.status)) else { return };
    assert!(ended.exit.success(), "{}", ended.exit);
    assert_eq!(String::from_utf8(ended.stdout).unwrap(), "300000, in /\n");
    ended.released.unwrap();
    assert!(are_right(&ended.status), "{:?}", ended.status);
}

#[test]
fn workers_on_nodes_run_at_their_shares() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let are_right = |ended: &Vec<Status>| {
        // As they were asked for last.
        let is_set = |(status, wanted): (&Status, f64)| {
            let cpu = &status.cpus[0];
            (cpu.asked.share - wanted).abs() < 1e-9 && (cpu.set - wanted).abs() < 0.05
        };
        let mut delivered = ended.iter().filter_map(|status| status.delivered.as_ref());
        ended.iter().zip([0.5, 0.8]).all(is_set) && delivered.all(|seen| seen.error.abs() < 0.15)
    };
    let Some(ended) = until_right(nodes::run, are_right) else { return };
    assert!(are_right(&ended), "{ended:?}");
}

#[test]
fn two_zones_are_set_to_their_own_shares() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let are_right = |ended: &Vec<Status>| {
        let set = ended.iter().flat_map(|status| &status.cpus).map(|cpu| cpu.set);
        ended.len() == 2 && set.zip([0.3, 0.7]).all(|(set, wanted)| (set - wanted).abs() < 0.05)
    };
    let Some(ended) = until_right(two_zones::run, are_right) else { return };
    assert!(are_right(&ended), "{ended:?}");
}

#[test]
fn a_thread_has_a_program_change_its_speed() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let are_right = |steps: &Vec<Stretch>| {
        let is_right = |(step, wanted): (&Stretch, f64)| {
            let asked = step.cpus.iter().all(|cpu| (cpu.asked.share - wanted).abs() < 1e-9);
            // Others on a shared machine can take from it, and nobody can give to it.
            asked && step.delivered.is_none_or(|seen| seen.error < 0.2)
        };
        steps.len() == 2 && steps.iter().zip([0.8, 0.5]).all(is_right)
    };
    let Some(steps) = until_right(retarget::run, are_right) else { return };
    assert!(are_right(&steps), "{steps:?}");
}

#[test]
fn the_status_tells_what_is_delivered() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let are_right = |seen: &Vec<Status>| {
        let last = seen.last().and_then(|status| status.delivered);
        seen.len() == 4 && last.is_some_and(|delivered| (0.3..0.5).contains(&delivered.share))
    };
    let Some(seen) = until_right(watch_status::run, are_right) else { return };
    assert!(are_right(&seen), "{seen:?}");
}

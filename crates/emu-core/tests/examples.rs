//! The examples do what they show.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

#[path = "../examples/slow_child.rs"]
#[expect(dead_code, unreachable_pub, reason = "a program of its own, whose main is not this one's")]
mod slow_child;

#[path = "../examples/nodes.rs"]
#[expect(dead_code, unreachable_pub, reason = "a program of its own, whose main is not this one's")]
mod nodes;

use std::sync::{Mutex, PoisonError};

use emu_core::{Error, ErrorKind, Health};

/// Held by a test that emulates: they take the same CPUs.
static ALONE: Mutex<()> = Mutex::new(());

/// Says why a test does not run, which `EMU_NO_SKIP` forbids.
fn skip(why: &Error) {
    assert!(std::env::var_os("EMU_NO_SKIP").is_none(), "{}", why.in_words());
    eprintln!("skipped: {}", why.in_words());
}

#[test]
fn a_slow_child_runs_at_the_share_asked_for() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = match slow_child::run() {
        Err(why) if matches!(why.kind(), ErrorKind::Unavailable | ErrorKind::NotPermitted) => {
            return skip(&why);
        }
        ended => ended.unwrap(),
    };
    assert!(ended.exit.success(), "{}", ended.exit);
    assert_eq!(String::from_utf8(ended.stdout).unwrap(), "300000, in /\n");
    ended.released.unwrap();
    assert_eq!(ended.status.health, Health::Holding, "{:?}", ended.status.problems);
    let shares = [Some(ended.status.cpus[0].set), ended.status.delivered.map(|delivered| delivered.share)];
    assert!(shares.iter().flatten().all(|share| (0.3..0.5).contains(share)), "{shares:?}");
}

#[test]
fn workers_on_nodes_run_at_their_shares() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = match nodes::run() {
        Err(why) if matches!(why.kind(), ErrorKind::Unavailable | ErrorKind::NotPermitted) => {
            return skip(&why);
        }
        ended => ended.unwrap(),
    };
    // As they were asked for last.
    let shares = ended.iter().map(|status| (status.cpus[0].asked.share, status.cpus[0].set));
    for ((asked, set), wanted) in shares.zip([0.5, 0.8]) {
        assert!((asked - wanted).abs() < 1e-9 && (set - wanted).abs() < 0.05, "{asked} asked, {set} set");
    }
    let delivered = ended.iter().filter_map(|status| status.delivered);
    assert!(delivered.clone().all(|seen| seen.error().abs() < 0.15), "{ended:?}");
}

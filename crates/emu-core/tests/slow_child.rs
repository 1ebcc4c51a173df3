//! The example of a slow child, and what else its builder promises.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

#[path = "../examples/slow_child.rs"]
#[expect(dead_code, unreachable_pub, reason = "a program of its own, whose main is not this one's")]
mod slow_child;

use emu_core::{Error, ErrorKind, Health};

/// Says why a test does not run, which `EMU_NO_SKIP` forbids.
fn skip(why: &Error) {
    assert!(std::env::var_os("EMU_NO_SKIP").is_none(), "{}", why.in_words());
    eprintln!("skipped: {}", why.in_words());
}

#[test]
fn the_example_runs_at_the_share_asked_for() {
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

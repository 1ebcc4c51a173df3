//! `emu timers` from end to end: what it prints, its record, a reference, bad input.

use std::fs;

use crate::common::{alone, assert_measured, assert_refused, emu, run, words};

#[test]
fn a_quick_look_tells_of_every_clock_and_takes_a_reference() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("first");
    let ended = run(emu(words("timers --quick --seed 7 --out")).arg(&folder), "");
    let json = assert_measured(&ended, &folder, "timers", &["timers-drift.svg"]);
    for clock in [
        "CLOCK_MONOTONIC",
        "MONOTONIC_RAW",
        "REALTIME",
        "BOOTTIME",
        "PROCESS",
        "THREAD",
        "getrusage",
        "times",
    ] {
        assert!(ended.stdout.contains(clock), "{clock}: {}", ended.stdout);
    }
    assert_eq!(ended.stdout.contains("TSC"), cfg!(target_arch = "x86_64"));
    assert_eq!(json["about"]["command"], "emu timers --quick --seed 7");
    assert_eq!(json["result"]["relative"], serde_json::Value::Null);
    for ledger in json["result"]["ledgers"].as_array().unwrap() {
        let part = |name: &str| ledger[name].as_u64().unwrap_or(0);
        let parts = ["run_ns", "queue_ns", "own_throttle_ns", "outer_throttle_ns", "stolen_ns", "sleep_ns"];
        assert_eq!(parts.map(part).iter().sum::<u64>(), part("wall_ns"), "{ledger}");
    }

    let second = dir.path().join("second");
    let mut command = emu(words("timers --quick"));
    let ended = run(command.arg("--reference").arg(&folder).arg("--out").arg(&second), "");
    let json = assert_measured(&ended, &second, "timers", &["timers-drift.svg", "timers-reference.svg"]);
    assert!(ended.stdout.contains("Of the performance of the reference"), "{}", ended.stdout);
    let sizes = json["result"]["relative"]["sizes"].as_array().unwrap();
    assert!(!sizes.is_empty() && sizes.iter().all(|size| size["share"].as_f64().unwrap() > 0.0));
}

#[test]
fn what_is_no_reference_is_refused_before_anything_is_measured() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let out = dir.path().join("out");
    for reference in [
        dir.path().to_owned(),
        dir.path().join("no-such"),
        write("empty.json", ""),
        write("other.json", "{\"schema\":1}"),
        write("list.json", "[1,2]"),
    ] {
        let mut command = emu(["timers", "--quick", "--reference"]);
        let ended = run(command.arg(&reference).arg("--out").arg(&out), "");
        assert_refused(&ended, 2, &reference.display().to_string());
        assert!(!out.exists(), "{}", reference.display());
    }
    let ended = run(emu(["timers", "--quick", "--out"]).arg(dir.path()), "");
    assert_refused(&ended, 2, "a folder that exists");
}

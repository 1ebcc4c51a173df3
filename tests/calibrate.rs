//! `emu calibrate` and `emu calibrate map`, from the command line to the record.

use std::fs;
use std::thread::available_parallelism;

use crate::common::{
    self, alone, as_written, emu, eventually, groups_of, methods, run, skip, start, unwrapped, words,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A step that makes four quotas, whatever the host.
fn step() -> f64 {
    available_parallelism().map_or(1.0, |count| count.get() as f64) / 4.0
}

fn needs_quotas() -> bool {
    let has = methods().iter().any(|method| method == "fracas");
    if !has {
        skip("there are no CPU quotas here");
    }
    has
}

#[test]
fn a_calibration_is_measured_recorded_and_mapped_onto_itself() {
    if !needs_quotas() {
        return;
    }
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("record");
    let line = format!(
        "calibrate --quick --seed 3 --reps 2 --size 200,2000 --preset semode-2021 --explain --step {} --out",
        step()
    );
    let ended = run(emu(words(&line)).arg(&record), "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    for part in ["INTERCEPT", "ceil(quota)", "all CPUs", "GIVEN", "H90 1.c", "54.118"] {
        assert!(ended.stdout.contains(part), "{part}\n{}", ended.stdout);
    }
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    let json = as_written("calibrate", &fs::read_to_string(record.join("calibrate.json")).unwrap());
    let explained = json["result"]["explained"]["words"].as_str().unwrap();
    assert!(unwrapped(&ended.stdout).contains(explained) && !explained.is_empty(), "{explained}");
    common::samples(&record);
    let samples = json["result"]["samples"].as_array().unwrap();
    // Each of both passes has a sample of its own, of the last size.
    assert_eq!(json["result"]["sizes"], serde_json::json!([200, 2000]));
    let alike =
        |one: &Value, other: &Value| one["quota"] == other["quota"] && one["threads"] == other["threads"];
    assert!(
        samples.iter().all(|one| samples.iter().filter(|other| alike(one, other)).count() == 2),
        "{json}"
    );
    assert!(samples.len() >= 4 && samples.iter().all(|sample| sample["passed"] == true), "{json}");
    let is_share = |value: &Value| value.as_f64().is_some_and(|share| (0.0..=1.0).contains(&share));
    assert!(samples.iter().all(|one| is_share(&one["stolen"]) && is_share(&one["foreign"])), "{json}");
    let of_quota = |quota: f64| {
        let mut own =
            samples.iter().filter(|sample| (sample["quota"].as_f64().unwrap() - quota).abs() < 1e-9);
        own.next().and_then(|sample| sample["cpus_used"].as_f64()).unwrap()
    };
    // The quota limits: wherever the machine's time goes, nobody gets more than it.
    assert!(of_quota(step()) < step() * 1.3, "{samples:?}");
    let csv = fs::read_to_string(record.join("calibrate.csv")).unwrap();
    assert_eq!(csv.lines().count(), samples.len() + 1);
    let figure = fs::read_to_string(record.join("calibrate.svg")).unwrap();
    assert!(figure.contains("CPU quota") && record.join("calibrate-residuals.svg").exists());

    let compare = |more: &[&str]| {
        let figure = dir.path().join("compared.svg");
        let records = more.iter().map(|name| dir.path().join(name).to_string_lossy().into_owned());
        let words = ["calibrate", "compare", "--figure", &figure.to_string_lossy()].map(str::to_owned);
        (run(&mut emu(words.into_iter().chain(records)), ""), figure)
    };
    let (same, figure) = compare(&["record", "record"]);
    assert_eq!(same.code(), Some(0), "{}", same.stderr);
    let count = |what: &str| json["result"]["analyses"][0][what].as_array().unwrap().len();
    // On a busy machine too few quotas are left to compare.
    let is_told = count("places") - count("disturbed_quotas") >= 3;
    assert_eq!(same.stdout.contains("0.0% ±0.0"), is_told, "{}", same.stdout);
    assert!(fs::read_to_string(&figure).unwrap().contains("record"));
    let text = fs::read_to_string(record.join("calibrate.json")).unwrap();
    for (bad, part) in [
        (text[..text.len() / 2].to_owned(), "cannot be understood"),
        (
            text.replacen("\"equations\": 2000", "\"equations\": 1000", 1),
            "bad of 1000 equations with record of 2000",
        ),
        (text.replacen("\"schema\": 1", "\"schema\": 99", 1), "version 99"),
        (text.replacen("\"name\": \"calibrate\"", "\"name\": \"noise\"", 1), "one of emu noise"),
    ] {
        fs::write(dir.path().join("bad.json"), bad).unwrap();
        let (refused, _) = compare(&["record", "bad.json"]);
        assert_eq!(refused.code(), Some(2), "{part}: {}", refused.stderr);
        assert!(unwrapped(&refused.stderr).contains(part), "{part}: {}", refused.stderr);
    }

    // A machine whose rate is the quota's, whatever others had of this one meanwhile.
    let mut line = json.clone();
    for sample in line["result"]["samples"].as_array_mut().unwrap() {
        sample["gflops"] = (10.0 * sample["quota"].as_f64().unwrap()).into();
        (sample["stolen"], sample["foreign"]) = (0.0.into(), 0.0.into());
    }
    let file = dir.path().join("line.json");
    fs::write(&file, line.to_string()).unwrap();
    let map = |other: &str, setting: &str| {
        let words =
            ["map", &file.to_string_lossy(), other, "--setting", setting, "--json"].map(str::to_owned);
        run(&mut emu(["calibrate".to_owned()].into_iter().chain(words)), "")
    };
    let quota = (step() * 2.0).to_string();
    let same = map(&file.to_string_lossy(), &quota);
    assert_eq!(same.code(), Some(0), "{}", same.stderr);
    let found = as_written("calibrate-map", &same.stdout);
    assert!((found["quota"].as_f64().unwrap() - step() * 2.0).abs() < 1e-6, "{found}");
    let beyond = map(&file.to_string_lossy(), "100000");
    assert_eq!(beyond.code(), Some(2), "{}", beyond.stderr);
    assert!(unwrapped(&beyond.stderr).contains("outside of"), "{}", beyond.stderr);
    let fast = dir.path().join("fast.csv");
    fs::write(&fast, "memory,gflops\n128,1e6\n1024,8e6\n1769,14e6\n").unwrap();
    let fast = map(&fast.to_string_lossy(), "1769");
    assert_eq!(fast.code(), Some(3), "{}", fast.stderr);
    assert!(unwrapped(&fast.stderr).contains("were measured here"), "{}", fast.stderr);
    let mut wrong = json.clone();
    wrong["result"]["samples"][0]["passed"] = Value::Bool(false);
    let file = dir.path().join("wrong.json");
    fs::write(&file, wrong.to_string()).unwrap();
    let wrong = map(&file.to_string_lossy(), &quota);
    assert_eq!(wrong.code(), Some(2), "{}", wrong.stderr);
    assert!(unwrapped(&wrong.stderr).contains("wrong.json: 1 of its"), "{}", wrong.stderr);
}

#[test]
fn a_calibration_that_is_interrupted_leaves_nothing_behind() {
    if !needs_quotas() {
        return;
    }
    let _alone = alone();
    let child = start(&mut emu(["calibrate", "--quick"]));
    let id = child.id();
    eventually("a quota is set", || !groups_of(id).is_empty());
    kill(Pid::from_raw(id as i32), Signal::SIGTERM).expect("emu to be there");
    let ended = common::finish(child);
    assert_eq!(ended.code(), None, "{}", ended.stderr);
    assert!(groups_of(id).is_empty());
}

#[test]
fn what_makes_no_sense_is_refused_with_a_hint() {
    for (line, code, part) in [
        ("calibrate --step 0", 2, "--step: bad step `0`"),
        ("calibrate --step -1", 2, "--step: bad step `-1`"),
        ("calibrate --step NaN", 2, "--step: bad step `NaN`"),
        ("calibrate --step 10000", 2, "at least three quotas"),
        ("calibrate --reps 0", 2, "--reps: bad number of repetitions `0`"),
        ("calibrate --size 5,1000", 2, "--size: bad number of equations `5`"),
        ("calibrate --quick --size 1000,1000000", 3, "of yours --size 1000 fit"),
        ("calibrate compare Cargo.toml Cargo.toml", 2, "cannot be understood"),
        ("calibrate compare /nowhere /nowhere", 2, "hint:"),
        ("calibrate map /nowhere /nowhere --setting 1", 2, "hint:"),
        ("calibrate map Cargo.toml Cargo.toml --setting 1", 2, "hint:"),
    ] {
        let ended = run(&mut emu(words(line)), "");
        assert_eq!(ended.code(), Some(code), "{line}: {}", ended.stderr);
        assert!(unwrapped(&ended.stderr).contains(part), "{line}: {}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{line}");
    }
}

#[test]
fn a_quota_below_the_kernels_floor_is_refused() {
    if !needs_quotas() {
        return;
    }
    // 0.4 ms of a period of 100 ms.
    let ended = run(&mut emu(words("calibrate --quick --step 0.004")), "");
    assert_eq!(ended.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("1ms") && ended.stderr.contains("--step"), "{}", ended.stderr);
}

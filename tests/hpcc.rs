//! `emu measure hpcc`, from the command line to the record.

use std::fs;

use crate::common::{alone, as_written, emu, run, samples, unwrapped, words};

#[test]
fn every_kernel_is_measured_verified_and_recorded() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("record");
    let ended = run(emu(words("measure hpcc --quick --seed 5 --threads 2 --json --out")).arg(&record), "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let json = as_written("measure-hpcc", &ended.stdout);
    let rows = json["result"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 9);
    // Three rounds of five kernels and STREAM.
    assert_eq!(samples(&record).len(), 3 * 6);
    for row in rows {
        assert_eq!((row["passed"].as_bool(), row["threads"].as_u64()), (Some(true), Some(2)), "{row}");
        assert!(row["best"].as_f64().unwrap() >= row["median"].as_f64().unwrap(), "{row}");
    }
    assert_eq!(fs::read_to_string(record.join("measure-hpcc.json")).unwrap(), ended.stdout);
    assert_eq!(fs::read_to_string(record.join("measure-hpcc.csv")).unwrap().lines().count(), 10);
    assert!(fs::read_to_string(record.join("measure-hpcc.svg")).unwrap().contains("random-access"));
    let again = run(emu(words("measure hpcc --quick --out")).arg(&record), "");
    assert_eq!(again.code(), Some(2), "{}", again.stderr);
    assert!(unwrapped(&again.stderr).contains("never written over"), "{}", again.stderr);
}

#[test]
fn a_series_is_told_in_percent_of_itself_and_beside_stream() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let [first, second, stream] = ["first", "second", "stream.txt"].map(|name| dir.path().join(name));
    fs::write(&stream, include_str!("../crates/emu-machine/src/tools/testdata/stream.txt")).unwrap();
    let line = "measure hpcc --quick --seed 5 --threads 2 --sizes 300,600 --out";
    let ended = run(emu(words(line)).arg(&first), "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(
        first.join("measure-hpcc-gflops.svg").exists() && first.join("measure-hpcc-updates.svg").exists()
    );
    let mut again = emu(words(line));
    again.arg(&second).arg("--reference").arg(&first).arg("--compare").arg(&stream);
    let ended = run(&mut again, "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    assert!(ended.stdout.contains("OF THE REFERENCE") && ended.stdout.contains("STREAM triad, 2 threads"));
    let json = as_written("measure-hpcc", &fs::read_to_string(second.join("measure-hpcc.json")).unwrap());
    assert_eq!(json["result"]["rows"].as_array().unwrap().len(), 18);
    assert_eq!(json["result"]["reference"]["shares"].as_array().unwrap().len(), 18);
    assert_eq!(json["result"]["compared"].as_array().unwrap().len(), 4);
    assert!(second.join("measure-hpcc-reference.svg").exists());
    let refused = run(emu(words("measure hpcc --quick --sizes 400 --reference")).arg(&first), "");
    assert_eq!((refused.code(), refused.stdout.as_str()), (Some(2), ""), "{}", refused.stderr);
    assert!(unwrapped(&refused.stderr).contains("no kernel is run with the same size"), "{}", refused.stderr);
}

#[test]
fn what_cannot_be_compared_or_does_not_fit_is_refused_at_once() {
    for (line, code, part) in [
        ("measure hpcc --sizes 300,1000000", 3, "of yours --sizes 300 fit"),
        ("measure hpcc --sizes 5", 2, "bad number of equations `5`"),
        ("measure hpcc --reference /nowhere", 2, "hint:"),
        ("measure hpcc --compare /nowhere", 2, "/nowhere"),
        ("measure hpcc --compare Cargo.toml", 2, "no output of fio"),
        ("measure cpu --compare src/main.rs", 2, "no output of fio"),
    ] {
        let ended = run(&mut emu(words(line)), "");
        assert_eq!((ended.code(), ended.stdout.as_str()), (Some(code), ""), "{line}: {}", ended.stderr);
        assert!(unwrapped(&ended.stderr).contains(part), "{line}: {}", ended.stderr);
    }
}

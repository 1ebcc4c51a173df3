//! `emu measure hpcc`, from the command line to the record.

use std::fs;

use crate::common::{alone, emu, run, unwrapped, words};
use serde_json::Value;

#[test]
fn every_kernel_is_measured_verified_and_recorded() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let record = dir.path().join("record");
    let ended = run(emu(words("measure hpcc --quick --seed 5 --threads 2 --json --out")).arg(&record), "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let json: Value = serde_json::from_str(&ended.stdout).unwrap();
    let rows = json["result"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 9);
    // Three rounds of five kernels and STREAM.
    assert_eq!(fs::read_to_string(record.join("samples.jsonl")).unwrap().lines().count(), 3 * 6);
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

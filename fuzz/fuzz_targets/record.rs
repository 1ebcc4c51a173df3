//! The two files of a record, one behind the other with a NUL between them.
#![no_main]

use std::fs;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let (about, lines) = bytes.split_at(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
    fs::write(folder.path().join("record.json"), about).expect("a file");
    fs::write(folder.path().join("samples.jsonl"), lines).expect("a file");
    let _ = emu_bench::record::read(folder.path());
});

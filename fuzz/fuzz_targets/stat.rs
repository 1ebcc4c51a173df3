//! `/proc/<pid>/stat` and `schedstat`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| emu_core::fuzzing::stat(bytes));

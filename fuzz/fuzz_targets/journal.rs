//! A journal of a session, as a killed emu or somebody else left it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| emu_core::fuzzing::journal(bytes));

//! Files of a cgroup.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| emu_core::fuzzing::cgroup(text));

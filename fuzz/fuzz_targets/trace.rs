//! Traces of speeds, as another machine or a user wrote them.
#![no_main]

use emu_core::Trace;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = text.parse::<Trace>();
});

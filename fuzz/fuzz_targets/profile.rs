//! Profiles of another machine.
#![no_main]

use emu_machine::profile::Profile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Profile::parse(text);
});

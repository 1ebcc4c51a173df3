//! Speeds: what is printed is read back, to the figures that are printed.
#![no_main]

use emu_core::{CpuList, SpeedSpec};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(speed) = text.parse::<SpeedSpec>() else { return };
    let printed = speed.to_string();
    let again: SpeedSpec = printed.parse().unwrap_or_else(|e| panic!("{text:?} is printed as {printed:?}: {e}"));
    assert_eq!(again.to_string(), printed);
    let zone: CpuList = [0, 1].into_iter().collect();
    let _ = speed.for_cpus(&zone);
});

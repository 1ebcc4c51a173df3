//! Lists of CPUs, as a user and the kernel write them: what is printed is read back.
#![no_main]

use emu_core::CpuList;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for cpus in [text.parse().ok(), CpuList::from_kernel(text)].into_iter().flatten() {
        let cpus: CpuList = cpus;
        assert_eq!(CpuList::from_kernel(&cpus.to_string()), Some(cpus));
    }
});

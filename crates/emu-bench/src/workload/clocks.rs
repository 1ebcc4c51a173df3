//! The clocks by which work is timed.

use nix::time::{ClockId, clock_gettime};

/// Now on `CLOCK_MONOTONIC`, which worker and harness share, in nanoseconds.
pub fn now_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CPU time of this process, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time of the calling thread, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: ClockId) -> u64 {
    // These clocks exist on every Linux that Rust supports; the call has no other way to fail.
    clock_gettime(clock).map_or(0, |time| (time.tv_sec() * 1_000_000_000 + time.tv_nsec()) as u64)
}

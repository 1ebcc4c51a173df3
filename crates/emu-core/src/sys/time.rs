//! Clocks in nanoseconds, and a wait that can be woken early.

use std::num::NonZeroU32;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use nix::time::{ClockId, clock_getres, clock_gettime};
use rustix::thread::futex;

/// A moment of `CLOCK_MONOTONIC`, in nanoseconds.
pub(crate) type Nanos = i64;

/// A tick of the times in `/proc/stat` and `/proc/<pid>/stat` (`USER_HZ`): a hundredth of a second on every architecture
/// that has pidfds but Alpha.
pub(crate) const USER_TICK: Nanos = 10_000_000;

/// Now on `CLOCK_MONOTONIC`, which all CPUs share and which frequency changes do not touch.
pub(crate) fn now() -> Nanos {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CPU time of the calling thread, switches into and out of it included.
pub(crate) fn thread_cpu() -> Nanos {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

pub(crate) fn process_cpu() -> Nanos {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// Now on the clock of the start times of processes, in [`USER_TICK`]s.
pub(crate) fn user_ticks() -> u64 {
    (read(ClockId::CLOCK_BOOTTIME) / USER_TICK) as u64
}

fn read(clock: ClockId) -> Nanos {
    // These clocks exist on every Linux that Rust supports; the call has no other way to fail.
    clock_gettime(clock).map_or(0, |time| time.tv_sec() * 1_000_000_000 + time.tv_nsec())
}

/// A span as nanoseconds, saturating after 292 years.
pub(crate) fn nanos(span: Duration) -> Nanos {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// Nanoseconds as a span; negative is zero.
pub(crate) fn span(nanos: Nanos) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// The kernel's tick, at which it looks at the time of what runs: the resolution of the coarse clock.
pub fn tick() -> Duration {
    let coarse = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE);
    coarse.map_or(Duration::from_millis(10), |step| span(step.tv_sec() * 1_000_000_000 + step.tv_nsec()))
}

/// Passes a few hundred cycles of a CPU that must not be given away.
#[inline]
pub(crate) fn pass_moment() {
    (0..8).for_each(|_| std::hint::spin_loop());
}

/// Sleeps until `deadline`, or until `word` no longer holds `expected` and [`wake`] is called; may end early
/// (`EINTR`).
///
/// An absolute `FUTEX_WAIT_BITSET` uses the same high-resolution timer as `clock_nanosleep` and, unlike it, can be
/// ended from another thread without a signal.
pub(crate) fn wait_until(word: &AtomicU32, expected: u32, deadline: Nanos) {
    let timeout =
        futex::Timespec { tv_sec: deadline / 1_000_000_000, tv_nsec: (deadline % 1_000_000_000) as _ };
    // Timed out, woken, interrupted or changed beforehand: the caller looks at the clock and the word.
    let _ = futex::wait_bitset(word, futex::Flags::PRIVATE, expected, Some(&timeout), NonZeroU32::MAX);
}

/// Sleeps for at least this long. [`std::thread::sleep`] panics where a sandbox forbids `clock_nanosleep(2)`; the futex that this
/// waits for is what every lock of the standard library needs.
pub fn sleep(span: Duration) {
    sleep_until(now().saturating_add(nanos(span)));
}

pub(crate) fn sleep_until(deadline: Nanos) {
    let word = AtomicU32::new(0);
    while now() < deadline {
        wait_until(&word, 0, deadline);
    }
}

pub(crate) fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// Tells the kernel not to delay this thread's timers (`PR_SET_TIMERSLACK`, 1 ns; the default is 50 µs). Real-time
/// threads have no slack anyway (prctl(2)).
pub(crate) fn no_timer_slack() {
    let _ = nix::sys::prctl::set_timerslack(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let word = AtomicU32::new(0);
        let deadline = now() + 3_000_000;
        while now() < deadline {
            wait_until(&word, 0, deadline);
        }
        assert!(now() >= deadline);
    }

    #[test]
    fn a_sleep_lasts_as_long_as_asked() {
        let begin = now();
        sleep(Duration::ZERO);
        sleep(Duration::from_millis(3));
        assert!(now() - begin >= 3_000_000);
        let sandboxed = std::thread::spawn(|| {
            crate::testing::forbid(libc::SYS_clock_nanosleep);
            sleep(Duration::from_millis(3));
        });
        assert!(sandboxed.join().is_ok());
    }

    #[test]
    fn a_wait_can_be_ended_early() {
        let word = std::sync::Arc::new(AtomicU32::new(0));
        let theirs = word.clone();
        let waker = std::thread::spawn(move || {
            theirs.store(1, Ordering::SeqCst);
            wake(&theirs);
        });
        let begin = now();
        while word.load(Ordering::SeqCst) == 0 {
            wait_until(&word, 0, begin + 60_000_000_000);
        }
        assert!(now() - begin < 30_000_000_000);
        waker.join().unwrap();
    }
}

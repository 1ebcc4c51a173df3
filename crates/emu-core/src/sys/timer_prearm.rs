//! Wake-ups that the kernel is told of before they are waited for.

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::time::Nanos;
use crate::ablation::{Correction, is_off};
use crate::error::{Error, Result};

/// Timers for the next two wake-ups of a thread that wakes up in steps.
///
/// A thread that goes to sleep until the next event of its CPU makes the kernel program the CPU's timer: in a guest
/// an exit to the hypervisor, a third of what the whole wake-up takes. The interrupt of a timer programs the next one
/// in any case. So the step after the next one is told while the next one is still to come: a timer that does not
/// expire before all others, or at the same moment as another one, needs nothing (`hrtimer_start_range_ns` in the
/// kernel's kernel/time/hrtimer.c). A step that was told and is not waited for costs its interrupt.
#[derive(Debug)]
pub(crate) struct TimerPrearm {
    /// The first one is the one to be set next: it has expired, or will before the other.
    timers: [TimerFd; 2],
}

impl TimerPrearm {
    pub(crate) fn new() -> Result<Self> {
        let timer = || TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC);
        let timers = timer().and_then(|one| Ok([one, timer()?])).map_err(|cause| {
            Error::io("cannot make the timers of a duty cycle", cause.into()).hint_on(
                &[libc::EMFILE, libc::ENFILE],
                "each CPU needs two file descriptors; raise the limit with `ulimit -n`",
            )
        })?;
        Ok(Self { timers })
    }

    /// Tells of a wake-up at `at`, the one after that which was told last.
    pub(crate) fn tell(&mut self, at: Nanos) {
        if is_off(Correction::TimerPrearm) {
            return;
        }
        let at = TimeSpec::new(at / 1_000_000_000, at % 1_000_000_000);
        let [expired, _] = &self.timers;
        // A wake-up that nobody was told of takes place all the same.
        let _ = expired.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME);
        self.timers.rotate_left(1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::time::now;
    use super::*;
    use nix::sys::timerfd::Expiration::OneShot;

    #[test]
    fn two_wake_ups_are_known_at_any_moment() {
        const HOUR: Nanos = 3_600_000_000_000;
        let mut announcer = TimerPrearm::new().unwrap();
        let begin = now();
        for step in 1..=3 {
            announcer.tell(begin + step * HOUR);
        }
        let left = announcer.timers.map(|timer| match timer.get().unwrap() {
            Some(OneShot(left)) => (left.tv_sec() as f64 / 3600.0).round() as i64,
            other => panic!("{other:?}"),
        });
        assert_eq!(left, [2, 3]);
    }
}

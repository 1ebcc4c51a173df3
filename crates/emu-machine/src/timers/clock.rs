//! The clocks of this machine, and what any clock must answer to be judged.

use emu_bench::workload::now_ns;
use emu_core::{CpuId, cpu_ticks, tsc};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_getres, clock_gettime};
use rustix::param::clock_ticks_per_second;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Over this time the rate of the time-stamp counter is found, in nanoseconds: two reads of 50 ns are 5 in a million.
const RATE_NS: u64 = 20_000_000;

/// What a clock counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Counts {
    /// Time as it passes.
    Wall,
    /// CPU time of all threads of this process.
    Process,
    /// CPU time of the thread that asks.
    Thread,
}

/// A clock, real or made for a test.
pub trait Clock: Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// What it counts.
    fn counts(&self) -> Counts;

    /// What the system says that its step is, in nanoseconds.
    fn declared_ns(&self) -> Option<f64>;

    /// How many counts a reading is the sum of, each of them rounded down to the step.
    fn summands(&self) -> u32 {
        1
    }

    /// Reads it on this CPU, to which the calling thread is bound; in nanoseconds since some moment.
    fn read(&self, cpu: CpuId) -> i64;
}

/// A clock of this machine.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    name: &'static str,
    counts: Counts,
    source: Source,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    Kernel(ClockId),
    Usage,
    /// Nanoseconds of a tick.
    Times(i64),
    /// Where it was at the start, and nanoseconds of a count.
    Tsc(u64, f64),
}

impl SystemClock {
    /// Time since the boot, which a daemon that sets the date may slow or hasten by up to 500 in a million.
    pub const MONOTONIC: Self = Self::wall("CLOCK_MONOTONIC", ClockId::CLOCK_MONOTONIC);

    /// Time by the hardware alone, which nobody slows or hastens, as CPU time: the clock that others are compared with.
    pub const RAW: Self = Self::wall("MONOTONIC_RAW", ClockId::CLOCK_MONOTONIC_RAW);

    /// CPU time of the process, to which the kernel adds each time that it switches tasks.
    pub const PROCESS: Self = Self {
        name: "PROCESS_CPUTIME",
        counts: Counts::Process,
        source: Source::Kernel(ClockId::CLOCK_PROCESS_CPUTIME_ID),
    };

    /// CPU time of the calling thread.
    pub const THREAD: Self = Self {
        name: "THREAD_CPUTIME",
        counts: Counts::Thread,
        source: Source::Kernel(ClockId::CLOCK_THREAD_CPUTIME_ID),
    };

    const fn wall(name: &'static str, clock: ClockId) -> Self {
        Self { name, counts: Counts::Wall, source: Source::Kernel(clock) }
    }

    /// All clocks that this machine has. Takes 20 ms, in which the rate of the time-stamp counter is found.
    pub fn all() -> Vec<Self> {
        let mut all = vec![
            Self::MONOTONIC,
            Self::RAW,
            Self::wall("REALTIME", ClockId::CLOCK_REALTIME),
            Self::wall("BOOTTIME", ClockId::CLOCK_BOOTTIME),
        ];
        all.extend(tsc_unit_ns().zip(tsc()).map(|(unit_ns, begin)| Self {
            name: "TSC",
            counts: Counts::Wall,
            source: Source::Tsc(begin, unit_ns),
        }));
        all.extend([
            Self::PROCESS,
            Self::THREAD,
            Self { name: "getrusage", counts: Counts::Process, source: Source::Usage },
            Self {
                name: "times",
                counts: Counts::Process,
                source: Source::Times(1_000_000_000 / clock_ticks_per_second() as i64),
            },
        ]);
        all
    }
}

/// Nanoseconds of a count of the time-stamp counter by the monotonic clock, found in 20 ms; `None` where there is none.
pub(crate) fn tsc_unit_ns() -> Option<f64> {
    let (begin_ns, begin) = (now_ns(), tsc()?);
    while now_ns() < begin_ns + RATE_NS {}
    let (end_ns, end) = (now_ns(), tsc()?);
    Some((end_ns - begin_ns) as f64 / end.saturating_sub(begin).max(1) as f64)
}

impl Clock for SystemClock {
    fn name(&self) -> &'static str {
        self.name
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn declared_ns(&self) -> Option<f64> {
        match self.source {
            Source::Kernel(clock) => clock_getres(clock).ok().map(|step| step.num_nanoseconds() as f64),
            Source::Usage => Some(1e3),
            Source::Times(tick) => Some(tick as f64),
            Source::Tsc(_, unit_ns) => Some(unit_ns),
        }
    }

    /// The kernel tells time in user space and in the kernel apart.
    fn summands(&self) -> u32 {
        if matches!(self.source, Source::Usage | Source::Times(_)) { 2 } else { 1 }
    }

    fn read(&self, _cpu: CpuId) -> i64 {
        // None of these calls can fail for the calling thread on a Linux that Rust supports.
        match self.source {
            Source::Kernel(clock) => clock_gettime(clock).map_or(0, |time| time.num_nanoseconds()),
            Source::Usage => getrusage(UsageWho::RUSAGE_SELF)
                .map_or(0, |usage| (usage.user_time() + usage.system_time()).num_microseconds() * 1000),
            Source::Times(tick) => cpu_ticks() * tick,
            Source::Tsc(begin, unit_ns) => {
                let count = tsc().unwrap_or(0).wrapping_sub(begin) as i64;
                (count as f64 * unit_ns).round() as i64
            }
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// A wall clock that is behind by `skew_ns` on one CPU, and gains a share of the time.
    pub(crate) struct Synthetic {
        pub(crate) counts: Counts,
        pub(crate) skewed: CpuId,
        pub(crate) skew_ns: i64,
        pub(crate) gain: f64,
        /// It steps by so many nanoseconds.
        pub(crate) step_ns: i64,
        /// Every so many nanoseconds it falls back by a microsecond, and makes up for it; 0 for never.
        pub(crate) falls_every_ns: i64,
    }

    /// A clock that is right.
    pub(crate) const RIGHT: Synthetic =
        Synthetic { counts: Counts::Wall, skewed: 0, skew_ns: 0, gain: 0.0, step_ns: 1, falls_every_ns: 0 };

    impl Clock for Synthetic {
        fn name(&self) -> &'static str {
            "synthetic"
        }

        fn counts(&self) -> Counts {
            self.counts
        }

        fn declared_ns(&self) -> Option<f64> {
            Some(self.step_ns as f64)
        }

        fn read(&self, cpu: CpuId) -> i64 {
            let now = now_ns() as i64;
            let skew = if cpu == self.skewed { self.skew_ns } else { 0 };
            let fallen = match self.falls_every_ns {
                0 => 0,
                // In the second half of each span it is 1 µs behind.
                every if now % every >= every / 2 => 1000,
                _ => 0,
            };
            let time = now - skew - fallen;
            let gained = now as f64 * self.gain;
            (time + gained as i64) / self.step_ns * self.step_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_clock_goes_forward_while_this_thread_computes() {
        let clocks = SystemClock::all();
        assert_eq!(clocks.len(), if tsc().is_some() { 9 } else { 8 });
        let before: Vec<_> = clocks.iter().map(|clock| clock.read(0)).collect();
        let end = now_ns() + 1_000_000_000;
        while clocks.iter().zip(&before).any(|(clock, before)| clock.read(0) <= *before) {
            assert!(now_ns() < end + 30_000_000_000);
        }
        assert!(clocks.iter().all(|clock| clock.declared_ns().is_some_and(|step| step > 0.0)));
    }

    #[test]
    fn wall_clocks_stand_in_nanoseconds() {
        let clocks: Vec<_> =
            SystemClock::all().into_iter().filter(|clock| clock.counts == Counts::Wall).collect();
        let times = || clocks.iter().map(|clock| clock.read(0)).collect::<Vec<_>>();
        let (before, wall) = (times(), now_ns());
        std::thread::sleep(std::time::Duration::from_millis(50));
        let (after, passed) = (times(), (now_ns() - wall) as f64);
        for ((clock, before), after) in clocks.iter().zip(before).zip(after) {
            // A set of the date while this runs is not what is tested.
            let ratio = (after - before) as f64 / passed;
            assert!((0.5..2.0).contains(&ratio), "{}: {ratio}", clock.name);
        }
    }
}

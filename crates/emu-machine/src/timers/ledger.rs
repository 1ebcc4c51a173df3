//! Where the wall time of a sample went: running, waiting for a CPU, throttled, stolen, asleep.

use std::thread;
use std::time::Duration;

use emu_bench::throttle::Throttle;
use emu_bench::ticks::Ticks;
use emu_bench::workload::{now_ns, thread_cpu_ns};
use emu_core::{CpuList, Host, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problem;
use crate::waiting::waited;

/// Steps of a burst of the sample: some 18 ms.
const BURST: u64 = 1 << 24;

const SLEEP: Duration = Duration::from_millis(10);

const BURSTS: u32 = 5;

/// A sample's wall time by cause. What the kernel does not report is `None`, which is not 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ledger {
    /// All of it, in nanoseconds; the parts add up to it.
    pub wall_ns: u64,
    /// On a CPU, by the thread's CPU clock.
    pub run_ns: u64,
    /// Ready, but without a CPU (`/proc/PID/schedstat`), other than by throttling.
    pub queue_ns: Option<u64>,
    /// Throttled by the quota of our own cgroup (`cpu.stat`).
    pub own_throttle_ns: Option<u64>,
    /// Throttled by the quota of a group above it.
    pub outer_throttle_ns: Option<u64>,
    /// Given to others by the hypervisor (`/proc/stat`), in steps of 10 ms.
    pub stolen_ns: u64,
    /// The rest: asleep, and what none of the accounts shows.
    pub sleep_ns: u64,
    /// The sleep that was asked for.
    pub asked_sleep_ns: u64,
}

impl Ledger {
    /// Takes a sample of bursts and sleeps, and splits its time. The calling thread must be bound to `cpu`, so that
    /// what was stolen there was stolen from it.
    pub(super) fn take(host: &Host, cpu: &CpuList) -> Result<Self> {
        let before = Accounts::now(host, cpu)?;
        for _ in 0..BURSTS {
            problem::verify(BURST, problem::solve(BURST))?;
            thread::sleep(SLEEP);
        }
        Ok(Accounts::now(host, cpu)?.since(&before, SLEEP * BURSTS))
    }

    pub(super) fn expected_time() -> Duration {
        (problem::expected_time(BURST) + SLEEP) * BURSTS
    }
}

/// What the kernel has accounted for so far, of the calling thread and of CPUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accounts {
    wall_ns: u64,
    run_ns: u64,
    waited_ns: Option<u64>,
    own_throttled_ns: Option<u64>,
    outer_throttled_ns: Option<u64>,
    ticks: Ticks,
}

impl Accounts {
    pub(super) fn now(host: &Host, cpu: &CpuList) -> Result<Self> {
        let throttle = Throttle::of(host);
        Ok(Self {
            ticks: Ticks::now(&host.roots.proc, cpu)?,
            own_throttled_ns: throttle.own_ns(),
            outer_throttled_ns: throttle.outer_ns(),
            waited_ns: waited(&host.roots.proc.join("thread-self/schedstat")),
            run_ns: thread_cpu_ns(),
            wall_ns: now_ns(),
        })
    }

    pub(super) fn since(&self, before: &Self, asked_sleep: Duration) -> Ledger {
        let since = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        let wall_ns = self.wall_ns - before.wall_ns;
        let mut left = wall_ns;
        // Each account has its own steps; none may take more than the others have left.
        let mut take = |time: u64| {
            let taken = time.min(left);
            left -= taken;
            taken
        };
        let run_ns = take(self.run_ns - before.run_ns);
        let waited = since(self.waited_ns, before.waited_ns);
        // A throttled thread waits as well; throttling of groups counts all of their CPUs and threads, and cannot have
        // held this one for longer than it waited.
        let mut waiting = waited.unwrap_or(u64::MAX);
        let mut throttled = |time: Option<u64>| {
            time.map(|time| {
                let time = take(time.min(waiting));
                waiting -= time;
                time
            })
        };
        let own_throttle_ns = throttled(since(self.own_throttled_ns, before.own_throttled_ns));
        let outer_throttle_ns = throttled(since(self.outer_throttled_ns, before.outer_throttled_ns));
        let queue_ns = waited.map(|_| take(waiting));
        let asked_sleep_ns = asked_sleep.as_nanos() as u64;
        // While it slept nothing was stolen from it, whatever was from the CPU.
        let stolen_ns = ((self.ticks.since(before.ticks).stolen_s() * 1e9) as u64)
            .min(left.saturating_sub(asked_sleep_ns));
        Ledger {
            wall_ns,
            run_ns,
            queue_ns,
            own_throttle_ns,
            outer_throttle_ns,
            stolen_ns,
            sleep_ns: left - stolen_ns,
            asked_sleep_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use emu_core::Roots;

    const MS: u64 = 1_000_000;

    fn accounts(
        wall: u64,
        run: u64,
        waited: Option<u64>,
        own: Option<u64>,
        outer: Option<u64>,
        stolen: u64,
    ) -> Accounts {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("stat"), format!("cpu0 1 1 1 1 0 0 0 {stolen} 0 0\n")).unwrap();
        Accounts {
            wall_ns: wall * MS,
            run_ns: run * MS,
            waited_ns: waited.map(|time| time * MS),
            own_throttled_ns: own.map(|time| time * MS),
            outer_throttled_ns: outer.map(|time| time * MS),
            ticks: Ticks::now(dir.path(), &"0".parse().unwrap()).unwrap(),
        }
    }

    /// Milliseconds: run, queue, own throttle, outer throttle, stolen, asleep.
    fn split(before: Accounts, after: Accounts) -> [Option<u64>; 6] {
        let ledger = after.since(&before, Duration::ZERO);
        let Ledger { run_ns, queue_ns, own_throttle_ns, outer_throttle_ns, stolen_ns, sleep_ns, .. } = ledger;
        let parts =
            [Some(run_ns), queue_ns, own_throttle_ns, outer_throttle_ns, Some(stolen_ns), Some(sleep_ns)];
        assert_eq!(parts.iter().flatten().sum::<u64>(), ledger.wall_ns, "{ledger:?}");
        parts.map(|part| part.map(|ns| ns / MS))
    }

    #[test]
    fn the_parts_of_the_wall_time_are_told_apart_and_add_up() {
        let before = accounts(1000, 100, Some(10), Some(5), Some(0), 3);
        for (after, parts) in [
            (accounts(1100, 150, Some(10), Some(5), Some(0), 3), [50, 0, 0, 0, 0, 50]),
            (accounts(1100, 150, Some(40), Some(5), Some(0), 3), [50, 30, 0, 0, 0, 20]),
            (accounts(1100, 150, Some(40), Some(25), Some(0), 3), [50, 10, 20, 0, 0, 20]),
            (accounts(1100, 150, Some(40), Some(15), Some(15), 4), [50, 5, 10, 15, 10, 10]),
            // Four throttled threads of the group: this one cannot have waited for longer than it did.
            (accounts(1100, 150, Some(40), Some(125), Some(0), 3), [50, 0, 30, 0, 0, 20]),
            // Steal in whole ticks.
            (accounts(1100, 195, Some(10), Some(5), Some(0), 9), [95, 0, 0, 0, 5, 0]),
        ] {
            assert_eq!(split(before, after), parts.map(Some));
        }
    }

    #[test]
    fn stolen_time_does_not_shorten_the_sleep_asked_for() {
        let before = accounts(0, 0, Some(0), None, None, 0);
        let after = accounts(100, 60, Some(0), None, None, 5);
        let ledger = after.since(&before, Duration::from_millis(30));
        assert_eq!((ledger.stolen_ns / MS, ledger.sleep_ns / MS), (10, 30), "of 50 ms of steal");
        let awake = after.since(&before, Duration::from_millis(70));
        assert_eq!((awake.stolen_ns, awake.sleep_ns / MS), (0, 40));
    }

    #[test]
    fn what_is_not_reported_is_not_zero() {
        let (before, after) = (accounts(0, 0, None, None, None, 0), accounts(100, 60, None, None, None, 0));
        assert_eq!(split(before, after), [Some(60), None, None, None, Some(0), Some(40)]);
        let (before, after) =
            (accounts(0, 0, None, Some(0), None, 0), accounts(100, 60, None, Some(30), None, 0));
        assert_eq!(split(before, after), [Some(60), None, Some(30), None, Some(0), Some(10)]);
    }

    #[test]
    fn a_sample_of_this_machine_sleeps_and_runs_as_asked() {
        let host = Host::detect(&Roots::system()).unwrap();
        let cpu: CpuList = host.allowed.first().into_iter().collect();
        let take = move || {
            emu_bench::workload::confine(&cpu).unwrap();
            Ledger::take(&host, &cpu).unwrap()
        };
        // On a thread of its own, whose affinity may be changed.
        let ledger = thread::spawn(take).join().unwrap();
        assert!(ledger.run_ns > 0 && ledger.wall_ns >= ledger.asked_sleep_ns + ledger.run_ns, "{ledger:?}");
    }
}

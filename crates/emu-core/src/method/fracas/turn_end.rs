//! Ends the turns of the CPUs' groups when their quotas are used up, and not at the next tick.
//!
//! The kernel notices that a quota is used up when it charges the running task: at each tick, 1 to 10 ms apart, and whenever
//! the CPU changes to another task (`put_prev_entity`, kernel/sched/fair.c). The ticks of two CPUs are at moments of their own,
//! so that turns which begin together end apart, and threads that spin for each other get on only while all of them run: at
//! 25 % of 20 ms they were 25 % too slow. So a real-time thread wakes up on each CPU one quota after each period has begun, and
//! sleeps again at once.
//!
//! What a turn overran is taken from the quota of the next one. That is ended one quota after its period has begun all the
//! same, so it overruns by as much, unless a tick comes in between and ends it before.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::cpu_list::CpuId;
use crate::duty::{Command, DutyThread, Wait};
use crate::error::Error;
use crate::sys::time::{self, Nanos};
use crate::sys::{affinity, sched};

/// The lowest one: tasks that are normal wait for it, and nothing else.
pub(super) const PRIORITY: i32 = 1;

/// When a turn is ended, in nanoseconds after one quota of its period. Tasks begin some 0.1 ms after the period, and a wake-up
/// that comes before their quota is used up ends nothing.
const LATE: [Nanos; 2] = [100_000, 250_000];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn {
    /// When a period began, any of them.
    pub(super) begin: Nanos,
    pub(super) period: Nanos,
    pub(super) quota: Nanos,
}

impl Turn {
    /// The first moment after `now` at which a turn may be over.
    fn next_end(self, now: Nanos) -> Nanos {
        let next = |late: Nanos| {
            let end = self.begin + self.quota + late;
            end + ((now - end).div_euclid(self.period) + 1) * self.period
        };
        LATE.map(next).into_iter().fold(Nanos::MAX, Nanos::min)
    }
}

/// The thread of one CPU.
#[derive(Debug)]
pub(super) struct TurnEnd {
    thread: DutyThread<Option<Turn>>,
    told: Option<Turn>,
    cpu_time: Arc<AtomicI64>,
}

impl TurnEnd {
    /// `None` where this process may have no real-time thread on that CPU: turns end at ticks then.
    pub(super) fn start(cpu: CpuId) -> Option<Self> {
        let cpu_time = Arc::new(AtomicI64::new(0));
        let theirs = Arc::clone(&cpu_time);
        let thread = DutyThread::spawn(
            "emu-turn",
            None,
            move || take_cpu(cpu).map_err(|e| Error::io(format!("cannot end turns on CPU {cpu}"), e)),
            move |(), wait| {
                run(cpu, wait, &theirs);
                Ok(())
            },
        );
        Some(Self { thread: thread.ok()?, told: None, cpu_time })
    }

    /// What it is to end from now on: nothing, where it is not known when the periods begin.
    pub(super) fn tell(&mut self, turn: Option<Turn>) {
        if self.told != turn {
            self.told = turn;
            self.thread.set(turn);
        }
    }

    pub(super) fn cpu_time(&self) -> Nanos {
        self.cpu_time.load(Ordering::Relaxed)
    }
}

fn take_cpu(cpu: CpuId) -> io::Result<()> {
    // First, as the CPU may be busy.
    sched::set_fifo(PRIORITY)?;
    affinity::bind(cpu)
}

fn run(cpu: CpuId, wait: &Wait<Option<Turn>>, cpu_time: &AtomicI64) {
    while let (Command::Run(turn), generation) = wait.command() {
        wait.until(turn.map_or(Nanos::MAX, |turn| turn.next_end(time::now())), generation);
        cpu_time.store(time::thread_cpu(), Ordering::Relaxed);
        if affinity::current_cpu() != Some(cpu) {
            // The kernel has moved the thread as its CPU went offline; it returns once that is back.
            let _ = affinity::bind(cpu);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::roots::Roots;
    use crate::testing::skip;

    #[test]
    fn a_turn_is_ended_twice_after_its_quota() {
        const US: Nanos = 1_000;
        let turn = Turn { begin: 40_000 * US, period: 20_000 * US, quota: 5_000 * US };
        let ends = [
            (40_000, 45_100),
            (45_000, 45_100),
            (45_100, 45_250),
            (45_250, 65_100),
            (25_200, 25_250),
            (0, 5_100),
        ];
        for (now, end) in ends {
            assert_eq!(turn.next_end(now * US), end * US, "{now}");
        }
    }

    #[test]
    fn a_thread_wakes_up_once_in_each_period() {
        let cpu = Host::detect(&Roots::system()).unwrap().allowed.iter().next().unwrap();
        let Some(mut end) = TurnEnd::start(cpu) else {
            skip("no real-time thread may be had");
            return;
        };
        let woken = |end: &TurnEnd| {
            let before = end.cpu_time();
            time::sleep(time::span(20_000_000));
            end.cpu_time() > before
        };
        assert!(!woken(&end));
        end.tell(Some(Turn { begin: time::now(), period: 1_000_000, quota: 250_000 }));
        assert!(woken(&end));
        end.tell(None);
        time::sleep(time::span(20_000_000));
        assert!(!woken(&end));
    }
}

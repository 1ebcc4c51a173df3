//! Threads that keep a zone's CPUs awake shortly before its tasks resume, and help spread the tasks then.
//!
//! **Awake.** A CPU that is idle most of the time for seconds enters ever deeper idle states: its caches and clocks are turned
//! off, and a hypervisor gives its core to another guest. It then takes 0.1 ms and sometimes milliseconds to wake up, which
//! tasks would lose at each resume. So a thread wakes each CPU a little earlier and spins until the tasks resume.
//!
//! **Search.** While tasks are being stopped, a CPU whose tasks have all stopped pulls tasks from another CPU, so two busy
//! tasks may resume on one run queue. The kernel's periodic load balancer notices that tens of milliseconds later, but a CPU
//! that becomes idle searches other run queues at once (`sched_balance_newidle` in kernel/sched/fair.c). So the thread wakes up
//! and sleeps a few times after each resume, and after a burn where tasks have little time between two burns.
//!
//! **Queue.** A resumed task is placed on the run queue by its lag (`place_entity`). On an empty queue the kernel ignores the
//! lag of the first task and places later ones ahead of it; resumed always in the same order, the first task would hardly ever
//! run. A heavy thread that is already queued gives all of them the same reference. It is not used where each task has a CPU:
//! the kernel counts a CPU with only `SCHED_IDLE` work as idle (`sched_idle_cpu`) and starts tasks there.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use crate::ablation::{Correction, is_off};
use crate::cpu_list::CpuList;
use crate::error::{Error, Result};
use crate::notes::Notes;
use crate::sys::time::{self, Nanos};
use crate::sys::{affinity, sched};

/// How long before the tasks resume the CPUs are woken, in nanoseconds: longer than any idle state's exit.
const LEAD: Nanos = 300_000;

/// The longest time for which a CPU spins if the control thread is late.
const LONGEST: Nanos = 3 * LEAD;

/// How long after the resume, and how often, an idle CPU searches other run queues; in nanoseconds.
/// A search pulls one task and skips those that ran within 0.5 ms (`sysctl_sched_migration_cost`).
pub(crate) const SEARCH_FOR: Nanos = 10_000_000;
const SEARCH_EVERY: Nanos = 600_000;

/// The same after a burn, when tasks may have little time until the next one. More often is worse:
/// the kernel does not search where a CPU's idle spells are shorter than a search (`rq->avg_idle`).
pub(crate) const SEARCH_FOR_AFTER_BURN: Nanos = 1_000_000;
const SEARCH_EVERY_AFTER_BURN: Nanos = 80_000;

/// A thread on each CPU with the lowest priority (`SCHED_IDLE`): it takes nothing from tasks that run.
#[derive(Debug)]
pub(crate) struct IdlePusher {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    search_every: Nanos,
    /// Counts the orders to the threads.
    turn: AtomicU32,
    /// From when the threads stay on the run queues; `Nanos::MAX` for never.
    queue_from: AtomicI64,
    /// Until when the threads spin; [`END`] ends them.
    until: AtomicI64,
    search_until: AtomicI64,
    cpu: AtomicI64,
}

const END: Nanos = -1;

/// How long before the resume a thread enters the run queue at normal priority, in nanoseconds: longer than the change takes.
/// Other programs wait for the CPU meanwhile.
const QUEUE_LEAD: Nanos = 20_000;

/// The nice value of the largest weight: 88761, where a normal task has 1024 (`sched_prio_to_weight`).
const MOST_WEIGHT: i32 = -20;

impl IdlePusher {
    /// `None` where the control thread shares the zone's only CPU, and so wakes it itself.
    pub(crate) fn beside_duty_thread(is_away: bool, cpus: &CpuList, notes: &Notes) -> Result<Option<Self>> {
        (is_away || cpus.len() > 1).then(|| Self::start(cpus, SEARCH_EVERY, notes)).transpose()
    }

    /// The thread for a CPU on which burns alternate with tasks.
    pub(crate) fn beside_burner(cpu: usize, notes: &Notes) -> Result<Self> {
        Self::start(&[cpu].into_iter().collect(), SEARCH_EVERY_AFTER_BURN, notes)
    }

    /// A CPU that emu may not use is not kept awake, and `notes` tell so.
    fn start(cpus: &CpuList, search_every: Nanos, notes: &Notes) -> Result<Self> {
        let mut pusher = Self { shared: Arc::new(Shared::new(search_every)), threads: Vec::new() };
        for cpu in cpus.iter() {
            let (shared, notes) = (Arc::clone(&pusher.shared), notes.clone());
            let thread = thread::Builder::new()
                .name("emu-wake".into())
                .spawn(move || shared.attend(cpu, &notes))
                .map_err(|e| Error::io(format!("cannot start a thread to keep CPU {cpu} awake"), e))?;
            pusher.threads.push(thread);
        }
        Ok(pusher)
    }

    /// Sleeps by `sleep_until` until the tasks are to be resumed, and wakes the CPUs shortly before. `busy` is the number of
    /// tasks that compute or wait for a CPU; where they outnumber the CPUs, the threads also take their places on the run
    /// queues.
    pub(crate) fn sleep_until(
        pusher: Option<&Self>,
        moment: Nanos,
        busy: usize,
        sleep_until: impl Fn(Nanos),
    ) {
        if let Some(pusher) = pusher {
            let in_place = busy > pusher.threads.len() && !is_off(Correction::QueuePlace);
            sleep_until(moment - LEAD);
            if in_place || !is_off(Correction::CpuAwake) {
                pusher.wake(moment, in_place);
            }
        }
        sleep_until(moment);
    }

    fn wake(&self, moment: Nanos, queued: bool) {
        let queue_from = if queued { moment - QUEUE_LEAD } else { Nanos::MAX };
        self.shared.queue_from.store(queue_from, Ordering::Relaxed);
        self.tell(time::now() + LONGEST);
    }

    pub(crate) fn let_sleep(&self) {
        self.sleep_and_search(0);
    }

    pub(crate) fn sleep_and_search(&self, span: Nanos) {
        self.shared.search_until.store(time::now() + span, Ordering::Relaxed);
        self.shared.until.store(0, Ordering::Relaxed);
        // The threads are spinning and read `turn`: no wake-up is needed.
        self.shared.turn.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn search(&self, until: Nanos) {
        self.shared.search_until.store(until, Ordering::Relaxed);
        self.tell(0);
    }

    /// CPU time of all threads so far, without searches that are not over.
    pub(crate) fn cpu(&self) -> Nanos {
        self.shared.cpu.load(Ordering::Relaxed)
    }

    fn tell(&self, until: Nanos) {
        self.shared.until.store(until, Ordering::Relaxed);
        self.shared.turn.fetch_add(1, Ordering::Release);
        time::wake(&self.shared.turn);
    }
}

impl Drop for IdlePusher {
    fn drop(&mut self) {
        // A `SCHED_IDLE` thread ends only when other tasks leave it the CPU, so joining it could block for long. It is made
        // normal first; one that cannot be ends by itself later.
        let threads = std::mem::take(&mut self.threads);
        let lifted: Vec<_> =
            threads.into_iter().filter(|thread| sched::set_thread_normal(thread).is_ok()).collect();
        self.tell(END);
        for thread in lifted {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn new(search_every: Nanos) -> Self {
        Self {
            search_every,
            turn: AtomicU32::new(0),
            queue_from: AtomicI64::new(0),
            until: AtomicI64::new(0),
            search_until: AtomicI64::new(0),
            cpu: AtomicI64::new(0),
        }
    }

    fn attend(&self, cpu: usize, notes: &Notes) {
        if affinity::bind(cpu).is_err() || sched::set_idle().is_err() {
            notes.add(format!("CPU {cpu} cannot be kept awake: tasks may resume late on it"));
            return;
        }
        // Without effect while the thread is `SCHED_IDLE`.
        let may_queue = rustix::process::setpriority_process(None, MOST_WEIGHT).is_ok();
        let mut counted = 0;
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            let until = self.until.load(Ordering::Relaxed);
            if until == END {
                return;
            }
            // The kernel has moved the thread if its CPU went offline; the thread returns once that is back.
            if affinity::current_cpu() != Some(cpu) && affinity::bind(cpu).is_err() {
                self.sleep(turn);
                continue;
            }
            let (queue_from, mut is_queued) = (self.queue_from.load(Ordering::Relaxed), false);
            while time::now() < until && self.turn.load(Ordering::Acquire) == turn {
                if may_queue && !is_queued && time::now() >= queue_from {
                    is_queued = sched::set_normal().is_ok();
                }
                time::pass_moment();
            }
            if is_queued && let Err(why) = sched::set_idle() {
                notes.add(format!("CPU {cpu} cannot be kept awake at the lowest priority any more: {why}"));
                return;
            }
            let cpu = time::thread_cpu();
            self.cpu.fetch_add(cpu - counted, Ordering::Relaxed);
            counted = cpu;
            self.sleep(turn);
        }
    }

    /// While a search is due, the thread falls asleep again and again, so that its CPU becomes idle and searches; returns the
    /// number of searches.
    fn sleep(&self, turn: u32) -> u32 {
        let mut looks = 0;
        while self.turn.load(Ordering::Acquire) == turn {
            let next = time::now() + self.search_every;
            let is_to_look = next < self.search_until.load(Ordering::Relaxed);
            time::wait_until(&self.turn, turn, if is_to_look { next } else { Nanos::MAX });
            looks += u32::from(is_to_look);
        }
        looks
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::host::Host;
    use crate::process::Stat;
    use crate::roots::Roots;
    use crate::testing::skip;

    /// Ends the threads and waits for them.
    fn end(mut pusher: IdlePusher) {
        let threads = std::mem::take(&mut pusher.threads);
        drop(pusher);
        for thread in threads {
            thread.join().unwrap();
        }
    }

    #[test]
    fn cpus_are_awake_for_a_while_and_sleep_when_told() {
        let cpus = Host::detect(&Roots::system()).unwrap().allowed;
        let notes = Notes::default();
        let pusher = IdlePusher::start(&cpus, SEARCH_EVERY, &notes).unwrap();
        for _ in 0..20 {
            pusher.wake(time::now() + LEAD, true);
            thread::sleep(time::span(LEAD));
            pusher.let_sleep();
        }
        let shared = Arc::clone(&pusher.shared);
        end(pusher);
        let cpu = shared.cpu.load(Ordering::Relaxed);
        // Twice the longest time, for what else runs here.
        let most = 2 * 20 * LONGEST * cpus.len() as Nanos;
        assert!((1..most).contains(&cpu), "{cpu} of {most}");
        assert_eq!(notes.list(), Vec::<String>::new());
    }

    #[test]
    fn the_threads_end_where_cpus_are_busy_too() {
        let host = Host::detect(&Roots::system()).unwrap();
        let (cpus, may_lift) = (host.allowed, host.privileges.sys_nice);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for cpu in cpus.iter() {
                let is_over = &is_over;
                scope.spawn(move || {
                    affinity::bind(cpu).unwrap();
                    while !is_over.load(Ordering::Relaxed) {}
                });
            }
            let are_left = (0..20).any(|_| {
                let pusher = IdlePusher::start(&cpus, SEARCH_EVERY, &Notes::default()).unwrap();
                thread::sleep(time::span(LEAD));
                let shared = Arc::clone(&pusher.shared);
                drop(pusher);
                Arc::strong_count(&shared) > 1
            });
            is_over.store(true, Ordering::Relaxed);
            if may_lift {
                assert!(!are_left);
            } else {
                skip("threads of the lowest priority end late without CAP_SYS_NICE");
            }
        });
    }

    #[test]
    fn an_idle_cpu_searches_for_a_while_after_a_stop() {
        let looks = |span| {
            let pusher = IdlePusher { shared: Arc::new(Shared::new(SEARCH_EVERY)), threads: Vec::new() };
            pusher.sleep_and_search(span);
            let shared = Arc::clone(&pusher.shared);
            let turn = shared.turn.load(Ordering::Relaxed);
            let thread = thread::spawn(move || shared.sleep(turn));
            thread::sleep(time::span(2 * SEARCH_FOR));
            pusher.tell(0);
            thread.join().unwrap()
        };
        assert_eq!(looks(0), 0);
        let most = (SEARCH_FOR / SEARCH_EVERY) as u32;
        assert!((1..=most).contains(&looks(SEARCH_FOR)));
    }

    #[test]
    fn a_place_on_the_run_queue_is_taken_for_the_resume_only() {
        let notes = Notes::default();
        let pusher = IdlePusher { shared: Arc::new(Shared::new(SEARCH_EVERY)), threads: Vec::new() };
        let (shared, (tell, told)) = (Arc::clone(&pusher.shared), std::sync::mpsc::channel());
        let cpu = Host::detect(&Roots::system()).unwrap().allowed.iter().next().unwrap();
        let thread = thread::spawn(move || {
            let may_queue = rustix::process::setpriority_process(None, MOST_WEIGHT).is_ok();
            tell.send((nix::unistd::gettid(), may_queue)).unwrap();
            shared.attend(cpu, &notes);
            notes.list()
        });
        let (tid, may_queue) = told.recv().unwrap();
        // Long, because a `SCHED_IDLE` thread may wait for a CPU on which another test computes.
        let deadline = time::now() + 10_000_000_000;
        let policy = || Stat::read(Path::new("/proc"), tid.as_raw()).unwrap().policy.unwrap();
        let is_reached = |wanted| {
            while policy() != wanted && time::now() < deadline {
                thread::sleep(time::span(LEAD));
            }
            policy() == wanted
        };
        assert!(is_reached(libc::SCHED_IDLE), "the thread begins at the lowest priority");
        pusher.wake(time::now() + LEAD, false);
        thread::sleep(time::span(2 * LONGEST));
        assert_eq!(policy(), libc::SCHED_IDLE, "the thread was queued without an order");
        if may_queue {
            pusher.shared.queue_from.store(time::now() + LEAD, Ordering::Relaxed);
            pusher.tell(deadline);
            assert!(is_reached(libc::SCHED_OTHER) && time::now() < deadline, "the thread was not queued");
            pusher.let_sleep();
            assert!(is_reached(libc::SCHED_IDLE), "the thread stays queued");
        } else {
            skip("no thread is queued without CAP_SYS_NICE");
        }
        pusher.tell(END);
        assert_eq!(thread.join().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_cpu_that_may_not_be_used_is_noted() {
        let notes = Notes::default();
        end(IdlePusher::start(&"1000".parse().unwrap(), SEARCH_EVERY, &notes).unwrap());
        assert!(notes.list().iter().any(|note| note.contains("CPU 1000")));
    }
}

//! Keeps the CPUs of a zone awake while its tasks are about to be let go, and has them share the tasks out then.
//!
//! A CPU that is idle most of the time for seconds sleeps ever more deeply: its caches and clocks are turned off, a
//! hypervisor gives its core to somebody else. It then takes 0.1 ms and more to come back, now and then some
//! milliseconds, which the tasks would lose each time they are let go. So each CPU is woken a little before, and
//! does nothing until they are.
//!
//! On its way into a hold, a CPU whose tasks are all held already pulls those of another CPU, so that two tasks that
//! work may begin in the queue of one CPU when they are let go. The kernel's periodic balance sees that tens of
//! milliseconds later. But a CPU on which the last task falls asleep looks for tasks that wait elsewhere at once
//! (`sched_balance_newidle` in kernel/sched/fair.c): so each CPU is woken some times after the hold, too, and where tasks
//! have hardly any time between two burns, after a burn.
//!
//! A task that is let go enters its CPU's queue by its lag (`place_entity`). In an empty queue the first one's lag is
//! ignored and later ones are placed ahead of it, so in a fixed order the first would hardly ever run. A heavy thread
//! already in the queue gives all of them the same reference. Not used where there are CPUs enough: the kernel takes a CPU
//! with only `SCHED_IDLE` work for idle (`sched_idle_cpu`) and starts tasks there.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};

use crate::cpu_list::CpuList;
use crate::error::{Error, Result};
use crate::notes::Notes;
use crate::sys::relax::Relax;
use crate::sys::time::{self, Nanos};
use crate::sys::{affinity, sched};

/// How long before the tasks are let go, in nanoseconds: longer than the deepest sleep takes to end.
const LEAD: Nanos = 300_000;

/// A CPU does not wait longer than that, whatever becomes of the thread that lets the tasks go.
const LONGEST: Nanos = 3 * LEAD;

/// How long after the tasks have been let go an idle CPU looks for some that wait elsewhere, and how often: it gets one
/// at a time, and what is skipped as cache-hot for 0.5 ms (`sysctl_sched_migration_cost`) is had by the next look.
pub(crate) const SEARCH_FOR: Nanos = 10_000_000;
const SEARCH_EVERY: Nanos = 600_000;

/// The same after a burn, when tasks may have only little time until the next one. More often is worse: the kernel does not
/// look where a CPU has hardly been idle for as long as that takes (`rq->avg_idle`).
pub(crate) const SEARCH_FOR_AFTER_BURN: Nanos = 1_000_000;
const SEARCH_EVERY_AFTER_BURN: Nanos = 80_000;

/// A thread on each CPU, of the lowest priority there is (`SCHED_IDLE`): it takes nothing from tasks that run.
#[derive(Debug)]
pub(crate) struct IdlePusher {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// How often an idle CPU looks for tasks that wait elsewhere.
    search_every: Nanos,
    /// Counts up with each change of what the CPUs are to do.
    turn: AtomicU32,
    /// From when on they hold a place in the queues; `Nanos::MAX` for never.
    queue_from: AtomicI64,
    /// Until when they are to be awake; [`END`] ends the threads.
    until: AtomicI64,
    /// Until when they are to look for tasks that wait elsewhere.
    search_until: AtomicI64,
    /// CPU time of all threads, in nanoseconds.
    cpu: AtomicI64,
}

const END: Nanos = -1;

/// How long before the tasks are let go a thread takes its place in the queue of its CPU, in nanoseconds: longer than
/// that takes. Other programs wait for the CPU meanwhile.
const QUEUE_LEAD: Nanos = 20_000;

/// The nice value of the most weight: 88761, where a normal task has 1024 (`sched_prio_to_weight`).
const MOST_WEIGHT: i32 = -20;

impl IdlePusher {
    /// The threads for the CPUs of a zone; `None` where the thread that lets its tasks go has only the one CPU that they
    /// have, and so wakes it itself.
    ///
    /// # Errors
    /// A thread cannot be made.
    pub(crate) fn beside_duty_thread(is_away: bool, cpus: &CpuList, notes: &Notes) -> Result<Option<Self>> {
        (is_away || cpus.len() > 1).then(|| Self::start(cpus, SEARCH_EVERY, notes)).transpose()
    }

    /// The thread for a CPU on which burns alternate with tasks.
    ///
    /// # Errors
    /// The thread cannot be made.
    pub(crate) fn beside_burner(cpu: usize, notes: &Notes) -> Result<Self> {
        Self::start(&[cpu].into_iter().collect(), SEARCH_EVERY_AFTER_BURN, notes)
    }

    /// Makes the threads. A CPU that emu may not use sleeps on, and `notes` say so.
    ///
    /// # Errors
    /// A thread cannot be made.
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

    /// Sleeps by `sleep_until` until the tasks are to be let go, and wakes the CPUs up on the way where that is to be done,
    /// so that so many `busy` tasks, which compute or wait for a CPU, get a CPU each, or else their places in the queues.
    pub(crate) fn sleep_until(
        pusher: Option<&Self>,
        moment: Nanos,
        busy: usize,
        sleep_until: impl Fn(Nanos),
    ) {
        if let Some(pusher) = pusher {
            sleep_until(moment - LEAD);
            pusher.wake(moment, busy > pusher.threads.len());
        }
        sleep_until(moment);
    }

    fn wake(&self, moment: Nanos, queued: bool) {
        let queue_from = if queued { moment - QUEUE_LEAD } else { Nanos::MAX };
        self.shared.queue_from.store(queue_from, Ordering::Relaxed);
        self.tell(time::now() + LONGEST);
    }

    /// Lets them rest, or do what the tasks want of them.
    pub(crate) fn let_sleep(&self) {
        self.sleep_and_search(0);
    }

    /// Lets them rest, and has those that are idle look for tasks that wait elsewhere for `span` nanoseconds.
    pub(crate) fn sleep_and_search(&self, span: Nanos) {
        self.shared.search_until.store(time::now() + span, Ordering::Relaxed);
        self.shared.until.store(0, Ordering::Relaxed);
        // Nobody sleeps who would have to be told.
        self.shared.turn.fetch_add(1, Ordering::Release);
    }

    /// Has those whose CPU is idle look for tasks that wait elsewhere until then.
    pub(crate) fn search(&self, until: Nanos) {
        self.shared.search_until.store(until, Ordering::Relaxed);
        self.tell(0);
    }

    /// CPU time of all threads so far, in nanoseconds; of looks, those that are over.
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
        // A `SCHED_IDLE` thread ends only when others leave it the CPU; joining it could block release that long. It is
        // made normal first. One that cannot be is not joined: it ends by itself.
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

    /// The life of a thread.
    fn attend(&self, cpu: usize, notes: &Notes) {
        let only: CpuList = [cpu].into_iter().collect();
        if affinity::set(0, &only).is_err() || sched::set_idle().is_err() {
            notes.add(format!("CPU {cpu} cannot be kept awake: tasks may start late on it after a hold"));
            return;
        }
        // Of no effect as long as the thread is `SCHED_IDLE`.
        let may_queue = rustix::process::setpriority_process(None, MOST_WEIGHT).is_ok();
        let relax = Relax::best();
        let mut counted = 0;
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            let until = self.until.load(Ordering::Relaxed);
            if until == END {
                return;
            }
            // The kernel has put the thread elsewhere if its CPU went offline; it can go back as soon as that is back.
            if affinity::current_cpu() != Some(cpu) && affinity::set(0, &only).is_err() {
                self.sleep(turn);
                continue;
            }
            let (queue_from, mut is_queued) = (self.queue_from.load(Ordering::Relaxed), false);
            while time::now() < until && self.turn.load(Ordering::Acquire) == turn {
                if may_queue && !is_queued && time::now() >= queue_from {
                    is_queued = sched::set_normal().is_ok();
                }
                relax.moment();
            }
            if is_queued && let Err(why) = sched::set_idle() {
                notes.add(format!("CPU {cpu} cannot be kept awake at nobody's cost any more: {why}"));
                return;
            }
            let cpu = time::thread_cpu();
            self.cpu.fetch_add(cpu - counted, Ordering::Relaxed);
            counted = cpu;
            self.sleep(turn);
        }
    }

    /// Sleeps until that turn is over. As long as it is to look for tasks, it falls asleep again and again, so that the
    /// kernel does; returns how often that was.
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

    /// Waits for the threads, too.
    fn end(mut pusher: IdlePusher) {
        let threads = std::mem::take(&mut pusher.threads);
        drop(pusher);
        for thread in threads {
            thread.join().unwrap();
        }
    }

    /// What cannot be tested without `CAP_SYS_NICE`.
    fn skip(what: &str) {
        assert!(std::env::var_os("EMU_NO_SKIP").is_none(), "CAP_SYS_NICE is missing");
        eprintln!("skipped: {what} without CAP_SYS_NICE");
    }

    #[test]
    fn cpus_are_awake_for_a_while_and_rest_when_told() {
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
        // Twice that: whatever else runs here, a CPU is awake no longer for each time, but for its way.
        let most = 2 * 20 * LONGEST * cpus.len() as Nanos;
        assert!((1..most).contains(&cpu), "{cpu} of {most}");
        assert_eq!(notes.list(), Vec::<String>::new());
    }

    #[test]
    fn the_threads_end_with_it_where_cpus_are_busy_too() {
        let host = Host::detect(&Roots::system()).unwrap();
        let (cpus, may_lift) = (host.allowed, host.privileges.sys_nice);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for cpu in cpus.iter() {
                let is_over = &is_over;
                scope.spawn(move || {
                    affinity::set(0, &[cpu].into_iter().collect()).unwrap();
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
                skip("threads of the lowest priority end late");
            }
        });
    }

    #[test]
    fn a_cpu_looks_for_tasks_for_a_while_after_a_hold() {
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
    fn a_place_is_taken_shortly_before_the_tasks_are_let_go_and_given_back_then() {
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
        // Long: what is `SCHED_IDLE` may wait for a CPU on which another test computes.
        let deadline = time::now() + 10_000_000_000;
        let policy = || Stat::read(Path::new("/proc"), tid.as_raw()).unwrap().policy.unwrap();
        let is_reached = |wanted| {
            while policy() != wanted && time::now() < deadline {
                thread::sleep(time::span(LEAD));
            }
            policy() == wanted
        };
        assert!(is_reached(libc::SCHED_IDLE), "it begins at nobody's cost");
        pusher.wake(time::now() + LEAD, false);
        thread::sleep(time::span(2 * LONGEST));
        assert_eq!(policy(), libc::SCHED_IDLE, "a place was taken that nobody asked for");
        if may_queue {
            pusher.shared.queue_from.store(time::now() + LEAD, Ordering::Relaxed);
            pusher.tell(deadline);
            assert!(is_reached(libc::SCHED_OTHER) && time::now() < deadline, "no place was taken");
            pusher.let_sleep();
            assert!(is_reached(libc::SCHED_IDLE), "the place was not given back");
        } else {
            skip("no place is taken");
        }
        pusher.tell(END);
        assert_eq!(thread.join().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_cpu_that_may_not_be_used_is_told_of() {
        let notes = Notes::default();
        end(IdlePusher::start(&"1000".parse().unwrap(), SEARCH_EVERY, &notes).unwrap());
        assert!(notes.list().iter().any(|note| note.contains("CPU 1000")));
    }
}

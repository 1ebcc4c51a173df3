//! What tasks outside the zone have of its CPUs, so that the zone gets its share of what they leave.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::sys::time::Nanos;

/// How often it is looked.
const EVERY: Nanos = 1_000_000_000;

/// Accounts of CPUs are brought up to date at different moments: so much of a span may they miss each other by.
const SLIP: f64 = 0.01;

/// CPU time so far on the zone's CPUs, by the kernel's account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Of all tasks.
    pub(crate) all: Nanos,
    /// Of the zone's tasks.
    pub(crate) zone: Nanos,
}

/// Reads what has been used; `None` when it cannot be told.
pub(crate) type Read = Box<dyn Fn() -> Option<Used> + Send + Sync>;

/// The share of the zone's CPUs that tasks outside the zone have, kept up by the burners.
///
/// The kernel does not tell on which CPU a group had its time: the share is that of all CPUs of the zone. What others had
/// between two looks is told until the next one, so that in the end all of it has been told.
pub(crate) struct Others {
    read: Read,
    burners: Vec<Burns>,
    next: AtomicI64,
    /// The bits of a number from 0 to 1.
    share: AtomicU64,
    account: Mutex<Account>,
}

/// What a burner tells of itself.
#[derive(Debug, Default)]
struct Burns {
    /// Its CPU time.
    cpu: AtomicI64,
    /// Its burns by the clock, and by its CPU time.
    by_clock: AtomicI64,
    by_cpu: AtomicI64,
}

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Others").field("share", &self.share()).finish_non_exhaustive()
    }
}

impl Others {
    /// For `burners`, one on each CPU; `None` where it cannot be read.
    ///
    /// With `has_interrupts`, `read` counts interrupts, and what a hypervisor took, as time of the task that they struck,
    /// in [`Used::all`] only.
    pub(crate) fn new(burners: usize, has_interrupts: bool, read: Read) -> Option<Self> {
        read()?;
        Some(Self {
            read,
            burners: std::iter::repeat_with(Burns::default).take(burners).collect(),
            next: AtomicI64::new(0),
            share: AtomicU64::new(0),
            account: Mutex::new(Account { has_interrupts, ..Account::default() }),
        })
    }

    /// The share of time that others have now, from 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        f64::from_bits(self.share.load(Ordering::Relaxed))
    }

    /// The burner in this `place` has had so much CPU time up to now.
    ///
    /// It is for the burner's time, not for the tasks', as now and then the kernel's accounts are read.
    pub(crate) fn woken(&self, place: usize, now: Nanos, cpu: Nanos) {
        if let Some(burner) = self.burners.get(place) {
            burner.cpu.store(cpu, Ordering::Relaxed);
        }
        if now < self.next.load(Ordering::Relaxed) {
            return;
        }
        // Another burner may be at it.
        let Ok(mut account) = self.account.try_lock() else { return };
        self.next.store(now + EVERY, Ordering::Relaxed);
        let Some(used) = (self.read)() else { return };
        let sum = |of: fn(&Burns) -> &AtomicI64| -> Nanos {
            self.burners.iter().map(|burner| of(burner).load(Ordering::Relaxed)).sum()
        };
        let sums = Sums {
            time: now * self.burners.len() as Nanos,
            used,
            cpu: sum(|burner| &burner.cpu),
            by_clock: sum(|burner| &burner.by_clock),
            by_cpu: sum(|burner| &burner.by_cpu),
        };
        self.share.store(account.look(sums).to_bits(), Ordering::Relaxed);
    }

    /// The burner in this `place` has burned for so long by the clock and by its CPU time.
    pub(crate) fn burned(&self, place: usize, by_clock: Nanos, by_cpu: Nanos) {
        if let Some(burner) = self.burners.get(place) {
            burner.by_clock.fetch_add(by_clock, Ordering::Relaxed);
            burner.by_cpu.fetch_add(by_cpu, Ordering::Relaxed);
        }
    }
}

/// Sums over the CPUs of the zone, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    time: Nanos,
    used: Used,
    cpu: Nanos,
    by_clock: Nanos,
    by_cpu: Nanos,
}

#[derive(Debug, Default)]
struct Account {
    has_interrupts: bool,
    last: Option<Sums>,
    /// What others had and has not been told, in nanoseconds.
    untold: f64,
    share: f64,
}

impl Account {
    /// Takes in what has been used since the last look; returns the share to tell until the next one.
    fn look(&mut self, now: Sums) -> f64 {
        let Some(last) = self.last.replace(now) else { return 0.0 };
        let time = (now.time - last.time) as f64;
        if time <= 0.0 {
            return self.share;
        }
        let mut all = (now.used.all - last.used.all) as f64;
        let (by_clock, by_cpu) = (now.by_clock - last.by_clock, now.by_cpu - last.by_cpu);
        if self.has_interrupts && by_clock > 0 {
            // Interrupts strike burners like any task, and burners know how much they lost.
            all *= (by_cpu as f64 / by_clock as f64).min(1.0);
        }
        let others = all - (now.used.zone - last.used.zone) as f64 - (now.cpu - last.cpu) as f64;
        let untold = self.untold - self.share * time + others;
        self.untold = untold.clamp(-SLIP * time, time);
        self.share = (self.untold / time).max(0.0);
        self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of two CPUs after some seconds in which a zone at 40 % was always busy, others had a share of all time, and
    /// interrupts took a part of what each task seemed to have.
    fn after(seconds: f64, others: f64, interrupts: f64) -> Sums {
        let time = 2e9 * seconds;
        let burned = 0.6 * (1.0 - others) * time;
        let own = 1.0 - interrupts;
        Sums {
            time: time as Nanos,
            used: Used { all: time as Nanos, zone: (0.4 * (1.0 - others) * time * own) as Nanos },
            cpu: (burned * own) as Nanos,
            by_clock: burned as Nanos,
            by_cpu: (burned * own) as Nanos,
        }
    }

    #[test]
    fn what_others_had_is_told_until_the_next_look() {
        let mut account = Account::default();
        let shares: Vec<f64> =
            [1.0, 2.0, 3.0, 4.0].map(|seconds| account.look(after(seconds, 0.05, 0.0))).to_vec();
        assert!(shares[0] == 0.0, "{shares:?}");
        assert!(shares[1..].iter().all(|share| (share - 0.05).abs() < 1e-6), "{shares:?}");
    }

    #[test]
    fn all_of_it_is_told_however_it_comes_and_goes() {
        let mut account = Account::default();
        let (mut sums, mut told) = (Sums::default(), 0.0);
        account.look(sums);
        for others in [0, 30, 0, 5, 100, 0, 0, 0] {
            sums.time += 100;
            sums.used.all += others;
            told += account.look(sums) * 100.0;
        }
        assert!((told - 135.0).abs() < 1e-9, "{told}");
    }

    #[test]
    fn interrupts_are_nobodys() {
        for (has_interrupts, least, most) in [(true, 0.049, 0.051), (false, 0.06, 0.08)] {
            let mut account = Account { has_interrupts, ..Account::default() };
            account.look(after(1.0, 0.05, 0.02));
            let share = account.look(after(2.0, 0.05, 0.02));
            assert!((least..most).contains(&share), "{share}");
        }
    }

    #[test]
    fn accounts_that_miss_each_other_do_not_hide_others_for_long() {
        let mut account = Account::default();
        let mut sums = Sums::default();
        account.look(sums);
        sums.time += 1000;
        sums.used.zone += 500;
        assert!(account.look(sums) == 0.0);
        sums.time += 1000;
        sums.used.all += 100;
        assert!((account.look(sums) - 0.09).abs() < 1e-9);
    }

    #[test]
    fn burners_look_once_in_a_while_and_not_both() {
        static LOOKS: AtomicI64 = AtomicI64::new(0);
        let read = || Some(Used { all: LOOKS.fetch_add(1, Ordering::Relaxed) * 400_000_000, zone: 0 });
        let others = Others::new(2, false, Box::new(read)).unwrap();
        for now in [0, EVERY / 2, EVERY, EVERY * 3 / 2] {
            others.woken(0, now, now / 20);
            others.woken(1, now, now / 20);
        }
        assert_eq!(LOOKS.load(Ordering::Relaxed), 3);
        // 400 ms of two CPUs' 2 s, 50 ms of them the first burner's and 25 ms the other one's.
        assert!((others.share() - 0.1625).abs() < 1e-9, "{}", others.share());
        assert!(Others::new(2, false, Box::new(|| None)).is_none());
    }
}

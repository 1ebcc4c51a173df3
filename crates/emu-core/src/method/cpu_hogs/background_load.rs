//! What tasks outside the zone have of its CPUs, so that the zone gets its share of what they leave.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::ablation::{Correction, is_off};
use crate::host::AllTasks;
use crate::sys::time::Nanos;

/// It is looked this often, or every so many periods.
const EVERY: Nanos = 100_000_000;
const EVERY_PERIODS: Nanos = 4;

/// Spans longer than so many of the usual ones tell nothing of the time after them: nobody looked, or nothing ran.
const TOO_LONG: Nanos = 8;

/// No more is told, so that burners go on and see when others have ended.
const MOST: f64 = 0.99;

/// CPU time so far on the zone's CPUs, by the kernel's account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) all: AllTasks,
    pub(crate) zone: Nanos,
}

/// Reads what has been used; `None` when it cannot be told.
pub(crate) type Read = Box<dyn Fn() -> Option<Used> + Send + Sync>;

/// The share of the zone's CPUs that tasks outside the zone have: what they had between the last two looks, which is
/// late, but leaves nothing out. It is that of all CPUs, as the kernel does not tell on which one a group had its
/// time.
pub(crate) struct BackgroundLoad {
    read: Read,
    every: Nanos,
    burners: Vec<Burns>,
    next: AtomicI64,
    /// The bits of numbers from 0 to 1: the share now, and that of all time so far.
    share: AtomicU64,
    mean: AtomicU64,
    is_told: AtomicBool,
    account: Mutex<Account>,
}

#[derive(Debug, Default)]
struct Burns {
    cpu: AtomicI64,
    is_away: AtomicBool,
    /// Its burns by the clock, and by its CPU time.
    by_clock: AtomicI64,
    by_cpu: AtomicI64,
}

impl fmt::Debug for BackgroundLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Others").field("share", &self.share()).finish_non_exhaustive()
    }
}

impl BackgroundLoad {
    /// For `burners`, one on each CPU, that wake in each `period`; `None` where it cannot be read.
    pub(crate) fn new(burners: usize, period: Nanos, read: Read) -> Option<Self> {
        read()?;
        Some(Self {
            read,
            every: EVERY.max(EVERY_PERIODS * period),
            burners: std::iter::repeat_with(Burns::default).take(burners).collect(),
            next: AtomicI64::new(0),
            share: AtomicU64::new(0),
            mean: AtomicU64::new(0),
            is_told: AtomicBool::new(true),
            account: Mutex::new(Account::new(burners as Nanos, period)),
        })
    }

    pub(crate) fn share(&self) -> f64 {
        f64::from_bits(self.share.load(Ordering::Relaxed))
    }

    pub(crate) fn mean_share(&self) -> f64 {
        f64::from_bits(self.mean.load(Ordering::Relaxed))
    }

    /// Whether the last look told something; while not, the share is 0.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }

    /// Burners must wake this often.
    pub(crate) fn every(&self) -> Nanos {
        self.every
    }

    /// To be called in the burner's part of a period: now and then this reads the kernel's accounts, which takes
    /// time.
    pub(crate) fn woken(&self, place: usize, now: Nanos, cpu: Nanos) {
        if let Some(burner) = self.burners.get(place) {
            burner.cpu.store(cpu, Ordering::Relaxed);
            burner.is_away.store(false, Ordering::Relaxed);
        }
        let is_due = || now >= self.next.load(Ordering::Relaxed);
        if !is_due() {
            return;
        }
        // Another burner may be at it, or have been just now.
        let Ok(mut account) = self.account.try_lock() else { return };
        if !is_due() {
            return;
        }
        self.next.store(now + self.every, Ordering::Relaxed);
        let sum = |of: fn(&Burns) -> &AtomicI64| -> Nanos {
            self.burners.iter().map(|burner| of(burner).load(Ordering::Relaxed)).sum()
        };
        let is_one_away = self.burners.iter().any(|burner| burner.is_away.load(Ordering::Relaxed));
        let used = if is_one_away { None } else { (self.read)() };
        self.is_told.store(used.is_some(), Ordering::Relaxed);
        let share = account.look(
            self.every,
            used.map(|used| Sums {
                now,
                used,
                cpu: sum(|burner| &burner.cpu),
                by_clock: sum(|burner| &burner.by_clock),
                by_cpu: sum(|burner| &burner.by_cpu),
            }),
        );
        self.share.store(share.to_bits(), Ordering::Relaxed);
        self.mean.store(account.mean().to_bits(), Ordering::Relaxed);
    }

    /// The burner in this `place` has no CPU until it is woken again: what others have of all CPUs cannot be told.
    pub(crate) fn displaced(&self, place: usize) {
        if let Some(burner) = self.burners.get(place) {
            burner.is_away.store(true, Ordering::Relaxed);
            self.is_told.store(false, Ordering::Relaxed);
        }
    }

    /// How long the burner in this `place` has burned, by the clock and by its CPU time, which is now `cpu`.
    pub(crate) fn burned(&self, place: usize, cpu: Nanos, (by_clock, by_cpu): (Nanos, Nanos)) {
        if let Some(burner) = self.burners.get(place) {
            // It may be the other burners' turn to look before this one wakes again.
            burner.cpu.store(cpu, Ordering::Relaxed);
            burner.by_clock.fetch_add(by_clock, Ordering::Relaxed);
            burner.by_cpu.fetch_add(by_cpu, Ordering::Relaxed);
        }
    }
}

/// A moment, and sums over the CPUs of the zone up to then, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    now: Nanos,
    used: Used,
    cpu: Nanos,
    by_clock: Nanos,
    by_cpu: Nanos,
}

#[derive(Debug)]
struct Account {
    cpus: Nanos,
    /// By so much the accounts of the CPUs may miss each other, as burners tell of themselves once in a period.
    slip: f64,
    last: Option<Sums>,
    /// What others had and has not been told, in nanoseconds.
    untold: f64,
    share: f64,
    /// What others had, and of how much time, as far as it was told.
    had: f64,
    of: f64,
}

impl Account {
    fn new(cpus: Nanos, period: Nanos) -> Self {
        Self { cpus, slip: (cpus * period) as f64, last: None, untold: 0.0, share: 0.0, had: 0.0, of: 0.0 }
    }

    /// Looks are made `every` so often. Returns the share to tell until the next one.
    fn look(&mut self, every: Nanos, now: Option<Sums>) -> f64 {
        let last = std::mem::replace(&mut self.last, now);
        let looks = last.zip(now).map(|(last, now)| (last, now, now.now - last.now));
        let Some((last, now, span)) = looks.filter(|(.., span)| (1..=TOO_LONG * every).contains(span)) else {
            // Of a time without looks it is not known when they had what.
            (self.untold, self.share) = (0.0, 0.0);
            return 0.0;
        };
        let time = span as f64 * self.cpus as f64;
        let others = others(&last, &now);
        self.had += others;
        self.of += time;
        self.untold = (self.untold - self.share * time + others).clamp(-self.slip, time);
        self.share = (self.untold / time).clamp(0.0, MOST);
        self.share
    }

    fn mean(&self) -> f64 {
        if self.of > 0.0 { (self.had / self.of).clamp(0.0, 1.0) } else { 0.0 }
    }
}

fn others(last: &Sums, now: &Sums) -> f64 {
    let since = |of: fn(&Sums) -> Nanos| of(now).wrapping_sub(of(last)) as f64;
    let mut all = since(|sums| sums.used.all.time);
    let (by_clock, by_cpu) = (since(|sums| sums.by_clock), since(|sums| sums.by_cpu));
    if let (Some(before), Some(after)) = (last.used.all.interrupts, now.used.all.interrupts)
        && by_cpu < by_clock
        && !is_off(Correction::InterruptsOfOthers)
    {
        // Burners lost CPU time to interrupts, so the kernel leaves them out of what tasks had: they are nobody's. The
        // zone's own strike it more often than burners.
        let told = after.wrapping_sub(before).max(0) as f64;
        all -= told.max(all * (1.0 - by_cpu / by_clock));
    }
    all - since(|sums| sums.used.zone) - since(|sums| sums.cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn used(all: Nanos, zone: Nanos) -> Used {
        Used { all: AllTasks { time: all, interrupts: None }, zone }
    }

    fn one_cpu() -> Account {
        Account::new(1, 1)
    }

    fn look(account: &mut Account, sums: Sums) -> f64 {
        account.look(SECOND, Some(sums))
    }

    /// Sums of two CPUs after some seconds in which a zone at 40 % was always busy, others had a share of all time, and
    /// interrupts took a part of what each task seemed to have, half of which falls on ticks.
    fn after(seconds: f64, others: f64, interrupts: Option<f64>) -> Sums {
        let time = 2e9 * seconds;
        let burned = 0.6 * (1.0 - others) * time;
        let own = 1.0 - interrupts.unwrap_or(0.0);
        let ticks = interrupts.map(|part| (part * time / 2.0) as Nanos);
        Sums {
            now: (seconds * 1e9) as Nanos,
            used: Used {
                all: AllTasks { time: time as Nanos, interrupts: ticks },
                zone: (0.4 * (1.0 - others) * time * own) as Nanos,
            },
            cpu: (burned * own) as Nanos,
            by_clock: burned as Nanos,
            by_cpu: (burned * own) as Nanos,
        }
    }

    #[test]
    fn nothing_is_told_while_a_burner_has_no_cpu() {
        let load = BackgroundLoad::new(2, 1, Box::new(|| Some(used(0, 0)))).unwrap();
        let told = |place, second| {
            load.woken(place, second * SECOND, 0);
            load.is_told()
        };
        assert!(told(0, 1));
        load.displaced(1);
        assert!(!load.is_told() && !told(0, 2), "the other one cannot tell either");
        assert!(told(1, 3));
    }

    #[test]
    fn what_others_had_is_told_until_the_next_look() {
        let mut account = Account::new(2, 1);
        let shares = [1.0, 2.0, 3.0, 4.0].map(|seconds| look(&mut account, after(seconds, 0.05, None)));
        assert!(shares[0] == 0.0, "{shares:?}");
        assert!(shares[1..].iter().all(|share| (share - 0.05).abs() < 1e-6), "{shares:?}");
        assert!((account.mean() - 0.05).abs() < 1e-6);
    }

    #[test]
    fn all_of_it_is_told_however_it_comes_and_goes() {
        let mut account = one_cpu();
        let (mut sums, mut told) = (Sums::default(), 0.0);
        look(&mut account, sums);
        for others in [0, 30, 0, 5, 90, 0, 0, 0] {
            sums.now += 100;
            sums.used.all.time += others;
            told += look(&mut account, sums) * 100.0;
        }
        assert!((told - 125.0).abs() < 1e-9, "{told}");
    }

    #[test]
    fn never_all_time_is_told() {
        let mut account = one_cpu();
        let mut sums = Sums::default();
        look(&mut account, sums);
        for _ in 0..5 {
            sums.now += SECOND;
            sums.used.all.time += SECOND;
            assert!(look(&mut account, sums) <= MOST);
        }
    }

    #[test]
    fn a_time_without_looks_tells_nothing_of_now() {
        let mut account = one_cpu();
        let mut sums = Sums::default();
        look(&mut account, sums);
        sums.now += SECOND;
        sums.used.all.time += SECOND / 2;
        assert!((look(&mut account, sums) - 0.5).abs() < 1e-9);
        sums.now += 60 * SECOND;
        sums.used.all.time += 60 * SECOND;
        assert!(look(&mut account, sums) == 0.0);
        sums.now += SECOND;
        sums.used.all.time += SECOND / 10;
        assert!((look(&mut account, sums) - 0.1).abs() < 1e-9);
        assert!(account.look(SECOND, None) == 0.0);
        sums.now += SECOND;
        sums.used.all.time += SECOND;
        assert!(look(&mut account, sums) == 0.0);
    }

    #[test]
    fn interrupts_are_nobodys_where_tasks_are_not_charged_with_them() {
        for interrupts in [0.0, 0.02] {
            let mut account = Account::new(2, 1);
            look(&mut account, after(1.0, 0.05, Some(interrupts)));
            let share = look(&mut account, after(2.0, 0.05, Some(interrupts)));
            assert!((0.049..0.051).contains(&share), "{share}");
        }
        // The zone has many of its own, which do not strike burners: what ticks tell of them counts.
        let (mut last, mut now) = (Sums::default(), after(1.0, 0.0, Some(0.01)));
        last.used.all.interrupts = Some(0);
        now.used.zone -= 300_000_000;
        now.used.all.interrupts = Some(320_000_000);
        assert!(others(&last, &now) < 10e6, "{}", others(&last, &now));
    }

    #[test]
    fn accounts_that_miss_each_other_do_not_hide_others_for_long() {
        let mut account = Account::new(1, 10);
        let mut sums = Sums::default();
        look(&mut account, sums);
        sums.now += 1000;
        sums.used.zone += 500;
        assert!(look(&mut account, sums) == 0.0);
        sums.now += 1000;
        sums.used.all.time += 100;
        assert!((look(&mut account, sums) - 0.09).abs() < 1e-9);
    }

    #[test]
    fn burners_look_once_in_a_while_and_not_both() {
        static LOOKS: AtomicI64 = AtomicI64::new(0);
        let read = || Some(used(LOOKS.fetch_add(1, Ordering::Relaxed) * 40_000_000, 0));
        let load = BackgroundLoad::new(2, 10_000_000, Box::new(read)).unwrap();
        for now in [0, EVERY / 2, EVERY, EVERY * 3 / 2] {
            load.woken(0, now, now / 20);
            load.woken(1, now, now / 20);
        }
        assert_eq!(LOOKS.load(Ordering::Relaxed), 3);
        // 40 ms of two CPUs' 200 ms, 5 ms of them the first burner's and 2.5 ms the other one's.
        assert!((load.share() - 0.1625).abs() < 1e-9, "{}", load.share());
    }

    #[test]
    fn what_cannot_be_read_is_said_and_nothing_is_excluded() {
        assert!(BackgroundLoad::new(2, 1, Box::new(|| None)).is_none());
        let all = AtomicI64::new(0);
        let read = move || match all.fetch_add(50_000_000, Ordering::Relaxed) {
            150_000_000 => None,
            all => Some(used(all, 0)),
        };
        let load = BackgroundLoad::new(1, 1, Box::new(read)).unwrap();
        let told = [0, EVERY, 2 * EVERY].map(|now| {
            load.woken(0, now, 0);
            (load.is_told(), load.share())
        });
        assert_eq!(told, [(true, 0.0), (true, 0.5), (false, 0.0)]);
    }
}

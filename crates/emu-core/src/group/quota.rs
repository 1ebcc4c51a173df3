//! A group held at a share of the CPUs by its quota.

use std::time::Duration;

use super::bandwidth::{Bandwidth, Limit, QUOTA_MIN_US, Quota, Throttling};
use super::trim::{Due, Trim, Window};
use crate::Result;
use crate::duty::hold_cost::HoldCost;
use crate::sys::time::{self, Nanos};

/// The most that a quota makes up for, in nanoseconds per stall. No machine has lost as much, but one that is emulated
/// and busy has measured it: what is not sure must not make programs faster.
const STALL_COST_MOST: Nanos = 150_000;

/// A group and the quota that it is held at.
#[derive(Debug)]
pub(crate) struct Governed {
    bandwidth: Bandwidth,
    /// How many CPUs the group is for: a quota of that many is none.
    size: f64,
    /// The most that v1's kernel accepts, because a group above has no more; in CPUs.
    ceiling: Option<f64>,
    /// What is asked for, in CPUs.
    asked: f64,
    period_us: u64,
    trim: Trim,
    /// What a stall costs the tasks, where the quota is to be corrected, by it and by the trim. Else the trim only keeps
    /// account.
    stall_cost: Option<HoldCost>,
    /// Where the last window ended.
    mark: Option<Mark>,
    /// What was written last.
    written: Option<Limit>,
    /// What was in force instead at the last look: somebody else has written it.
    foreign: Option<Limit>,
    /// The limit, in CPUs, that the owner of a group that is not ours has given it: it is not raised above that.
    own: Option<f64>,
}

/// A reading of a group's counters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// When.
    pub(crate) at: Nanos,
    /// CPU time used; `None` where it is not accounted.
    pub(crate) usage: Option<Nanos>,
    /// Periods.
    pub(crate) throttling: Throttling,
}

impl Governed {
    /// A group without a quota yet. With `stall_cost` the quota is corrected so that the tasks get what is asked for;
    /// without, it is what is asked for.
    pub(crate) fn new(
        bandwidth: Bandwidth,
        size: usize,
        ceiling: Option<f64>,
        stall_cost: Option<HoldCost>,
    ) -> Self {
        let size = size as f64;
        // What cannot be read will be told when it cannot be written.
        let own =
            if bandwidth.is_theirs() { bandwidth.limit().ok().flatten().and_then(Limit::cpus) } else { None };
        Self {
            bandwidth,
            size,
            ceiling,
            asked: size,
            period_us: 0,
            trim: Trim::default(),
            stall_cost,
            mark: None,
            written: None,
            foreign: None,
            own,
        }
    }

    /// The limit that gives `asked` CPUs, as corrected so far.
    fn limit(&self, asked: f64, period_us: u64) -> Limit {
        let (most, own) = (self.ceiling.unwrap_or(f64::INFINITY), self.own.unwrap_or(f64::INFINITY));
        let wanted = self.charged(asked, period_us) * self.trim.factor();
        let quota = if asked >= own {
            Quota::Micros(((own.min(most) * period_us as f64) as u64).max(QUOTA_MIN_US))
        } else if asked >= self.size || asked > most && most >= self.size {
            Quota::Max
        } else if wanted > most {
            // Rounded down, as the kernel compares exactly.
            Quota::Micros((most.min(own) * period_us as f64) as u64)
        } else {
            Quota::of(wanted.min(own), period_us)
        };
        Limit { quota, period_us }
    }

    /// What the kernel is to charge the group with for `asked` CPUs to be left to its tasks.
    fn charged(&self, asked: f64, period_us: u64) -> f64 {
        let Some(cost) = self.stall_cost.filter(|_| asked < self.size) else { return asked };
        let period = period_us as f64 * 1e3;
        let run = asked * period;
        let stalls = stalls_per_period(run, time::nanos(time::tick()) as f64);
        let lost = stalls * cost.of_hold(run / stalls).min(STALL_COST_MOST) as f64 / period;
        // Where hardly any time is left out of a period, the kernel does not do so in each.
        asked + lost.min((self.size - asked) / 2.0)
    }

    /// Sets quota and period.
    ///
    /// # Errors
    /// As [`Bandwidth::set_limit`]; then what was asked for before still counts.
    pub(crate) fn ask(&mut self, cpus: f64, period_us: u64) -> Result<()> {
        self.write(self.limit(cpus, period_us))?;
        (self.asked, self.period_us) = (cpus, period_us);
        self.trim.restart();
        self.mark = None;
        Ok(())
    }

    fn write(&mut self, limit: Limit) -> Result<()> {
        self.bandwidth.set_limit(limit)?;
        (self.written, self.foreign) = (Some(limit), None);
        Ok(())
    }

    /// Looks whether what was written is still in force; says so if not. It is left at that until something else is
    /// asked for, and what the owner of a group that is not ours has written then bounds it.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn look(&mut self) -> Result<Option<String>> {
        let Some(written) = self.written else { return Ok(None) };
        // A group that has gone has no tasks.
        let foreign = self.bandwidth.limit()?.filter(|now| *now != written);
        if foreign != self.foreign {
            // A mean over both would be neither.
            self.trim.restart();
            (self.foreign, self.mark) = (foreign, None);
        }
        let Some(foreign) = foreign else { return Ok(None) };
        if self.bandwidth.is_theirs() {
            self.own = foreign.cpus();
        }
        let tell =
            |limit: Limit| limit.cpus().map_or("no limit".to_owned(), |cpus| format!("{cpus:.4} CPUs"));
        Ok(Some(format!(
            "somebody else has written {}: {} instead of {} are in force",
            self.bandwidth.limit_file().display(),
            tell(foreign),
            tell(written)
        )))
    }

    /// What to tell where the group had less before than it is to have.
    pub(crate) fn shortfall(&self) -> Option<String> {
        let own = self.own.filter(|own| *own < self.asked)?;
        Some(format!(
            "{} was {own:.4} CPUs, which is less than the {:.4} asked for: it is not raised",
            self.bandwidth.limit_file().display(),
            self.asked
        ))
    }

    /// The limit that is in force.
    fn in_force(&self) -> Limit {
        self.foreign.unwrap_or_else(|| self.limit(self.asked, self.period_us))
    }

    /// What is asked for, in CPUs, and the period in microseconds.
    pub(crate) fn asked(&self) -> (f64, u64) {
        (self.asked, self.period_us)
    }

    /// The part of each period in which the group may run, per CPU.
    pub(crate) fn duty(&self) -> f64 {
        self.in_force().cpus().map_or(1.0, |cpus| (cpus / self.size).min(1.0))
    }

    /// What the tasks got per CPU while their demand was full, or what the quota gives where that is not known.
    pub(crate) fn effective(&self) -> f64 {
        let charged = self.trim.delivered().map_or_else(|| self.duty(), |cpus| cpus / self.size);
        // A limit of somebody else's is told as it is.
        let is_bounded = [self.ceiling, self.own].into_iter().flatten().any(|most| self.asked >= most);
        let is_ours = self.foreign.is_none() && self.period_us > 0 && !is_bounded;
        if is_ours { charged * self.asked / self.charged(self.asked, self.period_us) } else { charged }
    }

    /// The longest time for which one busy CPU of the group is held.
    ///
    /// A turn ends at the tick after its quota is used up, and the next ones pay for what it overran.
    pub(crate) fn longest_stall(&self, tick: Duration) -> Duration {
        longest_stall(self.duty(), self.in_force().period_us, tick)
    }

    /// Reads the group's counters.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn read(&self) -> Result<Mark> {
        Ok(Mark { at: time::now(), usage: self.bandwidth.usage(), throttling: self.bandwidth.throttled()? })
    }

    /// Ends a window and begins the next; true when the quota should be written anew, by [`renew`](Self::renew).
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn end_window(&mut self) -> Result<bool> {
        if self.foreign.is_some() {
            return Ok(false);
        }
        let now = self.read()?;
        let Some(before) = self.mark.replace(now) else { return Ok(false) };
        let (Some(usage), Some(used)) = (now.usage, before.usage) else { return Ok(false) };
        let window = Window {
            elapsed: now.at - before.at,
            usage: usage - used,
            periods: now.throttling.periods.saturating_sub(before.throttling.periods),
            throttled: now.throttling.throttled.saturating_sub(before.throttling.throttled),
            stalled: now.throttling.stalled - before.throttling.stalled,
        };
        let before = self.limit(self.asked, self.period_us);
        let changed = self.trim.observe(&window, &self.due());
        Ok(changed && self.stall_cost.is_some() && before != self.limit(self.asked, self.period_us))
    }

    fn due(&self) -> Due {
        let cpus = self.charged(self.asked, self.period_us);
        Due { cpus, period: self.period_us as Nanos * 1_000, tick: time::nanos(time::tick()) }
    }

    /// Writes the quota as corrected.
    ///
    /// # Errors
    /// As [`Bandwidth::set_limit`].
    pub(crate) fn renew(&mut self) -> Result<()> {
        self.write(self.limit(self.asked, self.period_us))
    }
}

/// How often tasks that use up a quota are stalled by it in each period, at most once.
///
/// A turn ends at the first tick at which the quota of `run` is used up, and what it overran is taken from the next
/// periods. From a quota of a tick on, each period has a turn. Below, it depends on where the ticks are in a period;
/// this is the mean over all places, within 0.1. Both times are in the same unit.
fn stalls_per_period(run: f64, tick: f64) -> f64 {
    (run / tick).sqrt().clamp(0.01, 1.0)
}

/// The longest time for which a task is held, at a `share` of one CPU.
pub(crate) fn longest_stall(share: f64, period_us: u64, tick: Duration) -> Duration {
    let turn = Duration::from_micros(period_us).mul_f64(share.clamp(0.0, 1.0)) + tick;
    if share <= 0.0 || share >= 1.0 { Duration::ZERO } else { turn.mul_f64((1.0 - share) / share) }
}

/// Calls `write` for each group just after its period has begun: a write refills the quota, and there it is full
/// anyway. A group without periods is written after one period.
///
/// # Errors
/// What `write` returns; a file cannot be read.
pub(crate) fn at_period_start<T>(
    groups: &mut [(&mut Governed, T)],
    mut write: impl FnMut(&mut Governed, &T) -> Result<()>,
) -> Result<()> {
    let longest = groups.iter().map(|(group, _)| group.period_us).max().unwrap_or(0);
    let deadline = time::now() + longest as Nanos * 1_000;
    // A late look gives at most this part of a quota on top, once.
    let step = Duration::from_micros((longest / 100).clamp(100, 1_000));
    let mut waiting = Vec::with_capacity(groups.len());
    for (group, argument) in groups {
        waiting.push((group.bandwidth.throttled()?.periods, group, argument));
    }
    while !waiting.is_empty() {
        let late = time::now() >= deadline;
        let mut still = Vec::with_capacity(waiting.len());
        for (periods, group, argument) in waiting {
            if late || group.bandwidth.throttled()?.periods != periods {
                write(group, argument)?;
            } else {
                still.push((periods, group, argument));
            }
        }
        waiting = still;
        if !waiting.is_empty() {
            std::thread::sleep(step);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Folder;
    use super::super::bandwidth::Owner;
    use super::*;
    use crate::frequency::simulated;
    use crate::host::testing::{tree, write};
    use std::path::PathBuf;
    use tempfile::TempDir;

    const FREE: HoldCost = HoldCost::new(0.0, 0.0);

    const STAT: &str = "usage_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n";

    fn group(size: usize, ceiling: Option<f64>) -> (TempDir, Governed) {
        let root = tree(&[("cpu.max", ""), ("cpu.stat", STAT)]);
        let folder = Folder { version: 2, path: root.path().to_owned() };
        let bandwidth = Bandwidth::open(&folder, Some(&folder), Owner::Us).unwrap();
        (root, Governed::new(bandwidth, size, ceiling, Some(FREE)))
    }

    fn max(root: &TempDir) -> String {
        std::fs::read_to_string(root.path().join("cpu.max")).unwrap()
    }

    #[test]
    fn a_share_becomes_a_quota_and_all_of_a_cpu_none() {
        let (root, mut one) = group(1, None);
        one.ask(1.0, 20_000).unwrap();
        assert_eq!((max(&root), one.duty()), ("max 20000".into(), 1.0));
        one.ask(0.4, 20_000).unwrap();
        assert!(max(&root).starts_with("8000 20000"));
        let (root, mut four) = group(4, None);
        four.ask(4.0 * 0.25, 20_000).unwrap();
        assert!(max(&root).starts_with("20000 20000"), "a whole CPU of four is a quota");
        assert!((four.duty() - 0.25).abs() < 1e-12);
    }

    #[test]
    fn a_ceiling_is_kept_to_and_shows_in_what_is_delivered() {
        let (root, mut one) = group(1, Some(0.333_33));
        one.ask(0.4, 100_000).unwrap();
        assert_eq!(max(&root), "33333 100000");
        assert!((one.effective() - 0.333_33).abs() < 1e-9);
        let (root, mut one) = group(1, Some(3.0));
        one.ask(1.0, 100_000).unwrap();
        assert_eq!(max(&root), "max 100000");
    }

    #[test]
    fn what_stalls_cost_does_not_raise_a_quota_above_a_ceiling() {
        let (root, mut one) = group(1, Some(0.333_339));
        one.stall_cost = Some(HoldCost::new(30_000.0, 15_000.0));
        one.ask(0.333, 100_000).unwrap();
        assert_eq!(max(&root), "33333 100000");
    }

    #[test]
    fn a_limit_that_somebody_else_has_written_is_told_and_left() {
        let (root, mut one) = group(1, None);
        one.ask(0.4, 20_000).unwrap();
        assert_eq!(one.look().unwrap(), None);
        write(root.path(), "cpu.max", b"max 100000\n");
        let told = one.look().unwrap().unwrap();
        assert!(told.contains("cpu.max: no limit instead of 0.4000 CPUs"), "{told}");
        assert_eq!((one.effective(), one.duty()), (1.0, 1.0));
        write(root.path(), "cpu.max", b"30000 100000\n");
        assert!(one.look().unwrap().unwrap().contains("0.3000 CPUs instead"));
        assert!((one.effective() - 0.3).abs() < 1e-9);
        for count in 0..200 {
            assert!(!two_seconds(&root, &mut one, count, 100_000), "what is not ours is not corrected");
        }
        // The group is ours: whoever asks for something else gets it.
        one.ask(0.5, 20_000).unwrap();
        assert_eq!((one.look().unwrap(), one.effective(), max(&root)), (None, 0.5, "10000 20000".into()));
    }

    /// A group that somebody else has made, with his limit, and its folder.
    fn attached(size: usize, limit: &str) -> (TempDir, PathBuf, Governed) {
        let dir = tempfile::tempdir().unwrap();
        let (roots, journal) = simulated::journal(dir.path());
        write(&roots.sys, "cpu.max", limit.as_bytes());
        write(&roots.sys, "cpu.stat", STAT.as_bytes());
        let folder = Folder { version: 2, path: roots.sys.clone() };
        let bandwidth = Bandwidth::open(&folder, Some(&folder), Owner::Others(journal)).unwrap();
        (dir, roots.sys, Governed::new(bandwidth, size, None, Some(FREE)))
    }

    #[test]
    fn the_owner_s_limit_of_a_group_is_never_raised() {
        let (_dir, folder, mut one) = attached(1, "50000 100000\n");
        let max = || std::fs::read_to_string(folder.join("cpu.max")).unwrap();
        for asked in [0.8, 1.0] {
            one.ask(asked, 20_000).unwrap();
            assert_eq!((max().as_str(), one.effective()), ("10000 20000", 0.5));
            assert!(one.shortfall().unwrap().contains("was 0.5000 CPUs"), "{:?}", one.shortfall());
        }
        one.ask(0.25, 20_000).unwrap();
        assert_eq!((max().as_str(), one.effective(), one.shortfall()), ("5000 20000", 0.25, None));
        // Meanwhile its owner allows it more, or all.
        write(&folder, "cpu.max", b"90000 100000\n");
        assert!(one.look().unwrap().is_some());
        one.ask(1.0, 20_000).unwrap();
        assert_eq!(max(), "18000 20000");
        write(&folder, "cpu.max", b"max 100000\n");
        assert!(one.look().unwrap().is_some());
        one.ask(1.0, 20_000).unwrap();
        assert_eq!((max().as_str(), one.shortfall()), ("max 20000", None));
        let (_dir, folder, mut four) = attached(4, "150000 100000\n");
        four.ask(4.0 * 0.8, 20_000).unwrap();
        assert_eq!(std::fs::read_to_string(folder.join("cpu.max")).unwrap(), "30000 20000");
    }

    #[test]
    fn stalls_grow_with_the_tick() {
        let (ms, none) = (Duration::from_millis, Duration::ZERO);
        assert_eq!(longest_stall(0.5, 20_000, none), ms(10));
        // A turn of 2 ms that ends at a tick 4 ms later is paid for with 54 ms: measured on Linux 6.18, 55 ms.
        assert_eq!(longest_stall(0.1, 20_000, ms(4)).as_millis(), 54);
        assert_eq!(longest_stall(1.0, 20_000, ms(4)), none);
    }

    /// Lets the group's counters go on by two seconds in which it used `usage_us` and was always throttled.
    fn two_seconds(root: &TempDir, one: &mut Governed, count: u64, usage_us: u64) -> bool {
        let stat = format!(
            "usage_usec {}\nnr_periods {}\nnr_throttled {}\nthrottled_usec 0\n",
            count * usage_us,
            count * 100,
            count * 100
        );
        write(root.path(), "cpu.stat", stat.as_bytes());
        // The window ends now, and began two seconds ago.
        if let Some(mark) = &mut one.mark {
            mark.at = time::now() - 2_000_000_000;
        }
        one.end_window().unwrap()
    }

    #[test]
    fn a_group_that_gets_too_little_is_given_more_and_no_more_than_the_bound() {
        let (root, mut one) = group(1, None);
        one.ask(0.5, 20_000).unwrap();
        let mut written = false;
        for count in 0..200 {
            written |= two_seconds(&root, &mut one, count, 980_000);
            one.renew().unwrap();
        }
        assert!(written);
        assert!(one.duty() > 0.505 && one.duty() <= 0.52 + 1e-9, "{}", one.duty());
        assert!((one.effective() - 0.49).abs() < 0.001, "{}", one.effective());
    }

    #[test]
    fn a_quota_makes_up_for_what_its_stalls_cost() {
        let (root, mut one) = group(1, None);
        one.stall_cost = Some(HoldCost::new(30_000.0, 15_000.0));
        // One stall in each period, after turns of more than a tick.
        one.ask(0.5, 100_000).unwrap();
        assert_eq!(max(&root), "50045 100000");
        assert!((one.effective() - 0.5).abs() < 1e-12);
        for count in 0..20 {
            two_seconds(&root, &mut one, count, 1_000_900);
            one.renew().unwrap();
        }
        assert_eq!(max(&root), "50045 100000", "what it makes up for is not corrected away");
        assert!((one.effective() - 0.5).abs() < 1e-6, "{}", one.effective());
        one.stall_cost = Some(HoldCost::new(400_000.0, 0.0));
        one.ask(0.5, 100_000).unwrap();
        assert_eq!(max(&root), "50150 100000");
        one.ask(0.999_9, 100_000).unwrap();
        assert_eq!(max(&root), "99995 100000", "there is still a limit");
        one.ask(1.0, 100_000).unwrap();
        assert_eq!((max(&root).as_str(), one.effective()), ("max 100000", 1.0));
    }

    #[test]
    fn stalls_are_counted_as_the_kernel_s_ticks_make_them() {
        const PERIODS: u32 = 1_000;
        // Turns end at the first tick by which what may be used is used up, `phase` after a period begins or later.
        let simulated = |run: f64, phase: f64| {
            let (mut rest, mut stalls) = (0.0, 0);
            for _ in 0..PERIODS {
                rest += run;
                if rest > 0.0 {
                    rest -= phase + (rest - phase).max(0.0).ceil();
                    stalls += 1;
                }
            }
            f64::from(stalls) / f64::from(PERIODS)
        };
        for run in [0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.5, 3.0] {
            let phases = (0..32).map(|k| (f64::from(k) + 0.5) / 32.0);
            let mean = phases.map(|phase| simulated(run, phase)).sum::<f64>() / 32.0;
            assert!((stalls_per_period(run, 1.0) - mean).abs() < 0.1, "{run}: {mean}");
        }
    }

    #[test]
    fn new_shares_wait_for_a_period_to_begin_but_not_longer_than_one() {
        let (_root, mut one) = group(1, None);
        one.ask(0.5, 20_000).unwrap();
        let begin = time::now();
        at_period_start(&mut [(&mut one, 0.25)], |group, share| group.ask(*share, 20_000)).unwrap();
        let waited = time::now() - begin;
        assert!(waited >= 20_000_000, "no period began: {waited} ns");
        assert!((one.duty() - 0.25).abs() < 1e-12);
    }
}

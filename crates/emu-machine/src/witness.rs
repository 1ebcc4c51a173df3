//! What else the CPUs did while a part of a measurement ran: it makes rates too low and times too long, and nothing in
//! them tells.

use std::time::{Duration, Instant};

use emu_bench::throttle::Throttle;
use emu_bench::ticks::Ticks;
use emu_bench::verify::{CLOCK_CHANGE_MAX, CoreClock, FOREIGN_MAX, STEAL_MAX, THROTTLED_MAX};
use emu_bench::workload::process_cpu_ns;
use emu_core::{CpuList, Host, Result, clock};

use crate::doctor::throttled as too_hot;

/// Of so many parts, one disturbed one is taken again; one at least. Where more are disturbed the machine is not quiet,
/// and those that are taken again would be disturbed as well.
const PARTS_FOR_ONE_AGAIN: usize = 4;

/// How long the core clock is read before a part and after it.
const METER: Duration = Duration::from_millis(5);

/// The core clock has settled where two readings differ by no more than this; so many are taken at most.
const STEADY: f64 = 0.02;
const SETTLES: usize = 8;

/// Parts that are named in a note; the others are counted.
const NAMED: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    /// Everybody's but the hypervisor's is foreign.
    Count,
    /// The kernel's threads work for what is measured, so that nothing is known to be foreign.
    Work,
}

/// What counts of some samples: those that nobody has disturbed, or all where there is none.
pub(crate) fn counting<T>(all: &[T], is_disturbed: impl Fn(&T) -> bool) -> impl Iterator<Item = &T> {
    let is_any_calm = !all.iter().all(&is_disturbed);
    all.iter().filter(move |one| !(is_any_calm && is_disturbed(one)))
}

/// Whether others disturbed every one of these samples.
pub(crate) fn are_disturbed<T>(all: &[(T, bool)]) -> bool {
    all.iter().all(|(_, disturbed)| *disturbed)
}

/// Samples with whether others disturbed them: those that [count](counting), those that are left out for them, and whether
/// every one was disturbed.
pub(crate) fn parted<T: Clone>(all: &[(T, bool)]) -> (Vec<T>, Vec<T>, bool) {
    let is_disturbed = are_disturbed(all);
    let (out, kept): (Vec<_>, Vec<_>) =
        all.iter().cloned().partition(|(_, disturbed)| *disturbed && !is_disturbed);
    let only = |some: Vec<(T, bool)>| some.into_iter().map(|(one, _)| one).collect();
    (only(kept), only(out), is_disturbed)
}

/// How the note begins that names disturbed parts.
const NOTE: &str = "Disturbed, so that rates may be too low and times too long";

/// Whether a note of a measurement names disturbed parts.
pub(crate) fn is_of_disturbance(note: &str) -> bool {
    note.starts_with("Disturbed")
}

/// What disturbed a part, as shares of the CPUs' time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Disturbance {
    stolen: f64,
    foreign: f64,
    /// For which a limit on our own cgroups kept tasks waiting: idle time, as the kernel accounts for it.
    throttled: f64,
    /// By which the core clock after the part differs from that before it.
    clock: f64,
    /// Whether a CPU lowered its clock for its heat.
    hot: bool,
}

impl Disturbance {
    pub(crate) fn is_notable(self) -> bool {
        self.hot
            || self.stolen > STEAL_MAX
            || self.foreign > FOREIGN_MAX
            || self.throttled > THROTTLED_MAX
            || self.clock > CLOCK_CHANGE_MAX
    }

    fn sum(self) -> f64 {
        self.stolen + self.foreign + self.throttled + self.clock + f64::from(u8::from(self.hot))
    }

    fn in_words(self) -> String {
        let of =
            |share: f64, most: f64, who: &str| (share > most).then(|| format!("{who} {:.0}%", share * 100.0));
        let words = [
            of(self.stolen, STEAL_MAX, "the hypervisor had"),
            of(self.foreign, FOREIGN_MAX, "other tasks had"),
            of(self.throttled, THROTTLED_MAX, "a limit of our cgroup took"),
            of(self.clock, CLOCK_CHANGE_MAX, "the core clock changed by"),
            self.hot.then(|| "heat lowered the clock".to_owned()),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[derive(Debug)]
pub(crate) struct Witness<'a> {
    host: &'a Host,
    throttle: Throttle,
    others: Others,
    again: usize,
    /// Reads the mean core clock of CPUs, in Hz; tests put another one in its place.
    clock: fn(&CpuList) -> Option<f64>,
    disturbed: Vec<(String, Disturbance)>,
}

impl<'a> Witness<'a> {
    pub(crate) fn new(host: &'a Host, parts: usize, others: Others) -> Self {
        let again = parts.div_ceil(PARTS_FOR_ONE_AGAIN);
        let clock = |cpus: &CpuList| clock::mean(cpus, METER);
        Self { host, throttle: Throttle::of(host), others, again, clock, disturbed: Vec::new() }
    }

    /// Measures a part on CPUs of these places, and tells whether it was disturbed. A disturbed one is taken again, and the
    /// less disturbed one counts; a part that stays disturbed is noted. What the CPUs did is not known where `/proc/stat`
    /// cannot be read: nothing is noted then.
    pub(crate) fn measure<T>(
        &mut self,
        what: &str,
        places: &[CpuList],
        mut part: impl FnMut() -> Result<T>,
    ) -> Result<(T, bool)> {
        let cpus = &places.iter().fold(CpuList::default(), |all, place| all.union(place));
        let (mut taken, mut disturbance) = self.metered(cpus, &mut part)?;
        if disturbance.is_notable() && self.again > 0 {
            self.again -= 1;
            let (other, less) = self.metered(cpus, &mut part)?;
            if less.sum() < disturbance.sum() {
                (taken, disturbance) = (other, less);
            }
        }
        Ok((taken, self.note(what, disturbance)))
    }

    /// Notes what disturbed a part, where that is notable.
    pub(crate) fn note(&mut self, what: &str, disturbance: Disturbance) -> bool {
        if disturbance.is_notable() {
            self.disturbed.push((what.to_owned(), disturbance));
        }
        disturbance.is_notable()
    }

    /// What disturbed a part on all CPUs; nothing is noted.
    pub(crate) fn beside<T>(&self, part: impl FnOnce() -> Result<T>) -> Result<(T, Disturbance)> {
        self.metered(&self.host.allowed, part)
    }

    /// The same of a part that begins where another ends: there is no time between them to read the core clock.
    pub(crate) fn beside_step<T>(&self, part: impl FnOnce() -> Result<T>) -> Result<(T, Disturbance)> {
        self.watched(&self.host.allowed, part)
    }

    fn metered<T>(&self, cpus: &CpuList, part: impl FnOnce() -> Result<T>) -> Result<(T, Disturbance)> {
        let before_hz = self.steady_clock(cpus);
        let (taken, seen) = self.watched(cpus, part)?;
        let clock = before_hz.zip((self.clock)(cpus));
        let clock = clock.map_or(0.0, |(before_hz, after_hz)| CoreClock { before_hz, after_hz }.change());
        Ok((taken, Disturbance { clock, ..seen }))
    }

    /// The core clock once two readings in a row agree: a CPU that has been idle takes a while to reach its clock.
    fn steady_clock(&self, cpus: &CpuList) -> Option<f64> {
        let mut before_hz = (self.clock)(cpus)?;
        for _ in 0..SETTLES {
            let after_hz = (self.clock)(cpus)?;
            let is_steady = CoreClock { before_hz, after_hz }.change() <= STEADY;
            before_hz = after_hz;
            if is_steady {
                break;
            }
        }
        Some(before_hz)
    }

    fn watched<T>(&self, cpus: &CpuList, part: impl FnOnce() -> Result<T>) -> Result<(T, Disturbance)> {
        let ticks = || Ticks::now(&self.host.roots.proc, cpus).ok();
        let (before, used) = (ticks(), process_cpu_ns());
        let (held, hot, begin) = (self.throttle.all_ns(), too_hot(self.host), Instant::now());
        let taken = part()?;
        let seconds = |now: u64, before: u64| now.saturating_sub(before) as f64 / 1e9;
        let (wall_s, used_s) = (begin.elapsed().as_secs_f64(), seconds(process_cpu_ns(), used));
        let shares = before
            .zip(ticks())
            .map(|(before, after)| self.disturbance(after.since(before), cpus.len(), wall_s, used_s));
        Ok((
            taken,
            Disturbance {
                throttled: seconds(self.throttle.all_ns(), held) / (wall_s * cpus.len() as f64),
                hot: too_hot(self.host) > hot,
                ..shares.unwrap_or_default()
            },
        ))
    }

    fn disturbance(&self, passed: Ticks, cpus: usize, wall_s: f64, used_s: f64) -> Disturbance {
        let foreign = match self.others {
            Others::Count => passed.foreign(wall_s, cpus, used_s),
            Others::Work => 0.0,
        };
        Disturbance { stolen: passed.stolen_share(), foreign, ..Disturbance::default() }
    }

    /// The notes where disturbed samples are left out, but of parts that have no others.
    pub(crate) fn notes_but_left_out(mut self, has_no_others: impl Fn(&str) -> bool) -> Vec<String> {
        let all = self.disturbed.len();
        self.disturbed.retain(|(what, _)| has_no_others(what));
        let left_out = all - self.disturbed.len();
        // Each of its samples has noted it.
        self.disturbed.sort_by(|(one, a), (other, b)| one.cmp(other).then(b.sum().total_cmp(&a.sum())));
        self.disturbed.dedup_by(|(one, _), (other, _)| one == other);
        let mut notes = self.notes();
        if left_out > 0 {
            notes.push(format!("Left out: {left_out} disturbed samples of parts that have others."));
        }
        notes
    }

    pub(crate) fn notes(mut self) -> Vec<String> {
        self.disturbed.sort_by(|(_, a), (_, b)| b.sum().total_cmp(&a.sum()));
        let named = self.disturbed.iter().take(NAMED);
        let mut parts: Vec<_> = named.map(|(what, seen)| format!("{what} ({})", seen.in_words())).collect();
        let more = self.disturbed.len().saturating_sub(NAMED);
        if more > 0 {
            parts.push(format!("and {more} more"));
        }
        if parts.is_empty() {
            return Vec::new();
        }
        vec![format!("{NOTE}: {}.", parts.join("; "))]
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::testing::host_of;
    use emu_core::{Controller, Hierarchy};

    /// A host of one CPU whose `/proc/stat` is what the test writes, in ticks of 10 ms.
    fn host() -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        let mut host = host_of(&["0"], "0");
        host.roots.proc = dir.path().to_owned();
        (dir, host)
    }

    /// One that sees no clock, as that of the machine under test moves as it likes.
    fn blind(host: &Host, parts: usize, others: Others) -> Witness<'_> {
        Witness { clock: |_| None, ..Witness::new(host, parts, others) }
    }

    fn ticks(dir: &tempfile::TempDir, used: u64, idle: u64, stolen: u64) {
        fs::write(dir.path().join("stat"), format!("cpu0 {used} 0 0 {idle} 0 0 0 {stolen} 0 0\n")).unwrap();
    }

    #[test]
    fn a_disturbed_part_is_taken_again_and_the_better_one_counts() {
        let (dir, host) = host();
        let mut witness = blind(&host, 1, Others::Work);
        let taken = Cell::new(0);
        let part = |stolen: [u64; 2]| {
            let (taken, dir) = (&taken, &dir);
            ticks(dir, 0, 0, 0);
            move || {
                let number = taken.replace(taken.get() + 1);
                ticks(dir, 100 * (number as u64 + 1), 0, stolen.iter().take(number + 1).sum());
                Ok(number)
            }
        };
        assert_eq!(witness.measure("a", &["0".parse().unwrap()], part([20, 0])).unwrap(), (1, false));
        assert!(witness.disturbed.is_empty(), "{witness:?}");
        taken.set(0);
        assert_eq!(
            witness.measure("b", &["0".parse().unwrap()], part([20, 0])).unwrap(),
            (0, true),
            "only so many are taken again"
        );
        let notes = witness.notes();
        let told = "Disturbed, so that rates may be too low and times too long: b (the hypervisor had 17%).";
        assert_eq!(notes, [told]);
        assert!(is_of_disturbance(told) && !is_of_disturbance(crate::UNOPTIMISED));
    }

    #[test]
    fn what_others_use_is_foreign_and_an_idle_cpu_is_not() {
        let (dir, host) = host();
        let foreign = |others, used_s: f64, idle: u64| {
            ticks(&dir, 0, 0, 0);
            let before = Ticks::now(&host.roots.proc, &host.allowed).unwrap();
            ticks(&dir, 100 - idle, idle, 0);
            let passed = Ticks::now(&host.roots.proc, &host.allowed).unwrap().since(before);
            blind(&host, 1, others).disturbance(passed, 1, 1.0, used_s).foreign
        };
        // Less a tick, for rounding.
        assert!((foreign(Others::Count, 0.5, 20) - 0.29).abs() < 1e-9);
        assert!(foreign(Others::Count, 0.8, 20) < 1e-9 && foreign(Others::Work, 0.0, 0) < 1e-9);
    }

    #[test]
    fn a_limit_of_our_own_group_and_heat_disturb() {
        let (dir, mut host) = host();
        host.roots.sys = dir.path().to_owned();
        ticks(&dir, 0, 0, 0);
        let heat = host.roots.cpus().join("cpu0/thermal_throttle");
        fs::create_dir_all(&heat).unwrap();
        let group = dir.path().join("group");
        fs::create_dir(&group).unwrap();
        host.cgroups.hierarchies = vec![Hierarchy {
            version: 2,
            mount: group.clone(),
            shown: "/".into(),
            controllers: vec![Controller::Cpu],
            granted: vec![],
            own: group.clone(),
            writable: false,
        }];
        let write = |held_us: u64, events: u64| {
            fs::write(
                group.join("cpu.stat"),
                format!("nr_periods 9\nnr_throttled 1\nthrottled_usec {held_us}\n"),
            )
            .unwrap();
            fs::write(heat.join("core_throttle_count"), events.to_string()).unwrap();
        };
        let of = |held_us: u64, events: u64| {
            write(5, 7);
            let part = || {
                std::thread::sleep(std::time::Duration::from_millis(20));
                write(5 + held_us, 7 + events);
                Ok(())
            };
            blind(&host, 1, Others::Work).beside(part).unwrap().1
        };
        assert!(!of(0, 0).is_notable(), "{:?}", of(0, 0));
        assert!(of(5000, 0).in_words().starts_with("a limit of our cgroup took "), "{:?}", of(5000, 0));
        assert_eq!(of(0, 1).in_words(), "heat lowered the clock");
    }

    #[test]
    fn a_core_clock_that_changes_disturbs() {
        fn next(of: [f64; 4]) -> Option<f64> {
            static READINGS: AtomicUsize = AtomicUsize::new(0);
            of.get(READINGS.fetch_add(1, Ordering::Relaxed) % 4).map(|ghz| ghz * 1e9)
        }
        let (_dir, host) = host();
        let of = |clock| Witness { clock, ..blind(&host, 1, Others::Count) }.beside(|| Ok(())).unwrap().1;
        // A CPU that was idle wakes up; then a part begins at 2 GHz, and ends at this or another clock.
        assert!(!of(|_| next([1.0, 2.0, 2.0, 2.0])).is_notable());
        assert_eq!(of(|_| next([1.0, 2.0, 2.0, 1.0])).in_words(), "the core clock changed by 100%");
    }

    #[test]
    fn the_most_disturbed_parts_are_named_and_the_others_counted() {
        let (_dir, host) = host();
        let mut witness = blind(&host, 1, Others::Count);
        for (name, foreign) in [("a", 0.1), ("b", 0.4), ("c", 0.2), ("d", 0.3), ("e", 0.05)] {
            witness.disturbed.push((name.into(), Disturbance { foreign, ..Disturbance::default() }));
        }
        let notes = witness.notes().join("");
        assert!(
            notes.contains("b (other tasks had 40%); d (other tasks had 30%); c")
                && notes.ends_with("and 2 more.")
        );
        assert!(blind(&host, 1, Others::Count).notes().is_empty());
        assert_eq!(
            blind(&host, 1, Others::Count).measure("x", &[], || Ok(3)).unwrap(),
            (3, false),
            "no /proc/stat"
        );
    }
}

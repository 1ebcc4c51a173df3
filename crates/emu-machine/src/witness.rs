//! What else the CPUs did while a part of a measurement ran: it makes rates too low and times too long, and nothing in
//! them tells.

use std::path::PathBuf;
use std::time::Instant;

use emu_bench::ticks::Ticks;
use emu_bench::verify::{FOREIGN_MAX, STEAL_MAX};
use emu_bench::workload::process_cpu_ns;
use emu_core::{CpuList, Host, Result};

/// Of so many parts, one disturbed one is taken again; one at least. Where more are disturbed the machine is not quiet,
/// and those that are taken again would be disturbed as well.
const PARTS_FOR_ONE_AGAIN: usize = 4;

/// Parts that are named in a note; the others are counted.
const NAMED: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Others {
    /// Everybody's but the hypervisor's is foreign.
    Count,
    /// The kernel's threads work for what is measured, so that nothing is known to be foreign.
    Work,
}

/// How the note begins that names disturbed parts.
const NOTE: &str = "Disturbed, so that rates may be too low and times too long";

/// Whether a note of a measurement names disturbed parts.
pub(crate) fn is_of_disturbance(note: &str) -> bool {
    note.starts_with("Disturbed")
}

/// What disturbed a part, as shares of the CPUs' time.
#[derive(Debug, Clone, Copy, Default)]
struct Disturbance {
    stolen: f64,
    foreign: f64,
}

impl Disturbance {
    fn is_notable(self) -> bool {
        self.stolen > STEAL_MAX || self.foreign > FOREIGN_MAX
    }

    fn in_words(self) -> String {
        let of = |share: f64, most: f64, who: &str| {
            (share > most).then(|| format!("{who} had {:.0}%", share * 100.0))
        };
        let stolen = of(self.stolen, STEAL_MAX, "the hypervisor");
        let foreign = of(self.foreign, FOREIGN_MAX, "other tasks");
        stolen.into_iter().chain(foreign).collect::<Vec<_>>().join(", ")
    }
}

#[derive(Debug)]
pub(crate) struct Witness {
    proc: PathBuf,
    cpus: CpuList,
    others: Others,
    again: usize,
    disturbed: Vec<(String, Disturbance)>,
}

impl Witness {
    pub(crate) fn new(host: &Host, parts: usize, others: Others) -> Self {
        let again = parts.div_ceil(PARTS_FOR_ONE_AGAIN);
        Self {
            proc: host.roots.proc.clone(),
            cpus: host.allowed.clone(),
            others,
            again,
            disturbed: Vec::new(),
        }
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
        let (mut taken, mut disturbance) = self.watched(cpus, &mut part)?;
        if disturbance.is_notable() && self.again > 0 {
            self.again -= 1;
            let (other, less) = self.watched(cpus, &mut part)?;
            if less.stolen + less.foreign < disturbance.stolen + disturbance.foreign {
                (taken, disturbance) = (other, less);
            }
        }
        Ok((taken, self.note(what, disturbance)))
    }

    /// Watches a part that is taken once, on all CPUs, and tells whether it was disturbed.
    pub(crate) fn once<T>(&mut self, what: &str, part: impl FnOnce() -> Result<T>) -> Result<(T, bool)> {
        let (taken, disturbance) = self.watched(&self.cpus, part)?;
        Ok((taken, self.note(what, disturbance)))
    }

    /// Notes what disturbed a part, where that is notable.
    fn note(&mut self, what: &str, disturbance: Disturbance) -> bool {
        if disturbance.is_notable() {
            self.disturbed.push((what.to_owned(), disturbance));
        }
        disturbance.is_notable()
    }

    fn watched<T>(&self, cpus: &CpuList, part: impl FnOnce() -> Result<T>) -> Result<(T, Disturbance)> {
        let ticks = || Ticks::now(&self.proc, cpus).ok();
        let (before, begin, used) = (ticks(), Instant::now(), process_cpu_ns());
        let taken = part()?;
        let (wall_s, used_s) =
            (begin.elapsed().as_secs_f64(), process_cpu_ns().saturating_sub(used) as f64 / 1e9);
        let Some((before, after)) = before.zip(ticks()) else { return Ok((taken, Disturbance::default())) };
        Ok((taken, self.disturbance(after.since(before), cpus.len(), wall_s, used_s)))
    }

    fn disturbance(&self, passed: Ticks, cpus: usize, wall_s: f64, used_s: f64) -> Disturbance {
        let foreign = match self.others {
            Others::Count => passed.foreign(wall_s, cpus, used_s),
            Others::Work => 0.0,
        };
        Disturbance { stolen: passed.stolen_share(), foreign }
    }

    pub(crate) fn notes(mut self) -> Vec<String> {
        self.disturbed.sort_by(|(_, a), (_, b)| (b.stolen + b.foreign).total_cmp(&(a.stolen + a.foreign)));
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

    use super::*;
    use crate::testing::host_of;

    /// A host of one CPU whose `/proc/stat` is what the test writes, in ticks of 10 ms.
    fn host() -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        let mut host = host_of(&["0"], "0");
        host.roots.proc = dir.path().to_owned();
        (dir, host)
    }

    fn ticks(dir: &tempfile::TempDir, used: u64, idle: u64, stolen: u64) {
        fs::write(dir.path().join("stat"), format!("cpu0 {used} 0 0 {idle} 0 0 0 {stolen} 0 0\n")).unwrap();
    }

    #[test]
    fn a_disturbed_part_is_taken_again_and_the_better_one_counts() {
        let (dir, host) = host();
        let mut witness = Witness::new(&host, 1, Others::Work);
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
            Witness::new(&host, 1, others).disturbance(passed, 1, 1.0, used_s).foreign
        };
        // Less a tick, for rounding.
        assert!((foreign(Others::Count, 0.5, 20) - 0.29).abs() < 1e-9);
        assert!(foreign(Others::Count, 0.8, 20) < 1e-9 && foreign(Others::Work, 0.0, 0) < 1e-9);
    }

    #[test]
    fn the_most_disturbed_parts_are_named_and_the_others_counted() {
        let (_dir, host) = host();
        let mut witness = Witness::new(&host, 1, Others::Count);
        for (name, foreign) in [("a", 0.1), ("b", 0.4), ("c", 0.2), ("d", 0.3), ("e", 0.05)] {
            witness.disturbed.push((name.into(), Disturbance { stolen: 0.0, foreign }));
        }
        let notes = witness.notes().join("");
        assert!(
            notes.contains("b (other tasks had 40%); d (other tasks had 30%); c")
                && notes.ends_with("and 2 more.")
        );
        assert!(Witness::new(&host, 1, Others::Count).notes().is_empty());
        assert_eq!(
            Witness::new(&host, 1, Others::Count).measure("x", &[], || Ok(3)).unwrap(),
            (3, false),
            "no /proc/stat"
        );
    }
}

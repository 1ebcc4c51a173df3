//! What the campaigns share: how much is wanted, numbers that come again, what a run may not leave, and a table.
//!
//! `tests/campaign` runs them; their short forms are tests like any other.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{comm, eventually, groups_of, is_real_time, journals_of, marked, place_of, state};

/// How many tries, and where the random numbers begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) count: u64,
    pub(crate) seed: u64,
}

impl Wanted {
    /// So many, anew each time.
    pub(crate) fn short(count: u64) -> Self {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
        Self { count, seed }
    }

    /// As `tests/campaign` passes it on.
    pub(crate) fn from_environment() -> Self {
        let number = |name| std::env::var(name).ok().map(|text| text.parse().expect(name));
        let short = Self::short(number("EMU_CAMPAIGN_COUNT").unwrap_or(100));
        Self { seed: number("EMU_CAMPAIGN_SEED").unwrap_or(short.seed), ..short }
    }
}

/// Numbers that look random and come again with the same seed (Knuth's MMIX generator).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

/// Rows of words under a head, each column as wide as it must be.
pub(crate) struct Table(Vec<Vec<String>>);

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self(vec![head.iter().map(|&word| word.to_owned()).collect()])
    }

    pub(crate) fn row(&mut self, words: impl IntoIterator<Item = String>) {
        self.0.push(words.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| self.0.iter().filter_map(|row| Some(row.get(column)?.len())).max();
        for row in &self.0 {
            for (column, word) in (0..columns).zip(row) {
                write!(f, "{word:>width$}  ", width = width(column).unwrap_or(0))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// What an emu that has ended has left, when its guardian has ended, too; `mark` is a variable of its environment.
pub(crate) fn left_of(emu: u32, mark: &str) -> Vec<String> {
    let is_emu = |pid: &i32| comm(*pid).is_some_and(|name| name.starts_with("emu"));
    eventually("emu and its guardian have ended", || !marked(mark).iter().any(is_emu));
    let mut left: Vec<String> =
        groups_of(emu).iter().map(|group| format!("{} is left", group.display())).collect();
    left.extend(journals_of(emu).iter().map(|journal| format!("the journal {journal} is left")));
    let (_, cpus) = place_of(std::process::id());
    for pid in marked(mark) {
        if state(pid) == Some('T') {
            left.push(format!("process {pid} is left stopped"));
        }
        if is_real_time(pid) {
            left.push(format!("process {pid} is left real-time"));
        }
        let (_, allowed) = place_of(pid as u32);
        if allowed != cpus && state(pid).is_some() {
            left.push(format!("process {pid} is left bound: {allowed}"));
        }
    }
    left
}

/// Kills what has the mark, and waits until it is gone, which a frozen one could not be.
pub(crate) fn kill_marked(mark: &str) {
    eventually("the program is gone", || {
        let left = marked(mark);
        for pid in &left {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        left.is_empty()
    });
}

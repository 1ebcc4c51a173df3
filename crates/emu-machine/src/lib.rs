//! Measurements of the machine itself: whether it may be trusted, and what it can do.
//!
//! Each has a plan, a function that measures by it, and a result that holds every raw sample.

#![allow(
    clippy::missing_errors_doc,
    reason = "an error says itself what is wrong; docs tell what a caller acts on"
)]

pub mod calibrate;
pub mod cpu;
pub mod disk;
pub mod doctor;
pub mod hpcc;
pub mod kernel;
pub mod memory;
pub mod noise;
pub mod profile;
pub mod series;
pub mod timers;
pub mod tools;
mod waiting;
pub mod wavering;
mod witness;

use std::time::Duration;

use emu_core::{Cpu, CpuId, CpuList, Error, ErrorKind, Host, Result};
use serde::Serialize;

/// What a measurement tells whoever watches it, between samples.
#[derive(Debug, Clone)]
pub enum Event<'a> {
    /// What comes next.
    Next {
        /// What is measured.
        what: &'a str,
        /// About how long the rest of the measurement takes; zero while that is not known.
        left: Duration,
    },
    /// A raw sample was taken.
    Sample {
        /// The row that it belongs to.
        row: &'a str,
        /// The sample, in the form of that row.
        sample: serde_json::Value,
    },
}

/// Watches a measurement; an error ends it.
pub type Watch<'a> = &'a mut dyn FnMut(Event<'_>) -> Result<()>;

fn tell(watch: Watch<'_>, row: &str, sample: &impl Serialize) -> Result<()> {
    let sample = serde_json::to_value(sample)
        .map_err(|cause| Error::new(ErrorKind::Failed, "cannot write a sample as JSON").caused_by(cause))?;
    watch(Event::Sample { row, sample })
}

const OPTIMISED: bool = !cfg!(debug_assertions);

const UNOPTIMISED: &str = "This emu was built without optimisation: the figures mean little.";

fn notes_of_build() -> Vec<String> {
    if OPTIMISED { Vec::new() } else { vec![UNOPTIMISED.to_owned()] }
}

/// The CPUs of each thread: one of its own, or all where there are more threads than CPUs. Every core gets a thread before
/// one gets a second: threads that share a core share what is measured of it.
pub(crate) fn places(host: &Host, threads: usize) -> Vec<CpuList> {
    if threads > host.allowed.len() {
        return vec![host.allowed.clone(); threads];
    }
    // How many CPUs of the same core come before this one.
    let rank = |id: CpuId| {
        let before = |cpu: &Cpu| {
            cpu.siblings.intersection(&host.allowed).iter().take_while(|sibling| *sibling < id).count()
        };
        host.cpu(id).map_or(0, before)
    };
    let mut cpus: Vec<CpuId> = host.allowed.iter().collect();
    cpus.sort_by_cached_key(|id| (rank(*id), *id));
    cpus.into_iter().take(threads).map(|cpu| [cpu].into_iter().collect()).collect()
}

const THREADS_MAX: usize = 256;

fn all(host: &Host) -> usize {
    host.allowed.len().clamp(1, THREADS_MAX)
}

pub(crate) fn powers_of_two(host: &Host) -> Vec<usize> {
    let all = all(host);
    let fewer = std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count < all);
    fewer.chain([all]).collect()
}

pub(crate) fn one_and_all(host: &Host) -> Vec<usize> {
    let all = all(host);
    if all > 1 { vec![1, all] } else { vec![1] }
}

pub(crate) fn or_usual(threads: &[usize], host: &Host, quick: bool) -> Vec<usize> {
    match threads {
        [] if quick => one_and_all(host),
        [] => powers_of_two(host),
        given => given.to_vec(),
    }
}

pub(crate) fn check_threads(threads: &[usize], most: usize) -> Result<()> {
    if !threads.is_empty() && threads.iter().all(|count| (1..=most).contains(count)) {
        return Ok(());
    }
    Err(Error::usage("bad number of threads").hint(format!("give whole numbers from 1 to {most}")))
}

#[derive(Debug)]
pub(crate) struct Left {
    parts: u32,
    each: Duration,
}

impl Left {
    pub(crate) fn new(parts: usize, each: Duration) -> Self {
        Self { parts: u32::try_from(parts).unwrap_or(u32::MAX), each }
    }

    pub(crate) fn time(&self) -> Duration {
        self.each.saturating_mul(self.parts)
    }

    /// Parts come in random order and differ: each moves the mean by an eighth.
    pub(crate) fn through(&mut self, took: Duration) {
        self.parts = self.parts.saturating_sub(1);
        self.each = self.each.saturating_mul(7).saturating_add(took) / 8;
    }
}

pub(crate) fn in_order<T>(mut numbered: Vec<(usize, T)>) -> Vec<T> {
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, one)| one).collect()
}

#[cfg(test)]
pub(crate) mod testing {
    use emu_core::{Cpu, CpuList, Host, Roots};

    /// This host, as if it had these cores, each written as the list of its CPUs, and we might use `allowed`.
    pub(crate) fn host_of(cores: &[&str], allowed: &str) -> Host {
        let mut host = Host::detect(&Roots::system()).unwrap();
        let cores = cores.iter().map(|core| core.parse::<CpuList>().unwrap());
        let cpus = cores.flat_map(|siblings| {
            let cpu = |id| Cpu {
                id,
                online: true,
                isolated: false,
                siblings: siblings.clone(),
                package: None,
                core: None,
                capacity: None,
                nominal: None,
            };
            siblings.iter().map(cpu).collect::<Vec<_>>()
        });
        host.cpus = cpus.collect();
        host.cpus.sort_by_key(|cpu| cpu.id);
        host.allowed = allowed.parse().unwrap();
        host
    }
}

#[cfg(test)]
mod tests {
    use super::testing::host_of;
    use super::*;

    fn chosen(host: &Host, threads: usize) -> Vec<String> {
        places(host, threads).iter().map(CpuList::to_string).collect()
    }

    #[test]
    fn every_core_gets_a_thread_before_one_gets_a_second() {
        let neighbours = host_of(&["0-1", "2-3", "4-5"], "0-5");
        assert_eq!(chosen(&neighbours, 2), ["0", "2"]);
        assert_eq!(chosen(&neighbours, 4), ["0", "2", "4", "1"]);
        let far = host_of(&["0,3", "1,4", "2,5"], "0-5");
        assert_eq!(chosen(&far, 4), ["0", "1", "2", "3"]);
        assert_eq!(chosen(&far, 7), ["0-5"; 7]);
    }

    #[test]
    fn siblings_that_may_not_be_used_do_not_count() {
        let host = host_of(&["0-1", "2-3", "4-5"], "1-5");
        assert_eq!(chosen(&host, 5), ["1", "2", "4", "3", "5"]);
    }

    #[test]
    fn all_cpus_are_measured_also_where_they_are_no_power_of_two() {
        let of = |allowed: &str| powers_of_two(&host_of(&[], allowed));
        assert_eq!(of("0"), [1]);
        assert_eq!(of("0-3"), [1, 2, 4]);
        assert_eq!(of("0-5"), [1, 2, 4, 6]);
        assert_eq!(of("0-299"), [1, 2, 4, 8, 16, 32, 64, 128, 256]);
        assert_eq!(one_and_all(&host_of(&[], "0-299")), [1, 256]);
        assert_eq!(one_and_all(&host_of(&[], "0")), [1]);
    }

    #[test]
    fn numbers_of_threads_have_limits() {
        assert!(check_threads(&[1, 4], 4).is_ok());
        let bad: [&[usize]; 3] = [&[], &[0], &[1, 5]];
        for bad in bad {
            let error = check_threads(bad, 4).unwrap_err();
            assert_eq!(error.hint_text().as_deref(), Some("give whole numbers from 1 to 4"), "{bad:?}");
        }
    }

    #[test]
    fn what_is_left_follows_what_parts_have_taken() {
        let second = Duration::from_secs(1);
        let mut left = Left::new(3, second);
        assert_eq!(left.time(), 3 * second);
        left.through(9 * second);
        assert_eq!(left.time(), 4 * second);
        left.through(2 * second);
        left.through(2 * second);
        left.through(2 * second);
        assert_eq!(left.time(), Duration::ZERO);
    }
}

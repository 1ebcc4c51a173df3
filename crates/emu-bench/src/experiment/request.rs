//! What is asked of an experiment.

use std::time::Duration;

use emu_core::{CpuList, Error, Host, MethodId, Result, Speed};

use crate::stats::Band;
use crate::workload::{Setting, workload};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// Who is compared; controls are added.
    pub contenders: Vec<MethodId>,
    /// What they run, how fast, and on how many CPUs.
    pub parts: Vec<Part>,
    /// How often.
    pub repetitions: Repetitions,
    /// Whether no more is measured than must be: six pairs where these decide, and of work that no method is promised to get
    /// right no more in any case.
    pub sparing: bool,
    /// Length of a window, at least.
    pub window: Duration,
    /// CPU time that a window has at the lowest speed, at least: on less, a single interrupt shows.
    pub work: Duration,
    /// How long work is under way before its window opens, at least.
    pub lead: Duration,
    /// Length of the window of a granularity spectrum.
    pub spectrum: Duration,
    /// Length of the methods' on/off cycle; `None` is each method's own.
    pub period: Option<Duration>,
    /// Whether other tasks keep the time that they use, as with [`emu_core::Demand::exclude_background`].
    pub exclude_background: bool,
    /// Whether the methods hold the clock of CPUs that they leave idle, as [`emu_core::Demand::hold_clock`].
    pub hold_clock: bool,
    /// So many processes instead of the workload's own number.
    pub crowd: Option<Crowd>,
    /// How far from the ideal still passes.
    pub tolerance: Band,
    /// The preset by which it was asked for.
    pub preset: Option<String>,
    /// Start of the random numbers.
    pub seed: u64,
}

/// Kinds of work, each at some speeds.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The workloads.
    pub workloads: Vec<String>,
    /// The speeds.
    pub speeds: Vec<Speed>,
    /// On how many CPUs.
    pub cores: Cores,
}

/// On how many CPUs a workload runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cores {
    /// On each of these numbers of CPUs.
    Each(Vec<usize>),
    /// On as many as its threads or processes can fill.
    Filled,
}

/// How often each cell is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repetitions {
    /// So many pairs.
    Count(usize),
    /// As many as this time allows.
    Within(Duration),
}

/// Processes of a workload that has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crowd {
    /// Those that compute.
    pub active: usize,
    /// Those that wait.
    pub idle: usize,
}

pub(super) struct Group<'a> {
    pub(super) workload: &'a str,
    pub(super) zone: CpuList,
    pub(super) speeds: Vec<Speed>,
}

impl Request {
    /// Each kind of work on each number of CPUs once, in the order in which they are asked for.
    pub(super) fn groups(&self, host: &Host) -> Result<Vec<Group<'_>>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for part in &self.parts {
            for name in &part.workloads {
                for zone in part.cores.zones(host, name)? {
                    let known = groups.iter().position(|one| one.workload == name && one.zone == zone);
                    let number = known.unwrap_or_else(|| {
                        groups.push(Group { workload: name, zone, speeds: Vec::new() });
                        groups.len() - 1
                    });
                    let Some(group) = groups.get_mut(number) else { continue };
                    let new: Vec<_> =
                        part.speeds.iter().filter(|speed| !group.speeds.contains(speed)).copied().collect();
                    group.speeds.extend(new);
                }
            }
        }
        Ok(groups)
    }
}

impl Cores {
    /// The first CPUs that may be used.
    fn zones(&self, host: &Host, name: &str) -> Result<Vec<CpuList>> {
        let here = host.allowed.len();
        let first = |count: usize| host.allowed.iter().take(count).collect::<CpuList>();
        match self {
            Self::Each(counts) => {
                let zone = |&count: &usize| match count {
                    0 => Err(Error::usage("cannot measure on 0 CPUs").hint("give at least --cores 1")),
                    _ if count <= here => Ok(first(count)),
                    _ => {
                        let cpus = cpus_in_words(count);
                        let what = format!("cannot measure on {cpus}: only {here} may be used here");
                        Err(Error::unavailable(what).hint(format!("give at most --cores {here}")))
                    }
                };
                counts.iter().map(zone).collect()
            }
            Self::Filled => {
                let setting = Setting {
                    cpus: host.allowed.clone(),
                    period: Duration::ZERO,
                    share: 1.0,
                    window: Duration::from_millis(100),
                };
                Ok(vec![first(workload(name)?.job(&setting).active.clamp(1, here.max(1)))])
            }
        }
    }
}

pub(super) fn cpus_in_words(count: usize) -> String {
    if count == 1 { "1 CPU".into() } else { format!("{count} CPUs") }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use emu_core::{ErrorKind, Roots};

    pub(in crate::experiment) fn part(workload: &str, percent: &[u32], counts: &[usize]) -> Part {
        Part {
            workloads: vec![workload.into()],
            speeds: percent.iter().map(|one| Speed::share(f64::from(*one) / 100.0).unwrap()).collect(),
            cores: Cores::Each(counts.into()),
        }
    }

    /// Nothing beside these parts.
    pub(in crate::experiment) fn request(parts: Vec<Part>) -> Request {
        Request {
            contenders: Vec::new(),
            parts,
            repetitions: Repetitions::Count(2),
            sparing: false,
            window: Duration::ZERO,
            work: Duration::ZERO,
            lead: Duration::ZERO,
            spectrum: Duration::ZERO,
            period: None,
            exclude_background: false,
            hold_clock: true,
            crowd: None,
            tolerance: Band::FIVE_PERCENT,
            preset: None,
            seed: 1,
        }
    }

    #[test]
    fn work_of_several_parts_is_one_group_with_all_speeds() {
        let host = Host::detect(&Roots::system()).unwrap();
        let request = request(vec![
            part("cpu-loop", &[50], &[1]),
            part("stream", &[50], &[1]),
            part("cpu-loop", &[25, 50, 75], &[1]),
        ]);
        let groups = request.groups(&host).unwrap();
        let of = |group: &Group<'_>| (group.workload.to_owned(), group.zone.len(), group.speeds.len());
        assert_eq!(
            groups.iter().map(of).collect::<Vec<_>>(),
            [("cpu-loop".into(), 1, 3), ("stream".into(), 1, 1)]
        );
    }

    #[test]
    fn no_cpus_and_more_than_there_are_are_refused() {
        let host = Host::detect(&Roots::system()).unwrap();
        let kind = |count| {
            request(vec![part("cpu-loop", &[50], &[count])]).groups(&host).err().map(|why| why.kind())
        };
        assert_eq!(kind(0), Some(ErrorKind::Usage));
        assert_eq!(kind(100_000), Some(ErrorKind::Unavailable));
    }
}

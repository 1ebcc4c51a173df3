//! Busy processes that compete with a zone's tasks by weight: the published form of Fracas, after KRASH.
//!
//! Each rival runs on one CPU of the zone, in a group of its own beside the zone's, and never sleeps. The kernel
//! divides each CPU between the two groups by their weights.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cgroup::Folder;
use crate::cgroup::{Bandwidth, Owner};
use crate::control_file;
use crate::cpu_list::{CpuId, CpuList};
use crate::error::{Error, ErrorKind, Result};
use crate::process::Stat;
use crate::speed::{Targets, lowest_share};
use crate::sys::affinity;
use crate::sys::fork::{self, Child};
use crate::sys::times::process_cpu_time;
use crate::undo::{Journal, Undo};

/// The sum of both weights on the CPU with the lowest speed: the largest weight of v2, and the same multiple of
/// the default on v1 (100 there is 1024 here), so that rounding is 0.01 % of a CPU at most.
fn weight_sum(version: u8) -> f64 {
    if version == 2 { 10_000.0 } else { 102_400.0 }
}

fn weight_max(version: u8) -> u64 {
    if version == 2 { 10_000 } else { 262_144 }
}

fn weight_min(version: u8) -> u64 {
    if version == 2 { 1 } else { 2 }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Weights {
    pub(crate) zone: u64,
    pub(crate) rivals: BTreeMap<CpuId, u64>,
}

impl Weights {
    pub(crate) fn lowest_share(version: u8) -> f64 {
        weight_min(version) as f64 / weight_sum(version)
    }

    /// The weights for these targets: beside the zone's S, a rival gets S(1 − r)/r.
    pub(crate) fn of(targets: &Targets, version: u8) -> Self {
        let lowest = lowest_share(targets);
        let least = weight_min(version);
        // Rounded down, so that no rival needs more than the sum.
        let zone = ((weight_sum(version) * lowest) as u64).max(least);
        let rival = |share: f64| ((zone as f64 * (1.0 - share) / share).round() as u64).max(least);
        Self { zone, rivals: targets.iter().map(|(&cpu, target)| (cpu, rival(target.share))).collect() }
    }

    /// The share of a CPU that a zone gets which has something to run on that CPU only.
    pub(crate) fn share(&self, cpu: CpuId) -> f64 {
        let rival = self.rivals.get(&cpu).copied().unwrap_or(0);
        self.zone as f64 / (self.zone + rival).max(1) as f64
    }

    /// The share that tasks get on each of `busy` CPUs where they were to have `share`: the zone's weight is
    /// divided among the CPUs, that of a rival is not (`calc_group_shares` in the kernel's fair.c).
    pub(crate) fn share_when_busy(share: f64, busy: usize) -> f64 {
        share / (share + busy as f64 * (1.0 - share))
    }
}

#[derive(Debug)]
pub(crate) struct CfsBurner {
    cpu: CpuId,
    child: Child,
    bandwidth: Bandwidth,
    version: u8,
    procfs: PathBuf,
}

impl CfsBurner {
    /// Starts a rival on `cpu`, in a group beside `zone`. It dies with the calling thread, and is in the journal.
    pub(crate) fn start(cpu: CpuId, zone: &Folder, procfs: &Path, journal: &Journal) -> Result<Self> {
        let folder = beside(zone, cpu)?;
        let members = "cgroup.procs";
        let parent = folder.path.parent().unwrap_or(Path::new("/")).join(members);
        journal.record(&Undo::Group {
            path: folder.path.clone(),
            members: members.into(),
            return_to: parent,
        })?;
        fs::create_dir(&folder.path).map_err(|e| Error::file("make", &folder.path, e))?;
        let bandwidth = Bandwidth::open(&folder, None, Owner::Us)?;
        #[expect(unsafe_code, reason = "a fork has a contract")]
        // SAFETY: `spin` makes a system call and computes.
        let child = unsafe { fork::fork_bound([], spin) }
            .map_err(|e| Error::io("cannot start a process to burn CPU time", e))?;
        let pid = child.pid();
        let rival = Self { cpu, child, bandwidth, version: zone.version, procfs: procfs.to_owned() };
        let stat = Stat::read(procfs, pid);
        let died = || Error::new(ErrorKind::Failed, format!("the burner of CPU {cpu} has died"));
        let starttime = stat.ok_or_else(died)?.starttime;
        journal.record(&Undo::Kill { pid, starttime })?;
        control_file::write(&folder.path.join(members), &pid.to_string())?;
        // Afterwards, as a group that has a cpuset may give its tasks all CPUs (Linux before 6.2).
        let only: CpuList = [cpu].into_iter().collect();
        affinity::set(pid, &only).map_err(|e| Error::io(format!("cannot bind a burner to CPU {cpu}"), e))?;
        Ok(rival)
    }

    pub(crate) fn cpu(&self) -> CpuId {
        self.cpu
    }

    pub(crate) fn set_weight(&self, weight: u64) -> Result<()> {
        self.bandwidth.set_weight(weight)
    }

    pub(crate) fn bandwidth(&self) -> &Bandwidth {
        &self.bandwidth
    }

    pub(crate) fn is_alive(&self) -> bool {
        Stat::read(&self.procfs, self.child.pid()).is_some_and(|stat| !stat.has_ended())
    }

    /// `None` when it has died and is gone.
    pub(crate) fn burned(&self) -> Option<Duration> {
        process_cpu_time(self.child.pid())
    }
}

impl Drop for CfsBurner {
    fn drop(&mut self) {
        // Dying takes CPU time, too: with the weight of a rival at 100 % it can take a minute.
        let _ = self.set_weight(weight_max(self.version));
        self.child.end();
    }
}

fn beside(zone: &Folder, cpu: CpuId) -> Result<Folder> {
    let name = zone.path.file_name().map(|name| name.to_string_lossy().into_owned());
    let (Some(parent), Some(name)) = (zone.path.parent(), name) else {
        return Err(Error::unavailable("the root group cannot be emulated by weight")
            .hint("name a group below it, or use fracas itself"));
    };
    let path: PathBuf = parent.join(format!("{name}-rival{cpu}"));
    Ok(Folder { version: zone.version, path })
}

/// The child's side: burns until it is killed. Keeps to the contract of [`fork`](fork::fork).
fn spin() -> i32 {
    let _ = nix::sys::prctl::set_name(c"emu-rival");
    loop {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speed::Target;
    use proptest::prelude::*;

    fn targets(shares: &[f64]) -> Targets {
        shares.iter().map(|&share| Target { share, clock: None }).enumerate().collect()
    }

    #[test]
    fn weights_are_in_the_ratio_of_what_is_asked_for_to_the_rest() {
        let weights = Weights::of(&targets(&[0.25]), 2);
        assert_eq!((weights.zone, weights.rivals[&0]), (2_500, 7_500));
        let weights = Weights::of(&targets(&[0.4, 0.8]), 1);
        assert_eq!((weights.zone, weights.rivals[&0], weights.rivals[&1]), (40_960, 61_440, 10_240));
    }

    #[test]
    fn full_speed_leaves_the_rival_next_to_nothing() {
        for version in [1, 2] {
            let weights = Weights::of(&targets(&[1.0]), version);
            assert_eq!(weights.rivals[&0], weight_min(version));
            assert!(weights.share(0) > 0.9998);
        }
    }

    #[test]
    fn the_known_error_is_that_of_the_paper() {
        // HPCC 2011, "multithread, 2 cores": about twice as slow as asked.
        assert!((Weights::share_when_busy(0.5, 2) - 1.0 / 3.0).abs() < 1e-12);
        assert!((Weights::share_when_busy(0.5, 1) - 0.5).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn weights_are_accepted_by_the_kernel_and_give_what_is_asked(
            shares in proptest::collection::vec(0.001f64..=1.0, 1..16), version in 1u8..=2,
        ) {
            let targets = targets(&shares);
            let weights = Weights::of(&targets, version);
            for weight in weights.rivals.values().chain([&weights.zone]) {
                prop_assert!((weight_min(version)..=weight_max(version)).contains(weight));
            }
            for (cpu, target) in &targets {
                // A rival's weight is rounded, and the least that the kernel takes: so much of the sum.
                let step = weight_min(version) as f64 / (weights.zone as f64 / target.share);
                prop_assert!((weights.share(*cpu) - target.share).abs() <= step, "{}", weights.share(*cpu));
            }
        }
    }
}

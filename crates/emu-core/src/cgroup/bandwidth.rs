//! The CPU bandwidth of one cgroup: limit, weight, usage and throttling, in the files of v1 and of v2
//! (Documentation/scheduler/sched-bwc.rst, Documentation/admin-guide/cgroup-v2.rst, "CPU").

use std::path::{Path, PathBuf};

use super::folder::Folder;
use super::limit::{Limit, Quota, V1_PERIOD, V1_QUOTA, V2_MAX, highest_below};
use super::throttling::{Throttling, ThrottlingFile};
use super::usage::Usage;
use crate::control_file;
use crate::error::{Error, Result};
use crate::sys::time::Nanos;
use crate::undo::Journal;

const V1_BURST: &str = "cpu.cfs_burst_us";
const V1_WEIGHT: &str = "cpu.shares";
const V2_BURST: &str = "cpu.max.burst";
const V2_WEIGHT: &str = "cpu.weight";

#[derive(Debug, Clone)]
pub(crate) enum Owner {
    /// emu: its files are removed with the group.
    Us,
    /// Another program: each change is recorded in the journal first.
    Other(Journal),
}

#[derive(Debug)]
pub(crate) struct Bandwidth {
    folder: Folder,
    owner: Owner,
    stat: ThrottlingFile,
    /// `None` on v1 without cpuacct.
    usage: Option<Usage>,
}

impl Bandwidth {
    /// `accounting` is the group's folder of the cpuacct controller, which is the same one on v2.
    /// Unavailable where the kernel has no CFS bandwidth control.
    pub(crate) fn open(folder: &Folder, accounting: Option<&Folder>, owner: Owner) -> Result<Self> {
        let limit = Limit::file(folder);
        if !limit.exists() {
            let hint = if folder.version == 2 && !folder.path.join(V2_WEIGHT).exists() {
                "its parent gives it no `cpu` controller: use another method, or have systemd give it one \
                 (`systemctl set-property UNIT CPUWeight=100`)"
            } else {
                "the kernel must be built with CONFIG_CFS_BANDWIDTH, and the group must not be the root"
            };
            return Err(Error::unavailable(format!("there is no {}", limit.display())).hint(hint));
        }
        let usage = accounting.and_then(Usage::open);
        let stat = ThrottlingFile::open(&folder.path)?;
        Ok(Self { folder: folder.clone(), owner, stat, usage })
    }

    pub(crate) fn limit(&self) -> Result<Option<Limit>> {
        Limit::read(&self.folder)
    }

    pub(crate) fn is_theirs(&self) -> bool {
        matches!(self.owner, Owner::Other(_))
    }

    pub(crate) fn limit_file(&self) -> PathBuf {
        Limit::file(&self.folder)
    }

    /// Sets quota and period, with no burst. Each write refills the group's quota at once and unthrottles it
    /// (`tg_set_cfs_bandwidth`). The kernel refuses a quota under 1 ms, a period outside 1 ms to 1 s, and on v1 more than an
    /// ancestor has, or less than a group below has.
    pub(crate) fn set_limit(&self, limit: Limit) -> Result<()> {
        let Limit { quota, period_us } = limit;
        // First, because the burst must not exceed a quota that is lowered.
        if self.folder.version == 2 {
            self.clear_burst(V2_BURST)?;
            let quota = if let Quota::Micros(micros) = quota { micros.to_string() } else { "max".to_owned() };
            return self.write(V2_MAX, &format!("{quota} {period_us}"));
        }
        self.clear_burst(V1_BURST)?;
        // Quota and period are two files. In this order the pair in between is never looser than the old and the new one, so
        // the group is never unlimited and never above an ancestor's limit.
        let now = Limit::read(&self.folder)?;
        let shorter = now.is_some_and(|now| now.period_us > period_us && now.quota != Quota::Max);
        let Err(error) = self.write_v1(limit, now, shorter) else { return Ok(()) };
        let is_invalid = error.raw_os_error() == Some(libc::EINVAL);
        let below = is_invalid.then(|| highest_below(&self.folder)).flatten();
        let result = match below {
            None => Err(error),
            Some((cpus, group)) if limit.cpus().is_some_and(|wanted| wanted < cpus) => {
                Err(refused_for(&group, cpus).caused_by(error))
            }
            // Only the pair in between is less than that group has.
            Some(_) => self.write_v1(limit, now, !shorter),
        };
        if let (Err(_), Some(now)) = (&result, now) {
            // One of the two may be written.
            let _ = self.write_v1(now, None, !shorter);
        }
        result
    }

    fn write_v1(&self, limit: Limit, now: Option<Limit>, quota_first: bool) -> Result<()> {
        let Limit { quota, period_us } = limit;
        let quota = if let Quota::Micros(micros) = quota { micros.to_string() } else { "-1".to_owned() };
        if quota_first {
            self.write(V1_QUOTA, &quota)?;
        }
        if now.is_none_or(|now| now.period_us != period_us) {
            self.write(V1_PERIOD, &period_us.to_string())?;
        }
        if quota_first { Ok(()) } else { self.write(V1_QUOTA, &quota) }
    }

    /// The most that a group below has, in CPUs, where the kernel gives this one no less: on v1.
    pub(crate) fn floor(&self) -> Option<f64> {
        (self.folder.version == 1).then(|| highest_below(&self.folder))?.map(|(cpus, _)| cpus)
    }

    /// A burst would let a program that slept run faster than the emulated CPU.
    fn clear_burst(&self, name: &str) -> Result<()> {
        // Linux before 5.14 has no burst.
        match control_file::read_if_present(&self.folder.path.join(name))? {
            Some(burst) if burst != "0" => self.write(name, "0"),
            _ => Ok(()),
        }
    }

    /// The weight is against other groups of the same parent, in the hierarchy's own unit.
    pub(crate) fn set_weight(&self, weight: u64) -> Result<()> {
        self.write(self.weight_name(), &weight.to_string())
    }

    /// `None` when it cannot be read, for example after the group was removed.
    pub(crate) fn weight(&self) -> Option<u64> {
        control_file::probe(&self.weight_file())
    }

    pub(crate) fn weight_file(&self) -> PathBuf {
        self.folder.path.join(self.weight_name())
    }

    fn weight_name(&self) -> &'static str {
        if self.folder.version == 2 { V2_WEIGHT } else { V1_WEIGHT }
    }

    fn write(&self, name: &str, value: &str) -> Result<()> {
        let path = self.folder.path.join(name);
        match &self.owner {
            Owner::Us => control_file::write(&path, value),
            Owner::Other(journal) => journal.write_file(&path, value).map(drop),
        }
        .map_err(|e| {
            e.hint("a group above may have a lower limit, or belong to another user: run as root or in a group of your own")
        })
    }

    pub(crate) fn is_accounted(&self) -> bool {
        self.usage.is_some()
    }

    /// CPU time since the group was made.
    pub(crate) fn usage(&self) -> Option<Nanos> {
        self.usage.as_ref()?.read()
    }

    pub(crate) fn throttled(&self) -> Result<Throttling> {
        self.stat.read()
    }
}

fn refused_for(group: &Path, cpus: f64) -> Error {
    Error::unavailable(format!(
        "the cgroup {} has a quota of {:.0} % of a CPU, and in version 1 none above it may have less",
        group.display(),
        100.0 * cpus
    ))
    .hint("lower that quota, or use cpu-freeze or cpu-hogs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::host::testing::{tree, write};

    fn folder(root: &tempfile::TempDir, version: u8, path: &str) -> Folder {
        Folder { version, path: root.path().join(path) }
    }

    fn text(folder: &Folder, name: &str) -> String {
        std::fs::read_to_string(folder.path.join(name)).unwrap()
    }

    const STAT_V1: &str =
        "nr_periods 12\nnr_throttled 7\nthrottled_time 5000000\nnr_bursts 0\nburst_time 0\n";
    const STAT_V2: &str = "usage_usec 2500\nuser_usec 2000\nsystem_usec 500\nnice_usec 0\n\
         core_sched.force_idle_usec 0\nnr_periods 12\nnr_throttled 7\nthrottled_usec 5000\n";

    #[test]
    fn a_limit_is_written_for_each_version_and_bursts_are_cleared() {
        let limit = Limit { quota: Quota::Micros(25_000), period_us: 100_000 };
        let root = tree(&[("cpu.max", ""), ("cpu.max.burst", "5"), ("cpu.stat", STAT_V2)]);
        let v2 = folder(&root, 2, "");
        Bandwidth::open(&v2, Some(&v2), Owner::Us).unwrap().set_limit(limit).unwrap();
        assert_eq!((text(&v2, "cpu.max"), text(&v2, "cpu.max.burst")), ("25000 100000".into(), "0".into()));
        let root =
            tree(&[("cpu.cfs_quota_us", "-1"), ("cpu.cfs_period_us", "200000"), ("cpu.stat", STAT_V1)]);
        let v1 = folder(&root, 1, "");
        Bandwidth::open(&v1, None, Owner::Us).unwrap().set_limit(limit).unwrap();
        assert_eq!(
            (text(&v1, "cpu.cfs_quota_us"), text(&v1, "cpu.cfs_period_us")),
            ("25000".into(), "100000".into())
        );
    }

    #[test]
    fn what_is_missing_for_bandwidth_control_is_named() {
        let root = tree(&[("cpu.stat", STAT_V2)]);
        let refused = || Bandwidth::open(&folder(&root, 2, ""), None, Owner::Us).unwrap_err();
        assert_eq!(refused().kind(), ErrorKind::Unavailable);
        assert!(refused().hint_text().unwrap().contains("gives it no `cpu` controller"));
        write(root.path(), "cpu.weight", b"100\n");
        assert!(refused().hint_text().unwrap().contains("CONFIG_CFS_BANDWIDTH"));
    }

    #[test]
    fn throttling_and_usage_are_read_from_both_versions() {
        let root =
            tree(&[("1/cpu.cfs_quota_us", "-1"), ("1/cpu.stat", STAT_V1), ("1/cpuacct.usage", "2500000\n")]);
        write(root.path(), "2/cpu.max", b"max 100000\n");
        write(root.path(), "2/cpu.stat", STAT_V2.as_bytes());
        for version in [1, 2] {
            let folder = folder(&root, version, &version.to_string());
            let bandwidth = Bandwidth::open(&folder, Some(&folder), Owner::Us).unwrap();
            assert_eq!(
                bandwidth.throttled().unwrap(),
                Throttling { periods: 12, throttled: 7, stalled: 5_000_000 }
            );
            assert_eq!(bandwidth.usage(), Some(2_500_000));
            assert_eq!(Bandwidth::open(&folder, None, Owner::Us).unwrap().usage(), None);
        }
        write(root.path(), "2/cpu.stat", b"nr_periods x\n");
        let strange = Bandwidth::open(&folder(&root, 2, "2"), None, Owner::Us).unwrap().throttled();
        assert!(strange.unwrap_err().to_string().contains("nr_periods x"));
    }
}

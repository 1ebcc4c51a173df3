//! The CPU bandwidth of one cgroup: quota, period and weight, in the files of v1 and of v2.
//!
//! References: Documentation/scheduler/sched-bwc.rst, Documentation/admin-guide/cgroup-v2.rst
//! ("CPU").

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::folder::Folder;
use super::usage::Usage;
use crate::control_file;
use crate::error::{Error, ErrorKind, Result};
use crate::host::Hierarchy;
use crate::sys::time::{self, Nanos};
use crate::undo::Journal;

const V1_QUOTA: &str = "cpu.cfs_quota_us";
const V1_PERIOD: &str = "cpu.cfs_period_us";
const V1_BURST: &str = "cpu.cfs_burst_us";
const V1_WEIGHT: &str = "cpu.shares";
const V2_MAX: &str = "cpu.max";
const V2_BURST: &str = "cpu.max.burst";
const V2_WEIGHT: &str = "cpu.weight";
const STAT: &str = "cpu.stat";

/// The shortest period that the kernel accepts, and its smallest quota (`min_cfs_quota_period`).
pub(crate) const PERIOD_MIN: Duration = Duration::from_millis(1);
/// The longest period that the kernel accepts (`max_cfs_quota_period`).
pub(crate) const PERIOD_MAX: Duration = Duration::from_secs(1);
/// The smallest quota, in microseconds.
pub(crate) const QUOTA_MIN_US: u64 = 1_000;

/// The CPU time that a group may use in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quota {
    /// No limit.
    Max,
    /// Microseconds, summed over all CPUs.
    Micros(u64),
}

impl Quota {
    /// `cpus` CPUs' worth of each period (a share of one CPU, or a sum of shares), rounded to the
    /// kernel's unit of a microsecond, and never below the smallest quota.
    pub(crate) fn of(cpus: f64, period_us: u64) -> Self {
        Self::Micros(((cpus * period_us as f64).round() as u64).max(QUOTA_MIN_US))
    }

    /// In CPUs; `None` for [`Max`](Self::Max).
    pub(crate) fn cpus(self, period_us: u64) -> Option<f64> {
        match self {
            Self::Max => None,
            Self::Micros(micros) => Some(micros as f64 / period_us.max(1) as f64),
        }
    }
}

/// Quota and period of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    /// The quota.
    pub(crate) quota: Quota,
    /// The period, in microseconds.
    pub(crate) period_us: u64,
}

impl Limit {
    /// The limit in CPUs; `None` when there is none.
    pub(crate) fn cpus(self) -> Option<f64> {
        self.quota.cpus(self.period_us)
    }

    /// Parses `cpu.max`: `max 100000` or `25000 100000`.
    fn parse_v2(text: &str) -> Option<Self> {
        let (quota, period) = text.split_once(' ')?;
        let quota = if quota == "max" { Quota::Max } else { Quota::Micros(quota.parse().ok()?) };
        Some(Self { quota, period_us: period.trim().parse().ok()? })
    }

    /// Parses v1's two files; a negative quota means none.
    fn parse_v1(quota: &str, period: &str) -> Option<Self> {
        let quota = match quota.parse::<i64>().ok()? {
            micros if micros < 0 => Quota::Max,
            micros => Quota::Micros(micros as u64),
        };
        Some(Self { quota, period_us: period.parse().ok()? })
    }

    /// Reads the limit of a group; `None` where the files are missing, as in a v2 root group.
    ///
    /// # Errors
    /// The files cannot be read or contain something else.
    pub(crate) fn read(folder: &Folder) -> Result<Option<Self>> {
        let read = |name| control_file::read_if_present(&folder.path.join(name));
        let (texts, parsed) = if folder.version == 2 {
            let Some(text) = read(V2_MAX)? else { return Ok(None) };
            (text.clone(), Self::parse_v2(&text))
        } else {
            let (Some(quota), Some(period)) = (read(V1_QUOTA)?, read(V1_PERIOD)?) else { return Ok(None) };
            (format!("{quota} {period}"), Self::parse_v1(&quota, &period))
        };
        parsed.map(Some).ok_or_else(|| unexpected(&texts, &folder.path))
    }
}

/// The tightest limit of a group and its ancestors up to `mount`, in CPUs, and the group that has
/// it.
pub(crate) fn tightest_limit(folder: &Folder, mount: &Path) -> Option<(f64, PathBuf)> {
    folder
        .path
        .ancestors()
        .take_while(|group| group.starts_with(mount))
        .filter_map(|group| {
            let group = Folder { version: folder.version, path: group.to_owned() };
            // A group that cannot be read is skipped; the kernel still enforces its limit.
            Some((Limit::read(&group).ok()??.cpus()?, group.path))
        })
        .min_by(|(one, _), (other, _)| one.total_cmp(other))
}

/// The tightest quota on CPU time that holds for this process.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaLimit {
    /// CPU time per wall time.
    pub cpus: f64,
    /// The folder of the group whose limit it is.
    pub group: PathBuf,
    /// How often it was used up since the group was made; `None` where that is not told.
    pub throttled: Option<u64>,
}

impl QuotaLimit {
    /// That of our own group in a hierarchy with the `cpu` controller, or of a group above it; `None` without a limit.
    pub fn tightest(hierarchy: &Hierarchy) -> Option<Self> {
        let own = Folder { version: hierarchy.version, path: hierarchy.own.clone() };
        let (cpus, group) = tightest_limit(&own, &hierarchy.mount)?;
        let throttled = Throttling::of(&group).map(|stat| stat.throttled);
        Some(Self { cpus, group, throttled })
    }
}

/// How often a group has been throttled since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Throttling {
    /// Periods in which it had runnable tasks.
    pub(crate) periods: u64,
    /// Periods in which its quota was used up.
    pub(crate) throttled: u64,
    /// How long it was throttled, in nanoseconds, summed over CPUs. The kernel adds a stall at its
    /// end.
    pub(crate) stalled: Nanos,
}

impl Throttling {
    /// Reads the counters of a group; `None` where it has none.
    pub(crate) fn of(group: &Path) -> Option<Self> {
        Self::parse(&control_file::read(&group.join(STAT)).ok()?)
    }

    /// Parses `cpu.stat`. The two versions report the time in different units.
    fn parse(text: &str) -> Option<Self> {
        let v1 = || field(text, "throttled_time");
        let v2 = || field(text, "throttled_usec")?.checked_mul(1_000);
        let stalled = v1().or_else(v2)?.try_into().ok()?;
        Some(Self { periods: field(text, "nr_periods")?, throttled: field(text, "nr_throttled")?, stalled })
    }
}

/// How long a quota has throttled the tasks of the cgroup in the folder `group` since it was made,
/// summed over CPUs. `None` where the kernel does not report it: at the root of version 2 and
/// without the `cpu` controller.
///
/// # References
/// - Documentation/scheduler/sched-bwc.rst and Documentation/admin-guide/cgroup-v2.rst, "cpu.stat".
pub fn throttled_time(group: &Path) -> Option<Duration> {
    Throttling::of(group).map(|of| time::span(of.stalled))
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Who made the group, and so how its files are written.
#[derive(Debug, Clone)]
pub(crate) enum Owner {
    /// emu: its files are removed with the group.
    Us,
    /// Another program: each change is recorded in the journal first.
    Other(Journal),
}

/// The CPU bandwidth of one group.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    folder: Folder,
    owner: Owner,
    stat: KernelFile,
    /// `None` on v1 without cpuacct.
    usage: Option<Usage>,
}

impl Bandwidth {
    /// Opens the group `folder`; `accounting` is its folder of the cpuacct controller (the same one
    /// on v2).
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] where the kernel has no CFS bandwidth control; a file cannot be
    /// opened.
    pub(crate) fn open(folder: &Folder, accounting: Option<&Folder>, owner: Owner) -> Result<Self> {
        let limit = folder.path.join(if folder.version == 2 { V2_MAX } else { V1_QUOTA });
        if !limit.exists() {
            return Err(Error::unavailable(format!("there is no {}", limit.display())).hint(
                "the kernel must be built with CONFIG_CFS_BANDWIDTH, and the group must not be the root",
            ));
        }
        let usage = accounting.and_then(Usage::open);
        let stat = KernelFile::open(folder.path.join(STAT))?;
        Ok(Self { folder: folder.clone(), owner, stat, usage })
    }

    /// The present limit.
    ///
    /// # Errors
    /// As [`Limit::read`].
    pub(crate) fn limit(&self) -> Result<Option<Limit>> {
        Limit::read(&self.folder)
    }

    /// Whether another program made the group.
    pub(crate) fn is_theirs(&self) -> bool {
        matches!(self.owner, Owner::Other(_))
    }

    /// The file that has the quota.
    pub(crate) fn limit_file(&self) -> PathBuf {
        self.folder.path.join(if self.folder.version == 2 { V2_MAX } else { V1_QUOTA })
    }

    /// Sets quota and period, with no burst.
    ///
    /// Each write refills the group's quota at once and unthrottles it (`tg_set_cfs_bandwidth`).
    ///
    /// # Errors
    /// The kernel refuses: a quota under 1 ms, a period outside 1 ms to 1 s, or on v1 more than an
    /// ancestor has.
    pub(crate) fn set_limit(&self, limit: Limit) -> Result<()> {
        let Limit { quota, period_us } = limit;
        // The burst is cleared first, because it must not exceed a quota that is lowered.
        if self.folder.version == 2 {
            self.clear_burst(V2_BURST)?;
            let quota = if let Quota::Micros(micros) = quota { micros.to_string() } else { "max".to_owned() };
            return self.write(V2_MAX, &format!("{quota} {period_us}"));
        }
        self.clear_burst(V1_BURST)?;
        let quota = if let Quota::Micros(micros) = quota { micros.to_string() } else { "-1".to_owned() };
        // Quota and period are two files. In this order the pair in between is never looser than
        // the old and the new one, so the group is never unlimited and never above an ancestor's
        // limit.
        let now = Limit::read(&self.folder)?;
        let shorter = now.is_some_and(|now| now.period_us > period_us && now.quota != Quota::Max);
        if shorter {
            self.write(V1_QUOTA, &quota)?;
            return self.write(V1_PERIOD, &period_us.to_string());
        }
        if now.is_none_or(|now| now.period_us != period_us) {
            self.write(V1_PERIOD, &period_us.to_string())?;
        }
        self.write(V1_QUOTA, &quota)
    }

    /// Clears the burst, which would let a program that slept run faster than the emulated CPU.
    fn clear_burst(&self, name: &str) -> Result<()> {
        // Linux before 5.14 has no burst.
        match control_file::read_if_present(&self.folder.path.join(name))? {
            Some(burst) if burst != "0" => self.write(name, "0"),
            _ => Ok(()),
        }
    }

    /// Sets the weight against other groups of the same parent, in the hierarchy's own unit.
    ///
    /// # Errors
    /// The kernel refuses the value.
    pub(crate) fn set_weight(&self, weight: u64) -> Result<()> {
        self.write(self.weight_name(), &weight.to_string())
    }

    /// The present weight; `None` when it cannot be read, for example after the group was removed.
    pub(crate) fn weight(&self) -> Option<u64> {
        control_file::probe(&self.weight_file())
    }

    /// The file that has the weight.
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

    /// Whether the CPU time that the group uses is accounted.
    pub(crate) fn is_accounted(&self) -> bool {
        self.usage.is_some()
    }

    /// CPU time used by the group since it was made; `None` where it is not accounted.
    pub(crate) fn usage(&self) -> Option<Nanos> {
        self.usage.as_ref()?.read()
    }

    /// How often the group was throttled.
    ///
    /// # Errors
    /// The file cannot be read or contains something else.
    pub(crate) fn throttled(&self) -> Result<Throttling> {
        self.stat.parse(Throttling::parse)
    }
}

/// A file that is read repeatedly and so kept open.
#[derive(Debug)]
struct KernelFile {
    file: File,
    path: PathBuf,
}

impl KernelFile {
    fn open(path: PathBuf) -> Result<Self> {
        let file = File::open(&path).map_err(|e| Error::file("open", &path, e))?;
        Ok(Self { file, path })
    }

    /// Reads the file from its start, without allocating: `cpu.stat` has a few hundred bytes.
    fn parse<T>(&self, parse: impl FnOnce(&str) -> Option<T>) -> Result<T> {
        let mut buffer = [0; 4096];
        let mut length = 0;
        while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, length as u64) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::file("read", &self.path, e)),
            }
        }
        let text = std::str::from_utf8(buffer.get(..length).unwrap_or_default()).unwrap_or_default();
        parse(text).ok_or_else(|| unexpected(text, &self.path))
    }
}

fn unexpected(text: &str, path: &Path) -> Error {
    Error::new(ErrorKind::Failed, format!("unexpected `{}` in {}", text.trim(), path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::{tree, write};
    use proptest::prelude::*;

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
    fn limits_of_both_versions_are_read() {
        for (quota, period, cpus) in
            [("-1", "100000", None), ("25000", "100000", Some(0.25)), ("40000", "20000", Some(2.0))]
        {
            let root = tree(&[("cpu.cfs_quota_us", quota), ("cpu.cfs_period_us", period)]);
            assert_eq!(Limit::read(&folder(&root, 1, "")).unwrap().unwrap().cpus(), cpus);
            let max = format!("{} {period}\n", if quota == "-1" { "max" } else { quota });
            let root = tree(&[("cpu.max", &max)]);
            assert_eq!(Limit::read(&folder(&root, 2, "")).unwrap().unwrap().cpus(), cpus);
        }
    }

    #[test]
    fn strange_limits_are_errors_that_show_them() {
        for text in ["", "max", "x 100000", "1000 x", "-5 100000", "1000"] {
            let root = tree(&[("cpu.max", text)]);
            let error = Limit::read(&folder(&root, 2, "")).unwrap_err();
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }

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
    fn a_kernel_without_bandwidth_control_is_named() {
        let root = tree(&[("cpu.stat", STAT_V2)]);
        let error = Bandwidth::open(&folder(&root, 2, ""), None, Owner::Us).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.hint_text().unwrap().contains("CONFIG_CFS_BANDWIDTH"));
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

    #[test]
    fn the_tightest_limit_of_a_group_and_its_ancestors_counts() {
        let root = tree(&[
            ("fs/cpu.max", "300000 100000"),
            ("fs/a/cpu.max", "50000 100000"),
            ("fs/a/b/cpu.max", "max 100000"),
            ("fs/a/b/own/cpu.max", "1000 100000"),
            ("cpu.max", "1000 1000000"),
        ]);
        let mount = root.path().join("fs");
        let tightest = |path: &str| tightest_limit(&folder(&root, 2, path), &mount);
        assert_eq!(tightest("fs/a/b/own"), Some((0.01, root.path().join("fs/a/b/own"))));
        assert_eq!(tightest("fs/a/b"), Some((0.5, root.path().join("fs/a"))));
        assert_eq!(tightest("fs"), Some((3.0, mount.clone())));
        assert_eq!(tightest(""), None, "it is not below the mount");
    }

    proptest! {
        #[test]
        fn a_quota_is_what_was_asked_within_half_a_microsecond(cpus in 0.0f64..64.0, period_us in 1_000u64..=1_000_000) {
            let Quota::Micros(micros) = Quota::of(cpus, period_us) else { panic!() };
            let exact = cpus * period_us as f64;
            prop_assert!(micros >= QUOTA_MIN_US);
            prop_assert!((micros as f64 - exact).abs() <= 0.5 + 1e-6 || exact < QUOTA_MIN_US as f64);
        }

        #[test]
        fn no_text_makes_the_parsers_panic(one in "\\PC*", other in "\\PC*") {
            let _ = (Limit::parse_v2(&one), Limit::parse_v1(&one, &other), Throttling::parse(&one));
        }
    }
}

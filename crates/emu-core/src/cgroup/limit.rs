//! The limit on the CPU time of a cgroup: quota and period, as v1 and v2 write them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::folder::Folder;
use super::throttling::Throttling;
use crate::control_file;
use crate::error::Result;
use crate::host::Hierarchy;

pub(super) const V1_QUOTA: &str = "cpu.cfs_quota_us";
pub(super) const V1_PERIOD: &str = "cpu.cfs_period_us";
pub(super) const V2_MAX: &str = "cpu.max";

/// The kernel's shortest period and smallest quota (`min_cfs_quota_period`).
pub(crate) const PERIOD_MIN: Duration = Duration::from_millis(1);
/// The kernel's longest period (`max_cfs_quota_period`).
pub(crate) const PERIOD_MAX: Duration = Duration::from_secs(1);
pub(crate) const QUOTA_MIN_US: u64 = 1_000;

/// CPU time in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quota {
    Max,
    /// Microseconds, summed over all CPUs.
    Micros(u64),
}

impl Quota {
    /// `cpus` is a share of one CPU, or a sum of shares. Rounded to the kernel's unit of a microsecond, and never below its
    /// smallest quota.
    pub(crate) fn of(cpus: f64, period_us: u64) -> Self {
        Self::Micros(((cpus * period_us as f64).round() as u64).max(QUOTA_MIN_US))
    }

    /// The quota in CPUs; `None` for [`Max`](Self::Max).
    pub(crate) fn cpus(self, period_us: u64) -> Option<f64> {
        match self {
            Self::Max => None,
            Self::Micros(micros) => Some(micros as f64 / period_us.max(1) as f64),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) quota: Quota,
    pub(crate) period_us: u64,
}

impl Limit {
    pub(super) fn file(folder: &Folder) -> PathBuf {
        folder.path.join(if folder.version == 2 { V2_MAX } else { V1_QUOTA })
    }

    pub(crate) fn cpus(self) -> Option<f64> {
        self.quota.cpus(self.period_us)
    }

    /// Parses `cpu.max`: `max 100000` or `25000 100000`.
    pub(super) fn parse_v2(text: &str) -> Option<Self> {
        let (quota, period) = text.split_once(' ')?;
        let quota = if quota == "max" { Quota::Max } else { Quota::Micros(quota.parse().ok()?) };
        Some(Self { quota, period_us: period.trim().parse().ok()? })
    }

    /// A negative quota means none.
    pub(super) fn parse_v1(quota: &str, period: &str) -> Option<Self> {
        let quota = match quota.parse::<i64>().ok()? {
            micros if micros < 0 => Quota::Max,
            micros => Quota::Micros(micros as u64),
        };
        Some(Self { quota, period_us: period.parse().ok()? })
    }

    /// `None` where the files are missing, as in a v2 root group.
    pub(crate) fn read(folder: &Folder) -> Result<Option<Self>> {
        let read = |name| control_file::read_if_present(&folder.path.join(name));
        let (texts, parsed) = if folder.version == 2 {
            let Some(text) = read(V2_MAX)? else { return Ok(None) };
            (text.clone(), Self::parse_v2(&text))
        } else {
            let (Some(quota), Some(period)) = (read(V1_QUOTA)?, read(V1_PERIOD)?) else { return Ok(None) };
            (format!("{quota} {period}"), Self::parse_v1(&quota, &period))
        };
        parsed.map(Some).ok_or_else(|| control_file::unexpected(&texts, &folder.path))
    }
}

/// The tightest limit of a group and its ancestors up to `mount`, in CPUs, and the group that has it.
pub(crate) fn tightest_limit(folder: &Folder, mount: &Path) -> Option<(f64, PathBuf)> {
    tightest_of(folder, mount, |_| true)
}

/// As [`tightest_limit`], of those groups only that `counts`.
pub(crate) fn tightest_of(
    folder: &Folder,
    mount: &Path,
    counts: impl Fn(&Path) -> bool,
) -> Option<(f64, PathBuf)> {
    folder
        .path
        .ancestors()
        .take_while(|group| group.starts_with(mount))
        .filter(|group| counts(group))
        .filter_map(|group| {
            let group = Folder { version: folder.version, path: group.to_owned() };
            // Skipped where it cannot be read; the kernel still enforces its limit.
            Some((Limit::read(&group).ok()??.cpus()?, group.path))
        })
        .min_by(|(one, _), (other, _)| one.total_cmp(other))
}

/// The highest limit of a group below this one, in CPUs, and the group that has it. None has more than one above it.
pub(super) fn highest_below(folder: &Folder) -> Option<(f64, PathBuf)> {
    let (mut found, mut open) = (Vec::new(), vec![folder.path.clone()]);
    while let Some(group) = open.pop() {
        let entries = fs::read_dir(group).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let group = Folder { version: folder.version, path: entry.path() };
            match Limit::read(&group).ok().flatten().and_then(Limit::cpus) {
                Some(cpus) => found.push((cpus, group.path)),
                None => open.push(group.path),
            }
        }
    }
    found.into_iter().max_by(|(one, _), (other, _)| one.total_cmp(other))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing::tree;
    use proptest::prelude::*;

    fn folder(root: &tempfile::TempDir, version: u8, path: &str) -> Folder {
        Folder { version, path: root.path().join(path) }
    }

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
        let but_own = tightest_of(&folder(&root, 2, "fs/a/b/own"), &mount, |group| !group.ends_with("own"));
        assert_eq!(but_own, Some((0.5, root.path().join("fs/a"))));
        let highest = |path: &str| highest_below(&folder(&root, 2, path)).map(|(cpus, _)| cpus);
        assert_eq!([highest("fs"), highest("fs/a"), highest("fs/a/b/own")], [Some(0.5), Some(0.01), None]);
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
            let _ = (Limit::parse_v2(&one), Limit::parse_v1(&one, &other));
        }
    }
}

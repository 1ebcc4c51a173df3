//! How long a limit on the CPU time of our own cgroup, or of one above it, has kept its tasks waiting.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use emu_core::{Controller, Host, Roots, throttled_time};

/// The accounts of the groups that this process is in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Throttle {
    /// Innermost first.
    groups: Vec<PathBuf>,
}

impl Throttle {
    /// The groups of the hierarchy that has the `cpu` controller; none where nothing has it.
    pub fn of(host: &Host) -> Self {
        let of_hierarchy = |hierarchy: &emu_core::Hierarchy| Self {
            groups: hierarchy.lineage().map(Path::to_owned).collect(),
        };
        host.cgroups.with(Controller::Cpu).map(of_hierarchy).unwrap_or_default()
    }

    /// Those of this system, found once.
    pub fn ours() -> &'static Self {
        static OURS: OnceLock<Throttle> = OnceLock::new();
        OURS.get_or_init(|| Host::detect(&Roots::system()).map(|host| Self::of(&host)).unwrap_or_default())
    }

    /// For how long our own group has been throttled by its own limit so far, in nanoseconds, summed over its CPUs; `None`
    /// where it is not told, as for the root of version 2.
    pub fn own_ns(&self) -> Option<u64> {
        throttled_ns(self.groups.first()?)
    }

    /// The same for all groups above it together.
    pub fn outer_ns(&self) -> Option<u64> {
        self.groups.iter().skip(1).filter_map(|group| throttled_ns(group)).reduce(|a, b| a + b)
    }

    /// For how long any of these groups has been throttled so far, in nanoseconds, summed over their CPUs.
    pub fn all_ns(&self) -> u64 {
        self.own_ns().unwrap_or(0) + self.outer_ns().unwrap_or(0)
    }
}

fn throttled_ns(group: &Path) -> Option<u64> {
    throttled_time(group).map(|time| time.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn our_own_group_and_those_above_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let write = |group: &str, text: &str| {
            fs::create_dir_all(dir.path().join(group)).unwrap();
            fs::write(dir.path().join(group).join("cpu.stat"), text).unwrap();
        };
        write("", "nr_periods 0\nnr_throttled 0\nthrottled_time 1\n");
        write("a", "nr_periods 5\nnr_throttled 3\nthrottled_time 20\n");
        write("a/b", "nr_periods 5\nnr_throttled 3\nthrottled_time 300\n");
        let groups = ["a/b", "a", ""].map(|group| dir.path().join(group)).to_vec();
        let throttle = Throttle { groups };
        assert_eq!((throttle.own_ns(), throttle.outer_ns(), throttle.all_ns()), (Some(300), Some(21), 321));
        write("a/b", "usage_usec 7\nnr_periods 5\nnr_throttled 3\nthrottled_usec 4\n");
        let alone = Throttle { groups: vec![dir.path().join("a/b")] };
        assert_eq!((alone.own_ns(), alone.outer_ns(), alone.all_ns()), (Some(4000), None, 4000));
        write("a/b", "usage_usec 7\n");
        assert_eq!((alone.own_ns(), alone.all_ns()), (None, 0), "no limits in this group");
    }
}

//! Where the kernel's trees and our own state are found; tests point them at a folder of theirs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The places emu reads and writes. No other module names `/sys`, `/proc`, `/dev` or `/run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Roots {
    /// procfs, `/proc`.
    pub proc: PathBuf,
    /// sysfs, `/sys`.
    pub sys: PathBuf,
    /// Device files, `/dev`.
    #[serde(default = "dev")]
    pub dev: PathBuf,
    /// Our state: journals, locks and cached measurements. `/run/emu` for root, else `$XDG_RUNTIME_DIR/emu`.
    pub state: PathBuf,
}

impl Roots {
    /// The roots of the running system. Without root and without `XDG_RUNTIME_DIR` the state goes to `/tmp/emu-<uid>`, which is
    /// checked to be ours and closed to others when it is first used.
    pub fn system() -> Self {
        let uid = nix::unistd::geteuid();
        // In a user namespace without mounts of its own, root is an ordinary user, and `/run` is nobody's.
        let is_anothers = fs::metadata("/run").is_ok_and(|run| run.uid() != 0);
        let state = if uid.is_root() && !is_anothers {
            PathBuf::from("/run/emu")
        } else {
            match std::env::var_os("XDG_RUNTIME_DIR") {
                Some(dir) if Path::new(&dir).is_absolute() => Path::new(&dir).join("emu"),
                _ => {
                    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
                    let uid = outer_user(&map, uid.as_raw()).unwrap_or(uid.as_raw());
                    PathBuf::from(format!("/tmp/emu-{uid}"))
                }
            }
        };
        Self { proc: "/proc".into(), sys: "/sys".into(), dev: dev(), state }
    }

    /// A tree below one folder (`proc`, `sys`, `dev`, `run/emu`), for tests on recorded trees.
    pub fn below(root: &Path) -> Self {
        let [proc, sys, dev, state] = ["proc", "sys", "dev", "run/emu"].map(|name| root.join(name));
        Self { proc, sys, dev, state }
    }

    /// `/sys/devices/system/cpu`.
    pub fn cpus(&self) -> PathBuf {
        self.sys.join("devices/system/cpu")
    }
}

/// The user that `user` is outside of its user namespace, by the map there (`user_namespaces(7)`): `/tmp` may be shared.
fn outer_user(map: &str, user: u32) -> Option<u32> {
    map.lines().find_map(|line| {
        let [inside, outside, length] = line.split_ascii_whitespace().collect::<Vec<_>>().try_into().ok()?;
        let offset = user.checked_sub(inside.parse().ok()?)?;
        (offset < length.parse().ok()?).then_some(outside.parse::<u32>().ok()?.checked_add(offset)?)
    })
}

/// Of hosts that were saved without it.
fn dev() -> PathBuf {
    "/dev".into()
}

#[cfg(test)]
mod tests {
    use super::outer_user;

    #[test]
    fn a_user_of_a_namespace_is_known_by_the_map() {
        let map = "         0       1000          1\n         1     100000      65536\n";
        assert_eq!([0, 1, 70_000].map(|user| outer_user(map, user)), [Some(1000), Some(100_000), None]);
        assert_eq!(outer_user("0 0 4294967295\n", 1000), Some(1000));
        assert_eq!(outer_user("junk\n0 4294967295 9\n", 5), None);
    }
}

//! Where the kernel's trees and our own state are found; tests point them at a folder of theirs.

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
        let state = if uid.is_root() {
            PathBuf::from("/run/emu")
        } else {
            match std::env::var_os("XDG_RUNTIME_DIR") {
                Some(dir) if Path::new(&dir).is_absolute() => Path::new(&dir).join("emu"),
                _ => PathBuf::from(format!("/tmp/emu-{uid}")),
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

/// Of hosts that were saved without it.
fn dev() -> PathBuf {
    "/dev".into()
}

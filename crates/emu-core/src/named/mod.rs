//! What runs already, by name: units of systemd, containers, processes. Nothing is asked of a daemon where the files tell.
//!
//! ```no_run
//! use emu_core::{Demand, Host, Roots, Session, Tasks, choose, named};
//!
//! # fn main() -> emu_core::Result<()> {
//! let host = Host::detect(&Roots::system())?;
//! let web = Tasks::Cgroup(named::container(&host, "web")?);
//! let demand = Demand::measured(&host, &"25%".parse()?, None)?;
//! let session = Session::engage(&choose(&host, &demand)?, "web", web)?;
//! # session.release().1
//! # }
//! ```

mod container;
mod process;
mod unit;

pub use container::{container, running_containers};
pub use process::{own_processes, processes};
pub use unit::{running_units, unit};

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::Host;

/// Groups that are looked at in each hierarchy: more are a host that is no longer searched in a moment.
const GROUPS_MAX: usize = 20_000;

/// All cgroups, as paths below their hierarchies, each once.
fn groups(host: &Host) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for hierarchy in &host.cgroups.hierarchies {
        let mut folders = vec![hierarchy.mount.clone()];
        let mut looked = 0;
        while let Some(folder) = folders.pop().filter(|_| looked < GROUPS_MAX) {
            looked += 1;
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            folders.extend(inner.map(|entry| entry.path()));
            all.extend(folder.strip_prefix(&hierarchy.mount).map(|below| Path::new("/").join(below)));
        }
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn name_of(group: &Path) -> String {
    group.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn listed(paths: &[&PathBuf]) -> String {
    const MOST: usize = 4;
    let mut words: Vec<_> = paths.iter().take(MOST).map(|path| path.display().to_string()).collect();
    if paths.len() > MOST {
        words.push(format!("{} others", paths.len() - MOST));
    }
    words.join(", ")
}

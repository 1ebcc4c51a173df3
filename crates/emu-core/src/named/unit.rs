//! A unit of systemd by its cgroup, which has the unit's name (systemd.unit(5), systemd.slice(5)).

use std::path::PathBuf;

use super::{groups, listed, name_of};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::nearest::nearest_hint;

/// Kinds of units that have processes.
const KINDS: [&str; 3] = [".service", ".scope", ".slice"];

/// The cgroup of a unit that runs; a name without a kind is that of a service. Of a unit of the system and one of a user it is
/// the system's for root, and the caller's own else.
///
/// # Errors
/// Usage: none runs here, or several are meant.
pub fn unit(host: &Host, name: &str) -> Result<PathBuf> {
    if name.is_empty() || name.contains('/') {
        return Err(
            Error::usage(format!("bad unit `{name}`")).hint("name it as systemctl does: redis.service")
        );
    }
    let is_whole = KINDS.iter().any(|kind| name.ends_with(kind));
    let wanted = if is_whole { name.to_owned() } else { format!("{name}{}", KINDS[0]) };
    // What would be a file of the kernel's is escaped (`cg_escape` of systemd).
    let escaped = format!("_{wanted}");
    let all = groups(host);
    let found: Vec<_> = all.iter().filter(|group| [&wanted, &escaped].contains(&&name_of(group))).collect();
    let user = nix::unistd::geteuid();
    let own = format!("user@{user}.service");
    let is_users = |group: &PathBuf| group.iter().any(|part| part.to_string_lossy().starts_with("user@"));
    let is_own = |group: &PathBuf| group.iter().any(|part| *part == *own);
    let preferred: Vec<_> = found
        .iter()
        .copied()
        .filter(|group| if user.is_root() { !is_users(group) } else { is_own(group) })
        .collect();
    match (preferred.as_slice(), found.as_slice()) {
        ([one], _) | ([], [one]) => Ok((*one).clone()),
        ([], []) => {
            let error = Error::usage(format!("no unit `{wanted}` runs here"));
            let units = units(&all);
            let units = units.iter().map(String::as_str);
            Err(error.hint(nearest_hint(&wanted, units, "`systemctl status` names those that do")))
        }
        ([], several) | (several, _) => {
            Err(Error::usage(format!("several units are called `{wanted}`: {}", listed(several)))
                .hint("name the cgroup that is meant"))
        }
    }
}

/// The units that run here.
pub fn running_units(host: &Host) -> Vec<String> {
    units(&groups(host))
}

fn units(groups: &[PathBuf]) -> Vec<String> {
    let names = groups.iter().map(|group| name_of(group));
    names.filter(|name| KINDS.iter().any(|kind| name.ends_with(kind))).collect()
}

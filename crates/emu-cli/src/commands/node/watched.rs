//! Units, containers and cgroups whose processes join a node whenever they come: after a restart, or by `podman exec`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use emu_core::{Error, Host, Pid, Result};

use super::members::group_of;
use crate::commands::attach::Target;
use crate::control::Member;

/// How often their cgroups are looked at: what has come runs at full speed until then.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// How often one whose cgroup has gone is looked for by its name: all cgroups are gone through for that. Where it comes again
/// at the same place, it is seen at the next look.
const FIND: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Watched {
    pub(super) member: Member,
    /// Its cgroup when it was last there.
    group: Option<(PathBuf, Target)>,
    found: Instant,
    /// The processes in it that have joined: with cgroup v1 they stay in the groups of other controllers.
    known: BTreeSet<Pid>,
    /// Those that could not join: when that was tried, and why.
    refused: BTreeMap<Pid, (Instant, String)>,
}

impl Watched {
    /// Fails where the emu that keeps the node is in it, and with it its guardian: they are not to be slowed.
    pub(super) fn new(host: &Host, member: &Member) -> Result<Self> {
        let group = group_of(host, member).ok();
        group.iter().try_for_each(|(path, target)| target.check_outside(path))?;
        let (known, refused) = (BTreeSet::new(), BTreeMap::new());
        Ok(Self { member: member.clone(), group, found: Instant::now(), known, refused })
    }

    /// The processes in its cgroup that are not known to have joined, nor to have been refused just now.
    pub(super) fn new_ones(&mut self, host: &Host) -> Vec<Pid> {
        let pids = self.pids(host);
        // A number may be given out again.
        self.known.retain(|pid| pids.contains(pid));
        self.refused.retain(|pid, _| pids.contains(pid));
        let is_due = |pid: &Pid| self.refused.get(pid).is_none_or(|(tried, _)| tried.elapsed() >= FIND);
        pids.into_iter().filter(|pid| !self.known.contains(pid) && is_due(pid)).collect()
    }

    pub(super) fn has_joined(&mut self, pid: Pid) {
        self.refused.remove(&pid);
        self.known.insert(pid);
    }

    /// It is tried again later: each try is a record in the journal.
    pub(super) fn was_refused(&mut self, pid: Pid, why: &Error) {
        let why = format!("{} runs at full speed: {}", self.member, why.in_words());
        self.refused.insert(pid, (Instant::now(), why));
    }

    /// Why something of it could not join.
    pub(super) fn problem(&self) -> Option<&str> {
        self.refused.values().next().map(|(_, why)| why.as_str())
    }

    fn pids(&mut self, host: &Host) -> Vec<Pid> {
        if let Some((path, target)) = &mut self.group {
            if target.is_there() {
                return target.pids();
            }
            if let Ok(again) = Target::group(host, path, None) {
                *target = again;
                return target.pids();
            }
        }
        if self.found.elapsed() < FIND {
            return Vec::new();
        }
        self.found = Instant::now();
        self.group = group_of(host, &self.member).ok().or(self.group.take());
        self.group.iter().flat_map(|(_, target)| target.pids()).collect()
    }
}

#[cfg(test)]
mod tests {
    use emu_core::Roots;

    use super::super::testing::{write, write_host};
    use super::*;

    const MEMBERS: &str = "sys/fs/cgroup/x/cgroup.procs";

    #[test]
    fn what_is_refused_is_told_and_not_tried_again_at_once() {
        let dir = tempfile::tempdir().unwrap();
        write_host(dir.path(), "0");
        write(dir.path(), MEMBERS, "7\n8\n");
        let host = Host::detect(&Roots::below(dir.path())).unwrap();
        let mut watched = Watched::new(&host, &Member::Cgroup("/x".into())).unwrap();
        assert_eq!(watched.new_ones(&host), [7, 8]);
        watched.has_joined(7);
        watched.was_refused(8, &Error::unavailable("it cannot"));
        assert!(watched.new_ones(&host).is_empty());
        assert!(watched.problem().is_some_and(|why| why.ends_with("it cannot")));
        // Its number is another one's.
        write(dir.path(), MEMBERS, "7\n");
        assert!(watched.new_ones(&host).is_empty() && watched.problem().is_none());
    }
}

//! Units, containers and cgroups whose processes join a node whenever they come: after a restart, or by `podman exec`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use emu_core::{Host, Pid, Result};

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
}

impl Watched {
    /// Fails where the emu that keeps the node is in it, and with it its guardian: they are not to be slowed.
    pub(super) fn new(host: &Host, member: &Member) -> Result<Self> {
        let group = group_of(host, member).ok();
        group.iter().try_for_each(|(path, target)| target.check_outside(path))?;
        Ok(Self { member: member.clone(), group, found: Instant::now(), known: BTreeSet::new() })
    }

    /// The processes in its cgroup that are not known to have joined.
    pub(super) fn new_ones(&mut self, host: &Host) -> Vec<Pid> {
        let pids = self.pids(host);
        // A number may be given out again.
        self.known.retain(|pid| pids.contains(pid));
        pids.into_iter().filter(|pid| !self.known.contains(pid)).collect()
    }

    pub(super) fn has_joined(&mut self, pid: Pid) {
        self.known.insert(pid);
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

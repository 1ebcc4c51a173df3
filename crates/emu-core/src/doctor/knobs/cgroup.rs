//! What the cgroups that this process is in may use.

use super::super::{About, Finding, Knob, Machine, Takes};
use crate::group::{Folder, Throttling, tightest_above};
use crate::{Controller, Host};

/// Limits of our own cgroups.
pub(in crate::doctor) struct Cgroup;

impl Knob for Cgroup {
    fn about(&self) -> &'static About {
        &About {
            name: "cgroup",
            better: "no quota on the CPU time of the group that runs are in, nor above it",
            why: "a quota stops all tasks of the group for the rest of each period (100 ms by default) once it is used \
                  up: the same work takes longer when it happens to be spread over more threads",
            source: "Linux Documentation/scheduler/sched-bwc.rst, admin-guide/cgroup-v2.rst (cpu.max)",
            takes: Takes::Hand,
        }
    }

    fn look(&self, machine: &Machine) -> Finding {
        let host = &machine.host;
        let Some(hierarchy) = host.cgroups.with(Controller::Cpu) else {
            return Finding::unseen("no cgroup with CPU control can be seen; an outer one may hold a limit");
        };
        let own = Folder { version: hierarchy.version, path: hierarchy.own.clone() };
        // A group that is not there below our own: ours is the first above it.
        let inside = Folder { path: own.path.join("emu"), ..own.clone() };
        let confined = cpuset(host);
        match tightest_above(&inside, &hierarchy.mount) {
            None => Finding::ready(format!("no quota{confined}")),
            Some((cpus, group)) => {
                let throttled = Throttling::of(&group)
                    .map_or(String::new(), |stat| format!(", used up {} times", stat.throttled));
                let hint = format!("{} holds it: raise it there, or start runs elsewhere", group.display());
                Finding::hand(format!("{cpus} CPUs{throttled}{confined}"), hint)
            }
        }
    }
}

/// The CPUs that may be used, where these are not all.
fn cpuset(host: &Host) -> String {
    let online = host.online();
    if host.allowed == online { String::new() } else { format!("; CPUs {} of {online}", host.allowed) }
}

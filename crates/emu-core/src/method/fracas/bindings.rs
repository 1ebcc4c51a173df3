//! Which threads the program has bound to CPUs, and which want to run.

use std::collections::{BTreeMap, BTreeSet};

use super::balance::Runnable;
use super::per_cpu_groups::CpuGroups;
use crate::cpu_list::CpuList;
use crate::sys::Pid;
use crate::sys::time::Nanos;

#[derive(Debug)]
struct Binding {
    cpus: CpuList,
    since: Nanos,
}

#[derive(Debug, Default)]
pub(crate) struct Bindings(BTreeMap<Pid, Binding>);

impl Bindings {
    /// Looks at the threads in `lists`, those that sleep as well: once groups are bound it can no longer be seen.
    /// While a CPU of the zone is offline, every thread looks as if it were bound to the others.
    pub(crate) fn learn(&mut self, groups: &CpuGroups, lists: &[Vec<Pid>], now: Nanos) {
        if !groups.shows_bindings() {
            return;
        }
        let seen: Vec<_> = lists.iter().flatten().map(|&tid| (tid, groups.binding(tid))).collect();
        if !groups.shows_bindings() {
            // Not throughout.
            return;
        }
        for (tid, cpus) in seen {
            self.note(tid, cpus, now);
        }
    }

    /// Looks at a thread that is to be moved while groups are bound: it may have been born with a binding, or have chosen one. It
    /// is to be moved after that, if only to where it was.
    pub(crate) fn ask(
        &mut self,
        groups: &CpuGroups,
        tid: Pid,
        usable: &CpuList,
        now: Nanos,
    ) -> Option<CpuList> {
        if let Ok(cpus) = groups.reveal(tid) {
            self.note(tid, cpus, now);
        }
        self.of(tid, usable)
    }

    fn note(&mut self, tid: Pid, cpus: Option<CpuList>, now: Nanos) {
        let Some(cpus) = cpus else {
            self.0.remove(&tid);
            return;
        };
        let known = self.0.get(&tid).filter(|known| known.cpus == cpus);
        let since = known.map_or(now, |known| known.since);
        self.0.insert(tid, Binding { cpus, since });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn forget_since(&mut self, moment: Nanos) {
        self.0.retain(|_, binding| binding.since < moment);
    }

    /// Where a thread may run among CPUs that are `usable`; `None` where it is not bound to any of them.
    fn of(&self, tid: Pid, usable: &CpuList) -> Option<CpuList> {
        let cpus = self.0.get(&tid)?.cpus.intersection(usable);
        (!cpus.is_empty()).then_some(cpus)
    }

    /// The runnable threads among `lists`, and those that are in the group of a CPU that they may not use. Of a place that is `closed`, all threads count as runnable, as all have to leave.
    pub(crate) fn census(
        &mut self,
        groups: &CpuGroups,
        lists: &[Vec<Pid>],
        usable: &CpuList,
        closed: impl Fn(usize) -> bool,
    ) -> Vec<Runnable> {
        let mut runnable = Vec::new();
        for ((place, tids), group) in lists.iter().enumerate().zip(groups.groups()) {
            for &tid in tids {
                let Some(stat) = groups.stat(tid) else { continue };
                let bound = self.of(tid, usable);
                // It has to leave before its group is bound to a CPU that it may not use.
                let is_astray = bound.as_ref().is_some_and(|cpus| !cpus.contains(group.cpu));
                // A thread whose group is throttled is still `R`.
                if stat.state != b'R' && !closed(place) && !is_astray {
                    continue;
                }
                runnable.push(Runnable { tid, place, bound });
            }
        }
        let alive: BTreeSet<_> = lists.iter().flatten().collect();
        self.0.retain(|tid, _| alive.contains(tid));
        runnable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    fn bindings(known: &[(Pid, &str, Nanos)]) -> Bindings {
        Bindings(known.iter().map(|&(tid, list, since)| (tid, Binding { cpus: cpus(list), since })).collect())
    }

    #[test]
    fn what_was_first_seen_lately_is_forgotten() {
        let mut bindings = bindings(&[(1, "0", 10), (2, "0", 20), (3, "0", 30)]);
        bindings.forget_since(20);
        assert_eq!([1, 2, 3].map(|tid| bindings.of(tid, &cpus("0-3")).is_some()), [true, false, false]);
    }

    #[test]
    fn a_binding_to_offline_cpus_holds_again_when_one_is_back() {
        let bindings = bindings(&[(1, "2-3", 0)]);
        for (usable, bound) in [("0-3", Some("2-3")), ("0-2", Some("2")), ("0-1", None)] {
            assert_eq!(bindings.of(1, &cpus(usable)), bound.map(cpus), "{usable}");
        }
        assert_eq!(bindings.of(2, &cpus("0-3")), None);
    }
}

//! Who of many processes is at work, in which order they are continued, and when the CPUs were at work.

use std::collections::HashSet;

use super::members::Member;
use crate::sys::Pid;
use crate::sys::time::Nanos;

/// A process that used so much CPU time from one look to the next is at work.
const WORK: Nanos = 1_000_000;

/// So is one that waited for a CPU for more than this part of the time that tasks ran for: it has not had its turn.
const WAITING_PART: f64 = 0.5;

/// A process of which nothing is known counts as at work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process {
    pid: Pid,
    parent: Pid,
    is_at_work: bool,
}

impl Process {
    pub(super) fn of(member: &Member) -> Self {
        let is_at_work = is_at_work(member.lately, member.waited_part);
        Self { pid: member.pid, parent: member.parent, is_at_work }
    }
}

fn is_at_work(lately: Option<Nanos>, waited_part: f64) -> bool {
    waited_part > WAITING_PART || lately.is_none_or(|lately| lately > WORK)
}

/// The processes without children here, as four sets to be continued in this order: busy ones in two parts, then idle ones
/// in two parts, cut at a point that changes with each stop. Within a set the caller continues the last one first.
pub(super) fn one_after_another(members: &[Process], stop: u64) -> [HashSet<Pid>; 4] {
    let parents: HashSet<_> = members.iter().map(|one| one.parent).collect();
    let childless = members.iter().filter(|one| !parents.contains(&one.pid));
    let (at_work, others): (Vec<_>, Vec<_>) = childless.partition(|one| one.is_at_work);
    let set = |some: &[&Process]| some.iter().map(|one| one.pid).collect();
    let in_turn = |all: &[&Process]| {
        let (begin, end) = all.split_at(first_in_turn(stop, all.len()));
        [set(begin), set(end)]
    };
    let ([first, second], [third, fourth]) = (in_turn(&at_work), in_turn(&others));
    [first, second, third, fourth]
}

/// Those that are not at work, nor are any of their descendants here. Parents come before their children.
pub(super) fn asleep(members: impl DoubleEndedIterator<Item = Process>) -> HashSet<Pid> {
    let (mut asleep, mut waiting) = (HashSet::new(), HashSet::new());
    for one in members.rev() {
        if one.is_at_work || waiting.contains(&one.pid) {
            waiting.insert(one.parent);
        } else {
            asleep.insert(one.pid);
        }
    }
    asleep
}

/// Which of `count` comes first in a stop. The golden ratio spreads them evenly, however many stops there have been
/// (Knuth, The Art of Computer Programming, volume 3, section 6.4, theorem S).
fn first_in_turn(stop: u64, count: usize) -> usize {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let turn = (stop as f64 * GOLDEN).fract();
    ((turn * count as f64) as usize).min(count)
}

/// The moment until which tasks had the CPUs, of those that were stopped, the last one first; or from which on, of
/// those that were continued, the first one first. Each comes with its moment and the CPU time that it used lately.
///
/// Signalling many takes so long that it matters when those that work are reached: CPUs are kept busy until the last
/// of them are stopped, and from when the first are continued on. So it is the mean over as many of these as occupy
/// all CPUs, where one occupies as much of a CPU as it has used beside the busiest.
pub(super) fn moment_of_work(
    signalled: impl Iterator<Item = (Nanos, f64)> + Clone,
    cpus: usize,
) -> Option<Nanos> {
    let most = signalled.clone().map(|(_, used)| used).fold(0.0, f64::max);
    let (begin, _) = signalled.clone().next()?;
    let (mut sum, mut occupied) = (0.0, 0.0);
    for (moment, used) in signalled {
        let part = (used / most).min(cpus as f64 - occupied);
        sum += part * (moment - begin) as f64;
        occupied += part;
    }
    (occupied > 0.0).then(|| begin + (sum / occupied) as Nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes with their parents, and whether they are at work.
    fn descendants<const N: usize>(all: [(Pid, Pid, bool); N]) -> impl DoubleEndedIterator<Item = Process> {
        all.into_iter().map(|(pid, parent, is_at_work)| Process { pid, parent, is_at_work })
    }

    #[test]
    fn those_without_children_are_continued_first_that_work() {
        let members = [(10, 1, true), (11, 10, true), (12, 10, false), (13, 12, true), (14, 12, false)];
        let members: Vec<_> = descendants(members).collect();
        assert_eq!(one_after_another(&members, 0), [[].into(), [11, 13].into(), [].into(), [14].into()]);
        assert!(one_after_another(&[], 1).iter().all(HashSet::is_empty));
    }

    #[test]
    fn each_is_continued_first_in_turn_and_the_others_after_it() {
        for count in [1, 2, 3, 16, 500] {
            let members: Vec<_> =
                (0..count).map(|pid| Process { pid, parent: -1, is_at_work: true }).collect();
            let mut firsts = vec![0; count as usize];
            for stop in 0..20 * count as u64 {
                let sets = one_after_another(&members, stop);
                let from_its_end = |some: &HashSet<Pid>| {
                    members.iter().rev().map(|one| one.pid).filter(|pid| some.contains(pid)).collect()
                };
                let order: Vec<_> = sets.iter().flat_map::<Vec<Pid>, _>(from_its_end).collect();
                assert_eq!(order.len(), members.len());
                assert!(
                    order.iter().zip(order.iter().skip(1)).all(|(a, b)| (b + 1) % count == *a),
                    "{order:?}"
                );
                firsts[order[0] as usize] += 1;
            }
            assert!(firsts.iter().all(|first| (17..=23).contains(first)), "{firsts:?}");
        }
    }

    #[test]
    fn who_waits_for_a_turn_is_at_work() {
        assert!(is_at_work(None, 0.0) && is_at_work(Some(2 * WORK), 0.0) && is_at_work(Some(0), 0.9));
        assert!(!is_at_work(Some(WORK / 2), 0.1));
    }

    #[test]
    fn cpus_are_at_work_until_all_their_occupants_are_stopped() {
        let stopped = |all: &[(Nanos, f64)], cpus| moment_of_work(all.iter().copied().rev(), cpus);
        let continued = |all: &[(Nanos, f64)], cpus| moment_of_work(all.iter().copied(), cpus);
        let busy: Vec<_> = (0..=100).map(|moment| (moment, 5.0)).collect();
        assert_eq!((stopped(&busy, 1), continued(&busy, 1)), (Some(100), Some(0)));
        assert_eq!((stopped(&busy, 5), continued(&busy, 5)), (Some(98), Some(2)));
        // Those that sleep do not matter, wherever they are, and no more CPUs are occupied than there are workers.
        let few = [(0, 0.0), (10, 4.0), (30, 4.0), (100, 0.0)];
        assert_eq!((stopped(&few, 2), continued(&few, 2)), (Some(20), Some(20)));
        assert_eq!((stopped(&few, 9), continued(&few, 9)), (Some(20), Some(20)));
        // Half of the second CPU.
        assert_eq!(stopped(&[(0, 2.0), (30, 4.0), (60, 2.0)], 2), Some(30));
        assert_eq!(stopped(&[(0, 4.0), (30, 2.0)], 1), Some(15));
        assert_eq!(stopped(&[], 2), None);
    }

    #[test]
    fn sleepers_are_continued_early_unless_a_descendant_works() {
        let members = [(10, 1, false), (11, 10, false), (12, 10, false), (13, 12, true), (14, 12, false)];
        assert_eq!(asleep(descendants(members)), [11, 14].into());
        assert_eq!(asleep(descendants([(10, 1, false), (11, 10, false)])), [10, 11].into());
        assert!(asleep(descendants([])).is_empty());
    }
}

//! Which thread belongs in which CPU's group: the part of the balancer that only computes.

use crate::cpu_list::{CpuId, CpuList};
use crate::sys::Pid;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place {
    pub(crate) cpu: CpuId,
    /// The share of that CPU which it may use; 0 for a CPU that is offline, which every thread has to leave.
    pub(crate) share: f64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Runnable {
    pub(crate) tid: Pid,
    /// The index of the group it is in or, as far as it is planned, belongs in.
    pub(crate) place: usize,
    /// The CPUs that the program has bound it to, where it has.
    pub(crate) bound: Option<CpuList>,
}

impl Runnable {
    pub(super) fn may_be_on(&self, cpu: CpuId) -> bool {
        self.bound.as_ref().is_none_or(|cpus| cpus.contains(cpu))
    }
}

/// What a thread must gain at least to be worth a move.
const GAIN: f64 = 1.05;

pub(crate) fn counts(places: &[Place], threads: &[Runnable]) -> Vec<usize> {
    let mut counts = vec![0; places.len()];
    for thread in threads {
        if let Some(count) = counts.get_mut(thread.place) {
            *count += 1;
        }
    }
    counts
}

/// Moves threads until none would be faster elsewhere.
///
/// A thread's rate is its group's share divided by the number of runnable threads there. As with the kernel's own
/// balancer, no CPU idles beside one that has two threads to run, however slow it is, and a thread that has a CPU to
/// itself does not join another one. Each step moves the thread that gains most to where it gains it.
pub(crate) fn plan(places: &[Place], threads: &mut [Runnable]) {
    let mut counts = counts(places, threads);
    // Far more moves than any plan needs; a bound all the same, because the thread that plans must not hang.
    for _ in 0..threads.len().saturating_mul(2) {
        let Some((index, to)) = best_move(places, &counts, threads) else { break };
        let Some(thread) = threads.get_mut(index) else { break };
        if let Some(count) = counts.get_mut(thread.place) {
            *count -= 1;
        }
        if let Some(count) = counts.get_mut(to) {
            *count += 1;
        }
        thread.place = to;
    }
}

fn best_move(places: &[Place], counts: &[usize], threads: &[Runnable]) -> Option<(usize, usize)> {
    let count = |place: usize| counts.get(place).copied().unwrap_or(0);
    // Threads of one group without a binding are all alike: one of each group is enough to look at.
    let mut seen = vec![false; places.len()];
    let mut best: Option<(f64, usize, usize)> = None;
    for (index, thread) in threads.iter().enumerate() {
        if thread.bound.is_none() && std::mem::replace(seen.get_mut(thread.place)?, true) {
            continue;
        }
        let here = places.get(thread.place).filter(|place| thread.may_be_on(place.cpu));
        let now = here.map_or(0.0, |place| place.share / count(thread.place).max(1) as f64);
        for (to, place) in places.iter().enumerate() {
            if to == thread.place || !thread.may_be_on(place.cpu) {
                continue;
            }
            let gain = place.share / (count(to) + 1) as f64 / now;
            let fills_idle = count(to) == 0 && count(thread.place) > 1 && place.share > 0.0;
            let leaves_idle = count(to) > 0 && count(thread.place) == 1 && now > 0.0;
            // From a rate of zero any rate is an infinite gain; zero to zero is no number, and no gain.
            let is_worth = fills_idle || gain > GAIN && !leaves_idle;
            if is_worth && best.is_none_or(|(most, ..)| gain > most) {
                best = Some((gain, index, to));
            }
        }
    }
    best.map(|(_, index, to)| (index, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places(shares: &[f64]) -> Vec<Place> {
        shares.iter().enumerate().map(|(cpu, &share)| Place { cpu, share }).collect()
    }

    fn threads(at: &[usize]) -> Vec<Runnable> {
        at.iter().zip(1..).map(|(&place, tid)| Runnable { tid, place, bound: None }).collect()
    }

    fn planned(shares: &[f64], at: &[usize]) -> Vec<usize> {
        let (places, mut threads) = (places(shares), threads(at));
        plan(&places, &mut threads);
        counts(&places, &threads)
    }

    #[test]
    fn a_crowd_is_spread_over_the_empty_groups() {
        assert_eq!(planned(&[0.4, 0.4], &[0, 0, 0, 0]), [2, 2]);
        assert_eq!(planned(&[0.4, 0.4, 0.4, 0.4], &[2, 2]).iter().max(), Some(&1));
        assert_eq!(planned(&[0.4, 0.4], &[1, 1, 1]).iter().max(), Some(&2));
    }

    #[test]
    fn nothing_moves_where_nothing_would_be_gained() {
        for at in [&[][..], &[0], &[1], &[0, 1], &[0, 0, 1], &[1, 0, 1, 0]] {
            let mut planned = threads(at);
            plan(&places(&[0.4, 0.4]), &mut planned);
            assert_eq!(planned, threads(at));
        }
    }

    #[test]
    fn a_lone_thread_takes_the_fastest_cpu() {
        assert_eq!(planned(&[0.4, 0.8], &[0]), [0, 1]);
        assert_eq!(planned(&[0.4, 0.8], &[1, 1]).iter().sum::<usize>(), 2);
        assert_eq!(planned(&[0.4, 0.8], &[0, 0, 0]), [1, 2]);
    }

    #[test]
    fn a_slow_cpu_does_not_idle_beside_a_crowded_fast_one() {
        for slow in [0.05, 0.4] {
            assert_eq!(planned(&[slow, 0.8], &[1, 1]), [1, 1]);
            assert_eq!(planned(&[slow, 0.8], &[0, 1]), [1, 1], "and nobody leaves it to crowd the fast one");
        }
    }

    #[test]
    fn every_thread_leaves_a_cpu_that_went_offline() {
        assert_eq!(planned(&[0.0, 0.4], &[0, 0, 1]), [0, 3]);
        assert_eq!(planned(&[0.0, 0.0], &[0, 1]), [1, 1], "nowhere to go");
    }

    #[test]
    fn threads_stay_on_the_cpus_that_the_program_bound_them_to() {
        let mut bound = threads(&[0, 0]);
        for thread in &mut bound {
            thread.bound = Some("0".parse().unwrap());
        }
        for place in [0, 1] {
            bound[0].place = place;
            plan(&places(&[0.4, 0.4]), &mut bound);
            assert_eq!([bound[0].place, bound[1].place], [0, 0]);
        }
    }

    proptest! {
        #[test]
        fn no_group_is_empty_beside_a_crowded_one_and_bindings_hold(
            shares in proptest::collection::vec(0.01f64..1.0, 1..9),
            at in proptest::collection::vec((0usize..64, proptest::option::of(0usize..8)), 0..60),
        ) {
            let places = places(&shares);
            let mut threads: Vec<_> = at.iter().zip(1..).map(|(&(place, cpu), tid)| Runnable {
                tid,
                place: place % shares.len(),
                bound: cpu.map(|cpu| [cpu % shares.len()].into_iter().collect()),
            }).collect();
            plan(&places, &mut threads);
            let counts = counts(&places, &threads);
            for thread in &threads {
                prop_assert!(thread.may_be_on(places[thread.place].cpu));
                if thread.bound.is_some() { continue; }
                for (to, place) in places.iter().enumerate().filter(|(to, _)| *to != thread.place) {
                    let (here, there) = (counts[thread.place], counts[to]);
                    prop_assert!(here < 2 || there > 0, "an idle group beside a crowded one");
                    let now = shares[thread.place] / here as f64;
                    let then = place.share / (there + 1) as f64;
                    prop_assert!(then <= now * GAIN + 1e-12 || here == 1 && there > 0);
                }
            }
        }
    }
}

//! What a group is owed because its tasks could not use it, while there was work for every CPU.
//!
//! A thread is born into the group of its parent and shares its quota until it is moved. A parent whose group is throttled
//! starts no new thread, however idle the other groups are. Both leave a quota unused that a slower CPU would have used. So
//! what each group did not use of its quota is booked, where looks at the threads before and after find work for every CPU,
//! and the next periods get it on top.

use super::mark::Mark;
use crate::ablation::{Correction, is_off};
use crate::sys::time::Nanos;

/// The most that is owed: the quota of this time.
const MOST: Nanos = 200_000_000;

#[derive(Debug, Default)]
pub(super) struct Arrears {
    /// At the begin of a period, as the group does not use its quota evenly within one.
    mark: Option<Mark>,
    /// CPU time left unused between two looks at the threads, and what of it there was work for.
    unused: Nanos,
    owed: Nanos,
    /// What the period under way has on top.
    paid: Nanos,
}

impl Arrears {
    /// To be called when a period has begun, of a group that is to have so many CPUs.
    pub(super) fn settle(&mut self, now: &Mark, cpus: f64, is_resting: bool) {
        let Some(before) = self.mark.replace(*now) else { return };
        let used = now.usage.zip(before.usage).map_or(0, |(now, before)| now - before);
        // The lower quota of a group at rest takes back what it was ahead.
        if !is_resting {
            self.unused += (cpus * (now.at - before.at) as f64) as Nanos + self.paid - used;
        }
    }

    /// Takes up what was left unused since the last look, where there `was_work` for every CPU.
    pub(super) fn book(&mut self, was_work: bool, cpus: f64, period: Nanos) {
        let unused = std::mem::take(&mut self.unused);
        if was_work && !is_off(Correction::Arrears) {
            let quota_of = |time: Nanos| (cpus * time as f64) as Nanos;
            self.owed = (self.owed + unused).clamp(-quota_of(period), quota_of(MOST));
        }
    }

    /// How much longer than its quota the group may run in the period that begins, `most` at the most. Writing another quota
    /// and the old one again forgives it so much that it is charged with.
    pub(super) fn pay(&mut self, most: Nanos, forgiven: Nanos) -> Nanos {
        self.paid = if self.owed > forgiven { self.owed.min(most) } else { 0 };
        self.owed -= self.paid;
        (self.paid - forgiven).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Throttling;

    const MS: Nanos = 1_000_000;
    const PERIOD: Nanos = 20 * MS;

    /// A group with half a CPU.
    fn settle(arrears: &mut Arrears, at: Nanos, usage: Nanos) {
        let mark = Mark { at: at * MS, usage: Some(usage * MS), throttling: Throttling::default() };
        arrears.settle(&mark, 0.5, false);
    }

    #[test]
    fn what_was_left_unused_is_paid_while_there_was_work() {
        let mut arrears = Arrears::default();
        settle(&mut arrears, 0, 0);
        settle(&mut arrears, 20, 4);
        arrears.book(false, 0.5, PERIOD);
        assert_eq!(arrears.pay(10 * MS, MS), 0, "nothing else wanted to run");
        settle(&mut arrears, 40, 8);
        arrears.book(true, 0.5, PERIOD);
        assert_eq!(arrears.pay(4 * MS, MS), 3 * MS, "no more than the rest of a period");
        // Of 14 ms, it uses 11.
        settle(&mut arrears, 60, 19);
        arrears.book(true, 0.5, PERIOD);
        assert_eq!(arrears.pay(10 * MS, MS), 4 * MS);
        settle(&mut arrears, 80, 34);
        arrears.book(true, 0.5, PERIOD);
        assert_eq!(arrears.pay(10 * MS, MS), 0);
    }

    #[test]
    fn what_is_owed_has_bounds() {
        let mut arrears = Arrears::default();
        settle(&mut arrears, 0, 0);
        settle(&mut arrears, 2_000, 0);
        arrears.book(true, 0.5, PERIOD);
        assert_eq!(arrears.owed, 100 * MS);
        settle(&mut arrears, 4_000, 3_000);
        arrears.book(true, 0.5, PERIOD);
        assert_eq!(arrears.owed, -10 * MS, "a group that was ahead, a quota at the most");
    }

    #[test]
    fn the_lower_quota_of_a_group_at_rest_is_not_owed() {
        let mut arrears = Arrears::default();
        settle(&mut arrears, 0, 0);
        let mark = Mark { at: PERIOD, usage: Some(MS), throttling: Throttling::default() };
        arrears.settle(&mark, 0.5, true);
        arrears.book(true, 0.5, PERIOD);
        assert_eq!(arrears.owed, 0);
    }
}

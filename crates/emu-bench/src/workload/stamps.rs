//! When how much was done: the account of one thread over a window.

use emu_core::Result;

use super::clocks::{now_ns, thread_cpu_ns};
use super::{Done, Order};
use crate::stats::Stamp;

/// Stamps for which room is made ahead of a window: one for every 10 µs, as many as fit 64 MB.
const STAMP_EVERY_NS: u64 = 10_000;
const STAMPS_MAX: u64 = 4_000_000;

/// Time and work so far, after every step.
#[derive(Debug, Default)]
pub(super) struct Stamps(Vec<Stamp>);

impl Stamps {
    pub(super) fn restart(&mut self, window_ns: u64) {
        self.0.clear();
        self.0.reserve((window_ns / STAMP_EVERY_NS).min(STAMPS_MAX) as usize);
    }

    pub(super) fn note(&mut self, work: u64) -> u64 {
        let time_ns = now_ns();
        self.0.push(Stamp { time_ns, work });
        time_ns
    }

    /// Of the time before a window only the last stamp matters.
    pub(super) fn note_only(&mut self, work: u64) -> u64 {
        self.0.clear();
        self.note(work)
    }

    pub(super) fn work(&self) -> u64 {
        match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => last.work - first.work,
            _ => 0,
        }
    }

    /// Between two stamps in proportion, which is wrong by less than a step. Before the first stamp nothing was done.
    pub(super) fn work_at(&self, time_ns: u64) -> f64 {
        let after = self.0.partition_point(|stamp| stamp.time_ns <= time_ns);
        let last = after.checked_sub(1).and_then(|before| self.0.get(before));
        match (last, self.0.get(after)) {
            (Some(a), Some(b)) => {
                let share = (time_ns - a.time_ns) as f64 / (b.time_ns - a.time_ns) as f64;
                a.work as f64 + share * (b.work - a.work) as f64
            }
            (Some(stamp), None) | (None, Some(stamp)) => stamp.work as f64,
            (None, None) => 0.0,
        }
    }

    pub(super) fn done(&self, order: &Order, cpu_ns: u64) -> Done {
        let first = self.0.first().map_or(0, |stamp| stamp.time_ns);
        let (begin, end) = (order.begin_ns, order.end_ns());
        let stamps = self.0.iter().map(|stamp| (stamp.time_ns, stamp.work));
        Done {
            begun_ns: begin,
            ended_ns: end,
            parts: vec![self.work_at(end) - self.work_at(begin)],
            cpu_ns,
            longest_stall_ns: self.longest_stall_ns(),
            late_ns: first.saturating_sub(begin),
            stamps: if order.stamps { stamps.collect() } else { Vec::new() },
            ..Done::default()
        }
    }

    /// How long an undisturbed step takes, in the mean. Of computing steps it follows the core clock, whatever
    /// keeps the thread from its CPU in between. Zero where there are too few to tell.
    pub(super) fn step_ns(&self) -> f64 {
        const ENOUGH: usize = 16;
        /// A step that takes so much longer than the quarter of the fastest was interrupted: by a tick at least.
        const UNDISTURBED: f64 = 1.15;
        let mut spans: Vec<u64> = self.spans().collect();
        if spans.len() < ENOUGH {
            return 0.0;
        }
        spans.sort_unstable();
        let limit = spans.get(spans.len() / 4).map_or(0.0, |span| *span as f64 * UNDISTURBED);
        let undisturbed = || spans.iter().map(|span| *span as f64).take_while(|span| *span <= limit);
        undisturbed().sum::<f64>() / undisturbed().count().max(1) as f64
    }

    pub(super) fn longest_stall_ns(&self) -> u64 {
        self.spans().max().unwrap_or(0)
    }

    fn spans(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.windows(2).filter_map(|pair| match pair {
            [a, b] if b.work > a.work => Some(b.time_ns - a.time_ns),
            _ => None,
        })
    }
}

/// Takes step after step until the window has passed; a step returns all work done so far. Work begins at once, so that it is
/// under way when the window opens. The borders are moments of the clock: on/off emulation holds the thread at any of them, and
/// a window that waited for the thread would be too long by half a stop on average.
pub(super) fn fill(
    order: &Order,
    stamps: &mut Stamps,
    mut step: impl FnMut() -> Result<u64>,
) -> Result<Done> {
    stamps.restart(order.length_ns);
    let mut work = 0;
    let mut now = stamps.note(work);
    while now < order.begin_ns {
        stamps.note_only(work);
        work = step()?;
        now = stamps.note(work);
    }
    let cpu_ns = thread_cpu_ns();
    while now < order.end_ns() {
        work = step()?;
        now = stamps.note(work);
    }
    Ok(stamps.done(order, thread_cpu_ns() - cpu_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(points: &[(u64, u64)]) -> Stamps {
        Stamps(points.iter().map(|&(time_ns, work)| Stamp { time_ns, work }).collect())
    }

    #[test]
    fn work_is_found_between_stamps_and_is_nothing_before_the_first() {
        let stamps = stamps(&[(100, 0), (200, 50), (400, 60)]);
        for (time, work) in
            [(0, 0.0), (100, 0.0), (150, 25.0), (200, 50.0), (300, 55.0), (400, 60.0), (900, 60.0)]
        {
            assert!((stamps.work_at(time) - work).abs() < 1e-9, "{time}");
        }
        assert!(Stamps::default().work_at(5).abs() < 1e-9);
    }

    #[test]
    fn a_stall_is_the_longest_span_and_a_step_the_usual_one() {
        let some = [(0, 0), (10, 1), (20, 2), (30, 3), (530, 3), (590, 4), (600, 5)];
        let few = stamps(&some);
        assert_eq!(few.longest_stall_ns(), 60, "the sleep from 30 to 530 is none");
        assert_eq!(few.work(), 5);
        assert!(few.step_ns().abs() < 1e-9, "five steps do not tell");
        let many: Vec<_> = some.into_iter().chain((6..30).map(|k| (550 + 10 * k, k))).collect();
        assert!((stamps(&many).step_ns() - 10.0).abs() < 1e-9);
    }

    #[test]
    fn only_what_lies_in_the_window_counts() {
        let order = Order { begin_ns: 150, length_ns: 100, first: 0, stamps: true };
        let done = stamps(&[(100, 0), (200, 50), (300, 150)]).done(&order, 9);
        assert!((done.work() - 75.0).abs() < 1e-9);
        assert_eq!((done.begun_ns, done.ended_ns, done.cpu_ns, done.late_ns), (150, 250, 9, 0));
        assert_eq!(done.stamps, [(100, 0), (200, 50), (300, 150)]);
    }
}

//! Taking a pair: one fresh worker, two windows.

use std::time::{Duration, Instant};

use emu_core::{Error, ErrorKind, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clock::{self, CoreClock};
use super::gate::{self, Taint};
use super::lifetime::Standing;
use super::window::{Delivery, Side, Window};
use super::{Emulated, Plan, Trial};
use crate::nanos;
use crate::throttle::Throttle;
use crate::ticks::Ticks;
use crate::worker::Look;
use crate::workload::{Done, Order, Worker, now_ns, process_cpu_ns, thread_cpu_ns};

/// The longest that a worker may take to settle.
const SETTLE_MAX: Duration = Duration::from_secs(120);

/// Two windows of one worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pair {
    /// Its place in the order of pairs; a pair that is taken again keeps it.
    pub number: usize,
    /// The windows in the order of time. A control has two native ones.
    pub windows: [Window; 2],
    /// What disturbed it.
    pub taints: Vec<Taint>,
    /// Whether it is the last one of its number; one that was disturbed is where it could not be taken again.
    pub kept: bool,
}

impl Pair {
    /// The native and the emulated window; `None` for a control.
    pub fn sides(&self) -> Option<(&Window, &Window)> {
        match &self.windows {
            [a, b] if a.side == Side::Native && b.side == Side::Emulated => Some((a, b)),
            [a, b] if a.side == Side::Emulated && b.side == Side::Native => Some((b, a)),
            _ => None,
        }
    }

    /// Whether it was kept and nothing disturbed it.
    pub fn is_undisturbed(&self) -> bool {
        self.kept && self.taints.is_empty()
    }
}

pub(crate) fn undisturbed(pairs: &[Pair]) -> impl Iterator<Item = &Pair> {
    pairs.iter().filter(|pair| pair.is_undisturbed())
}

/// The undisturbed pairs. Where none has an emulated window, all that were kept: they decide nothing, but show what was seen.
pub(crate) fn counting(pairs: &[Pair]) -> Vec<&Pair> {
    if undisturbed(pairs).any(|pair| pair.sides().is_some()) {
        return undisturbed(pairs).collect();
    }
    pairs.iter().filter(|pair| pair.kept).collect()
}

/// Takes the pair of this number, unless `look` fails meanwhile. The emulation is not engaged before and after, whatever happens.
pub fn take(
    emulated: &mut dyn Emulated,
    trial: &Trial,
    plan: &Plan,
    number: usize,
    [first, second]: [Side; 2],
    look: Look<'_>,
) -> Result<Pair> {
    // Both windows of a pair sleep alike.
    let cycle = number as u64 * trial.job.cycles;
    with_worker(emulated, trial, |emulated, worker| {
        let clock = || clock::measure(&trial.job.cpus);
        let mut before = clock();
        let mut take = |side| {
            let mut window = window(emulated, trial, plan, worker, (side, cycle, false), look)?;
            let after = clock();
            window.clock = before.zip(after).map(|(before_hz, after_hz)| CoreClock { before_hz, after_hz });
            before = after;
            Ok::<_, Error>(window)
        };
        let windows = [take(first)?, take(second)?];
        let mut taints = gate::taints(&trial.job, &windows);
        if emulated.moves_clock() || !trial.clocks.is_empty() {
            taints.retain(|taint| !matches!(taint, Taint::Clock(_)));
        }
        Ok(Pair { number, taints, windows, kept: true })
    })
}

pub(super) fn take_stamped(
    emulated: &mut dyn Emulated,
    trial: &Trial,
    plan: &Plan,
    look: Look<'_>,
) -> Result<(Done, Option<Taint>)> {
    with_worker(emulated, trial, |emulated, worker| {
        let window = window(emulated, trial, plan, worker, (Side::Emulated, 0, true), look)?;
        let taint = gate::taint(&trial.job, &window);
        Ok((window.done, taint))
    })
}

fn with_worker<T>(
    emulated: &mut dyn Emulated,
    trial: &Trial,
    body: impl FnOnce(&mut dyn Emulated, &mut Worker) -> Result<T>,
) -> Result<T> {
    let mut worker = Worker::start(&trial.job)?;
    let taken = body(emulated, &mut worker);
    // Before the worker is ended: a frozen one could not end.
    let released = emulated.release();
    match (taken, released) {
        // What is left changed matters more than why nothing was measured.
        (Err(_), Err(left)) if left.kind() == ErrorKind::RestoreIncomplete => Err(left),
        (taken, released) => taken.and_then(|taken| released.map(|()| taken)),
    }
}

fn window(
    emulated: &mut dyn Emulated,
    trial: &Trial,
    plan: &Plan,
    worker: &mut Worker,
    (side, cycle, stamps): (Side, u64, bool),
    look: Look<'_>,
) -> Result<Window> {
    let mut settled_s = 0.0;
    if side == Side::Emulated {
        emulated.engage(worker.pid())?;
        settled_s = settle(emulated, plan, worker, cycle, look)?.as_secs_f64();
    }
    let lead = plan.lead_of(side, emulated, &trial.job);
    let ticks = Ticks::now(&plan.proc, &trial.job.cpus)?;
    let held_before = Throttle::ours().all_ns();
    let (asked_ns, cpu_before, before) = (now_ns(), process_cpu_ns(), emulated.status());
    let order = Order {
        begin_ns: asked_ns + nanos(lead),
        length_ns: nanos(plan.window_of(emulated)),
        first: cycle,
        stamps,
    };
    let thread_before = thread_cpu_ns();
    let done = worker.through(&order, Some(look))?;
    let harness_cpu_s = (thread_cpu_ns() - thread_before) as f64 / 1e9;
    let wall_s = (now_ns() - asked_ns) as f64 / 1e9;
    let process_s = (process_cpu_ns() - cpu_before) as f64 / 1e9;
    let ticks = Ticks::now(&plan.proc, &trial.job.cpus)?.since(ticks);
    let held_ns = Throttle::ours().all_ns().saturating_sub(held_before);
    let throttled = held_ns as f64 / 1e9 / (wall_s * trial.job.cpus.len() as f64);
    let known_s = process_s + done.spent_ns as f64 / 1e9;
    let is_told = side == Side::Native || !emulated.has_helpers();
    let foreign = is_told.then(|| ticks.foreign(wall_s, trial.job.cpus.len(), known_s));
    let delivery = before
        .zip(emulated.status())
        .map(|(before, after)| Delivery::between(&before, &after, wall_s, process_s));
    if side == Side::Emulated {
        emulated.release()?;
    }
    let steal = ticks.stolen_share();
    Ok(Window { side, done, clock: None, settled_s, harness_cpu_s, steal, throttled, foreign, delivery })
}

/// Lets a worker settle under an emulation that goes by CPU time over lifetime, and returns how long that took: it works,
/// uncounted, until it is treated as a program that has run for long.
fn settle(
    emulated: &dyn Emulated,
    plan: &Plan,
    worker: &mut Worker,
    cycle: u64,
    look: Look<'_>,
) -> Result<Duration> {
    let Some(rule) = emulated.lifetime_rule() else { return Ok(Duration::ZERO) };
    let begin = Instant::now();
    let mut standing = Standing::of(rule, &plan.proc, worker.pid())?;
    // How credit is used up is seen only when the worker works.
    let least = emulated.settle();
    let mut left = standing.left().max(least);
    while !left.is_zero() {
        let wait = begin.elapsed().saturating_add(left);
        if wait > SETTLE_MAX {
            let (name, percent, wait) = (emulated.name(), rule.share * 100.0, wait.as_secs());
            return Err(Error::unavailable(format!(
                "cannot measure {name} at {percent:.1}%: it would take {wait} s until what its worker did before \
                 no longer matters"
            ))
            .hint("measure on fewer CPUs, at a higher speed, or with the method at its best"));
        }
        let length_ns = nanos(left.max(least));
        let order = Order { begin_ns: now_ns(), length_ns, first: cycle, stamps: false };
        worker.through(&order, Some(look))?;
        left = standing.left();
    }
    Ok(begin.elapsed())
}

//! What a stop costs the tasks beyond its length.
//!
//! A resumed task has to be woken, on a CPU that may have to be woken itself, and has to leave the kernel: about 10 µs, under a
//! hypervisor 50 µs. The CPU then catches up on the work that it deferred while it was idle, so its interrupts take longer for
//! some milliseconds. Both costs are measured on a [`Probe`] that is stopped and resumed twice as the zone will be. A
//! quota stops tasks without emu; its cost is the time that the kernel charges to tasks and that they do not get.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duty_thread::settle_duty_thread;
use super::idle_pusher::IdlePusher;
use super::own_time::OwnTime;
use super::probe::{Gap, Probe, STOP, two_ticks};
use super::stop::Stop;
use crate::ablation::{Correction, is_off};
use crate::cpu_list::CpuList;
use crate::duty::kept::{Kept, why_unknown};
use crate::error::{Error, ErrorKind, Result};
use crate::host::{CpuTimes, Host};
use crate::notes::Notes;
use crate::sys::Pid;
use crate::sys::time::{self, Nanos, USER_TICK};
use crate::zone::Zone;

const FILE: &str = "stop-costs.json";

/// The cost of one stop or stall, in nanoseconds, beyond the [`OwnTime`] of emu on a zone of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct StopCost {
    /// What every task loses until it runs. Without it, `cpu-freeze` and `cpu-lim` at 5 % of 20 ms were 0.8 % slower in a quiet
    /// guest.
    base: f64,
    /// What interrupts take in addition in the first tick for which a task runs: nothing in a quiet guest that counts
    /// instructions, 10 to 50 µs on one virtual machine.
    tick: f64,
}

impl StopCost {
    /// Used where the cost has not been measured, or other load prevents that.
    pub(super) const ASSUMED: Self = Self { base: 30_000.0, tick: 15_000.0 };

    #[cfg(test)]
    pub(crate) const fn new(base: f64, tick: f64) -> Self {
        Self { base, tick }
    }

    /// The cost of stopping tasks of the zone in the manner called `way`, as it is kept. While the zone's tasks have not begun,
    /// one more batch is measured if there are few, which takes 30 to 100 ms at ticks of 4 ms. `make` returns the [`Stop`] for
    /// the probe. Where nothing is known, a value is assumed and `notes` tell so.
    pub(crate) fn of<S: Stop>(
        host: &Host,
        zone: &Zone,
        way: &str,
        notes: &mut Vec<String>,
        make: impl FnOnce(Pid) -> Result<S> + Send,
    ) -> Result<Self> {
        let cpus = &zone.demand.cpus();
        let measured = Self::kept_or_measured(host, zone, (way, cpus), |enough, is_away| {
            let mut probe = Probe::start(cpus)?;
            let stopper = make(probe.pid())?;
            stop_repeatedly((cpus, is_away), stopper, &mut probe, enough)
        })?;
        Ok(measured.unwrap_or_else(|| Self::assumed("a stop", zone, None, notes)))
    }

    /// The cost of each stall by a quota on the zone's CPUs, kept and measured as in [`of`](Self::of), by the kernel's account
    /// of the probe's CPU time. `limit` lets the probe run for the first span in each period of the second; the function that
    /// it returns is called at the end.
    pub(crate) fn of_stalls<End: FnOnce()>(
        host: &Host,
        zone: &Zone,
        notes: &mut Vec<String>,
        limit: impl FnOnce(Pid, Duration, Duration) -> Result<End> + Send,
    ) -> Self {
        let cpus = &zone.demand.cpus();
        // A look at the probe from its own CPU would take time from it that passes for a gain.
        let probed = cpus.first().into_iter().collect();
        let measured = Self::kept_or_measured(host, zone, ("quota", &probed), |enough, _| {
            // The probe needs two ticks between gaps, and long gaps. A quota is enforced at ticks; what a task has run
            // beyond it is taken off the next period.
            let tick = time::nanos(time::tick());
            let run = two_ticks() + tick;
            let period = run + tick + STALL;
            let mut probe = Probe::start(cpus)?;
            let end = limit(probe.pid(), time::span(run), time::span(period))?;
            let before = idle_time(host, cpus);
            let mut cost = None;
            // The kernel chooses when in a period a quota begins, and each cost is seen between two gaps.
            for _ in 0..(enough + 2) * (period / MOMENT) as usize {
                time::sleep(time::span(MOMENT));
                let gaps = probe.gaps()?;
                cost = median_charge(gaps, enough).zip(mean_more(gaps, enough));
                if cost.is_some() {
                    break;
                }
            }
            let idle = idle_time(host, cpus).zip(before).map(|(after, before)| after - before);
            let was_idle = idle.is_some_and(|idle| probe.gaps().is_ok_and(|gaps| is_idle_in(gaps, idle)));
            // A group with a process in it cannot be removed.
            drop(probe);
            end();
            Ok(cost.filter(|_| was_idle))
        });
        match measured {
            Ok(Some(cost)) => cost,
            Ok(None) => Self::assumed("a stall", zone, None, notes),
            Err(why) => Self::assumed("a stall", zone, Some(why), notes),
        }
    }

    /// `measure` adds a batch where one is worth it, with as many undisturbed stops as it is told, from a thread off the CPUs
    /// `avoided` where there are others. The first batch since boot is a short one: nothing may keep its program waiting for
    /// long.
    fn kept_or_measured(
        host: &Host,
        zone: &Zone,
        (way, avoided): (&str, &CpuList),
        measure: impl FnOnce(usize, bool) -> Result<Option<(Nanos, f64)>> + Send,
    ) -> Result<Option<Self>> {
        let key = format!("{way} on {} of {}", zone.demand.cpus(), host.allowed);
        let mut kept: Kept<String, Self> = Kept::load(host, FILE, Self::is_plausible);
        let enough = if kept.values(&key).is_empty() { 1 } else { 2 };
        let measured = if zone.is_new && kept.wants(&key) {
            beside_probe(host, avoided, |is_away| measure(enough, is_away))
        } else {
            Ok(None)
        };
        // What is kept is good enough where it cannot be renewed.
        let measured = if kept.values(&key).is_empty() { measured? } else { measured.unwrap_or(None) };
        if let Some((base, tick)) = measured {
            kept.insert(
                key.clone(),
                Self { base: base as f64, tick: tick.clamp(*TICK.start(), *TICK.end()) },
            );
            kept.save(host, FILE);
        }
        let Some(base) = kept.median(&key, |cost| cost.base) else { return Ok(None) };
        // Few ticks have much to do after a stop, so the mean counts.
        let ticks: Vec<_> = kept.values(&key).iter().map(|cost| cost.tick).collect();
        Ok(Some(Self { base, tick: ticks.iter().sum::<f64>() / ticks.len() as f64 }))
    }

    fn assumed(what: &str, zone: &Zone, failure: Option<Error>, notes: &mut Vec<String>) -> Self {
        let why = match failure {
            Some(why) => format!("could not be measured ({})", why.in_words()),
            None => why_unknown(zone).to_owned(),
        };
        notes.push(format!(
            "what {what} costs the tasks {why}; {:.0} µs are assumed",
            Self::ASSUMED.base / 1e3
        ));
        Self::ASSUMED
    }

    fn is_plausible(&self) -> bool {
        let base = *PLAUSIBLE.start() as f64..=*PLAUSIBLE.end() as f64;
        base.contains(&self.base) && TICK.contains(&self.tick)
    }

    pub(crate) fn of_stop(&self, run: f64) -> Nanos {
        let ticks = run / time::nanos(time::tick()) as f64;
        let base = if is_off(Correction::StopCostBase) { 0.0 } else { self.base };
        let tick = if is_off(Correction::StopCostTick) { 0.0 } else { self.tick };
        (base + tick * ticks.clamp(0.0, 1.0)) as Nanos
    }
}

/// How often the probe is stopped at most.
const MOST: usize = 4;
/// How often it is asked what it has seen of a quota, in nanoseconds.
const MOMENT: Nanos = 1_000_000;
/// For how long a quota stalls the probe, beside a tick.
const STALL: Nanos = 8_000_000;
/// How much longer than two ticks the probe runs between stops, in nanoseconds.
const FREE: Nanos = 500_000;
/// Losses outside this range are a disturbed measurement: another task had the CPU.
const PLAUSIBLE: std::ops::RangeInclusive<Nanos> = 0..=500_000;
/// The part of the probe's stalls in which its CPU must be idle.
const IDLE_LEAST: f64 = 0.75;
/// The plausible additional time of interrupts in a tick, in nanoseconds.
const TICK: std::ops::RangeInclusive<f64> = 0.0..=100_000.0;

#[derive(Debug, Clone, Copy)]
struct Sample {
    from: Nanos,
    resumed: Nanos,
    own: Nanos,
}

/// Runs `measure` in a thread that the probe cannot keep waiting, and tells it whether that thread is off the CPUs.
fn beside_probe<T: Send>(
    host: &Host,
    cpus: &CpuList,
    measure: impl FnOnce(bool) -> Result<T> + Send,
) -> Result<T> {
    let measure = || {
        time::no_timer_slack();
        // The emulation gives the same notes when it begins.
        measure(settle_duty_thread(host, cpus, &Notes::default()))
    };
    std::thread::scope(|scope| {
        let measured = std::thread::Builder::new().name("emu-measure".into()).spawn_scoped(scope, measure);
        let measured = measured.map_err(|e| Error::io("cannot start a thread to measure stops", e))?;
        measured.join().unwrap_or_else(|_| Err(Error::new(ErrorKind::Failed, "the measurement has panicked")))
    })
}

/// The median loss of a stop, and how much more interrupts took after one; `None` where too few stops were undisturbed.
fn stop_repeatedly<S: Stop>(
    (cpus, is_away): (&CpuList, bool),
    mut stopper: S,
    probe: &mut Probe,
    enough: usize,
) -> Result<Option<(Nanos, f64)>> {
    let is_in_the_way = !is_away && cpus.len() == 1;
    let pusher = IdlePusher::beside_duty_thread(is_away, cpus, &Notes::default())?;
    let mut stops = Vec::with_capacity(MOST);
    let mut own_time = OwnTime::start();
    time::sleep(time::span(FREE));
    loop {
        own_time.before_stop();
        let from = stopper.stop(time::now() + STOP)?.from;
        own_time.stopped(from);
        IdlePusher::sleep_until(pusher.as_ref(), from + STOP, 1, |moment| {
            time::sleep(time::span(moment - time::now()));
        });
        own_time.before_resume();
        let resumed = stopper.resume()?;
        pusher.as_ref().inspect(|pusher| pusher.let_sleep());
        let own = own_time.resumed(resumed);
        stops.push(Sample { from, resumed, own: if is_in_the_way { own } else { 0 } });
        // Until the probe has seen the end of the stop.
        time::sleep(time::span(FREE));
        let gaps = probe.gaps()?;
        let cost = median_loss(&stops, gaps, enough).zip(mean_more(gaps, enough));
        if cost.is_some() || stops.len() == MOST {
            return Ok(cost);
        }
        time::sleep(time::span(two_ticks()));
    }
}

/// By how much the gap of a stop exceeds the stop and emu's own time: the median, if enough stops are undisturbed.
fn median_loss(stops: &[Sample], gaps: &[Gap], enough: usize) -> Option<Nanos> {
    let loss_of = |&Sample { from, resumed, own }: &Sample| {
        let middle = from + (resumed - from) / 2;
        let gap = gaps.iter().find(|gap| (gap.before..gap.after).contains(&middle))?;
        let loss =
            Some((gap.after - gap.before) - (resumed - from)).filter(|loss| PLAUSIBLE.contains(loss))?;
        Some((loss - own).max(0))
    };
    median_of(enough, stops.iter().filter_map(loss_of).collect())
}

/// What the kernel charges to the probe between the ends of two gaps, beyond the time for which the probe ran: the median, if
/// enough stalls are undisturbed.
fn median_charge(gaps: &[Gap], enough: usize) -> Option<Nanos> {
    let charges = gaps.windows(2).filter_map(|pair| {
        let [one, next] = pair else { return None };
        let ran = next.before - one.after;
        Some(next.charged - one.charged - ran).filter(|charge| PLAUSIBLE.contains(charge))
    });
    median_of(enough, charges.collect())
}

/// The idle time of the first of the CPUs since boot.
fn idle_time(host: &Host, cpus: &CpuList) -> Option<Nanos> {
    let stat = fs::read_to_string(host.roots.proc.join("stat")).ok()?;
    Nanos::try_from(CpuTimes::of(&stat, cpus.first()?)?.idle).ok()?.checked_mul(USER_TICK)
}

/// Whether the CPU was idle in most of the gaps: a stall costs less where another task runs meanwhile.
fn is_idle_in(gaps: &[Gap], idle: Nanos) -> bool {
    let stopped: Nanos = gaps.iter().map(|gap| gap.after - gap.before).sum();
    idle as f64 >= IDLE_LEAST * stopped as f64
}

fn median_of(enough: usize, mut losses: Vec<Nanos>) -> Option<Nanos> {
    losses.sort_unstable();
    // Of two the lower: what disturbs a stop adds to its cost.
    let middle = losses.len().saturating_sub(1) / 2;
    losses.get(middle).copied().filter(|_| losses.len() >= enough)
}

/// How much more interrupts took in the first tick after a stop than in the second: the mean, because a tick has few
/// interrupts; `None` where there are fewer than `enough`.
fn mean_more(gaps: &[Gap], enough: usize) -> Option<f64> {
    let more: Vec<_> = gaps.iter().filter_map(|gap| gap.more).collect();
    (more.len() >= enough).then(|| more.iter().sum::<Nanos>() as f64 / more.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_is_what_the_gap_has_beyond_the_stop() {
        let stop = |k: Nanos| Sample { from: k * 10_000_000, resumed: k * 10_000_000 + 3_000_000, own: 0 };
        let stops: Vec<_> = (0..8).map(stop).collect();
        let gap_of = |stop: &Sample| Gap {
            before: stop.from - 10_000,
            after: stop.resumed + 40_000,
            more: None,
            charged: 0,
        };
        let mut gaps: Vec<_> = stops.iter().map(gap_of).collect();
        assert_eq!(median_loss(&stops, &gaps, 2), Some(50_000));
        let with_own: Vec<_> = stops.iter().map(|stop| Sample { own: 20_000, ..*stop }).collect();
        assert_eq!(median_loss(&with_own, &gaps, 2), Some(30_000));
        // Other tasks had the CPU: not a cost of the stop.
        gaps[..3].iter_mut().for_each(|gap| gap.after += 2_000_000);
        assert_eq!(median_loss(&stops, &gaps, 2), Some(50_000));
        gaps[3..7].iter_mut().for_each(|gap| gap.after += 2_000_000);
        assert_eq!(median_loss(&stops, &gaps, 2), None, "too few are left");
        assert_eq!(median_loss(&stops, &[], 2), None);
        assert_eq!(median_loss(&[], &[], 2), None);
    }

    #[test]
    fn a_stall_costs_what_is_charged_but_not_run() {
        // 8 ms in each 24 ms, of which the probe gets 50 µs less than is charged.
        let gap = |k: Nanos| Gap {
            before: 24_000_000 * k,
            after: 24_000_000 * k + 16_000_000,
            more: None,
            charged: (8_000_000 + 50_000) * k,
        };
        let mut gaps: Vec<_> = (0..8).map(gap).collect();
        assert_eq!(median_charge(&gaps, 2), Some(50_000));
        // Another task had the CPU for a while: less is charged than the probe seems to run.
        gaps[1..].iter_mut().for_each(|gap| gap.charged -= 1_000_000);
        assert_eq!(median_charge(&gaps, 2), Some(50_000));
        assert_eq!(median_charge(&gaps[..3], 2), None, "too few are left");
        assert_eq!(median_charge(&gaps[..3], 1), Some(50_000));
        assert_eq!(median_charge(&[], 2), None);
    }

    #[test]
    fn stalls_in_which_another_task_runs_tell_nothing() {
        let gap = |k: Nanos| Gap { before: 30 * k, after: 30 * k + 20, more: None, charged: 0 };
        let gaps: Vec<_> = (0..8).map(gap).collect();
        assert!(is_idle_in(&gaps, 160) && is_idle_in(&gaps, 120));
        assert!(!is_idle_in(&gaps, 119) && !is_idle_in(&gaps, 0));
    }

    #[test]
    fn interrupts_are_charged_for_the_part_of_a_tick_that_tasks_run() {
        let gap = |more| Gap { before: 0, after: 1, more, charged: 0 };
        let gaps = [Some(10_000), None, Some(-2_000), Some(4_000), Some(0), Some(8_000)].map(gap);
        let Some(tick) = mean_more(&gaps, 2) else { panic!() };
        assert!((tick - 4_000.0).abs() < 1e-9);
        assert_eq!(mean_more(&gaps[..2], 2), None, "too few");
        let cost = StopCost { base: 30_000.0, tick };
        let one_tick = time::nanos(time::tick()) as f64;
        for (run, loss) in [(0.0, 30_000), (one_tick / 4.0, 31_000), (3.0 * one_tick, 34_000)] {
            assert_eq!(cost.of_stop(run), loss);
        }
    }
}

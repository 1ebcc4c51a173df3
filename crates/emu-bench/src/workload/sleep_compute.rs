//! Bursts of computing between sleeps: the sleeps must keep their length, the bursts must stretch.

use std::thread;
use std::time::Duration;

use emu_core::Result;

use super::clocks::{now_ns, thread_cpu_ns};
use super::part::Chain;
use super::{Done, Job, Order, Running, Setting, Workload};

/// An on/off emulation ends a burst up to a period late: it is to last so many periods at least, un-emulated.
const BURST_PERIODS: u32 = 10;

const BURST_MIN: Duration = Duration::from_millis(10);

/// A window is stretched up to this factor for a burst of that length.
const STRETCH: f64 = 4.0;

/// A count and not a time, in which a thread that is kept from its CPU may get too few. A burst need not be exact: those of
/// both windows of a pair are the same work.
const WARM_UP_QUANTA: usize = 64;

/// The workload: one thread that sleeps for a third of its time, un-emulated.
pub(super) struct SleepCompute;

impl Workload for SleepCompute {
    fn name(&self) -> &'static str {
        "sleep-compute"
    }

    fn about(&self) -> &'static str {
        "one thread that sleeps and computes in turn: sleeps keep their length, bursts stretch"
    }

    fn job(&self, setting: &Setting) -> Job {
        let longest = setting.window.mul_f64(STRETCH * setting.share / (1.0 + setting.share / 2.0));
        let burst = (setting.period * BURST_PERIODS).min(longest).max(BURST_MIN);
        let sleep = burst / 2;
        let cycle = burst.as_secs_f64() / setting.share + sleep.as_secs_f64();
        let cycles = (setting.window.as_secs_f64() / cycle).round().max(1.0) as u64;
        Job { burst, sleep, cycles, ..Job::new(self.name(), &setting.cpus) }
    }

    fn start(&self, job: &Job) -> Result<Box<dyn Running>> {
        let chain = warmed_up()?;
        let quanta = (job.burst.as_nanos() as f64 / chain.stamps.step_ns()).round().max(1.0);
        Ok(Box::new(Cycles { chain, quanta: quanta as u64, sleep: job.sleep, in_window: job.cycles.max(1) }))
    }
}

fn warmed_up() -> Result<Chain> {
    let mut chain = Chain::new();
    chain.stamp();
    for _ in 0..WARM_UP_QUANTA {
        chain.quantum();
    }
    chain.verify()?;
    Ok(chain)
}

struct Cycles {
    chain: Chain,
    quanta: u64,
    sleep: Duration,
    in_window: u64,
}

impl Running for Cycles {
    fn through(&mut self, order: &Order) -> Result<Done> {
        self.chain.restart(order.length_ns);
        thread::sleep(Duration::from_nanos(order.begin_ns.saturating_sub(now_ns())));
        let begun_ns = self.chain.stamp();
        let cpu_ns = thread_cpu_ns();
        let (mut slept_ns, mut overslept_ns, mut now) = (0, 0, begun_ns);
        for cycle in order.first..order.first.saturating_add(self.in_window) {
            let sleep = varied(self.sleep, cycle);
            thread::sleep(sleep);
            let woken = self.chain.stamp();
            slept_ns += woken - now;
            // A stall in a sleep shows only at the end of it, when work is due.
            overslept_ns = (woken - now).saturating_sub(sleep.as_nanos() as u64).max(overslept_ns);
            for _ in 0..self.quanta {
                now = self.chain.quantum();
            }
        }
        let cpu_ns = thread_cpu_ns() - cpu_ns;
        self.chain.verify()?;
        Ok(Done {
            begun_ns,
            ended_ns: now,
            parts: vec![self.chain.stamps.work() as f64],
            cpu_ns,
            slept_ns,
            quantum_ns: self.chain.stamps.step_ns(),
            longest_stall_ns: self.chain.stamps.longest_stall_ns().max(overslept_ns),
            ..Done::default()
        })
    }
}

/// Within ±25 % of the mean and never in step with an emulation's period: multiples of the golden ratio fill the range evenly
/// (Knuth, *The Art of Computer Programming* vol. 3, § 6.4).
fn varied(mean: Duration, cycle: u64) -> Duration {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    mean.mul_f64(0.75 + 0.5 * (cycle as f64 * GOLDEN).fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(share: f64, period_ms: u64) -> Setting {
        Setting {
            cpus: "0".parse().unwrap(),
            period: Duration::from_millis(period_ms),
            share,
            window: Duration::from_millis(200),
        }
    }

    #[test]
    fn bursts_last_ten_periods_where_the_window_allows() {
        let job = SleepCompute.job(&setting(0.5, 10));
        assert_eq!(
            (job.burst, job.sleep, job.cycles),
            (Duration::from_millis(100), Duration::from_millis(50), 1)
        );
        assert_eq!(SleepCompute.job(&setting(0.5, 1)).cycles, 8);
        let short = SleepCompute.job(&setting(0.1, 100));
        assert!(short.burst < Duration::from_millis(80), "{short:?}");
    }

    #[test]
    fn sleeps_vary_around_their_mean_and_repeat_for_the_same_cycle() {
        let mean = Duration::from_millis(100);
        let sum: f64 = (0..100).map(|cycle| varied(mean, cycle).as_secs_f64()).sum();
        assert!((sum / 100.0 - 0.1).abs() < 0.002, "{sum}");
        assert_eq!(varied(mean, 7), varied(mean, 7));
        assert_ne!(varied(mean, 7), varied(mean, 8));
    }

    #[test]
    fn the_warm_up_tells_how_long_a_quantum_takes() {
        let begin = now_ns();
        let quantum_ns = warmed_up().unwrap().stamps.step_ns();
        let all_ns = (now_ns() - begin) as f64;
        assert!(quantum_ns > 1000.0 && quantum_ns * (WARM_UP_QUANTA / 4) as f64 <= all_ns, "{quantum_ns}");
    }

    #[test]
    fn a_window_has_whole_cycles_and_tells_sleep_from_work() {
        let job = Job {
            burst: Duration::from_millis(4),
            sleep: Duration::from_millis(4),
            cycles: 3,
            ..Job::new("sleep-compute", &"0".parse().unwrap())
        };
        let mut running = SleepCompute.start(&job).unwrap();
        let order = Order { begin_ns: now_ns() + 1_000_000, length_ns: 0, first: 5, stamps: false };
        let first = running.through(&order).unwrap();
        assert!(first.slept_ns >= 9_000_000 && first.slept_ns < first.ended_ns - first.begun_ns);
        let again = running.through(&Order { begin_ns: now_ns(), ..order }).unwrap();
        assert!((again.work() - first.work()).abs() < 1e-9, "the same work in every window");
    }
}

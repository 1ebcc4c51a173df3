//! CPU time over lifetime, which is what CPU-Lim as published goes by, and when a worker has settled under that.
//!
//! The rule stops a process whose CPU time has reached a share of its lifetime, and lets it go on when it is below. What it did
//! before it was limited counts: who computed at full speed is in debt and stopped for long; who waited has credit and runs at
//! full speed until that is used up. A worker must have left both behind when its window opens.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use emu_core::{Error, ErrorKind, Pid, Result, process_cpu_time};
use nix::time::{ClockId, clock_gettime};
use procfs::process::{Stat, all_processes_with_root};
use rustix::param::clock_ticks_per_second;

/// A process that natively uses less than this many times its share is hardly slowed. Its credit would take very long to be
/// used up, so it is not waited for.
const ABOVE: f64 = 1.05;

/// No span that is worked out here is longer, in seconds: a day.
const SPAN_MAX: f64 = 86_400.0;

/// A rule by which each process is stopped while its CPU time is at least a share of its lifetime.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LifetimeRule {
    /// That share; above 0 and at most 1.
    pub share: f64,
    /// Time from one look at the processes to the next.
    pub period: Duration,
    /// How many CPUs a process may use at once.
    pub cpus: usize,
}

impl LifetimeRule {
    /// How long a process that computes on all of its CPUs takes to run and be stopped once, at most a day. It changes only
    /// when the rule looks: at low shares it runs for one look and is stopped for several; on one CPU at shares above a half it
    /// is stopped for one and runs for several.
    pub fn cycle(&self) -> Duration {
        let period = self.period.as_secs_f64();
        let stopped_for_one =
            if self.cpus <= 1 && self.share < 1.0 { period / (1.0 - self.share) } else { 0.0 };
        span(stopped_for_one.max(self.burst_s() / self.share))
    }

    /// How long a process is stopped at once that has used so much CPU time in a life of that length, at most a day.
    pub fn held_for(&self, used: Duration, lived: Duration) -> Duration {
        span(used.as_secs_f64() / self.share).saturating_sub(lived)
    }

    /// From one look to the next, in seconds.
    fn burst_s(&self) -> f64 {
        self.period.as_secs_f64() * self.cpus.max(1) as f64
    }

    /// For how much longer the past of a process matters, at the work that it did since `before`. Zero where neither debt nor
    /// credit is left but what a look makes, or where it never uses its credit up and is never stopped.
    fn left(&self, before: Option<Account>, now: Account) -> Duration {
        let credit_s = self.share * now.lived.as_secs_f64() - now.used.as_secs_f64();
        if credit_s < -self.burst_s() {
            return self.held_for(now.used, now.lived);
        }
        let Some(before) = before.filter(|_| credit_s > self.period.as_secs_f64()) else {
            return Duration::ZERO;
        };
        let used = now.used.saturating_sub(before.used);
        let usage = used.div_duration_f64(now.lived.saturating_sub(before.lived));
        if usage > self.share * ABOVE { span(credit_s / (usage - self.share)) } else { Duration::ZERO }
    }
}

fn span(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.min(SPAN_MAX))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Account {
    used: Duration,
    lived: Duration,
}

#[derive(Debug)]
pub(super) struct Standing {
    rule: LifetimeRule,
    processes: Vec<Process>,
}

#[derive(Debug)]
struct Process {
    pid: Pid,
    /// After boot.
    born: Duration,
    /// At the last look.
    account: Option<Account>,
}

impl Standing {
    /// The worker and its descendants, looked for once: a worker that is ready has them all.
    pub(super) fn of(rule: LifetimeRule, proc: &Path, worker: Pid) -> Result<Self> {
        let process = |stat: Stat| Process { pid: stat.pid, born: born(&stat), account: None };
        let processes: Vec<_> = with_descendants(proc, worker)?.into_iter().map(process).collect();
        if processes.is_empty() {
            let what = format!("cannot read the lifetime of the worker, process {worker}: it has ended");
            return Err(Error::new(ErrorKind::Failed, what));
        }
        Ok(Self { rule, processes })
    }

    /// The longest that the past of a process still matters, by the work since the last call; the first knows of debts only.
    pub(super) fn left(&mut self) -> Duration {
        let (rule, since_boot) = (self.rule, since_boot());
        let of_process = |process: &mut Process| {
            let used = process_cpu_time(process.pid)?;
            let now = Account { used, lived: since_boot.saturating_sub(process.born) };
            Some(rule.left(process.account.replace(now), now))
        };
        self.processes.iter_mut().filter_map(of_process).max().unwrap_or_default()
    }
}

/// A process before its descendants, as `proc` shows them; without those that end meanwhile.
pub(crate) fn with_descendants(proc: &Path, first: Pid) -> Result<Vec<Stat>> {
    let listed = all_processes_with_root(proc).map_err(|cause| {
        Error::new(ErrorKind::Failed, format!("cannot list the processes in {}", proc.display()))
            .caused_by(cause)
    })?;
    let stats = listed.filter_map(|process| process.ok()?.stat().ok());
    let mut all: BTreeMap<Pid, Stat> = stats.map(|stat| (stat.pid, stat)).collect();
    let mut found: Vec<Stat> = all.remove(&first).into_iter().collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|stat| stat.pid) {
        next += 1;
        found.extend(all.extract_if(.., |_, stat| stat.ppid == parent).map(|(_, stat)| stat));
    }
    Ok(found)
}

/// On the clock of process start times.
fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

fn born(stat: &Stat) -> Duration {
    Duration::from_secs_f64(stat.starttime as f64 / clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(share: f64, cpus: usize) -> LifetimeRule {
        LifetimeRule { share, period: Duration::from_millis(10), cpus }
    }

    fn account(used_ms: u64, lived_ms: u64) -> Account {
        Account { used: Duration::from_millis(used_ms), lived: Duration::from_millis(lived_ms) }
    }

    fn assert_ms(span: Duration, ms: f64) {
        assert!((span.as_secs_f64() * 1e3 - ms).abs() < 1e-3, "{span:?} is not {ms} ms");
    }

    #[test]
    fn a_cycle_makes_up_for_what_all_cpus_use_between_looks() {
        let on_one = [(1.0, 1, 10.0), (0.4, 1, 25.0), (0.2, 1, 50.0), (0.8, 1, 50.0), (0.95, 1, 200.0)];
        for (share, cpus, ms) in on_one.into_iter().chain([(0.2, 2, 100.0), (0.8, 2, 25.0)]) {
            assert_ms(rule(share, cpus).cycle(), ms);
        }
        assert_eq!(rule(f64::MIN_POSITIVE, 1).cycle(), Duration::from_secs(86_400));
    }

    #[test]
    fn who_ran_at_full_speed_is_stopped_until_the_share_fits() {
        let stopped = |share, used_ms, lived_ms| {
            let Account { used, lived } = account(used_ms, lived_ms);
            rule(share, 1).held_for(used, lived)
        };
        assert_ms(stopped(0.2, 220, 250), 850.0);
        assert_ms(stopped(0.5, 220, 250), 190.0);
        assert_ms(stopped(0.9, 220, 250), 0.0);
        assert_ms(rule(0.2, 1).left(None, account(220, 250)), 850.0);
    }

    #[test]
    fn the_past_matters_until_debt_and_credit_are_used_up() {
        let fifth = rule(0.2, 1);
        // A burst more, and a look's worth less, are what the rule itself makes.
        assert_ms(fifth.left(None, account(59, 250)), 0.0);
        assert_ms(fifth.left(Some(account(0, 150)), account(41, 250)), 0.0);
        // 20 ms are left and shrink by 0.8 of the time.
        assert_ms(fifth.left(Some(account(0, 500)), account(100, 600)), 25.0);
        // How it works is not known yet.
        assert_ms(fifth.left(None, account(100, 600)), 0.0);
        // It is never stopped: it uses half of its share.
        assert_ms(fifth.left(Some(account(0, 500)), account(10, 600)), 0.0);
        // It uses 51 % natively, and would with credit or without.
        assert_ms(rule(0.5, 1).left(Some(account(0, 100)), account(51, 200)), 0.0);
        // No time has passed.
        assert_ms(fifth.left(Some(account(0, 500)), account(0, 500)), 0.0);
    }

    /// A process that always wants to compute, under the rule for a time.
    fn live(rule: &LifetimeRule, account: &mut Account, time: Duration) {
        for _ in 0..time.as_nanos().div_ceil(rule.period.as_nanos()) {
            if account.used.as_secs_f64() < rule.share * account.lived.as_secs_f64() {
                account.used += rule.period;
            }
            account.lived += rule.period;
        }
    }

    #[test]
    fn settled_a_window_has_the_share_whatever_was_before() {
        const LEAST: Duration = Duration::from_millis(100);
        for share in [0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95] {
            for (used_ms, lived_ms) in [(220, 250), (5, 150), (1_000, 1_100), (0, 3_000)] {
                let (rule, mut now) = (rule(share, 1), account(used_ms, lived_ms));
                let (mut rounds, mut left) = (0, rule.left(None, now).max(LEAST));
                while !left.is_zero() {
                    let before = now;
                    live(&rule, &mut now, left.max(LEAST));
                    left = rule.left(Some(before), now);
                    rounds += 1;
                    assert!(rounds < 10, "{share}: {now:?} does not settle");
                }
                live(&rule, &mut now, LEAST.max(rule.cycle() * 3));
                let before = now.used;
                let window = Duration::from_millis(200).max(rule.cycle() * 3);
                live(&rule, &mut now, window);
                let off = now.used.saturating_sub(before).as_secs_f64() - share * window.as_secs_f64();
                // A burst at the border is in it or not, and the window is whole looks.
                assert!(off.abs() < 1.5 * rule.period.as_secs_f64(), "{share} from {used_ms}: off by {off}");
            }
        }
    }

    #[test]
    fn a_worker_has_its_descendants() {
        let proc = Path::new("/proc");
        let mut child = std::process::Command::new("sleep").arg("20").spawn().unwrap();
        let (own, its) = (std::process::id() as Pid, child.id() as Pid);
        let pids = |worker| {
            let standing = Standing::of(rule(0.2, 1), proc, worker).unwrap();
            standing.processes.iter().map(|process| process.pid).collect::<Vec<_>>()
        };
        assert_eq!(pids(its), [its]);
        assert!(pids(own).first() == Some(&own) && pids(own).contains(&its));
        let mut asleep = Standing::of(rule(0.2, 1), proc, its).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!((asleep.left(), asleep.left()), (Duration::ZERO, Duration::ZERO), "it is never stopped");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Standing::of(rule(0.2, 1), proc, its).is_err());
    }
}

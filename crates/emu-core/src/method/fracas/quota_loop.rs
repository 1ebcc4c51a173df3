//! Keeps the quotas of a zone: corrects them, spreads threads, and knows how it goes.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::balancer::Balancer;
use super::phase::{self, Phase};
use super::quota_group::{QuotaGroup, at_period_start};
use super::turn_end::TurnEnd;
use crate::ablation::{Correction, is_off};
use crate::cgroup::PERIOD_MAX;
use crate::cpu_list::CpuList;
use crate::duty::{Command, DutyThread, Wait};
use crate::error::{Error, Result};
use crate::notes::Notes;
use crate::sys::lock;
use crate::sys::time::{self, Nanos};

/// How long demand is watched for one judgement of it, at least, and in how many periods.
const WINDOW: Nanos = 2_000_000_000;
const WINDOW_PERIODS: Nanos = 10;

/// When quotas that the kernel has refused are written again.
const TRY_AGAIN: Nanos = 100_000_000;

#[derive(Debug)]
struct Work {
    governed: Vec<QuotaGroup>,
    balancer: Option<Balancer>,
    phase: Option<Phase>,
    /// For each group; `None` until it is known when the periods of several begin.
    turn_ends: Option<Vec<TurnEnd>>,
    window: Nanos,
    window_end: Nanos,
    first_periods: u64,
    /// What each step has failed with, until it goes well.
    unset: Option<Error>,
    unsettled: Option<(usize, Error)>,
    unspread: Option<Error>,
    unaligned: Option<Error>,
    uncorrected: Option<Error>,
    found: Notes,
}

#[derive(Debug)]
struct Wanted {
    /// In CPUs.
    shares: Vec<f64>,
    period_us: u64,
}

impl Wanted {
    fn of(&self, group: usize) -> Option<(f64, u64)> {
        Some((*self.shares.get(group)?, self.period_us))
    }
}

#[derive(Debug)]
pub(crate) struct QuotaLoop {
    work: Arc<Mutex<Work>>,
    /// Apart from the work, which the thread may hold for some periods.
    wanted: Arc<Mutex<Wanted>>,
    thread: DutyThread<()>,
    own_cpu: Arc<AtomicI64>,
}

/// What is delivered per CPU of one group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Delivered {
    /// What tasks got while demand was full, else what the quota gives.
    pub(crate) effective: f64,
    pub(crate) duty: f64,
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) groups: Vec<Delivered>,
    pub(crate) period: Duration,
    /// Periods in which there was something to run.
    pub(crate) periods: u64,
    pub(crate) longest_stall: Duration,
    pub(crate) own_cpu: Duration,
    pub(crate) problems: Vec<String>,
}

impl QuotaLoop {
    /// `shares` are in CPUs, in the order of `governed`.
    pub(crate) fn start(
        mut governed: Vec<QuotaGroup>,
        balancer: Option<Balancer>,
        shares: &[f64],
        period_us: u64,
    ) -> Result<Self> {
        if governed.len() > 1 {
            phase::gather(&mut governed);
        }
        for (group, &share) in governed.iter_mut().zip(shares) {
            group.begin(share, period_us)?;
        }
        let mut work = Work {
            governed,
            balancer,
            phase: None,
            turn_ends: None,
            window: 0,
            window_end: 0,
            first_periods: 0,
            unset: None,
            unsettled: None,
            unspread: None,
            unaligned: None,
            uncorrected: None,
            found: Notes::default(),
        };
        work.first_periods = work.periods();
        if let Some(balancer) = &mut work.balancer {
            balancer.begin(&mut work.governed)?;
        }
        work.begin_windows(period_us);
        let wanted = Arc::new(Mutex::new(Wanted { shares: shares.to_vec(), period_us }));
        let (work, own_cpu) = (Arc::new(Mutex::new(work)), Arc::new(AtomicI64::new(0)));
        let (theirs, theirs_wanted, cpu) = (Arc::clone(&work), Arc::clone(&wanted), Arc::clone(&own_cpu));
        let thread = DutyThread::spawn(
            "emu-fracas",
            (),
            || Ok(()),
            move |(), wait| {
                run(&theirs, &theirs_wanted, &cpu, wait);
                Ok(())
            },
        )?;
        Ok(Self { work, wanted, thread, own_cpu })
    }

    /// Takes one period and a little. What the kernel refuses is tried again, and told by the report, as are threads
    /// that cannot be spread anew.
    pub(crate) fn retarget(&self, shares: Vec<f64>, period_us: u64) {
        *lock(&self.wanted) = Wanted { shares, period_us };
        self.thread.set(());
    }

    pub(crate) fn period(&self) -> Duration {
        Duration::from_micros(lock(&self.wanted).period_us)
    }

    pub(crate) fn report(&self) -> Report {
        let mut work = lock(&self.work);
        let period_us = work.governed.first().map_or(0, |group| group.asked().1);
        // What cannot be looked at now is told by the next round.
        let _ = work.look();
        let mut problems = work.found.problems();
        problems.extend(work.governed.iter().filter_map(QuotaGroup::shortfall));
        let failures = work.unsettled.iter().map(|(_, error)| error).chain(&work.unset).chain(&work.unspread);
        for error in failures.chain(&work.unaligned).chain(&work.uncorrected) {
            let hint = error.hint_text().map(|hint| format!(" ({hint})")).unwrap_or_default();
            problems.push(format!("the quotas could not be looked after: {}{hint}", error.in_words()));
        }
        if let Some(why) = self.thread.ended() {
            problems.push(format!(
                "the thread that looks after the quotas has ended: they stay as they are, and threads are not spread: {why}"
            ));
        }
        let missing = work.balancer.as_ref().map(Balancer::missing).filter(|missing| !missing.is_empty());
        problems.extend(missing.map(|missing| {
            format!(
                "CPUs {missing} are online, but the cgroup above does not have them: tasks share the others"
            )
        }));
        let stuck = work.balancer.as_ref().map_or(0, Balancer::stuck);
        if stuck > 0 {
            problems.push(format!("{stuck} threads could not be moved to the group of a CPU"));
        }
        if work.balancer.as_ref().is_some_and(Balancer::may_forget) {
            problems.push(
                "this kernel (before Linux 6.2) does not keep the CPUs that threads have bound themselves to while emu \
                 binds their group to its CPU: such threads, or those that they start, may run on others of the zone"
                    .to_owned(),
            );
        }
        let ends: Nanos = work.turn_ends.iter().flatten().map(TurnEnd::cpu_time).sum();
        Report {
            groups: work
                .governed
                .iter()
                .map(|group| Delivered { effective: group.effective(), duty: group.duty() })
                .collect(),
            period: Duration::from_micros(period_us),
            periods: work.periods().saturating_sub(work.first_periods),
            longest_stall: work.governed.iter().map(QuotaGroup::longest_stall).max().unwrap_or_default(),
            own_cpu: time::span(self.own_cpu.load(Ordering::Relaxed) + ends),
            problems,
        }
    }

    /// The quotas stay until their groups go.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.thread.stop()
    }
}

fn run(work: &Mutex<Work>, wanted: &Mutex<Wanted>, own_cpu: &AtomicI64, wait: &Wait<()>) {
    loop {
        let (Command::Run(()), generation) = wait.command() else { return };
        lock(work).set(wanted);
        let next = lock(work).next();
        if wait.until(next, generation) {
            // New quotas must not wait for what takes some periods.
            lock(work).round(&|| wait.generation() != generation);
            own_cpu.store(time::thread_cpu(), Ordering::Relaxed);
        }
    }
}

/// A thread on each CPU, or none.
fn turn_ends(cpus: &CpuList) -> Vec<TurnEnd> {
    if is_off(Correction::TurnEnds) {
        return Vec::new();
    }
    cpus.iter().map(TurnEnd::start).collect::<Option<_>>().unwrap_or_default()
}

fn settle(group: &mut QuotaGroup, found: &mut Notes) -> Result<()> {
    if !group.settle()? {
        return Ok(());
    }
    match group.look()? {
        Some(problem) => found.add_problem(problem),
        None => group.renew()?,
    }
    Ok(())
}

impl Work {
    fn begin_windows(&mut self, period_us: u64) {
        let period = period_us as Nanos * 1_000;
        // Whole periods, so that every window begins and ends at the same point of a turn.
        self.window = (WINDOW / period.max(1) + 1).max(WINDOW_PERIODS) * period;
        self.window_end = time::now();
        // Lengthened once, a period must still be one that the kernel accepts.
        let can_move = self.governed.len() > 1 && 2 * period_us <= PERIOD_MAX.as_micros() as u64;
        self.phase = can_move.then(|| Phase::new(&self.governed, period_us));
    }

    fn next(&self) -> Nanos {
        let looks = self.governed.iter().filter_map(QuotaGroup::settle_at);
        let phase = self.phase.as_ref().and_then(Phase::next);
        let balance = self.balancer.as_ref().map(Balancer::next);
        let again = self.unset.as_ref().map(|_| time::now() + TRY_AGAIN);
        looks.chain(balance).chain(phase).chain(again).fold(self.window_end, Nanos::min)
    }

    fn periods(&self) -> u64 {
        let periods = self.governed.iter().filter_map(|group| Some(group.read().ok()?.throttling.periods));
        periods.max().unwrap_or(0)
    }

    /// Sets quotas that are not what is wanted: that of each group once in a period at most, with which it gets no more than
    /// the highest of them.
    fn set(&mut self, wanted: &Mutex<Wanted>) {
        let is_wanted =
            |index: usize, group: &QuotaGroup| lock(wanted).of(index).is_none_or(|it| group.is_asked(it));
        if self.governed.iter().enumerate().all(|(index, group)| is_wanted(index, group)) {
            return;
        }
        // Before it is written over; what cannot be looked at now is told by the next round.
        let _ = self.look();
        let mut groups: Vec<_> =
            self.governed.iter_mut().enumerate().map(|(index, group)| (group, index)).collect();
        groups.retain(|(group, index)| !is_wanted(*index, group));
        let set = at_period_start(&mut groups, &|| false, |group, index| {
            // It may be another one by now.
            let latest = lock(wanted).of(*index);
            latest.map_or(Ok(()), |(share, period_us)| group.ask(share, period_us))
        });
        self.unset = set.err();
        let period_us = lock(wanted).period_us;
        self.begin_windows(period_us);
        let Self { governed, balancer, .. } = self;
        let begun = balancer.as_mut().map_or(Ok(()), |balancer| balancer.begin(governed));
        self.unspread = begun.err();
    }

    /// Does what is due. A failure is kept to be reported, and tried again at the next round: a CPU may be on
    /// its way offline, a thread on its way out.
    fn round(&mut self, is_interrupted: &dyn Fn() -> bool) {
        let now = time::now();
        // First, as a quota is best written just after its period has begun.
        self.settle(now);
        if self.balancer.as_ref().is_some_and(|balancer| now >= balancer.next()) {
            self.unspread = self.balance().err();
        }
        if let Some(phase) = self.phase.as_mut().filter(|phase| phase.next().is_some_and(|next| now >= next))
        {
            self.unaligned = phase.look(&mut self.governed, is_interrupted).err();
        }
        if now >= self.window_end {
            self.uncorrected = self.correct(now, is_interrupted).err();
        }
        let begin = self.phase.as_ref().and_then(Phase::begin);
        if let (Some(_), Some(balancer)) = (begin, &self.balancer) {
            self.turn_ends.get_or_insert_with(|| turn_ends(balancer.cpus()));
        }
        for (end, group) in self.turn_ends.iter_mut().flatten().zip(&mut self.governed) {
            end.tell(group.end_turns(begin));
        }
    }

    fn look(&mut self) -> Result<()> {
        for group in &mut self.governed {
            if let Some(problem) = group.look()? {
                self.found.add_problem(problem);
            }
        }
        Ok(())
    }

    /// Lets groups rest that have nothing to run, and has those that have woken up back at their full quotas.
    fn settle(&mut self, now: Nanos) {
        for (index, group) in self.governed.iter_mut().enumerate() {
            if group.settle_at().is_none_or(|at| now < at) {
                continue;
            }
            match settle(group, &mut self.found) {
                Ok(()) => drop(self.unsettled.take_if(|(of, _)| *of == index)),
                Err(error) => self.unsettled = Some((index, error)),
            }
            if let Some(balancer) = self.balancer.as_mut().filter(|_| group.has_woken()) {
                balancer.look_at_births();
            }
        }
    }

    fn balance(&mut self) -> Result<()> {
        self.balancer.as_mut().map_or(Ok(()), |balancer| balancer.look(&mut self.governed))
    }

    fn correct(&mut self, now: Nanos, is_interrupted: &dyn Fn() -> bool) -> Result<()> {
        let behind = (now - self.window_end) / self.window.max(1);
        self.window_end += (behind + 1) * self.window;
        self.look()?;
        let mut changed = Vec::new();
        for group in &mut self.governed {
            if group.end_window()? {
                changed.push((group, ()));
            }
        }
        at_period_start(&mut changed, is_interrupted, |group, ()| group.renew())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::per_cpu_groups::CpuGroups;
    use super::*;
    use crate::cpu_list::CpuList;
    use crate::host::testing::{tree, write};

    const FILES: [(&str, &str); 5] = [
        ("tasks", ""),
        ("cpu0/tasks", ""),
        ("cpu0/cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"),
        ("cpu0/cpu.cfs_quota_us", "-1\n"),
        ("cpu0/cpu.cfs_period_us", "100000\n"),
    ];

    fn keeper(root: &std::path::Path) -> QuotaLoop {
        let cpus: CpuList = [0].into_iter().collect();
        let groups = CpuGroups::below(root, &cpus);
        let governed = groups.bandwidths().unwrap().into_iter();
        let governed = governed.map(|bandwidth| QuotaGroup::new(bandwidth, 1, None, None)).collect();
        let balancer = Balancer::new(groups, root.join("online"), &cpus);
        QuotaLoop::start(governed, Some(balancer), &[0.5], 20_000).unwrap()
    }

    #[test]
    fn new_quotas_count_even_if_threads_cannot_be_spread_anew() {
        let root = tree(&FILES);
        let keeper = keeper(root.path());
        assert!(keeper.report().problems.is_empty());
        fs::remove_file(root.path().join("tasks")).unwrap();
        keeper.retarget(vec![0.25], 20_000);
        crate::cgroup::testing::wait_until(|| (keeper.report().groups[0].duty - 0.25).abs() < 1e-9);
        for _ in 0..100 {
            let report = keeper.report();
            assert!((report.groups[0].duty - 0.25).abs() < 1e-9);
            assert!(report.problems[0].contains("could not be looked after"), "{:?}", report.problems);
            std::thread::sleep(Duration::from_millis(1));
        }
        write(root.path(), "tasks", b"");
        crate::cgroup::testing::wait_until(|| keeper.report().problems.is_empty());
    }

    #[test]
    fn a_quota_that_was_rewritten_and_put_back_stays_in_the_report() {
        let root = tree(&FILES);
        let keeper = keeper(root.path());
        for (quota, effective) in [("30000", 1.0), ("2000", 0.1), ("10000", 0.5)] {
            write(root.path(), "cpu0/cpu.cfs_quota_us", quota.as_bytes());
            assert!((keeper.report().groups[0].effective - effective).abs() < 1e-9);
        }
        // The thread may have looked while a file was being written.
        let problems = keeper.report().problems;
        let rewritten = problems.iter().filter(|problem| problem.contains("somebody else has written"));
        assert_eq!(rewritten.count(), 2, "{problems:?}");
    }
}

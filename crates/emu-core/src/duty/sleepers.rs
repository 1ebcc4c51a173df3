//! What tasks that sleep take from the others of their zone when they are let go.
//!
//! They are woken, find their way out of the kernel, and go on sleeping: some microseconds each, by what they sleep in and
//! by how many of them want the kernel's locks at once. Their CPU time from one hold to the next is just that.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::holder::Hold;
use crate::sys::time::{self, Nanos};
use crate::zone::Pid;

/// How often the tasks are counted.
const COUNT_EVERY: Nanos = 1_000_000_000;

/// Of so many tasks the CPU time is read, at most.
const SOME: usize = 16;

/// A task that uses more than this, in nanoseconds, or more than a quarter of the time for which the tasks run, works.
const WORK: f64 = 200_000.0;
const WORK_PART: f64 = 0.25;

/// A task that computes or waits for a CPU for more than this part of that time works all the time.
const WORKING_PART: f64 = 0.5;

/// Weight of the newest look in the mean.
const WEIGHT: f64 = 0.125;

/// The tasks of a zone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// How many there are, that is threads.
    pub(crate) count: usize,
    /// Some of them.
    some: Vec<Pid>,
}

impl Census {
    /// Of that many tasks, among them these.
    pub(crate) fn of(count: usize, listed: &[Pid]) -> Self {
        let step = listed.len().div_ceil(SOME).max(1);
        Self { count, some: listed.iter().copied().step_by(step).collect() }
    }
}

/// The account of the tasks of a zone that sleep.
#[derive(Debug)]
pub(crate) struct Sleepers {
    proc: PathBuf,
    next_count: Nanos,
    tasks: usize,
    some: Vec<Watched>,
    /// CPU time of those that do not work, spread over all tasks, in nanoseconds for each and each hold.
    mean: Option<f64>,
    /// Which part of all tasks works.
    working_part: f64,
}

/// A task whose CPU time is read.
#[derive(Debug)]
struct Watched {
    schedstat: File,
    /// Its CPU time before it was let go.
    before: Option<Nanos>,
    /// Its CPU time and its time of waiting for a CPU in the last hold.
    at_work: Option<Nanos>,
}

impl Sleepers {
    /// Nothing is known yet.
    pub(crate) fn new(proc: &Path) -> Self {
        Self {
            proc: proc.to_owned(),
            next_count: 0,
            tasks: 0,
            some: Vec::new(),
            mean: None,
            working_part: 0.0,
        }
    }

    /// To be called before the tasks are held, after they were to run for `run` nanoseconds.
    pub(crate) fn before_hold(&mut self, hold: &mut impl Hold, run: f64) {
        let work = WORK.min(run * WORK_PART);
        let used = |one: &mut Watched| Some((times(&one.schedstat)?.0 - one.before.take()?).max(0) as f64);
        let used: Vec<_> = self.some.iter_mut().filter_map(used).collect();
        if !used.is_empty() {
            let slept = used.iter().filter(|used| **used <= work);
            let newest = slept.sum::<f64>() / used.len() as f64;
            let mean = self.mean.get_or_insert(newest);
            *mean += (newest - *mean) * WEIGHT;
        }
        let now = time::now();
        if now >= self.next_count {
            let Census { count, some } = hold.census();
            let open = |pid: &Pid| File::open(self.proc.join(format!("{pid}/schedstat"))).ok();
            let watch = |schedstat| Watched { schedstat, before: None, at_work: None };
            self.some = some.iter().filter_map(open).map(watch).collect();
            self.tasks = count;
            self.next_count = now + COUNT_EVERY;
        }
    }

    /// To be called while the tasks are held, which run for `run` nanoseconds from one hold to the next.
    pub(crate) fn while_held(&mut self, run: f64) {
        let (mut seen, mut working) = (0_usize, 0_usize);
        for one in &mut self.some {
            let times = times(&one.schedstat);
            one.before = times.map(|(on_cpu, _)| on_cpu);
            let at_work = times.map(|(on_cpu, waited)| on_cpu + waited);
            if let Some((now, before)) = at_work.zip(one.at_work) {
                seen += 1;
                working += usize::from((now - before) as f64 > run * WORKING_PART);
            }
            one.at_work = at_work;
        }
        if seen > 0 {
            self.working_part = working as f64 / seen as f64;
        }
    }

    /// How many tasks the zone had when they were last counted.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks
    }

    /// How many tasks work or wait for a CPU all the time, about.
    pub(crate) fn at_work(&self) -> usize {
        (self.working_part * self.tasks as f64).round() as usize
    }

    /// CPU time that those that sleep take for each hold, in nanoseconds on all CPUs.
    pub(crate) fn cost(&self) -> f64 {
        self.mean.unwrap_or(0.0) * self.tasks as f64
    }
}

/// The time of a task on CPUs and its time of waiting for one: the first two numbers of `/proc/<tid>/schedstat`
/// (Documentation/scheduler/sched-stats.rst), up to date for a task that is on none.
pub(crate) fn times_in_schedstat(text: &str) -> Option<(Nanos, Nanos)> {
    let mut numbers = text.split_ascii_whitespace();
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn times(schedstat: &File) -> Option<(Nanos, Nanos)> {
    let mut buffer = [0; 80];
    let length = schedstat.read_at(&mut buffer, 0).ok()?;
    times_in_schedstat(std::str::from_utf8(buffer.get(..length)?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duty::holder::tests::Tasks;

    /// The cost for this many tasks, each of which has used so much since it was let go.
    fn cost(count: usize, run: f64, used: impl Fn(Pid) -> Nanos) -> f64 {
        let dir = tempfile::tempdir().unwrap();
        let write = |pid: Pid, used: Nanos| {
            std::fs::create_dir_all(dir.path().join(pid.to_string())).unwrap();
            std::fs::write(dir.path().join(format!("{pid}/schedstat")), format!("{used} 0 1\n")).unwrap();
        };
        let pids = 0..count as Pid;
        pids.clone().for_each(|pid| write(pid, 1_000));
        let mut sleepers = Sleepers::new(dir.path());
        sleepers.before_hold(&mut Tasks(count), run);
        assert_eq!((sleepers.tasks(), sleepers.cost().to_bits()), (count, 0), "nothing is known yet");
        sleepers.while_held(run);
        pids.for_each(|pid| write(pid, 1_000 + used(pid)));
        sleepers.before_hold(&mut Tasks(count), run);
        sleepers.cost()
    }

    #[test]
    fn those_that_work_are_no_cost() {
        assert!(cost(3, 1e7, |_| 3_000_000).abs() < 1e-9);
        assert!((cost(3, 1e7, |pid| [3_000_000, 20_000, 0][pid as usize]) - 20_000.0).abs() < 1e-6);
        // All that there was to be had in a short time.
        assert!(cost(1, 100_000.0, |_| 90_000).abs() < 1e-9);
    }

    #[test]
    fn some_of_many_tell_for_all() {
        // Every other one is still waiting for its turn.
        let cost = cost(320, 1e7, |pid| if pid % 40 == 0 { 30_000 } else { 0 });
        assert!((cost - 320.0 * 15_000.0).abs() < 1e-6, "{cost}");
        assert_eq!(Census::of(9, &[]), Census { count: 9, some: vec![] });
        assert_eq!(Census::of(3, &[5, 6, 7]).some, [5, 6, 7]);
        assert_eq!(Census::of(40, &(0..40).collect::<Vec<_>>()).some.len(), 14);
    }

    #[test]
    fn who_computes_or_waits_all_the_time_works() {
        let dir = tempfile::tempdir().unwrap();
        let write = |hold: Nanos| {
            for pid in 0..4 {
                let [on_cpu, waited] =
                    [[900, 0], [0, 900], [300, 300], [200, 100]][pid].map(|part| part * hold);
                std::fs::create_dir_all(dir.path().join(pid.to_string())).unwrap();
                std::fs::write(dir.path().join(format!("{pid}/schedstat")), format!("{on_cpu} {waited} 1"))
                    .unwrap();
            }
        };
        let mut sleepers = Sleepers::new(dir.path());
        for (hold, at_work) in [(0, 0), (1, 3), (2, 3), (2, 0)] {
            write(hold);
            sleepers.before_hold(&mut Tasks(4), 1_000.0);
            sleepers.while_held(1_000.0);
            assert_eq!(sleepers.at_work(), at_work, "{hold}");
        }
    }

    #[test]
    fn strange_text_and_missing_files_say_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("schedstat");
        for text in [&b""[..], b"x 1 2", b"\xff"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(times(&File::open(&path).unwrap()), None);
        }
        let mut sleepers = Sleepers::new(dir.path());
        for _ in 0..3 {
            sleepers.before_hold(&mut Tasks(5), 1e6);
            sleepers.while_held(1e6);
        }
        assert_eq!((sleepers.tasks(), sleepers.cost().to_bits(), sleepers.at_work()), (5, 0, 0));
    }
}

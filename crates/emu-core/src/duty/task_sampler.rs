//! Counts the tasks of a zone, finds those that are busy, and measures what sleeping tasks cost at a resume.
//!
//! A sleeping task that is resumed wakes up, leaves the signal or freezer code and sleeps again. This takes microseconds,
//! depending on where it sleeps and on how many tasks compete for the same kernel locks. The cost is the task's CPU time
//! between two stops. Of many tasks only a sample is read, a different one after each census.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::stop::{Census, SAMPLE_MAX, Stop};
use crate::process::times_in_schedstat;
use crate::sys::Pid;
use crate::sys::time::{self, Nanos};

/// How often the tasks are counted, in nanoseconds: few tasks more often where it matters which are busy, so that new ones are
/// known soon.
const COUNT_EVERY: Nanos = 1_000_000_000;
const COUNT_FEW_EVERY: Nanos = 100_000_000;

/// A task that uses more than this in nanoseconds, or more than this part of the run time, works.
const WORK: f64 = 200_000.0;
const WORK_PART: f64 = 0.25;

/// A task that computes or waits for a CPU for more than this part of the run time is busy.
const BUSY_PART: f64 = 0.5;

/// Each of [`SAMPLE_MAX`] busy tasks on one CPU computes for more than this part of the run time.
const COMPUTE_PART: f64 = 0.05;

/// The number of looks after which the watched tasks can be replaced: two tell the use between stops.
const LOOKS: u32 = 2;

/// Weight of the newest look in the mean.
const WEIGHT: f64 = 0.125;

#[derive(Debug)]
pub(crate) struct TaskSampler {
    proc: PathBuf,
    /// Whether it matters which tasks are busy, and not only how many.
    by_name: bool,
    next_count: Nanos,
    tasks: usize,
    watched: Vec<Watched>,
    /// CPU time of the tasks that do not work, spread over all tasks: nanoseconds for each task and stop.
    mean: Option<f64>,
    busy_part: Option<f64>,
    /// How long the tasks were to run since the last look, in nanoseconds.
    ran: f64,
    /// The number of looks at the watched tasks, and of the census that chose them.
    looks: u32,
    turn: usize,
}

#[derive(Debug)]
struct Watched {
    tid: Pid,
    schedstat: File,
    /// Its CPU time before it was resumed.
    before: Option<Nanos>,
    /// Its CPU time and its waiting time on run queues in the last stop.
    last: Option<(Nanos, Nanos)>,
    is_busy: bool,
    /// The mean part of the run time for which the task computed.
    computed: Option<f64>,
}

impl TaskSampler {
    pub(crate) fn new(proc: &Path, by_name: bool) -> Self {
        Self {
            proc: proc.to_owned(),
            by_name,
            next_count: 0,
            tasks: 0,
            watched: Vec::new(),
            mean: None,
            busy_part: None,
            ran: 0.0,
            looks: 0,
            turn: 0,
        }
    }

    pub(crate) fn before_stop(&mut self, stopper: &mut impl Stop, run: f64) {
        self.ran += run;
        let work = WORK.min(run * WORK_PART);
        let used = |one: &mut Watched| Some((times(&one.schedstat)?.0 - one.before.take()?).max(0) as f64);
        let used: Vec<_> = self.watched.iter_mut().filter_map(used).collect();
        if !used.is_empty() {
            let slept = used.iter().filter(|used| **used <= work);
            let newest = slept.sum::<f64>() / used.len() as f64;
            let mean = self.mean.get_or_insert(newest);
            *mean += (newest - *mean) * WEIGHT;
        }
        let now = time::now();
        if now >= self.next_count && (self.looks >= LOOKS || self.watched.is_empty()) {
            let Census { count, sample } = stopper.census(self.turn);
            let mut known = std::mem::take(&mut self.watched);
            let watch = |&tid: &Pid| {
                if let Some(place) = known.iter().position(|one| one.tid == tid) {
                    return Some(known.swap_remove(place));
                }
                let schedstat = File::open(self.proc.join(format!("{tid}/schedstat"))).ok()?;
                Some(Watched { tid, schedstat, before: None, last: None, is_busy: false, computed: None })
            };
            self.watched = sample.iter().filter_map(watch).collect();
            self.tasks = count;
            self.looks = 0;
            self.turn = self.turn.wrapping_add(1);
            let are_few = self.by_name && count <= SAMPLE_MAX;
            self.next_count = now + if are_few { COUNT_FEW_EVERY } else { COUNT_EVERY };
        }
    }

    pub(crate) fn while_stopped(&mut self) {
        let ran = std::mem::take(&mut self.ran);
        let (mut seen, mut busy) = (0_usize, 0_usize);
        for one in &mut self.watched {
            let times = times(&one.schedstat);
            one.before = times.map(|(on_cpu, _)| on_cpu);
            one.is_busy = false;
            if let Some(((on_cpu, waited), (last_on_cpu, last_waited))) = times.zip(one.last) {
                let used = on_cpu.saturating_sub(last_on_cpu) as f64;
                let waited = waited.saturating_sub(last_waited) as f64;
                seen += 1;
                one.is_busy = used + waited > ran * BUSY_PART;
                busy += usize::from(one.is_busy);
                let newest = if ran > 0.0 { used / ran } else { 0.0 };
                let mean = one.computed.get_or_insert(newest);
                *mean += (newest - *mean) * WEIGHT;
            }
            one.last = times;
        }
        if seen > 0 {
            self.busy_part = Some(busy as f64 / seen as f64);
        }
        self.looks += 1;
    }

    pub(crate) fn tasks(&self) -> usize {
        self.tasks
    }

    /// About how many tasks compute or wait for a CPU most of the time; all before the first measurement.
    pub(crate) fn busy(&self) -> usize {
        (self.busy_part.unwrap_or(1.0) * self.tasks as f64).round() as usize
    }

    /// The watched tasks that were busy at the last look and compute when they get a CPU. A parent that is told of each stop
    /// may wait for a CPU most of the time, too, and is not among them.
    pub(crate) fn busy_tasks(&self) -> Vec<Pid> {
        let computes = |one: &&Watched| one.is_busy && one.computed.is_some_and(|part| part > COMPUTE_PART);
        self.watched.iter().filter(computes).map(|one| one.tid).collect()
    }

    pub(crate) fn knows_all(&self) -> bool {
        self.watched.len() == self.tasks
    }

    /// CPU time that sleeping tasks use after each stop, in nanoseconds on all CPUs.
    pub(crate) fn cost(&self) -> f64 {
        self.mean.unwrap_or(0.0) * self.tasks as f64
    }
}

/// The times of a task; `None` for zeros, which a kernel without this accounting writes.
fn times(schedstat: &File) -> Option<(Nanos, Nanos)> {
    let mut buffer = [0; 80];
    let length = schedstat.read_at(&mut buffer, 0).ok()?;
    times_in_schedstat(std::str::from_utf8(buffer.get(..length)?).ok()?).filter(|times| *times != (0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duty::duty_loop::tests::Tasks;

    /// The cost for `count` tasks, each of which has used CPU time since it was resumed.
    fn cost(count: usize, run: f64, used: impl Fn(Pid) -> Nanos) -> f64 {
        let dir = tempfile::tempdir().unwrap();
        let write = |pid: Pid, used: Nanos| {
            std::fs::create_dir_all(dir.path().join(pid.to_string())).unwrap();
            std::fs::write(dir.path().join(format!("{pid}/schedstat")), format!("{used} 0 1\n")).unwrap();
        };
        let pids = 0..count as Pid;
        pids.clone().for_each(|pid| write(pid, 1_000));
        let mut sampler = TaskSampler::new(dir.path(), false);
        sampler.before_stop(&mut Tasks(count), run);
        assert_eq!((sampler.tasks(), sampler.cost().to_bits()), (count, 0), "nothing is measured yet");
        sampler.while_stopped();
        pids.for_each(|pid| write(pid, 1_000 + used(pid)));
        sampler.before_stop(&mut Tasks(count), run);
        sampler.cost()
    }

    #[test]
    fn tasks_that_work_are_no_cost() {
        assert!(cost(3, 1e7, |_| 3_000_000).abs() < 1e-9);
        assert!((cost(3, 1e7, |pid| [3_000_000, 20_000, 0][pid as usize]) - 20_000.0).abs() < 1e-6);
        // 90 % of a short run time.
        assert!(cost(1, 100_000.0, |_| 90_000).abs() < 1e-9);
    }

    #[test]
    fn a_sample_of_many_tells_for_all() {
        // Every other one of the sample is still waiting for its turn.
        let cost = cost(320, 1e7, |pid| if pid % 40 == 0 { 30_000 } else { 0 });
        assert!((cost - 320.0 * 15_000.0).abs() < 1e-6, "{cost}");
        assert_eq!(Census::of(9, &[], 5), Census { count: 9, sample: vec![] });
        assert_eq!(Census::of(3, &[5, 6, 7], 5).sample, [5, 6, 7]);
        let listed: Vec<_> = (0..40).collect();
        assert_eq!(Census::of(40, &listed, 0).sample.len(), 14);
        let mut all: Vec<_> = (7..10).flat_map(|turn| Census::of(40, &listed, turn).sample).collect();
        all.sort_unstable();
        assert_eq!(all, listed);
        assert_eq!(Census::of(9, &[1, 2], 0).map(|pid| pid * 10), Census { count: 9, sample: vec![10, 20] });
    }

    #[test]
    fn tasks_that_compute_or_wait_most_of_the_time_are_busy() {
        let dir = tempfile::tempdir().unwrap();
        let write = |round: Nanos| {
            for pid in 0..4 {
                let [on_cpu, waited] =
                    [[900, 0], [0, 900], [300, 300], [200, 100]][pid].map(|part| 1 + part * round);
                std::fs::create_dir_all(dir.path().join(pid.to_string())).unwrap();
                std::fs::write(dir.path().join(format!("{pid}/schedstat")), format!("{on_cpu} {waited} 1"))
                    .unwrap();
            }
        };
        let mut sampler = TaskSampler::new(dir.path(), false);
        // Nothing is known at first; at the end there were two periods without a stop.
        for (round, periods, busy) in
            [(0, 1, 4), (1, 1, 3), (2, 1, 3), (2, 1, 0), (3, 1, 3), (4, 1, 3), (5, 1, 3), (6, 3, 0)]
        {
            write(round);
            // Have the tasks counted again each time.
            sampler.next_count = 0;
            (0..periods).for_each(|_| sampler.before_stop(&mut Tasks(4), 1_000.0));
            sampler.while_stopped();
            assert_eq!(sampler.busy(), busy, "{round}");
            // Of the first three, which are busy, the second one only waits.
            let computing: &[Pid] = if busy == 3 { &[0, 2] } else { &[] };
            assert_eq!(sampler.busy_tasks(), computing, "{round}");
        }
    }

    #[test]
    fn all_count_as_busy_where_the_kernel_does_not_account() {
        let dir = tempfile::tempdir().unwrap();
        for pid in 0..3 {
            std::fs::create_dir_all(dir.path().join(pid.to_string())).unwrap();
            std::fs::write(dir.path().join(format!("{pid}/schedstat")), "0 0 0\n").unwrap();
        }
        let mut sampler = TaskSampler::new(dir.path(), false);
        for _ in 0..3 {
            sampler.before_stop(&mut Tasks(3), 1_000.0);
            sampler.while_stopped();
        }
        assert_eq!(sampler.busy(), 3);
    }

    #[test]
    fn strange_text_and_missing_files_tell_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("schedstat");
        for text in [&b""[..], b"x 1 2", b"\xff"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(times(&File::open(&path).unwrap()), None);
        }
        let mut sampler = TaskSampler::new(dir.path(), false);
        for _ in 0..3 {
            sampler.before_stop(&mut Tasks(5), 1e6);
            sampler.while_stopped();
        }
        assert_eq!((sampler.tasks(), sampler.cost().to_bits(), sampler.busy()), (5, 0, 5));
    }
}

//! The loop on counted tasks: none is ever really stopped.

use std::path::Path;

use super::*;
use crate::duty::stop::Census;
use crate::status::Health;
use crate::sys::Pid;

const PERIOD: Nanos = 100_000_000;

/// A number of tasks that must not be stopped.
pub(in crate::duty) struct Tasks(pub(in crate::duty) usize);

impl Stop for Tasks {
    fn stop(&mut self, _: Nanos) -> Result<Stopped> {
        unreachable!()
    }

    fn resume(&mut self) -> Result<Nanos> {
        unreachable!()
    }

    fn census(&mut self, turn: usize) -> Census {
        Census::of(self.0, &(0..self.0 as Pid).collect::<Vec<_>>(), turn)
    }
}

/// A thread that does `body` with the state of a loop over many tasks at full speed.
fn duty_loop(
    body: impl FnOnce(&mut LoopState<Tasks>, &Wait<f64>) -> Result<()> + Send + 'static,
) -> Result<DutyLoop> {
    duty_loop_of(Tasks(MANY_TASKS), body)
}

fn duty_loop_of<S: Stop>(
    stopper: S,
    body: impl FnOnce(&mut LoopState<S>, &Wait<f64>) -> Result<()> + Send + 'static,
) -> Result<DutyLoop> {
    let progress = Arc::new(Progress::default());
    let theirs = Arc::clone(&progress);
    let begin = move || {
        Ok(LoopState {
            stopper,
            grid: Grid::new(time::now(), PERIOD),
            share: 1.0,
            ledger: Ledger::new(),
            cost: StopCost::ASSUMED,
            sampler: TaskSampler::new(Path::new("/nowhere"), false),
            early: Early::default(),
            shared_cpus: None,
            own_time: None,
            idle_pusher: None,
            pin_apart: None,
            cpus: 1,
            cpu_costs: [0; COSTS],
            last_cpu: 0,
            first: None,
            progress: theirs,
            notes: Notes::default(),
        })
    };
    let thread = DutyThread::spawn("test", 1.0, begin, |mut state, wait| body(&mut state, wait))?;
    Ok(DutyLoop { thread, progress, cpus_folder: PathBuf::new(), notes: Notes::default() })
}

#[test]
fn tasks_at_full_speed_are_not_stopped_whatever_is_owed() {
    let duty_loop = duty_loop(|state, wait| {
        state.ledger.charge(PERIOD as f64, PERIOD as f64, 0.5);
        assert!(state.ledger.owed() >= STOP_MIN);
        state.one_period(0, wait).map(drop)
    });
    duty_loop.unwrap().stop().unwrap();
}

#[test]
fn the_status_reports_the_longer_cycle_of_many_tasks() {
    let mut duty_loop = duty_loop(|state, wait| {
        // The tasks are counted.
        state.one_period(0, wait)?;
        state.cpu_costs = [(2.5 * OWN_CPU_AIM * PERIOD as f64) as Nanos; COSTS];
        state.one_period(1, wait).map(drop)
    })
    .unwrap();
    duty_loop.thread.stop().unwrap();
    let status = duty_loop.status(MethodId::new("cpu-freeze"), &Targets::new(), &[]);
    assert_eq!(status.period, time::span(3 * PERIOD));
}

#[test]
fn an_ended_thread_is_reported_as_full_speed() {
    let duty_loop = duty_loop(|state, _| {
        state.progress.counters.add_stop(75, 0);
        state.progress.counters.add_elapsed(100);
        Err(crate::error::Error::unavailable("the kernel refuses"))
    })
    .unwrap();
    while !duty_loop.thread.is_finished() {
        std::thread::yield_now();
    }
    let targets = [(0, crate::speed::Target { share: 0.25, clock: None })].into();
    let status = duty_loop.status(MethodId::new("cpu-freeze"), &targets, &[]);
    assert_eq!((status.health, status.cpus[0].set, status.cpus[0].duty), (Health::Ended, 1.0, 1.0));
    assert!(status.problems[0].contains("full speed: the kernel refuses"), "{:?}", status.problems);
    assert!(status.notes.is_empty(), "{:?}", status.notes);
}

/// Tasks that another program has stopped.
struct Theirs;

impl Stop for Theirs {
    fn stop(&mut self, _: Nanos) -> Result<Stopped> {
        unreachable!()
    }

    fn resume(&mut self) -> Result<Nanos> {
        unreachable!()
    }

    fn is_stopped_by_others(&mut self) -> bool {
        true
    }

    fn census(&mut self, _: usize) -> Census {
        Census::of(0, &[], 0)
    }
}

#[test]
fn a_period_in_which_another_program_stops_is_not_owed() {
    let duty_loop = duty_loop_of(Theirs, |state, wait| {
        (state.share, state.grid) = (0.5, Grid::new(time::now(), PERIOD));
        assert_eq!(state.one_period(0, wait)?, 1);
        assert_eq!((state.ledger.owed(), state.progress.counters.elapsed.load(Ordering::Relaxed)), (0.0, 0));
        Ok(())
    });
    duty_loop.unwrap().stop().unwrap();
}

#[test]
fn idle_cpus_search_where_tasks_outnumber_cpus() {
    let duty_loop = duty_loop(|state, wait| {
        let ms = 1e6;
        assert_eq!(state.search_time(50.0 * ms, 0.0), 0, "the tasks are not yet counted");
        state.one_period(0, wait)?;
        assert_eq!(state.search_time(50.0 * ms, 0.0), SEARCH_FOR);
        assert_eq!(state.search_time(4.0 * ms, 3.0 * ms), 4_000_000);
        state.cpus = MANY_TASKS as i64;
        assert_eq!(state.search_time(50.0 * ms, 0.0), 0);
        Ok(())
    });
    duty_loop.unwrap().stop().unwrap();
}

/// Tasks that are stopped and resumed in no time. Counts for how long they were stopped.
struct Counted {
    since: Nanos,
    stopped: Arc<AtomicI64>,
}

impl Stop for Counted {
    fn stop(&mut self, _: Nanos) -> Result<Stopped> {
        self.since = time::now();
        Ok(Stopped { from: self.since, is_confirmed: true })
    }

    fn resume(&mut self) -> Result<Nanos> {
        let now = time::now();
        self.stopped.fetch_add(now - self.since, Ordering::Relaxed);
        Ok(now)
    }

    fn census(&mut self, turn: usize) -> Census {
        Census::of(1, &[1], turn)
    }
}

#[test]
fn a_new_share_holds_from_the_moment_on() {
    crate::testing::in_some_attempt(|| {
        let stopped = Arc::new(AtomicI64::new(0));
        let tasks = Counted { since: 0, stopped: Arc::clone(&stopped) };
        let duty_loop = duty_loop_of(tasks, LoopState::run).unwrap();
        let at = |periods: f64| time::span((periods * PERIOD as f64) as Nanos);
        let had = || stopped.load(Ordering::Relaxed) as f64 / PERIOD as f64;
        time::sleep(at(1.1));
        duty_loop.set(0.5);
        // In the part of the second period in which the tasks run.
        time::sleep(at(1.7));
        assert!((had() - 1.0).abs() < 0.05, "{}", had());
        duty_loop.set(0.1);
        // What the second period had too much is taken off: three quarters of a period are left to be stopped.
        time::sleep(at(0.85));
        assert!((had() - 1.75).abs() < 0.05, "{}", had());
        duty_loop.stop().unwrap();
    });
}

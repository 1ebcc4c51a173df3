//! The cycle with tasks that are counted only.

use super::*;
use crate::duty::stop::Census;
use crate::status::Health;
use crate::sys::Pid;

const PERIOD: Nanos = 100_000_000;

/// So many tasks that must not be held.
pub(in crate::duty) struct Tasks(pub(in crate::duty) usize);

impl Stop for Tasks {
    fn hold(&mut self, _: Nanos) -> Result<Stopped> {
        unreachable!()
    }

    fn let_go(&mut self) -> Result<Nanos> {
        unreachable!()
    }

    fn census(&mut self, turn: usize) -> Census {
        Census::of(self.0, &(0..self.0 as Pid).collect::<Vec<_>>(), turn)
    }
}

/// A thread that does `body` with a cycle of many tasks at full speed.
fn holder(
    body: impl FnOnce(&mut LoopState<Tasks>, &Wait<f64>) -> Result<()> + Send + 'static,
) -> Result<DutyLoop> {
    holder_of(Tasks(MANY_TASKS), body)
}

fn holder_of<H: Stop>(
    hold: H,
    body: impl FnOnce(&mut LoopState<H>, &Wait<f64>) -> Result<()> + Send + 'static,
) -> Result<DutyLoop> {
    let seen = Arc::new(Seen::default());
    let theirs = Arc::clone(&seen);
    let begin = move || {
        Ok(LoopState {
            hold,
            grid: Grid::new(time::now(), PERIOD),
            share: 1.0,
            ledger: Ledger::new(),
            cost: StopCost::ASSUMED,
            sleepers: TaskSampler::new(Path::new("/nowhere"), false),
            early: Early::default(),
            shared_cpus: None,
            own_time: None,
            waker: None,
            parting: None,
            cpus: 1,
            costs: [0; COSTS],
            last_cpu: 0,
            first: None,
            seen: theirs,
            notes: Notes::default(),
        })
    };
    let controller = DutyThread::spawn("test", 1.0, begin, |mut cycle, wait| body(&mut cycle, wait))?;
    Ok(DutyLoop { controller, seen, cpus_folder: PathBuf::new(), notes: Notes::default() })
}

#[test]
fn nobody_is_held_at_full_speed_whatever_is_owed() {
    let holder = holder(|cycle, wait| {
        cycle.ledger.charge(PERIOD as f64, PERIOD as f64, 0.5);
        assert!(cycle.ledger.owed() >= HOLD_MIN);
        cycle.one_period(0, wait).map(drop)
    });
    holder.unwrap().stop().unwrap();
}

#[test]
fn the_status_tells_the_cycle_that_there_is_with_many_tasks() {
    let mut holder = holder(|cycle, wait| {
        // The tasks are counted.
        cycle.one_period(0, wait)?;
        cycle.costs = [(2.5 * OWN_CPU_AIM * PERIOD as f64) as Nanos; COSTS];
        cycle.one_period(1, wait).map(drop)
    })
    .unwrap();
    holder.controller.stop().unwrap();
    let status = holder.status(MethodId::CpuFreeze, &Targets::new(), &[]);
    assert_eq!(status.period, time::span(3 * PERIOD));
}

#[test]
fn a_controller_that_has_ended_is_not_taken_for_one_that_slows() {
    let holder = holder(|cycle, _| {
        cycle.seen.counters.add_hold(75, 0);
        cycle.seen.counters.add_elapsed(100);
        Err(crate::error::Error::unavailable("the kernel refuses"))
    })
    .unwrap();
    while !holder.controller.is_finished() {
        std::thread::yield_now();
    }
    let targets = [(0, crate::speed::Target { share: 0.25, clock: None })].into();
    let status = holder.status(MethodId::CpuFreeze, &targets, &[]);
    assert_eq!((status.health, status.cpus[0].effective, status.cpus[0].duty), (Health::Ended, 1.0, 1.0));
    assert!(status.problems[0].contains("full speed: the kernel refuses"), "{:?}", status.problems);
    assert!(status.notes.is_empty(), "{:?}", status.notes);
}

/// Tasks that somebody else holds.
struct Theirs;

impl Stop for Theirs {
    fn hold(&mut self, _: Nanos) -> Result<Stopped> {
        unreachable!()
    }

    fn let_go(&mut self) -> Result<Nanos> {
        unreachable!()
    }

    fn is_held_by_others(&mut self) -> bool {
        true
    }

    fn census(&mut self, _: usize) -> Census {
        Census::of(0, &[], 0)
    }
}

#[test]
fn a_period_in_which_somebody_else_holds_the_tasks_is_skipped_and_not_owed() {
    let holder = holder_of(Theirs, |cycle, wait| {
        (cycle.share, cycle.grid) = (0.5, Grid::new(time::now(), PERIOD));
        assert_eq!(cycle.one_period(0, wait)?, 1);
        assert_eq!((cycle.ledger.owed(), cycle.seen.counters.elapsed.load(Ordering::Relaxed)), (0.0, 0));
        Ok(())
    });
    holder.unwrap().stop().unwrap();
}

#[test]
fn idle_cpus_look_for_tasks_where_there_are_more_of_them_than_cpus() {
    let holder = holder(|cycle, wait| {
        let ms = 1e6;
        assert_eq!(cycle.looks_for(50.0 * ms, 0.0), 0, "nobody has counted the tasks yet");
        cycle.one_period(0, wait)?;
        assert_eq!(cycle.looks_for(50.0 * ms, 0.0), LOOKS_FOR);
        assert_eq!(cycle.looks_for(4.0 * ms, 3.0 * ms), 4_000_000);
        cycle.cpus = MANY_TASKS as i64;
        assert_eq!(cycle.looks_for(50.0 * ms, 0.0), 0);
        Ok(())
    });
    holder.unwrap().stop().unwrap();
}

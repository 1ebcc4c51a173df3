//! LINPACK in a process of its own, which can be held at a quota while it solves and not while it gets ready.

use std::time::{Duration, Instant};

use emu_bench::worker::{Look, Task, Worker};
use emu_bench::workload::process_cpu_ns;
use emu_core::{CpuList, Error, ErrorKind, Pid, Result};
use serde::{Deserialize, Serialize};

use super::meter::Meter;
use crate::kernel::linpack::{Solution, System};
use crate::kernel::{Outcome, on_threads};

/// Equations of the solution before those that count. It ends anywhere in a period of the quota, and so do the
/// others: a run that began with a fresh quota would seem up to a period shorter than it is.
const WARM_UP: usize = 400;

/// No answer takes longer, whatever the quota.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// What a solver is asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Request {
    /// To make systems of these sizes ready, of the last one so many copies.
    Prepare { sizes: Vec<usize>, seed: u64, cpus: CpuList, threads: usize, times: usize },
    /// To solve all of them.
    Solve,
    /// To check every solution.
    Check,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    Ready,
    Solved(Solved),
    Checked { error: Option<f64>, passed: bool },
}

/// Solutions of the last size in a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Solved {
    /// Wall time from the begin of the first to the end of the last. What a quota leaves out falls anywhere, and with a
    /// period that suits it always between two of them: only the whole is right.
    pub(super) seconds: f64,
    /// CPU time of the same.
    pub(super) cpu_seconds: f64,
    /// CPU time of all that was solved, the earlier sizes included.
    pub(super) all_cpu_seconds: f64,
    /// The mean core clock meanwhile, in Hz; `None` where nobody has looked.
    pub(super) clock_hz: Option<f64>,
}

/// A solver, as the measurement holds it. Dropping it ends it: it may hang at a quota.
#[derive(Debug)]
pub(super) struct Solver(Worker<Solving>);

impl Solver {
    pub(super) fn start() -> Result<Self> {
        Worker::start().map(Self)
    }

    pub(super) fn pid(&self) -> Pid {
        self.0.pid()
    }

    pub(super) fn prepare(
        &mut self,
        sizes: &[usize],
        seed: u64,
        cpus: &CpuList,
        threads: usize,
        times: usize,
        look: Look<'_>,
    ) -> Result<()> {
        let request = Request::Prepare { sizes: sizes.to_vec(), seed, cpus: cpus.clone(), threads, times };
        self.0.ask(&request, PATIENCE, Some(look)).map(drop)
    }

    pub(super) fn solve(&mut self, look: Look<'_>) -> Result<Solved> {
        match self.0.ask(&Request::Solve, PATIENCE, Some(look))? {
            Answer::Solved(solved) => Ok(solved),
            other => Err(unexpected(&other)),
        }
    }

    /// The largest scaled residual of all solutions, and whether each is small enough.
    pub(super) fn check(&mut self, look: Look<'_>) -> Result<(Option<f64>, bool)> {
        match self.0.ask(&Request::Check, PATIENCE, Some(look))? {
            Answer::Checked { error, passed } => Ok((error, passed)),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn end(&mut self) {
        self.0.end();
    }
}

fn unexpected(answer: &Answer) -> Error {
    Error::new(ErrorKind::Failed, format!("unexpected answer of the solving process: {answer:?}"))
}

#[derive(Default)]
pub(super) struct Solving(Option<Prepared>);

struct Prepared {
    earlier: Vec<System>,
    systems: Vec<System>,
    threads: Vec<CpuList>,
    solutions: Vec<Solution>,
}

impl Task for Solving {
    const NAME: &'static str = "solver";
    type Request = Request;
    type Answer = Answer;

    fn answer(&mut self, request: Request) -> Result<Answer> {
        let Self(prepared) = self;
        let unprepared = || Error::usage("there is no system yet");
        match request {
            Request::Prepare { sizes, seed, cpus, threads, times } => {
                // The old ones first, so that there is memory for these.
                *prepared = None;
                let (last, earlier) = sizes.split_last().ok_or_else(unprepared)?;
                *prepared = Some(Prepared {
                    earlier: earlier.iter().map(|size| System::new(*size, seed)).collect(),
                    systems: vec![System::new(*last, seed); times],
                    threads: vec![cpus; threads],
                    solutions: Vec::new(),
                });
                Ok(Answer::Ready)
            }
            Request::Solve => {
                let prepared = prepared.as_mut().ok_or_else(unprepared)?;
                let cpu_first = process_cpu_ns();
                System::new(WARM_UP, 0).solve(&prepared.threads)?;
                for system in prepared.earlier.drain(..) {
                    prepared.solutions.push(system.solve(&prepared.threads)?);
                }
                let meter = Meter::start();
                let (begin, cpu_begin) = (Instant::now(), process_cpu_ns());
                for system in prepared.systems.drain(..) {
                    prepared.solutions.push(system.solve_looking(&prepared.threads, &|| meter.look())?);
                }
                let cpu_since = |begin: u64| (process_cpu_ns() - begin) as f64 / 1e9;
                Ok(Answer::Solved(Solved {
                    cpu_seconds: cpu_since(cpu_begin),
                    all_cpu_seconds: cpu_since(cpu_first),
                    seconds: begin.elapsed().as_secs_f64(),
                    clock_hz: meter.mean_hz(),
                }))
            }
            Request::Check => {
                let prepared = prepared.as_ref().filter(|prepared| !prepared.solutions.is_empty());
                Ok(checked(&prepared.ok_or_else(unprepared)?.check()?))
            }
        }
    }
}

impl Prepared {
    /// The outcomes are in no order. As many threads check as have solved: there may be hundreds of solutions.
    fn check(&self) -> Result<Vec<Outcome>> {
        let count = self.threads.len();
        let outcomes = on_threads("the check of LINPACK", &self.threads, |number| {
            Ok(self.solutions.iter().skip(number).step_by(count).map(Solution::check).collect::<Vec<_>>())
        })?;
        Ok(outcomes.into_iter().flatten().collect())
    }
}

/// The worst of all solutions; what is not a number is worse than any.
fn checked(outcomes: &[Outcome]) -> Answer {
    let worst = |worst: f64, outcome: &Outcome| {
        if worst.is_nan() || outcome.error <= worst { worst } else { outcome.error }
    };
    let error = Some(outcomes.iter().fold(0.0, worst)).filter(|error| error.is_finite());
    Answer::Checked { error, passed: outcomes.iter().all(Outcome::passes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_solver_prepares_solves_and_checks() {
        let mut solving = Solving::default();
        assert!(solving.answer(Request::Check).unwrap_err().to_string().contains("no system yet"));
        let cpus = "0".parse().unwrap();
        let prepare = Request::Prepare { sizes: vec![100, 200], seed: 3, cpus, threads: 2, times: 2 };
        let answers =
            [prepare, Request::Solve, Request::Check].map(|request| solving.answer(request).unwrap());
        let [Answer::Ready, Answer::Solved(solved), Answer::Checked { passed: true, error: Some(error) }] =
            answers
        else {
            panic!("{answers:?}");
        };
        assert!(solved.seconds > 0.0 && solved.cpu_seconds > 0.0 && error < 16.0);
        assert!(solved.clock_hz.is_some_and(|hz| (1e8..1e10).contains(&hz)), "{solved:?}");
        let solutions = solving.0.unwrap().solutions;
        assert_eq!(solutions.len(), 3, "the earlier size is solved, and checked, too");
    }

    #[test]
    fn every_solution_is_checked() {
        let threads = crate::kernel::testing::threads(2);
        let solve = |_| System::new(50, 3).solve(&threads).unwrap();
        let solutions = (0..5).map(solve).collect();
        let prepared = Prepared { earlier: vec![], systems: vec![], threads: threads.clone(), solutions };
        let outcomes = prepared.check().unwrap();
        assert!(outcomes.len() == 5 && outcomes.iter().all(Outcome::passes), "{outcomes:?}");
    }

    #[test]
    fn one_wrong_solution_among_others_is_told() {
        let outcome = |error| Outcome { seconds: 1.0, work: 1.0, error, error_max: 16.0 };
        let of = |errors: [f64; 3]| match checked(&errors.map(outcome)) {
            Answer::Checked { error, passed } => (error, passed),
            other => panic!("{other:?}"),
        };
        assert_eq!(of([0.1, 0.3, 0.2]), (Some(0.3), true));
        assert_eq!(of([0.1, 17.0, 0.2]), (Some(17.0), false));
        assert_eq!(of([0.1, f64::NAN, 0.2]), (None, false));
    }
}

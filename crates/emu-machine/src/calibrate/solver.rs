//! LINPACK in a process of its own, which can be held at a quota while it solves and not while it gets ready.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use emu_bench::workload::process_cpu_ns;
use emu_core::{CpuList, Error, ErrorKind, Pid, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::kernel::linpack::{Solution, System};
use crate::kernel::{Outcome, on_threads};

/// The first argument by which an executable is asked to be a solver.
pub const SOLVER: &str = "calibrate-solver";

/// Equations of the solution before those that count. It ends anywhere in a period of the quota, and so do the
/// others: a run that began with a fresh quota would seem up to a period shorter than it is.
const WARM_UP: usize = 400;

/// How long an answer is waited for at a time, in milliseconds: soon enough for whoever wants to end it, and too seldom
/// to disturb.
const LOOK_MS: u16 = 200;

/// What is called while an answer is waited for; an error ends the waiting.
pub(super) type GoOn<'a> = &'a mut dyn FnMut() -> Result<()>;

/// What a solver is asked for, a line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Request {
    /// To make so many copies of a system ready.
    Prepare { order: usize, seed: u64, cpus: CpuList, threads: usize, times: usize },
    /// To solve all of them.
    Solve,
    /// To check every solution.
    Check,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Ready,
    Solved(Solved),
    Checked { error: Option<f64>, passed: bool },
    Failed(String),
}

/// Solutions in a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Solved {
    /// Wall time from the begin of the first to the end of the last. What a quota leaves out falls anywhere, and with a
    /// period that suits it always between two of them: only the whole is right.
    pub(super) seconds: f64,
    /// CPU time of the same.
    pub(super) cpu_seconds: f64,
}

/// A solver, as the measurement holds it. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Solver {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Solver {
    /// Starts a fresh process of this executable.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start() -> Result<Self> {
        let program = std::env::current_exe().map_err(|cause| {
            Error::io("cannot find this executable to start a process to solve in", cause)
        })?;
        Self::spawn(Command::new(program).args([SOLVER, &std::process::id().to_string()]))
    }

    fn spawn(command: &mut Command) -> Result<Self> {
        let failed = |cause| Error::io("cannot start a process to solve in", cause);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let missing = || failed(std::io::ErrorKind::BrokenPipe.into());
        let requests = child.stdin.take().ok_or_else(missing)?;
        let answers = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        Ok(Self { child, requests, answers })
    }

    pub(super) fn pid(&self) -> Pid {
        self.child.id() as Pid
    }

    /// Makes so many copies of a system ready.
    ///
    /// # Errors
    /// The process has ended, or `go_on` ends the waiting.
    pub(super) fn prepare(
        &mut self,
        order: usize,
        seed: u64,
        cpus: &CpuList,
        threads: usize,
        times: usize,
        go_on: GoOn<'_>,
    ) -> Result<()> {
        match self.ask(&Request::Prepare { order, seed, cpus: cpus.clone(), threads, times }, go_on)? {
            Answer::Ready => Ok(()),
            other => Err(strange(&other)),
        }
    }

    /// Solves all of them.
    ///
    /// # Errors
    /// The process has ended, a thread could not be made, or `go_on` ends the waiting.
    pub(super) fn solve(&mut self, go_on: GoOn<'_>) -> Result<Solved> {
        match self.ask(&Request::Solve, go_on)? {
            Answer::Solved(solved) => Ok(solved),
            other => Err(strange(&other)),
        }
    }

    /// The largest scaled residual of all solutions, and whether each is small enough.
    ///
    /// # Errors
    /// The process has ended, or `go_on` ends the waiting.
    pub(super) fn check(&mut self, go_on: GoOn<'_>) -> Result<(Option<f64>, bool)> {
        match self.ask(&Request::Check, go_on)? {
            Answer::Checked { error, passed } => Ok((error, passed)),
            other => Err(strange(&other)),
        }
    }

    /// Ends the process, whatever it does; nothing can be asked of it any more.
    pub(super) fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn ask(&mut self, request: &Request, go_on: GoOn<'_>) -> Result<Answer> {
        let failed = |cause: std::io::Error| Error::io("the solving process has ended", cause);
        let line = serde_json::to_string(request).map_err(|cause| failed(cause.into()))?;
        writeln!(self.requests, "{line}").map_err(failed)?;
        while !self.is_answered()? {
            go_on()?;
        }
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(failed)?;
        serde_json::from_str(&line).map_err(|cause| failed(cause.into()))
    }

    /// Whether an answer, or the end of the process, comes within a look. Each answer is a line, so that nothing of it
    /// is in the buffer yet.
    fn is_answered(&self) -> Result<bool> {
        let mut waiting = [PollFd::new(self.answers.get_ref().as_fd(), PollFlags::POLLIN)];
        match poll(&mut waiting, LOOK_MS) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(cause) => Err(Error::io("cannot wait for the solving process", cause.into())),
        }
    }
}

impl Drop for Solver {
    fn drop(&mut self) {
        // It may hang at a quota; nothing of it is wanted any more.
        self.end();
    }
}

fn strange(answer: &Answer) -> Error {
    let what = match answer {
        Answer::Failed(why) => why.clone(),
        other => format!("unexpected {other:?}"),
    };
    Error::new(ErrorKind::Failed, format!("the solving process has failed: {what}"))
}

/// The other side: does what standard input asks for until it closes, and ends with the process `parent`.
///
/// # Errors
/// Usage, for a request that cannot be understood or a parent that has ended; an answer cannot be written.
pub fn serve(parent: Pid) -> Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|cause| Error::io("cannot bind the process to its parent", cause.into()))?;
    if nix::unistd::getppid().as_raw() != parent {
        return Err(
            Error::usage("the parent of the solver has ended").hint("solvers are started by emu calibrate")
        );
    }
    converse(std::io::stdin().lock(), std::io::stdout().lock())
}

/// What is kept from one request to the next.
struct Prepared {
    systems: Vec<System>,
    threads: Vec<CpuList>,
    solutions: Vec<Solution>,
}

fn converse(requests: impl BufRead, mut answers: impl Write) -> Result<()> {
    let mut prepared = None;
    for line in requests.lines() {
        let line = line.map_err(|cause| Error::io("cannot read a request", cause))?;
        let request = serde_json::from_str(&line)
            .map_err(|cause| Error::usage(format!("bad request `{line}`")).caused_by(cause))?;
        let answer = obey(request, &mut prepared).unwrap_or_else(|error| Answer::Failed(error.in_words()));
        let text = serde_json::to_string(&answer)
            .map_err(|cause| Error::new(ErrorKind::Failed, "cannot write an answer").caused_by(cause))?;
        writeln!(answers, "{text}")
            .and_then(|()| answers.flush())
            .map_err(|cause| Error::io("cannot answer", cause))?;
    }
    Ok(())
}

fn obey(request: Request, prepared: &mut Option<Prepared>) -> Result<Answer> {
    let unprepared = || Error::usage("there is no system yet");
    match request {
        Request::Prepare { order, seed, cpus, threads, times } => {
            // The old ones first, so that there is memory for these.
            *prepared = None;
            let systems = vec![System::new(order, seed); times];
            *prepared = Some(Prepared { systems, threads: vec![cpus; threads], solutions: Vec::new() });
            Ok(Answer::Ready)
        }
        Request::Solve => {
            let prepared = prepared.as_mut().ok_or_else(unprepared)?;
            System::new(WARM_UP, 0).solve(&prepared.threads)?;
            let (begin, cpu_begin) = (Instant::now(), process_cpu_ns());
            for system in prepared.systems.drain(..) {
                prepared.solutions.push(system.solve(&prepared.threads)?);
            }
            let cpu_seconds = (process_cpu_ns() - cpu_begin) as f64 / 1e9;
            Ok(Answer::Solved(Solved { seconds: begin.elapsed().as_secs_f64(), cpu_seconds }))
        }
        Request::Check => {
            let prepared = prepared.as_ref().filter(|prepared| !prepared.solutions.is_empty());
            Ok(checked(&prepared.ok_or_else(unprepared)?.check()?))
        }
    }
}

impl Prepared {
    /// What the check of every solution has found, in no order. As many threads check as have solved: there may be
    /// hundreds of solutions.
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
        let requests = r#"{"prepare":{"order":200,"seed":3,"cpus":"0","threads":2,"times":2}}
"solve"
"check"
"#;
        let mut answers = Vec::new();
        converse(requests.as_bytes(), &mut answers).unwrap();
        let answers: Vec<Answer> = String::from_utf8(answers)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let [Answer::Ready, Answer::Solved(solved), Answer::Checked { passed: true, error: Some(error) }] =
            answers[..]
        else {
            panic!("{answers:?}");
        };
        assert!(solved.seconds > 0.0 && solved.cpu_seconds > 0.0 && error < 16.0);
    }

    #[test]
    fn every_solution_is_checked() {
        let threads = crate::kernel::testing::threads(2);
        let solve = |_| System::new(50, 3).solve(&threads).unwrap();
        let solutions = (0..5).map(solve).collect();
        let prepared = Prepared { systems: vec![], threads: threads.clone(), solutions };
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

    #[test]
    fn a_solver_is_not_waited_for_longer_than_is_wanted() {
        // It reads nothing and answers nothing.
        let mut solver = Solver::spawn(Command::new("sleep").arg("60")).unwrap();
        let begin = Instant::now();
        let mut looks = 0;
        let mut go_on = || {
            looks += 1;
            if looks == 2 { Err(Error::unavailable("enough")) } else { Ok(()) }
        };
        let ended = solver.solve(&mut go_on).unwrap_err();
        solver.end();
        assert_eq!((ended.to_string().as_str(), looks), ("enough", 2));
        assert!(begin.elapsed().as_secs() < 30);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(converse(&b"what\n"[..], &mut Vec::new()).is_err());
        let mut answers = Vec::new();
        converse(&b"\"check\"\n"[..], &mut answers).unwrap();
        assert!(String::from_utf8(answers).unwrap().contains("no system yet"));
    }
}

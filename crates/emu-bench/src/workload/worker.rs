//! The process that a workload runs in, seen from both sides.
//!
//! Worker and harness speak lines of JSON: one [`Spec`] as argument, then an [`Order`] for each window on
//! standard input and a [`Reply`] for each on standard output.

use std::ffi::OsStr;
use std::io::{BufRead, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use emu_core::{Error, ErrorKind, Pid, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{alarm, getppid};
use serde::{Deserialize, Serialize};

use super::part::{confine, now_ns, process_cpu_ns};
use super::{Companion, Done, Job, Order, workload};

/// The first argument by which an executable is asked to be a worker; the second is the specification.
pub const WORKER: &str = "worker";

/// No worker outlives this, whatever becomes of its harness.
const LIFETIME: Duration = Duration::from_secs(1800);

/// How long a worker may take to get ready, or to reply after its window has passed. Emulation slows that too.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a worker is told when it is started.
#[derive(Debug, Serialize, Deserialize)]
struct Spec {
    /// The process that it must not outlive.
    parent: Pid,
    job: Job,
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reply {
    Ready,
    Done(Done),
    /// The work was done, and its result is not what it must be.
    Wrong(String),
    Failed(String),
}

/// Serves as a worker when the arguments of this process ask for it, and returns the exit code.
///
/// The first call in the `main` of every program that starts workers, unless it has a command line that calls
/// [`serve`] itself.
pub fn serve_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(WORKER)) {
        return None;
    }
    let spec = arguments.next().unwrap_or_default();
    Some(match serve(&spec.to_string_lossy()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    })
}

/// Works through the windows that are ordered on standard input until it closes.
///
/// The process ends with its parent and after half an hour at the latest.
///
/// # Errors
/// Usage, for a specification that cannot be understood; otherwise when a reply cannot be written. What goes
/// wrong with a window is a reply.
pub fn serve(spec: &str) -> Result<()> {
    let Spec { parent, job } = serde_json::from_str(spec)
        .map_err(|cause| Error::usage("bad specification of a worker").caused_by(cause))?;
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|cause| Error::io("cannot bind the worker to its parent", cause.into()))?;
    if getppid().as_raw() != parent {
        return Err(Error::usage("the parent of the worker has ended").hint("workers are started by emu"));
    }
    // The harness may have blocked it, and children inherit that.
    SigSet::from(Signal::SIGALRM)
        .thread_unblock()
        .map_err(|cause| Error::io("cannot let the worker be ended by its alarm", cause.into()))?;
    alarm::set(LIFETIME.as_secs() as u32);
    // Sleeps are to end when they should; the default lets them last 50 µs longer.
    let _ = prctl::set_timerslack(1);
    converse(&job, std::io::stdin().lock(), std::io::stdout().lock())
}

fn converse(job: &Job, orders: impl BufRead, mut replies: impl Write) -> Result<()> {
    let mut reply = |reply: Result<Reply>| {
        let reply = reply.unwrap_or_else(|error| match error.kind() {
            ErrorKind::WrongResult => Reply::Wrong(error.to_string()),
            _ => Reply::Failed(error.to_string()),
        });
        let line = serde_json::to_string(&reply)
            .map_err(|cause| Error::new(ErrorKind::Failed, "cannot write a reply").caused_by(cause))?;
        writeln!(replies, "{line}")
            .and_then(|()| replies.flush())
            .map_err(|cause| Error::io("cannot reply to the harness", cause))
    };
    let mut running = match confine(&job.cpus).and_then(|()| workload(&job.workload)?.start(job)) {
        Ok(running) => running,
        Err(error) => return reply(Err(error)),
    };
    reply(Ok(Reply::Ready))?;
    for line in orders.lines() {
        let line = line.map_err(|cause| Error::io("cannot read an order", cause))?;
        let cpu_before = process_cpu_ns();
        reply(match serde_json::from_str::<Order>(&line) {
            Ok(order) => running.through(&order).map(|mut done| {
                // Children have reported their own.
                done.spent_ns += process_cpu_ns() - cpu_before;
                Reply::Done(done)
            }),
            Err(cause) => Err(Error::usage(format!("bad order `{line}`: {cause}"))),
        })?;
    }
    Ok(())
}

/// A worker process, as the harness holds it. Dropping it ends it.
///
/// It also ends with the thread that started it, which is what the kernel calls its parent.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    /// `None` once it is to end.
    orders: Option<ChildStdin>,
    replies: Lines<ChildStdout>,
    /// The other end of its work, outside of it.
    companion: Option<Box<dyn Companion>>,
}

impl Worker {
    /// Starts a fresh process of this executable, and returns when it is ready and waits for orders.
    ///
    /// The executable must call [`serve`] or [`serve_if_asked`] when its first argument is [`WORKER`].
    ///
    /// # Errors
    /// The process cannot be started, or the workload cannot be prepared.
    pub fn start(job: &Job) -> Result<Self> {
        let program = std::env::current_exe()
            .map_err(|cause| Error::io("cannot find this executable to start a worker", cause))?;
        let mut job = job.clone();
        let companion = workload(&job.workload)?.companion(&mut job)?;
        let spec = serde_json::to_string(&Spec { parent: std::process::id() as Pid, job })
            .map_err(|cause| Error::new(ErrorKind::Failed, "cannot describe a worker").caused_by(cause))?;
        let failed = |cause| Error::io("cannot start a worker", cause);
        let mut child = Command::new(program)
            .arg(WORKER)
            .arg(spec)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (orders, replies) = (child.stdin.take(), child.stdout.take());
        let missing = || failed(std::io::ErrorKind::BrokenPipe.into());
        let replies = Lines::new(replies.ok_or_else(missing)?);
        let mut worker = Self { child, orders, replies, companion };
        match worker.reply(PATIENCE)? {
            Reply::Ready => Ok(worker),
            other => Err(unexpected(other)),
        }
    }

    /// The process, to be put into a zone.
    pub fn pid(&self) -> Pid {
        self.child.id() as Pid
    }

    /// Works through a window and returns when its report is there.
    ///
    /// # Errors
    /// The worker has ended or does not reply, or its result was wrong.
    pub fn through(&mut self, order: &Order) -> Result<Done> {
        self.send(order)?;
        self.receive(order)
    }

    /// Gives an order without waiting for the report.
    pub(super) fn send(&mut self, order: &Order) -> Result<()> {
        let line = serde_json::to_string(order)
            .map_err(|cause| Error::new(ErrorKind::Failed, "cannot write an order").caused_by(cause))?;
        if let Some(companion) = &mut self.companion {
            companion.open(order);
        }
        let orders = self.orders.as_mut().ok_or_else(|| Error::usage("the worker has been told to end"))?;
        writeln!(orders, "{line}").map_err(|cause| Error::io("cannot give an order to the worker", cause))
    }

    /// Waits for the report of the order given last.
    pub(super) fn receive(&mut self, order: &Order) -> Result<Done> {
        let left = Duration::from_nanos(order.end_ns().saturating_sub(now_ns()));
        match self.reply(left + PATIENCE)? {
            Reply::Done(done) => Ok(match &mut self.companion {
                Some(companion) => companion.close(done),
                None => done,
            }),
            other => Err(unexpected(other)),
        }
    }

    fn reply(&mut self, patience: Duration) -> Result<Reply> {
        let gone = |what: &str| Error::new(ErrorKind::Failed, format!("the worker {what}"));
        let line = self.replies.next(patience)?.ok_or_else(|| gone("has ended"))?;
        serde_json::from_slice(&line).map_err(|cause| gone("gave a strange reply").caused_by(cause))
    }
}

/// Lines that come through a pipe. What is there is read, and never more waited for than a deadline allows: a worker may
/// be stopped in the middle of a line.
#[derive(Debug)]
struct Lines<R> {
    pipe: R,
    /// What has been read of the next line.
    begun: Vec<u8>,
}

impl<R: Read + AsFd> Lines<R> {
    fn new(pipe: R) -> Self {
        Self { pipe, begun: Vec::new() }
    }

    /// The next line without its end; `None` when the other side is closed.
    ///
    /// # Errors
    /// It has not come to its end in time, or the pipe cannot be read.
    fn next(&mut self, patience: Duration) -> Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + patience;
        let mut seen = 0;
        loop {
            if let Some(end) = self.begun.iter().skip(seen).position(|byte| *byte == b'\n') {
                let rest = self.begun.split_off(seen + end + 1);
                let mut line = std::mem::replace(&mut self.begun, rest);
                line.pop();
                return Ok(Some(line));
            }
            seen = self.begun.len();
            let left = deadline.saturating_duration_since(Instant::now());
            let mut waiting = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
            match poll(&mut waiting, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
                Ok(0) => {
                    let what = format!("the worker did not reply within {patience:?}");
                    return Err(Error::new(ErrorKind::Failed, what));
                }
                Ok(_) => {}
                Err(nix::Error::EINTR) => continue,
                Err(cause) => return Err(Error::io("cannot wait for the worker", cause.into())),
            }
            let mut some = [0; 1 << 13];
            match self.pipe.read(&mut some) {
                Ok(0) => return Ok(None),
                Ok(count) => self.begun.extend(some.iter().take(count)),
                Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(Error::io("cannot read the reply of the worker", cause)),
            }
        }
    }
}

fn unexpected(reply: Reply) -> Error {
    let (kind, what) = match reply {
        Reply::Wrong(why) => (ErrorKind::WrongResult, why),
        Reply::Failed(why) => (ErrorKind::Failed, why),
        other => (ErrorKind::Failed, format!("unexpected reply {other:?}")),
    };
    Error::new(kind, format!("the worker failed: {what}"))
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.orders = None;
        // A stopped process ends by this, too; one whose cgroup is frozen ends when it thaws.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        let host = emu_core::Host::detect(&emu_core::Roots::system()).unwrap();
        Job::new("cpu-loop", &host.allowed)
    }

    fn replies(job: &Job, orders: &str) -> Vec<Reply> {
        let (job, orders) = (job.clone(), orders.to_owned());
        // On a thread of its own, whose affinity may be changed.
        let thread = std::thread::spawn(move || {
            let mut replies = Vec::new();
            converse(&job, orders.as_bytes(), &mut replies).unwrap();
            replies
        });
        let text = String::from_utf8(thread.join().unwrap()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn each_order_gets_one_reply() {
        let order = Order { begin_ns: now_ns(), length_ns: 1_000_000, first: 0, stamps: false };
        let line = serde_json::to_string(&order).unwrap();
        let replies = replies(&job(), &format!("{line}\n{line}\n"));
        let [Reply::Ready, Reply::Done(first), Reply::Done(_)] = &replies[..] else { panic!("{replies:?}") };
        assert!(first.spent_ns > 0);
    }

    #[test]
    fn a_strange_order_is_answered_and_survived() {
        let order = Order { begin_ns: now_ns(), length_ns: 1_000_000, first: 0, stamps: false };
        let replies = replies(&job(), &format!("go\n{}\n", serde_json::to_string(&order).unwrap()));
        assert!(matches!(replies[..], [Reply::Ready, Reply::Failed(_), Reply::Done(_)]), "{replies:?}");
    }

    #[test]
    fn a_job_that_cannot_be_done_is_refused_at_once() {
        let unknown = Job { workload: "cpu-lop".into(), ..job() };
        let nowhere = Job { cpus: "1000".parse().unwrap(), ..job() };
        for job in [unknown, nowhere] {
            assert!(matches!(replies(&job, "")[..], [Reply::Failed(_)]));
        }
    }

    #[test]
    fn a_worker_that_stops_within_a_line_is_not_awaited_for_ever() {
        let (reading, mut writing) = std::io::pipe().unwrap();
        let mut lines = Lines::new(reading);
        let mut next = |ms| lines.next(Duration::from_millis(ms));
        writing.write_all(b"one\ntwo\nthr").unwrap();
        assert_eq!(next(10_000).unwrap().unwrap(), b"one");
        assert_eq!(next(10_000).unwrap().unwrap(), b"two");
        let late = next(20).unwrap_err();
        assert!(late.to_string().contains("did not reply"), "{late}");
        writing.write_all(b"ee\n").unwrap();
        assert_eq!(next(10_000).unwrap().unwrap(), b"three");
        drop(writing);
        assert!(next(10_000).unwrap().is_none());
    }

    #[test]
    fn a_wrong_result_is_told_from_other_failures() {
        for (reply, kind) in [
            (Reply::Wrong("wrong result".into()), ErrorKind::WrongResult),
            (Reply::Failed("no thread".into()), ErrorKind::Failed),
            (Reply::Ready, ErrorKind::Failed),
        ] {
            assert_eq!(unexpected(reply).kind(), kind);
        }
    }

    #[test]
    fn a_bad_specification_is_a_usage_error() {
        assert_eq!(serve("{").unwrap_err().kind(), ErrorKind::Usage);
    }
}

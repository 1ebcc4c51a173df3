//! A worker: this executable, started again as a process that does one kind of task for who started it.
//!
//! It is started as `emu worker TASK PARENT`. A request is a line of JSON on its standard input, and so is the reply on its
//! standard output. It ends when its input closes, and with the thread that started it, which the kernel calls its parent.

mod lines;
mod serve;

use std::fmt;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use emu_core::{Error, ErrorKind, Pid, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use lines::Lines;
pub use lines::Look;
pub use serve::{Kind, serve, serve_if_asked};

/// The first argument by which an executable is asked to be a worker; the task and the parent follow.
pub const WORKER: &str = "worker";

/// How long a process that has closed its pipe may take to end, so that its status can be told.
const ENDING: Duration = Duration::from_secs(1);

/// What a worker does: its own state, from one request to the next.
pub trait Task: Default {
    /// The name by which it is asked for.
    const NAME: &'static str;
    /// What it is asked for.
    type Request: Serialize + DeserializeOwned;
    /// What it answers.
    type Answer: Serialize + DeserializeOwned;

    /// Does what is asked for, in the worker. After an error, which is the reply, the worker goes on.
    fn answer(&mut self, request: Self::Request) -> Result<Self::Answer>;
}

/// What comes back for a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Reply<A> {
    Done(A),
    /// The work was done, and its result is not what it must be.
    Wrong(String),
    Failed(String),
}

/// A worker, as who started it has it. Dropping it ends it, whatever it does.
pub struct Worker<T> {
    child: Child,
    /// `None` once it has been ended.
    requests: Option<ChildStdin>,
    replies: Lines<ChildStdout>,
    task: PhantomData<fn(T)>,
}

impl<T: Task> Worker<T> {
    /// Starts a fresh process of this executable, which must call [`serve`] or [`serve_if_asked`] when its first argument
    /// is [`WORKER`].
    pub fn start() -> Result<Self> {
        let program = std::env::current_exe()
            .map_err(|cause| Error::io("cannot find this executable to start a worker", cause))?;
        Self::spawn(Command::new(program).args([WORKER, T::NAME, &std::process::id().to_string()]))
    }

    fn spawn(command: &mut Command) -> Result<Self> {
        let failed = |cause| Error::io(format!("cannot start a {} worker", T::NAME), cause);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let (requests, replies) = (child.stdin.take(), child.stdout.take());
        let replies = replies.ok_or_else(|| failed(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self { child, requests, replies: Lines::new(replies), task: PhantomData })
    }

    /// The process, to be put into a zone.
    pub fn pid(&self) -> Pid {
        self.child.id() as Pid
    }

    /// Asks for something and waits for the answer.
    pub fn ask(
        &mut self,
        request: &T::Request,
        patience: Duration,
        look: Option<Look<'_>>,
    ) -> Result<T::Answer> {
        self.send(request)?;
        self.receive(patience, look)
    }

    /// Asks for something without waiting.
    pub fn send(&mut self, request: &T::Request) -> Result<()> {
        let line = serde_json::to_string(request)
            .map_err(|cause| Error::new(ErrorKind::Failed, "cannot write a request").caused_by(cause))?;
        let sent = self.requests.as_mut().is_some_and(|requests| writeln!(requests, "{line}").is_ok());
        if sent { Ok(()) } else { Err(self.ended()) }
    }

    /// Waits for the answer to the first request that is not answered, as long as `patience`, or until `look` fails.
    pub fn receive(&mut self, patience: Duration, mut look: Option<Look<'_>>) -> Result<T::Answer> {
        let Some(line) = self.replies.next(patience, &mut look)? else {
            // What has ended the worker may be meant for this process too, and matters more.
            look.map_or(Ok(()), |look| look())?;
            return Err(self.ended());
        };
        match serde_json::from_slice(&line) {
            Ok(Reply::Done(answer)) => Ok(answer),
            Ok(Reply::Wrong(why)) => Err(Self::failed(ErrorKind::WrongResult, &format!("failed: {why}"))),
            Ok(Reply::Failed(why)) => Err(Self::failed(ErrorKind::Failed, &format!("failed: {why}"))),
            Err(cause) => Err(Self::failed(ErrorKind::Failed, "gave a strange reply").caused_by(cause)),
        }
    }

    fn ended(&mut self) -> Error {
        let begin = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Self::failed(ErrorKind::Failed, &format!("has ended: {status}")),
                Ok(None) if begin.elapsed() < ENDING => thread::sleep(Duration::from_millis(5)),
                _ => return Self::failed(ErrorKind::Failed, "does not listen any more"),
            }
        }
    }

    fn failed(kind: ErrorKind, what: &str) -> Error {
        Error::new(kind, format!("the {} worker {what}", T::NAME))
    }
}

/// Asks a fresh worker for one thing.
pub fn ask_once<T: Task>(request: &T::Request, patience: Duration) -> Result<T::Answer> {
    Worker::<T>::start()?.ask(request, patience, None)
}

impl<T> Worker<T> {
    /// Ends the process, whatever it does; nothing can be asked of it any more.
    pub fn end(&mut self) {
        self.requests = None;
        // A stopped process ends by this, too; one whose cgroup is frozen ends when it thaws.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<T> fmt::Debug for Worker<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("child", &self.child).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Halves even numbers.
    #[derive(Debug, Default)]
    struct Halver;

    impl Task for Halver {
        const NAME: &'static str = "halving";
        type Request = u32;
        type Answer = u32;

        fn answer(&mut self, request: u32) -> Result<u32> {
            match request % 2 {
                0 => Ok(request / 2),
                _ => Err(Error::new(ErrorKind::WrongResult, "a half is left")),
            }
        }
    }

    fn shell(script: &str) -> Worker<Halver> {
        Worker::spawn(Command::new("sh").args(["-c", script])).unwrap()
    }

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn each_request_gets_one_reply_and_a_bad_one_is_survived() {
        let mut replies = Vec::new();
        serve::converse(&mut Halver, &b"8\nx\n3\n4\n"[..], &mut replies).unwrap();
        let text = String::from_utf8(replies).unwrap();
        let replies: Vec<Reply<u32>> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [Reply::Done(4), Reply::Failed(bad), Reply::Wrong(wrong), Reply::Done(2)] = &replies[..] else {
            panic!("{replies:?}");
        };
        assert!(bad.starts_with("bad request `x`") && wrong == "a half is left", "{replies:?}");
    }

    #[test]
    fn an_answer_is_told_from_a_wrong_result_and_a_failure() {
        let answered = |reply: &str| shell(&format!("read request; echo '{reply}'")).ask(&2, PATIENCE, None);
        assert_eq!(answered(r#"{"done":1}"#).unwrap(), 1);
        for (reply, kind, words) in [
            (r#"{"wrong":"no half"}"#, ErrorKind::WrongResult, "the halving worker failed: no half"),
            (r#"{"failed":"no thread"}"#, ErrorKind::Failed, "the halving worker failed: no thread"),
            ("done", ErrorKind::Failed, "the halving worker gave a strange reply"),
        ] {
            let error = answered(reply).unwrap_err();
            assert_eq!((error.kind(), error.to_string().as_str()), (kind, words));
        }
    }

    #[test]
    fn a_dead_worker_is_reported_with_its_cause() {
        for (script, cause) in [("exit 3", "exit status: 3"), ("kill -9 $$", "signal: 9 (SIGKILL)")] {
            let error = shell(&format!("read request; {script}")).ask(&2, PATIENCE, None).unwrap_err();
            assert_eq!(error.to_string(), format!("the halving worker has ended: {cause}"));
        }
        let mut asked = false;
        let mut look = || {
            asked = true;
            Err(Error::unavailable("interrupted"))
        };
        let error = shell("exit 3").receive(PATIENCE, Some(&mut look)).unwrap_err();
        assert_eq!((error.to_string().as_str(), asked), ("interrupted", true));
        let mut ended = shell("sleep 60");
        ended.end();
        assert!(ended.send(&2).is_err());
    }

    #[test]
    fn a_silent_worker_is_waited_for_as_long_as_wanted() {
        let begin = Instant::now();
        let mut silent = shell("exec sleep 60");
        let mut looks = 0;
        let mut look = || {
            looks += 1;
            if looks == 2 { Err(Error::unavailable("enough")) } else { Ok(()) }
        };
        assert_eq!(silent.ask(&2, PATIENCE, Some(&mut look)).unwrap_err().to_string(), "enough");
        let late = silent.receive(Duration::from_millis(20), None).unwrap_err();
        assert!(late.to_string().contains("did not reply within 20ms"), "{late}");
        drop(silent);
        assert!(begin.elapsed() < PATIENCE / 2 && looks == 2);
    }

    #[test]
    fn only_known_tasks_of_a_living_parent_are_served() {
        let parent = nix::unistd::getppid().as_raw();
        assert_eq!(serve(&[Kind::of::<Halver>()], "doubling", parent).unwrap_err().kind(), ErrorKind::Usage);
        assert_eq!(serve(&[Kind::of::<Halver>()], "halving", -1).unwrap_err().kind(), ErrorKind::Usage);
        nix::sys::prctl::set_pdeathsig(None).unwrap();
    }
}

//! The worker's side: replies to requests until there are no more.

use std::ffi::OsStr;
use std::io::{BufRead, Write};
use std::process::ExitCode;

use emu_core::{Error, ErrorKind, Pid, Result};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use super::{Reply, Task, WORKER};

/// A task that this executable can be started for.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    name: &'static str,
    serve: fn() -> Result<()>,
}

impl Kind {
    /// That of a task.
    pub const fn of<T: Task>() -> Self {
        Self {
            name: T::NAME,
            serve: || converse(&mut T::default(), std::io::stdin().lock(), std::io::stdout().lock()),
        }
    }
}

/// Serves as a worker when the arguments of this process ask for one of `kinds`: the first call in the `main` of a program that
/// starts workers, unless its command line calls [`serve`].
pub fn serve_if_asked(kinds: &[Kind]) -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(WORKER)) {
        return None;
    }
    let mut next = || arguments.next().unwrap_or_default().to_string_lossy().into_owned();
    let (task, parent) = (next(), next());
    Some(match serve(kinds, &task, parent.parse().unwrap_or_default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    })
}

/// Replies to the requests on standard input until it closes. The process ends with `parent`.
pub fn serve(kinds: &[Kind], task: &str, parent: Pid) -> Result<()> {
    let kind = kinds.iter().find(|kind| kind.name == task);
    let kind = kind.ok_or_else(|| Error::usage(format!("there is no task `{task}` for a worker")))?;
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|cause| Error::io("cannot bind the worker to its parent", cause.into()))?;
    if getppid().as_raw() != parent {
        return Err(Error::usage("the parent of the worker has ended").hint("workers are started by emu"));
    }
    (kind.serve)()
}

pub(super) fn converse<T: Task>(task: &mut T, requests: impl BufRead, mut replies: impl Write) -> Result<()> {
    for line in requests.lines() {
        let line = line.map_err(|cause| Error::io("cannot read a request", cause))?;
        let answer = serde_json::from_str(&line)
            .map_err(|cause| Error::usage(format!("bad request `{line}`")).caused_by(cause))
            .and_then(|request| task.answer(request));
        let reply = match answer {
            Ok(answer) => Reply::Done(answer),
            Err(error) if error.kind() == ErrorKind::WrongResult => Reply::Wrong(error.in_words()),
            Err(error) => Reply::Failed(error.in_words()),
        };
        let line = serde_json::to_string(&reply)
            .map_err(|cause| Error::new(ErrorKind::Failed, "cannot write a reply").caused_by(cause))?;
        writeln!(replies, "{line}")
            .and_then(|()| replies.flush())
            .map_err(|cause| Error::io("cannot reply to the parent", cause))?;
    }
    Ok(())
}

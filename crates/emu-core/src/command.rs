//! A program that is slow from its first instruction.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::thread;

use crate::error::{Error, Result};
use crate::prepared::Prepared;
use crate::roots::Roots;
use crate::session::Session;
use crate::status::Status;
use crate::sys::Pid;
use crate::sys::spawn::{self, Gated, Image, Making, SignalMask};
use crate::zone::Tasks;

/// A standard stream of a child.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Stdio {
    /// That of this process.
    #[default]
    Inherit,
    /// `/dev/null`.
    Null,
    /// A pipe to this process.
    Piped,
    /// An open file.
    File(OwnedFd),
}

impl<T: Into<OwnedFd>> From<T> for Stdio {
    fn from(file: T) -> Self {
        Self::File(file.into())
    }
}

/// Builds a child that is slow from its first instruction, as [`std::process::Command`] builds one. By default it has the
/// environment, the working folder and the streams of this process.
///
/// ```no_run
/// use emu_core::{Demand, Host, Roots, SlowCommand, Stdio, choose};
///
/// # fn main() -> emu_core::Result<()> {
/// let host = Host::detect(&Roots::system())?;
/// let prepared = choose(&host, &Demand::measured(&host, &"40%".parse()?, None)?)?;
/// let mut command = SlowCommand::new("make");
/// command.args(["-C", "src"]).env("LANG", "C").current_dir("/build").stdout(Stdio::Piped);
/// let ended = command.spawn(&prepared)?.wait()?;
/// println!("{}: {}", ended.exit, String::from_utf8_lossy(&ended.stdout));
/// # ended.released
/// # }
/// ```
#[derive(Debug)]
pub struct SlowCommand {
    program: OsString,
    arguments: Vec<OsString>,
    starts_empty: bool,
    /// `None` removes a variable that this process has.
    variables: BTreeMap<OsString, Option<OsString>>,
    folder: Option<PathBuf>,
    streams: [Stdio; 3],
    mask: SignalMask,
}

impl SlowCommand {
    /// A command of this program, which is looked for in `PATH` where it has no slash.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            starts_empty: false,
            variables: BTreeMap::new(),
            folder: None,
            streams: Default::default(),
            mask: SignalMask::default(),
        }
    }

    /// The program as it was given.
    pub fn program(&self) -> &OsStr {
        &self.program
    }

    /// Adds an argument.
    pub fn arg(&mut self, argument: impl Into<OsString>) -> &mut Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    pub fn args(&mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> &mut Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets a variable of the environment.
    pub fn env(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> &mut Self {
        self.variables.insert(name.into(), Some(value.into()));
        self
    }

    /// Sets variables of the environment.
    pub fn envs(
        &mut self,
        variables: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>,
    ) -> &mut Self {
        for (name, value) in variables {
            self.env(name, value);
        }
        self
    }

    /// Removes a variable from the environment.
    pub fn env_remove(&mut self, name: impl Into<OsString>) -> &mut Self {
        self.variables.insert(name.into(), None);
        self
    }

    /// Removes all variables, also those set before.
    pub fn env_clear(&mut self) -> &mut Self {
        self.starts_empty = true;
        self.variables.clear();
        self
    }

    /// The working folder. A program with a slash and no leading one is looked for from there.
    pub fn current_dir(&mut self, folder: impl Into<PathBuf>) -> &mut Self {
        self.folder = Some(folder.into());
        self
    }

    /// The standard input.
    pub fn stdin(&mut self, stream: impl Into<Stdio>) -> &mut Self {
        self.stream(0, stream.into())
    }

    /// The standard output.
    pub fn stdout(&mut self, stream: impl Into<Stdio>) -> &mut Self {
        self.stream(1, stream.into())
    }

    /// The standard error.
    pub fn stderr(&mut self, stream: impl Into<Stdio>) -> &mut Self {
        self.stream(2, stream.into())
    }

    fn stream(&mut self, number: usize, stream: Stdio) -> &mut Self {
        if let Some(slot) = self.streams.get_mut(number) {
            *slot = stream;
        }
        self
    }

    /// The signals that the program begins with blocked; none without this.
    pub fn signal_mask(&mut self, mask: SignalMask) -> &mut Self {
        self.mask = mask;
        self
    }

    /// What messages and other emus call its zone: the program's file name.
    pub fn name(&self) -> String {
        Path::new(&self.program).file_name().unwrap_or(&self.program).to_string_lossy().into_owned()
    }

    /// Starts a child that waits at a gate before it runs the program, for a caller that has something to prepare for it.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) for a NUL byte in what it is given; a pipe or the fork fails.
    pub fn gate(&self) -> Result<Gated> {
        let making = Making::begin();
        let mut streams = [const { None }; 3];
        let mut ours = [const { None }; 3];
        for ((number, stream), (theirs, ours)) in
            (0..).zip(&self.streams).zip(streams.iter_mut().zip(&mut ours))
        {
            let failed = |cause| Error::io(format!("cannot prepare stream {number} of the command"), cause);
            let own = match stream {
                Stdio::Inherit => continue,
                Stdio::Null => OpenOptions::new()
                    .read(number == 0)
                    .write(number > 0)
                    .open(Roots::system().dev.join("null"))
                    .map_err(failed)?
                    .into(),
                Stdio::File(file) => file.try_clone().map_err(failed)?,
                Stdio::Piped => {
                    let (read, write) = spawn::pipe()?;
                    let (own, other) = if number == 0 { (read, write) } else { (write, read) };
                    *ours = Some(other);
                    own
                }
            };
            *theirs = Some(spawn::above_streams(own).map_err(|e| failed(e.into()))?);
        }
        let arguments = [&self.program].into_iter().chain(&self.arguments);
        let image = Image {
            arguments: arguments.map(|argument| c_string("a command", argument)).collect::<Result<_>>()?,
            environment: self.environment()?,
            folder: self
                .folder
                .as_ref()
                .map(|folder| c_string("a folder", folder.as_os_str()))
                .transpose()?,
            streams,
            mask: self.mask,
        };
        let mut gated = Gated::spawn(&image, &making)?;
        // They hold the child's ends of its pipes.
        drop(image);
        drop(making);
        let [stdin, stdout, stderr] = ours;
        gated.stdin = stdin.map(ChildStdin::from);
        gated.stdout = stdout.map(ChildStdout::from);
        gated.stderr = stderr.map(ChildStderr::from);
        Ok(gated)
    }

    /// `None` where they are those of this process.
    fn environment(&self) -> Result<Option<Vec<CString>>> {
        if self.variables.is_empty() && !self.starts_empty {
            return Ok(None);
        }
        let mut all: BTreeMap<OsString, OsString> =
            if self.starts_empty { BTreeMap::new() } else { std::env::vars_os().collect() };
        for (name, value) in &self.variables {
            match value {
                Some(value) => all.insert(name.clone(), value.clone()),
                None => all.remove(name),
            };
        }
        let entry = |(mut name, value): (OsString, OsString)| {
            name.push("=");
            name.push(value);
            c_string("a variable of the environment", &name)
        };
        all.into_iter().map(entry).collect::<Result<_>>().map(Some)
    }

    /// Starts the program in a zone of its own, under what was prepared: it does not run before that is in force.
    ///
    /// # Errors
    /// As [`gate`](Self::gate) and [`Session::begin`]; [`ErrorKind::Usage`](crate::error::ErrorKind) where the program cannot
    /// be run.
    pub fn spawn(&self, prepared: &Prepared) -> Result<SlowChild> {
        let mut gated = self.gate()?;
        let session = Session::begin(prepared, self.name(), Tasks::Processes(vec![gated.pid()]))?;
        gated.begin()?;
        Ok(SlowChild {
            stdin: gated.stdin.take(),
            stdout: gated.stdout.take(),
            stderr: gated.stderr.take(),
            process: gated,
            session,
        })
    }
}

fn c_string(what: &str, text: &OsStr) -> Result<CString> {
    CString::new(text.as_bytes()).map_err(|e| {
        Error::usage(format!("{what} cannot contain a NUL byte: `{}`", text.display())).caused_by(e)
    })
}

/// A child in a zone of its own. Dropping it lets the child go on at full speed.
#[derive(Debug)]
#[must_use = "dropping it ends the emulation"]
pub struct SlowChild {
    /// The writing end of the child's standard input, where that is piped.
    pub stdin: Option<ChildStdin>,
    /// The reading end of the child's standard output, where that is piped.
    pub stdout: Option<ChildStdout>,
    /// The reading end of the child's standard error, where that is piped.
    pub stderr: Option<ChildStderr>,
    process: Gated,
    session: Session,
}

/// How a [`SlowChild`] has ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended {
    /// By itself or by a signal.
    pub exit: ExitStatus,
    /// What it wrote to its standard output, where that is piped and was not taken.
    pub stdout: Vec<u8>,
    /// The same of its standard error.
    pub stderr: Vec<u8>,
    /// What was delivered.
    pub status: Status,
    /// Whether every change to the machine has been undone.
    pub released: Result<()>,
}

impl SlowChild {
    /// The process.
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// What it runs under, to look at it, to change its speed or to pause it.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Kills the process; that it has ended meanwhile is no failure.
    ///
    /// # Errors
    /// It runs as another user by now.
    pub fn kill(&self) -> Result<()> {
        self.process.kill().map_err(|e| Error::io(format!("cannot kill process {}", self.pid()), e))
    }

    /// Closes the standard input, reads what is piped, waits until the process has ended, and releases its zone.
    ///
    /// # Errors
    /// A pipe cannot be read, or somebody else in this process has waited for the child.
    pub fn wait(mut self) -> Result<Ended> {
        drop(self.stdin.take());
        let stderr = self.stderr.take();
        let (stdout, stderr) = thread::scope(|scope| {
            let reader = thread::Builder::new().spawn_scoped(scope, || read_all(stderr));
            let reader = reader.map_err(|e| Error::io("cannot start a thread to read with", e))?;
            let stdout = read_all(self.stdout.take());
            let stderr = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok::<_, Error>((stdout, stderr))
        })?;
        let failed = |cause| Error::io(format!("cannot wait for process {}", self.process.pid()), cause);
        let exit = self.process.wait().map_err(failed)?;
        let (status, released) = self.session.release();
        Ok(Ended { exit, stdout: stdout?, stderr: stderr?, status, released })
    }
}

fn read_all(pipe: Option<impl Into<OwnedFd>>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        File::from(pipe.into())
            .read_to_end(&mut bytes)
            .map_err(|e| Error::io("cannot read what the command writes", e))?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;

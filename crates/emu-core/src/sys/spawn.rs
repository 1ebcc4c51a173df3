//! Starting a program in a child that waits at a gate until its zone is ready.

#![expect(unsafe_code, reason = "std's Command runs the program before its parent can prepare the ground")]

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::process::{ChildStderr, ChildStdin, ChildStdout, ExitStatus};
use std::ptr;
use std::sync::{Mutex, MutexGuard};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use rustix::io::fcntl_dupfd_cloexec;

use super::fork::{self, Child};
use crate::error::{Error, ErrorKind, Result};
use crate::roots::Roots;
use crate::sys::{Pid, lock};

unsafe extern "C" {
    /// The environment of this process, which `execvp` passes on and takes `PATH` from.
    static mut environ: *const *const libc::c_char;
}

/// The signals that a thread blocks; none by default.
#[derive(Debug, Clone, Copy)]
pub struct SignalMask(SigSet);

impl SignalMask {
    /// That of the calling thread.
    ///
    /// # Errors
    /// The kernel refuses to tell.
    pub fn current() -> Result<Self> {
        SigSet::thread_get_mask()
            .map(Self)
            .map_err(|e| Error::io("cannot read which signals are blocked", e.into()))
    }
}

impl Default for SignalMask {
    fn default() -> Self {
        Self(SigSet::empty())
    }
}

/// What a child is to be, made ready in the parent, as the child allocates nothing. `None` is what this process has.
#[derive(Debug)]
pub(crate) struct Image {
    /// The program, then its arguments.
    pub(crate) arguments: Vec<CString>,
    /// `NAME=value` each.
    pub(crate) environment: Option<Vec<CString>>,
    pub(crate) folder: Option<CString>,
    pub(crate) streams: [Option<OwnedFd>; 3],
    pub(crate) mask: SignalMask,
}

/// A child process that has not run its program yet: it waits until [`begin`](Self::begin) is called. It is killed when this
/// is dropped before, and ends by itself when its parent dies.
#[derive(Debug)]
pub struct Gated {
    /// The writing end of the child's standard input, where that is piped.
    pub stdin: Option<ChildStdin>,
    /// The reading end of the child's standard output, where that is piped.
    pub stdout: Option<ChildStdout>,
    /// The reading end of the child's standard error, where that is piped.
    pub stderr: Option<ChildStderr>,
    child: Child,
    gate: File,
    outcome: File,
    /// What errors call the program and its folder.
    names: [String; 2],
    has_begun: bool,
}

/// Held from before a child's pipes are made until its own ends of them are closed here: a child that another thread makes
/// gets no copy of them. It would keep the copy until it runs its own program, and so would keep the pipes open.
#[derive(Debug)]
pub(crate) struct Making(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl Making {
    pub(crate) fn begin() -> Self {
        static MAKING: Mutex<()> = Mutex::new(());
        Self(lock(&MAKING))
    }
}

/// Why a program could not be run; the two cases have their own exit codes (`env(1)`: 127 and 126).
#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt}")]
pub struct ExecError {
    attempt: String,
    is_of_program: bool,
    #[source]
    cause: io::Error,
}

impl ExecError {
    /// Whether the program does not exist, as opposed to cannot be executed.
    pub fn is_not_found(&self) -> bool {
        self.is_of_program && self.cause.kind() == io::ErrorKind::NotFound
    }
}

impl From<ExecError> for Error {
    fn from(error: ExecError) -> Self {
        Self::new(ErrorKind::Usage, error.to_string()).caused_by(error.cause)
    }
}

impl Gated {
    /// Forks a child that will become `image` once the gate opens. Until then it blocks all signals.
    ///
    /// The program has the default action for `SIGPIPE`, which Rust programs ignore. Where this process ignores
    /// `SIGCHLD`, the child goes on to, and this process no longer does: the kernel reaps children of one that
    /// ignores it, and how they ended is lost.
    pub(crate) fn spawn(image: &Image, _: &Making) -> Result<Self> {
        let pointers = |texts: &[CString]| -> Vec<_> {
            texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
        };
        let arguments = pointers(&image.arguments);
        let environment = image.environment.as_deref().map(pointers);
        let name = |text: Option<&CString>| {
            text.map_or_else(String::new, |text| text.to_string_lossy().into_owned())
        };
        let names = [name(image.arguments.first()), name(image.folder.as_ref())];
        let (gate_read, gate) = pipe()?;
        let (outcome, outcome_write) = pipe()?;
        let needed = [&gate_read, &outcome_write].into_iter().chain(image.streams.iter().flatten());
        let needed: Vec<_> = needed.map(AsRawFd::as_raw_fd).collect();
        let unneeded = closed_by_exec(&needed);
        let mask = SigSet::all()
            .thread_swap_mask(SigmaskHow::SIG_SETMASK)
            .map_err(|e| Error::io("cannot block signals", e.into()))?;
        // SAFETY: the child only makes system calls and libc functions that neither allocate nor lock
        // (`execvp` of glibc and musl builds its paths on the stack), then becomes the program or exits.
        let forked = unsafe { fork::copy(libc::SIGCHLD) };
        if matches!(forked, Ok(None)) {
            // The program would close them, but while this waits, others would wait for the end of their pipes.
            for file in &unneeded {
                // SAFETY: nothing in this copy of the program uses them any more.
                unsafe { libc::close(*file) };
            }
            begin(image, &arguments, environment.as_deref(), [&gate_read, &outcome_write]);
        }
        // A mask that was in force before is always valid.
        let _ = mask.thread_set_mask();
        let child = forked.and_then(|child| child.ok_or_else(|| io::ErrorKind::Other.into()));
        let child = child.map_err(|e| Error::io("cannot start a process for the command", e))?;
        drop((gate_read, outcome_write));
        // After the fork, so that the child keeps what was there.
        heed_children();
        let (gate, outcome) = (gate.into(), outcome.into());
        Ok(Self { stdin: None, stdout: None, stderr: None, child, gate, outcome, names, has_begun: false })
    }

    /// The process, to be put into its zone.
    pub fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// Lets the program begin. The process is the caller's to wait for.
    ///
    /// # Errors
    /// The kernel could not run the program, or the child had been killed; dropping this reaps it.
    pub fn begin(&mut self) -> Result<(), ExecError> {
        let [program, folder] = &self.names;
        let error = |cause| ExecError { attempt: format!("run `{program}`"), is_of_program: true, cause };
        self.gate.write_all(b"g").map_err(error)?;
        let mut code = [0; 4];
        if self.outcome.read_exact(&mut code).is_ok() {
            return Err(match i32::from_ne_bytes(code) {
                code @ ..0 => ExecError {
                    attempt: format!("enter the folder `{folder}`"),
                    is_of_program: false,
                    cause: io::Error::from_raw_os_error(-code),
                },
                code => error(io::Error::from_raw_os_error(code)),
            });
        }
        // The pipe closes without a word when the program has replaced the child.
        self.has_begun = true;
        Ok(())
    }

    /// Fails where somebody else in this process has waited for it.
    pub(crate) fn wait(&self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    pub(crate) fn kill(&self) -> io::Result<()> {
        self.child.kill()
    }
}

impl Drop for Gated {
    fn drop(&mut self) {
        if !self.has_begun {
            self.child.end();
        }
    }
}

/// The ends of a pipe, reading first, both closed by `exec`.
pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let ends = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .and_then(|(read, write)| Ok((above_streams(read)?, above_streams(write)?)));
    ends.map_err(|e| Error::io("cannot make a pipe", e.into()))
}

/// The same file under a number other than a standard stream's, where the child will put another one: a program that
/// has closed its own streams gets such numbers.
pub(crate) fn above_streams(file: OwnedFd) -> rustix::io::Result<OwnedFd> {
    if file.as_raw_fd() > libc::STDERR_FILENO {
        return Ok(file);
    }
    fcntl_dupfd_cloexec(&file, libc::STDERR_FILENO + 1)
}

/// The files of this process that the program would not have, but for those that its child needs before.
fn closed_by_exec(needed: &[RawFd]) -> Vec<RawFd> {
    let files = fs::read_dir(Roots::system().proc.join("self/fd")).into_iter().flatten().flatten();
    let numbers = files.filter_map(|file| file.file_name().to_str()?.parse().ok());
    let is_closed = |number: &RawFd| {
        // SAFETY: asks for a flag; of a number that is not in use it fails.
        let flags = unsafe { libc::fcntl(*number, libc::F_GETFD) };
        flags >= 0 && flags & libc::FD_CLOEXEC != 0 && !needed.contains(number)
    };
    numbers.filter(is_closed).collect()
}

/// Ends that this process ignores `SIGCHLD`, as some parents have it: the kernel reaps the children of one that does, and how they
/// have ended is lost. A handler is left: it is the embedding program's.
pub fn heed_children() {
    if action(libc::SIGCHLD) == Some(libc::SIG_IGN) {
        default_action(Signal::SIGCHLD);
    }
}

/// What is done when the signal comes: the address of a handler, `SIG_DFL` or `SIG_IGN`.
fn action(signal: libc::c_int) -> Option<libc::sighandler_t> {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no new action is given, and there is room for the present one.
    let told = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the kernel has filled it when it returns 0.
    (told == 0).then(|| unsafe { action.assume_init() }.sa_sigaction)
}

fn default_action(signal: Signal) {
    // SAFETY: setting the default action installs no handler.
    let _ = unsafe { nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigDfl) };
}

fn begin(
    image: &Image,
    arguments: &[*const libc::c_char],
    environment: Option<&[*const libc::c_char]>,
    [gate, outcome]: [&OwnedFd; 2],
) -> ! {
    let mut go = [0u8];
    loop {
        match rustix::io::read(gate, &mut go) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(1) => break,
            // The parent is gone or has changed its mind.
            // SAFETY: `_exit` ends the process without running anything of this copy of the parent.
            _ => unsafe { libc::_exit(125) },
        }
    }
    // A signal that came meanwhile must not run the parent's handler in this copy of it.
    for signal in Signal::iterator() {
        if !matches!(action(signal as libc::c_int), None | Some(libc::SIG_DFL | libc::SIG_IGN)) {
            default_action(signal);
        }
    }
    default_action(Signal::SIGPIPE);
    let _ = nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&image.mask.0), None);
    let code = become_image(image, arguments, environment);
    let _ = rustix::io::write(outcome, &code.to_ne_bytes());
    // SAFETY: as above.
    unsafe { libc::_exit(126) }
}

/// Returns only where that fails, with the error's number, or its negative where the folder cannot be entered.
fn become_image(
    image: &Image,
    arguments: &[*const libc::c_char],
    environment: Option<&[*const libc::c_char]>,
) -> i32 {
    let last_error = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOEXEC);
    for (number, stream) in (0..).zip(&image.streams) {
        let Some(stream) = stream else { continue };
        // SAFETY: both are numbers of files. What had the second one is closed: a stream that this program does not use.
        if unsafe { libc::dup2(stream.as_raw_fd(), number) } < 0 {
            return last_error();
        }
    }
    if let Some(folder) = &image.folder
        && let Err(error) = rustix::process::chdir::<&CStr>(folder)
    {
        return -error.raw_os_error();
    }
    if let Some(environment) = environment {
        // SAFETY: a null-terminated array of C strings that outlive this process image, which has one thread.
        unsafe { environ = environment.as_ptr() };
    }
    if let Some(program) = arguments.first() {
        // SAFETY: `arguments` is a null-terminated array of C strings that live in this process's memory.
        unsafe { libc::execvp(*program, arguments.as_ptr()) };
    }
    last_error()
}

#[cfg(test)]
mod tests;

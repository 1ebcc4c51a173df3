//! Starting a command that waits at a gate until its zone is ready.

#![expect(unsafe_code, reason = "std's Command runs the program before its parent can prepare the ground")]

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use crate::zone::Pid;
use crate::{Error, Result};

/// A child process that has not run its program yet: it waits until [`open`](Self::open) is called, and ends
/// by itself when it is dropped or its parent dies before.
#[derive(Debug)]
pub struct Gated {
    pid: Pid,
    gate: Option<File>,
    outcome: Option<File>,
}

/// Why a program could not be run; the two cases have their own exit codes (`env(1)`: 127 and 126).
#[derive(Debug, thiserror::Error)]
#[error("cannot run `{program}`")]
pub struct ExecError {
    /// The program as asked for.
    pub program: String,
    /// What the kernel said.
    #[source]
    pub cause: io::Error,
}

impl ExecError {
    /// Whether the program does not exist, as opposed to cannot be executed.
    pub fn is_not_found(&self) -> bool {
        self.cause.kind() == io::ErrorKind::NotFound
    }
}

impl Gated {
    /// Forks a child that will run `command` (program, then arguments) with the environment, the terminal
    /// and the open files of this process, once the gate opens.
    ///
    /// The child starts with an empty signal mask, `mask` excepted, and with the default action for
    /// `SIGPIPE`, which Rust programs ignore. Where this process ignores `SIGCHLD`, the child goes on to, and this process
    /// no longer does: the kernel reaps the children of one that ignores it, and how they ended is lost.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind) for an empty command or a NUL byte in it; the pipe or the fork fails.
    pub fn spawn(command: &[OsString], mask: &SigSet) -> Result<Self> {
        let arguments = command
            .iter()
            .map(|argument| CString::new(argument.as_bytes()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| Error::usage("a command cannot contain a NUL byte").caused_by(e))?;
        if arguments.is_empty() {
            return Err(Error::usage("there is no command to run"));
        }
        let mut pointers: Vec<_> = arguments.iter().map(|argument| argument.as_ptr()).collect();
        pointers.push(ptr::null());
        let (gate_read, gate_write) = pipe()?;
        let (outcome_read, outcome_write) = pipe()?;
        // SAFETY: the child only makes system calls and libc functions that neither allocate nor lock
        // (`execvp` of glibc and musl builds its paths on the stack), then becomes the program or exits.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(Error::io("cannot start a process for the command", io::Error::last_os_error())),
            0 => {
                drop(gate_write);
                drop(outcome_read);
                child(&pointers, &gate_read, &outcome_write, mask)
            }
            pid => {
                // After the fork, so that the child keeps what was there.
                heed_children();
                Ok(Self { pid, gate: Some(gate_write.into()), outcome: Some(outcome_read.into()) })
            }
        }
    }

    /// The process, to be put into its zone.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets the program begin. The process is the caller's to wait for.
    ///
    /// # Errors
    /// The kernel could not run the program; the process has ended and been reaped.
    pub fn open(mut self, program: &OsStr) -> Result<Pid, ExecError> {
        let error = |cause| ExecError { program: program.to_string_lossy().into_owned(), cause };
        if let Some(mut gate) = self.gate.take() {
            gate.write_all(b"g").map_err(error)?;
        }
        let mut code = [0; 4];
        match self.outcome.take().map(|mut outcome| outcome.read_exact(&mut code)) {
            // The pipe closes without a word when the program has replaced the child.
            Some(Err(_)) | None => Ok(self.pid),
            Some(Ok(())) => {
                self.reap();
                Err(error(io::Error::from_raw_os_error(i32::from_ne_bytes(code))))
            }
        }
    }

    fn reap(&self) {
        let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(self.pid), None);
    }
}

impl Drop for Gated {
    /// Ends the child if its program has not begun.
    fn drop(&mut self) {
        if self.gate.take().is_some() {
            self.reap();
        }
    }
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|e| Error::io("cannot make a pipe", e.into()))
}

/// Takes the default action for `SIGCHLD` where it is ignored. A handler is left: it is the embedding program's.
fn heed_children() {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: no new action is given, and there is room for the present one.
    let told = unsafe { libc::sigaction(libc::SIGCHLD, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the kernel has filled it when it returns 0.
    if told == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN {
        default_action(Signal::SIGCHLD);
    }
}

fn default_action(signal: Signal) {
    // SAFETY: setting the default action installs no handler.
    let _ = unsafe { nix::sys::signal::signal(signal, nix::sys::signal::SigHandler::SigDfl) };
}

/// The child's side; never returns.
fn child(arguments: &[*const libc::c_char], gate: &OwnedFd, outcome: &OwnedFd, mask: &SigSet) -> ! {
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
    let _ = nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(mask), None);
    default_action(Signal::SIGPIPE);
    if let Some(program) = arguments.first() {
        // SAFETY: `arguments` is a null-terminated array of C strings that live in this process's memory.
        unsafe { libc::execvp(*program, arguments.as_ptr()) };
    }
    let code = io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOEXEC);
    let _ = rustix::io::write(outcome, &code.to_ne_bytes());
    // SAFETY: as above.
    unsafe { libc::_exit(126) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use nix::sys::wait::{WaitStatus, waitpid};

    fn command(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    fn exit_code(pid: Pid) -> i32 {
        match waitpid(nix::unistd::Pid::from_raw(pid), None).unwrap() {
            WaitStatus::Exited(_, code) => code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_program_runs_only_when_the_gate_opens() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("ran");
        let script = format!("echo x > {}; exit 7", mark.display());
        let gated = Gated::spawn(&command(&["sh", "-c", &script]), &SigSet::empty()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(!mark.exists());
        let pid = gated.open(OsStr::new("sh")).unwrap();
        assert_eq!(exit_code(pid), 7);
        assert!(mark.exists());
    }

    #[test]
    fn a_dropped_gate_ends_the_child_without_running_it() {
        let gated = Gated::spawn(&command(&["sh", "-c", "exit 7"]), &SigSet::empty()).unwrap();
        let pid = gated.pid();
        drop(gated);
        assert!(waitpid(nix::unistd::Pid::from_raw(pid), None).is_err());
    }

    #[test]
    fn missing_and_unexecutable_programs_are_told_apart() {
        let gated = Gated::spawn(&command(&["/nonexistent/x"]), &SigSet::empty()).unwrap();
        assert!(gated.open(OsStr::new("x")).unwrap_err().is_not_found());
        let gated = Gated::spawn(&command(&["/"]), &SigSet::empty()).unwrap();
        assert!(!gated.open(OsStr::new("/")).unwrap_err().is_not_found());
    }

    #[test]
    fn an_empty_command_or_a_nul_byte_is_refused() {
        assert_eq!(Gated::spawn(&[], &SigSet::empty()).unwrap_err().kind(), ErrorKind::Usage);
        let nul = Gated::spawn(&command(&["a\0b"]), &SigSet::empty());
        assert_eq!(nul.unwrap_err().kind(), ErrorKind::Usage);
    }
}

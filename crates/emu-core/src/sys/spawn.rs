//! Starting a command that waits at a gate until its zone is ready.

#![expect(unsafe_code, reason = "std's Command runs the program before its parent can prepare the ground")]

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use super::fork::{self, Child};
use crate::error::{Error, Result};
use crate::sys::Pid;

/// A child process that has not run its program yet: it waits until [`open`](Self::open) is called. It is killed when
/// this is dropped before, and ends by itself when its parent dies.
#[derive(Debug)]
pub struct Gated {
    child: Child,
    gate: File,
    outcome: File,
    has_begun: bool,
}

/// Held while a child is made: no other child gets a copy of its end of `outcome`, by which the program's beginning would
/// be told only when that child runs its own.
static MAKING: Mutex<()> = Mutex::new(());

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
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) for an empty command or a NUL byte in it; the pipe or the fork fails.
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
        let making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let (gate_read, gate) = pipe()?;
        let (outcome, outcome_write) = pipe()?;
        // SAFETY: the child only makes system calls and libc functions that neither allocate nor lock
        // (`execvp` of glibc and musl builds its paths on the stack), then becomes the program or exits.
        let child = unsafe { fork::copy(libc::SIGCHLD) }
            .map_err(|e| Error::io("cannot start a process for the command", e))?;
        let Some(child) = child else {
            // The gates of children made before stay open here. Their parent's death reaches this child first, then them.
            drop((gate, outcome));
            begin(&pointers, &gate_read, &outcome_write, mask)
        };
        drop((gate_read, outcome_write, making));
        // After the fork, so that the child keeps what was there.
        heed_children();
        Ok(Self { child, gate: gate.into(), outcome: outcome.into(), has_begun: false })
    }

    /// The process, to be put into its zone.
    pub fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// Lets the program begin. The process is the caller's to wait for.
    ///
    /// # Errors
    /// The kernel could not run the program, or the child had been killed; it has been reaped.
    pub fn open(mut self, program: &OsStr) -> Result<Pid, ExecError> {
        let error = |cause| ExecError { program: program.to_string_lossy().into_owned(), cause };
        self.gate.write_all(b"g").map_err(error)?;
        let mut code = [0; 4];
        if self.outcome.read_exact(&mut code).is_ok() {
            return Err(error(io::Error::from_raw_os_error(i32::from_ne_bytes(code))));
        }
        // The pipe closes without a word when the program has replaced the child.
        self.has_begun = true;
        Ok(self.child.pid())
    }
}

impl Drop for Gated {
    /// Ends the child if its program has not begun. Closing its gate would not do: children made later may hold a copy.
    fn drop(&mut self) {
        if !self.has_begun {
            self.child.end();
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
fn begin(arguments: &[*const libc::c_char], gate: &OwnedFd, outcome: &OwnedFd, mask: &SigSet) -> ! {
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
    use crate::error::ErrorKind;
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

    fn gated(code: u8) -> Gated {
        Gated::spawn(&command(&["sh", "-c", &format!("exit {code}")]), &SigSet::empty()).unwrap()
    }

    /// Fails where `work` takes for ever.
    fn in_time(work: impl FnOnce() + Send + 'static) {
        let (done, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            work();
            done.send(()).unwrap();
        });
        told.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn two_children_at_the_gate_are_ended_in_either_order() {
        in_time(|| {
            let (first, second) = (gated(1), gated(2));
            drop(first);
            drop(second);
            let (first, second) = (gated(1), gated(2));
            drop(second);
            drop(first);
        });
    }

    #[test]
    fn one_of_two_children_begins_while_the_other_waits() {
        in_time(|| {
            let (first, second) = (gated(1), gated(2));
            assert_eq!(exit_code(first.open(OsStr::new("sh")).unwrap()), 1);
            assert_eq!(exit_code(second.open(OsStr::new("sh")).unwrap()), 2);
        });
    }

    #[test]
    fn children_of_several_threads_begin_one_by_one() {
        in_time(|| {
            for _ in 0..10 {
                let spawners: Vec<_> =
                    (0..8).map(|code| std::thread::spawn(move || (code, gated(code)))).collect();
                let children: Vec<_> = spawners.into_iter().map(|one| one.join().unwrap()).collect();
                for (code, child) in children {
                    if code % 2 == 0 {
                        assert_eq!(exit_code(child.open(OsStr::new("sh")).unwrap()), i32::from(code));
                    }
                }
            }
        });
    }

    #[test]
    fn a_child_that_was_killed_at_its_gate_is_reaped() {
        let gated = gated(0);
        let pid = nix::unistd::Pid::from_raw(gated.pid());
        nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
        while nix::sys::wait::waitid(
            nix::sys::wait::Id::Pid(pid),
            nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT,
        )
        .is_err()
        {}
        assert!(gated.open(OsStr::new("sh")).is_err());
        assert!(waitpid(pid, None).is_err());
    }

    #[test]
    fn what_the_program_had_open_stays_open() {
        let (reader, writer) = std::io::pipe().unwrap();
        rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty()).unwrap();
        // Some shells know the numbers 0 to 9 only.
        let script = format!("echo x >/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        let gated = Gated::spawn(&command(&["sh", "-c", &script]), &SigSet::empty()).unwrap();
        assert_eq!(exit_code(gated.open(OsStr::new("sh")).unwrap()), 0);
        let mut bytes = [0; 2];
        (&reader).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"x\n");
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

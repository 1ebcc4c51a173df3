//! How emu ends: the documented exit codes, and death by the command's signal.

use std::process::ExitCode;

use emu_core::{Error, ErrorKind, ExecError};
use nix::sys::signal::{self, SigSet, Signal};

/// The exit codes, for help and manual.
pub(crate) const TABLE: &str = "\
Exit codes:
      0  done (run: the command's own code is passed on)
      1  the command, or a test of it, fails, and not only when slow (ci)
      2  the command line makes no sense
      3  not possible on this host, or with this method
      4  not permitted
      5  a speed is not delivered (verify, --verify), a result is wrong
         (measure, calibrate), or a document is not what its records show
         (report --check)
      6  something could not be restored
      7  this machine is not tuned for repeatable runs (doctor show)
      8  the command, or a test of it, fails only when slow (ci)
      9  undecided: the machine was too noisy to tell whether a speed is
         delivered (verify, --verify)
    125  emu itself failed
    126  the command cannot be executed
    127  the command does not exist
  128+N  the command, or a command of emu itself, was ended by signal N;
         emu ends by the same signal";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// What was tested fails, and not only when slow.
    Fails,
    Usage,
    Unavailable,
    NotPermitted,
    /// The speed is not delivered, or a result is wrong.
    NotVerified,
    RestoreIncomplete,
    /// The machine disturbs runs, and could be put right.
    NotTuned,
    FailsWhenSlow,
    /// Whether the speed is delivered could not be told.
    Undecided,
    /// emu itself failed.
    Failure,
    NotExecutable,
    NotFound,
    Command(u8),
    /// The command, or emu in its place, was ended by this signal.
    Signal(i32),
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Fails => 1,
            Self::Usage => 2,
            Self::Unavailable => 3,
            Self::NotPermitted => 4,
            Self::NotVerified => 5,
            Self::RestoreIncomplete => 6,
            Self::NotTuned => 7,
            Self::FailsWhenSlow => 8,
            Self::Undecided => 9,
            Self::Failure => 125,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Command(code) => code,
            // The largest signal is 64.
            Self::Signal(number) => 128u8.wrapping_add(number as u8),
        }
    }

    /// Ends the process; everything must have been released before. After a signal emu dies by the same, as only then a shell
    /// leaves a loop of commands; where that is not possible (a real-time signal, an ignored one) the code is 128+N.
    pub(crate) fn finish(self) -> ExitCode {
        if let Self::Signal(number) = self
            && let Ok(signal) = Signal::try_from(number)
        {
            die_by(signal);
        }
        ExitCode::from(self.code())
    }
}

fn die_by(signal: Signal) {
    // The command's core file is of interest, emu's is not.
    let _ = nix::sys::prctl::set_dumpable(false);
    let mut only = SigSet::empty();
    only.add(signal);
    let _ = only.thread_unblock();
    // Rust's handler for SIGSEGV and SIGBUS takes the first for a stack overflow, and steps aside for the second.
    for _ in 0..2 {
        let _ = signal::raise(signal);
    }
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Usage => Self::Usage,
            ErrorKind::Unavailable => Self::Unavailable,
            ErrorKind::NotPermitted => Self::NotPermitted,
            ErrorKind::RestoreIncomplete => Self::RestoreIncomplete,
            ErrorKind::WrongResult => Self::NotVerified,
            // The kinds of later versions are failures until they have a code.
            ErrorKind::Failed | _ => Self::Failure,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// `None` where the exit says it all.
    pub(crate) error: Option<Error>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, error: Error) -> Self {
        Self { exit, error: Some(error) }
    }

    /// Of a program that was found, and that the kernel does not execute.
    pub(crate) fn not_executed(is_not_found: bool, error: Error) -> Self {
        let exit = if is_not_found { Exit::NotFound } else { Exit::NotExecutable };
        Self::new(
            exit,
            error.hint("check the interpreter that it names, and that it is for this kind of machine"),
        )
    }

    pub(crate) fn interrupted(signal: Signal) -> Self {
        Self { exit: Exit::Signal(signal as i32), error: None }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error.kind().into(), error)
    }
}

impl From<ExecError> for Failure {
    fn from(error: ExecError) -> Self {
        Self::not_executed(error.is_not_found(), error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_end_has_the_code_that_the_table_documents() {
        for exit in [
            Exit::Success,
            Exit::Fails,
            Exit::Usage,
            Exit::Unavailable,
            Exit::NotPermitted,
            Exit::NotVerified,
            Exit::RestoreIncomplete,
            Exit::NotTuned,
            Exit::FailsWhenSlow,
            Exit::Undecided,
            Exit::Failure,
            Exit::NotExecutable,
            Exit::NotFound,
        ] {
            let code = exit.code().to_string();
            assert!(
                TABLE.lines().any(|line| line.trim_start().starts_with(&format!("{code}  "))),
                "{exit:?}"
            );
        }
        assert_eq!(Exit::Command(7).code(), 7);
        assert_eq!(Exit::Signal(9).code(), 137);
        assert_eq!(Exit::Signal(64).code(), 192);
    }

    #[test]
    fn a_wrong_result_is_told_apart_from_a_failure_of_emu() {
        assert_eq!(Failure::from(Error::new(ErrorKind::WrongResult, "wrong copy")).exit.code(), 5);
        assert_eq!(Failure::from(Error::new(ErrorKind::Failed, "no histogram")).exit.code(), 125);
    }

    #[test]
    fn a_missing_program_and_one_that_cannot_run_differ() {
        let exit = |program| {
            Failure::from(emu_core::SlowCommand::new(program).gate().unwrap().begin().unwrap_err()).exit
        };
        assert_eq!(exit("/nonexistent/x"), Exit::NotFound);
        assert_eq!(exit("/"), Exit::NotExecutable);
    }
}

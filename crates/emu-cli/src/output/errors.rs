//! Errors as people read them: what failed, its causes, and at the end what to do.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::panic;

use anstyle::{AnsiColor, Style};
use clap::error::ErrorKind;
use emu_core::Error;
use nix::errno::Errno;

use crate::exit::Exit;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();

/// Prints an error to stderr, in colour where that is a terminal.
pub(crate) fn print(error: &Error) {
    let _ = write!(anstream::stderr(), "{}", text(error));
}

/// Prints what clap found wrong, or the help that was asked for.
///
/// Values are judged by emu's own parsers, whose errors have a hint that clap would leave out.
pub(crate) fn print_usage(error: &clap::Error) -> Exit {
    match error.source().and_then(|source| source.downcast_ref::<Error>()) {
        Some(ours) => print(ours),
        None => {
            let _ = error.print();
        }
    }
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Success,
        _ => Exit::Usage,
    }
}

/// Makes a panic, a defect of emu, tell the user what becomes of the machine: the stack is unwound, and every
/// session on it undoes its changes.
pub(crate) fn explain_panics() {
    panic::set_hook(Box::new(|info| {
        let _ = writeln!(
            anstream::stderr(),
            "emu: {info}\nemu: this is a defect of emu; its changes are being undone, and `emu restore` makes sure"
        );
    }));
}

fn text(error: &Error) -> String {
    let mut text = format!("{ERROR}error:{ERROR:#} {error}\n");
    let mut said = error.to_string();
    let mut hint = error.hint_text();
    let mut usual = None;
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        // Some errors say their cause themselves.
        if !said.contains(&words) {
            let _ = writeln!(text, "  caused by: {words}");
        }
        said.push_str(&words);
        hint = hint.or_else(|| cause.downcast_ref().and_then(Error::hint_text));
        usual = usual.or_else(|| cause.downcast_ref().and_then(usual_hint));
        source = cause.source();
    }
    if let Some(hint) = hint.or(usual) {
        let _ = writeln!(text, "  {HINT}hint:{HINT:#} {hint}");
    }
    text
}

/// What helps against a refusal of the kernel, whatever was being done.
fn usual_hint(cause: &io::Error) -> Option<&'static str> {
    match Errno::from_raw(cause.raw_os_error()?) {
        Errno::ENOSPC | Errno::EDQUOT => {
            Some("make room on that file system; df and df -i show which is full")
        }
        Errno::EROFS => Some("the file system is mounted read-only; emu must be able to write there"),
        Errno::EMFILE | Errno::ENFILE => Some("raise the limit of open files: ulimit -n"),
        Errno::ENOMEM | Errno::EAGAIN => Some("the system is short of memory or processes; see ulimit -u"),
        Errno::EACCES | Errno::EPERM => Some("run emu as root; `emu info` shows the privileges that it has"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn plain(error: &Error) -> String {
        anstream::adapter::strip_str(&text(error)).to_string()
    }

    #[test]
    fn an_error_is_followed_by_its_causes_and_its_hint() {
        let cause = io::Error::from_raw_os_error(nix::libc::EACCES);
        let error = Error::file("write `20000 100000` to", Path::new("/sys/fs/cgroup/emu/cpu.max"), cause)
            .hint("run as root");
        assert_eq!(
            plain(&error),
            "error: cannot write `20000 100000` to /sys/fs/cgroup/emu/cpu.max\n\
             \x20 caused by: Permission denied (os error 13)\n\
             \x20 hint: run as root\n"
        );
    }

    #[test]
    fn a_refusal_without_a_hint_gets_the_usual_one() {
        let full =
            Error::file("create", Path::new("/run/emu/x"), io::Error::from_raw_os_error(nix::libc::ENOSPC));
        assert!(
            plain(&full).ends_with("hint: make room on that file system; df and df -i show which is full\n")
        );
        let odd =
            Error::file("create", Path::new("/run/emu/x"), io::Error::from_raw_os_error(nix::libc::EBUSY));
        assert!(!plain(&odd).contains("hint"));
    }

    #[test]
    fn a_cause_is_not_said_twice() {
        let inner = Error::usage("no such group").hint("name another");
        let outer = Error::unavailable("cannot attach: no such group").caused_by(inner);
        assert_eq!(plain(&outer), "error: cannot attach: no such group\n  hint: name another\n");
    }
}

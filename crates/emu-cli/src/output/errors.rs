//! Errors as people read them: what failed, its causes, and at the end what to do.

use std::error::Error as _;
use std::io::{self, Write as _};
use std::panic;

use anstyle::{AnsiColor, Style};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use emu_bench::table::wrap;
use emu_core::Error;
use nix::errno::Errno;
use nix::unistd::geteuid;

use super::stderr::say_the_rest;
use crate::exit::Exit;
use crate::hints;

const ERROR: Style = AnsiColor::Red.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default();

pub(crate) fn print(error: &Error) {
    print_of("", error);
}

fn print_of(option: &str, error: &Error) {
    say_the_rest();
    let _ = write!(anstream::stderr(), "{}", text(option, error));
}

/// Prints what clap found wrong, or the help. Errors of emu's own parsers have a hint that clap would leave out.
pub(crate) fn print_usage(error: &clap::Error) -> Exit {
    match error.source().and_then(|source| source.downcast_ref::<Error>()) {
        Some(ours) => print_of(&option(error), ours),
        None => {
            let _ = error.print();
        }
    }
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Success,
        _ => Exit::Usage,
    }
}

/// `--period: `, the option whose value was wrong.
fn option(error: &clap::Error) -> String {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(usage)) => {
            format!("{}: ", usage.split_whitespace().next().unwrap_or_default())
        }
        _ => String::new(),
    }
}

/// Makes a panic tell what becomes of the machine: the stack is unwound, and every session on it undoes its changes.
pub(crate) fn explain_panics() {
    panic::set_hook(Box::new(|info| {
        let _ = writeln!(
            anstream::stderr(),
            "emu: {info}\nemu: this is a defect of emu; its changes are being undone, and `emu restore` makes sure"
        );
    }));
}

fn text(option: &str, error: &Error) -> String {
    let mut text = styled(ERROR, &paragraphs("error", 0, &format!("{option}{error}")));
    let mut said = error.to_string();
    let mut hint = error.typed_hint();
    let mut usual = None;
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        // Some errors say their cause themselves.
        if !said.contains(&words) {
            text.push_str(&paragraphs("caused by", 2, &words));
        }
        said.push_str(&words);
        hint = hint.or_else(|| cause.downcast_ref().and_then(Error::typed_hint));
        usual =
            usual.or_else(|| cause.downcast_ref().and_then(|cause| usual_hint(cause, geteuid().is_root())));
        source = cause.source();
    }
    if let Some(hint) = hint.map(hints::words).or(usual.map(str::to_owned)) {
        text.push_str(&styled(HINT, &paragraphs("hint", 2, &hint)));
    }
    text
}

/// `word: text` in lines of the usual width; a line of the text that is indented begins a line of its own.
fn paragraphs(word: &str, indent: usize, text: &str) -> String {
    let text = format!("{}{word}: {text}", " ".repeat(indent));
    let indent_of = |line: &str| line.len() - line.trim_start().len();
    text.lines().map(|line| wrap(line, indent_of(line)) + "\n").collect()
}

fn styled(style: Style, text: &str) -> String {
    let indent = text.len() - text.trim_start().len();
    let (word, rest) = text.split_once(':').unwrap_or((text, ""));
    format!("{:indent$}{style}{}:{style:#}{rest}", "", word.trim_start())
}

/// What helps against a refusal of the kernel, whatever was being done.
fn usual_hint(cause: &io::Error, is_root: bool) -> Option<&'static str> {
    Some(match Errno::from_raw(cause.raw_os_error()?) {
        Errno::ENOSPC | Errno::EDQUOT => "make room on that file system; df and df -i show which is full",
        Errno::EFBIG => "raise the limit of the size of files: ulimit -f",
        Errno::EROFS => "the file system is mounted read-only; emu must be able to write there",
        Errno::EMFILE | Errno::ENFILE => "raise the limit of open files: ulimit -n",
        Errno::ENOMEM => "the system is short of memory, or emu's is limited: ulimit -v, ulimit -d",
        Errno::EAGAIN => {
            "the system is short of memory or processes, or they are limited: ulimit -u, ulimit -v, ulimit -d, a cgroup's pids.max"
        }
        Errno::ENOSYS => "the kernel lacks that system call, or a sandbox (seccomp) forbids it",
        Errno::EACCES | Errno::EPERM if is_root => {
            "a sandbox (seccomp) forbids it, or a capability is missing; `emu info` shows the privileges that emu has"
        }
        Errno::EACCES | Errno::EPERM => "run emu as root; `emu info` shows the privileges that it has",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_bench::table::WIDTH;
    use std::path::Path;

    fn plain(error: &Error) -> String {
        anstream::adapter::strip_str(&text("", error)).to_string()
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
    fn what_is_long_is_wrapped_and_what_is_listed_keeps_its_lines() {
        let long = "word ".repeat(20);
        let error = Error::unavailable(format!("no method can:\n  a: {long}\n  b: no")).hint(long.clone());
        let text = plain(&error);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(
            text.starts_with("error: no method can:\n  a: word") && text.contains("\n  b: no\n  hint: w"),
            "{text}"
        );
    }

    #[test]
    fn a_bad_value_is_told_with_its_option() {
        let command = clap::Command::new("emu").arg(
            clap::Arg::new("period")
                .long("period")
                .value_parser(|_: &str| Err::<u32, _>(Error::usage("bad period"))),
        );
        let error = command.try_get_matches_from(["emu", "--period", "x"]).unwrap_err();
        let ours = error.source().and_then(|source| source.downcast_ref::<Error>()).unwrap();
        assert!(super::text(&option(&error), ours).ends_with(" --period: bad period\n"));
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
    fn the_usual_hint_is_for_this_failure_and_this_caller() {
        let hint = |errno, is_root| usual_hint(&io::Error::from_raw_os_error(errno as i32), is_root).unwrap();
        for (errno, is_root, part) in [
            (Errno::EPERM, false, "run emu as root"),
            (Errno::EPERM, true, "seccomp"),
            (Errno::EACCES, true, "capability"),
            (Errno::ENOSYS, false, "seccomp"),
            (Errno::ENOMEM, true, "ulimit -d"),
            (Errno::EAGAIN, false, "ulimit -u"),
            (Errno::EFBIG, true, "ulimit -f"),
        ] {
            let said = hint(errno, is_root);
            assert!(said.contains(part), "{errno}: {said}");
            assert!(!is_root || !said.contains("as root"), "{errno}: {said}");
        }
        assert!(!hint(Errno::ENOMEM, true).contains("ulimit -u"));
    }

    #[test]
    fn a_cause_is_not_said_twice() {
        let inner = Error::usage("no such group").hint("name another");
        let outer = Error::unavailable("cannot attach: no such group").caused_by(inner);
        assert_eq!(plain(&outer), "error: cannot attach: no such group\n  hint: name another\n");
    }
}

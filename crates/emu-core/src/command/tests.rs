//! What a child is given.

use std::io::Write;

use super::*;
use crate::error::ErrorKind;

fn shell(script: &str) -> SlowCommand {
    let mut command = SlowCommand::new("sh");
    command.args(["-c", script]).stdout(Stdio::Piped);
    command
}

/// What the command writes, without a zone.
fn output(command: &SlowCommand) -> String {
    let mut gated = command.gate().unwrap();
    gated.begin().unwrap();
    let written = read_all(gated.stdout.take()).unwrap();
    assert!(gated.wait().unwrap().success());
    String::from_utf8(written).unwrap()
}

#[test]
fn variables_are_set_removed_and_cleared() {
    let print = "echo ${HOME-none} ${A-none} ${B-none}";
    let home = std::env::var("HOME").unwrap_or_else(|_| "none".into());
    assert_eq!(output(shell(print).env("A", "a b").envs([("B", "b")])), format!("{home} a b b\n"));
    assert_eq!(output(shell(print).env("A", "a").env_remove("A").env_remove("HOME")), "none none none\n");
    let mut bare = SlowCommand::new("/bin/sh");
    bare.args(["-c", print]).stdout(Stdio::Piped).env("A", "a").env_clear().env("B", "b");
    assert_eq!(output(&bare), "none none b\n");
}

#[test]
fn the_program_is_looked_for_in_the_childs_own_path() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/echo", dir.path().join("emu-test-echo")).unwrap();
    let mut command = SlowCommand::new("emu-test-echo");
    command.arg("found").stdout(Stdio::Piped);
    assert!(command.gate().unwrap().begin().unwrap_err().is_not_found());
    assert_eq!(output(command.env("PATH", dir.path())), "found\n");
}

#[test]
fn the_folder_is_the_childs_and_a_missing_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    assert_eq!(output(shell("pwd -P").current_dir(&path)), format!("{}\n", path.display()));
    let error = shell("pwd").current_dir("/nonexistent/x").gate().unwrap().begin().unwrap_err();
    assert!(!error.is_not_found(), "that is said of programs");
    assert_eq!(error.to_string(), "cannot enter the folder `/nonexistent/x`");
}

#[test]
fn streams_are_piped_files_or_nothing() {
    let mut gated = shell("read line; echo \"got $line\"; echo bad >&2")
        .stdin(Stdio::Piped)
        .stderr(Stdio::Piped)
        .gate()
        .unwrap();
    gated.begin().unwrap();
    gated.stdin.take().unwrap().write_all(b"a line\n").unwrap();
    assert_eq!(read_all(gated.stdout.take()).unwrap(), b"got a line\n");
    assert_eq!(read_all(gated.stderr.take()).unwrap(), b"bad\n");
    assert!(gated.wait().unwrap().success());

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "from a file").unwrap();
    assert_eq!(output(shell("cat").stdin(File::open(file.path()).unwrap())), "from a file");
    assert_eq!(output(shell("cat").stdin(Stdio::Null)), "");
}

#[test]
fn a_child_at_its_gate_keeps_no_pipe_of_another_open() {
    let mut first = shell("cat; echo end").stdin(Stdio::Piped).gate().unwrap();
    let second = shell("true").gate().unwrap();
    first.begin().unwrap();
    drop(first.stdin.take());
    // Both would take for ever: `cat` waits for the end of the one, and we for that of the other.
    assert_eq!(read_all(first.stdout.take()).unwrap(), b"end\n");
    assert!(first.wait().unwrap().success());
    drop(second);
}

#[test]
fn a_child_blocks_the_signals_that_it_is_told_to() {
    let blocked = |command: &SlowCommand| output(command).trim().trim_start_matches("SigBlk:\t").to_owned();
    // No shell: some clear the mask.
    let mut command = SlowCommand::new("grep");
    command.args(["SigBlk", "/proc/self/status"]).stdout(Stdio::Piped);
    assert_eq!(blocked(&command), "0000000000000000");
    // This thread's own mask, with SIGUSR1 in it.
    let mask = std::thread::spawn(|| {
        let mut set = nix::sys::signal::SigSet::empty();
        set.add(nix::sys::signal::Signal::SIGUSR1);
        set.thread_block().unwrap();
        SignalMask::current().unwrap()
    });
    assert_eq!(blocked(command.signal_mask(mask.join().unwrap())), "0000000000000200");
}

#[test]
fn a_nul_byte_is_refused_wherever_it_is() {
    let refused = |command: &SlowCommand| command.gate().unwrap_err().kind() == ErrorKind::Usage;
    assert!(refused(&SlowCommand::new("a\0b")));
    assert!(refused(SlowCommand::new("true").arg("a\0b")));
    assert!(refused(SlowCommand::new("true").env("A", "a\0b")));
    assert!(refused(SlowCommand::new("true").current_dir("a\0b")));
}

#[test]
fn a_zone_is_called_by_the_programs_file_name() {
    assert_eq!(SlowCommand::new("/usr/bin/make").name(), "make");
    assert_eq!(SlowCommand::new("..").name(), "..");
}

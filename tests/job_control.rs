//! Job control under a real terminal and a real shell: with emu in front, a command stops, continues, and is
//! interrupted as without it.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{
    EMU, PATIENCE, alone, child_called, comm, eventually, groups_of, inside, is_root, leave_out, methods,
    skip, some_method, state, until_child, until_it_acts,
};
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A shell in a session of its own on a terminal of its own.
pub(crate) struct Terminal {
    shell: Child,
    master: File,
    /// What was shown and has not been waited for.
    shown: String,
    /// All that was shown, for messages.
    log: VecDeque<String>,
}

/// The shell's prompt.
pub(crate) const PROMPT: &str = "ready> ";

impl Terminal {
    pub(crate) fn open(shell: &[&str]) -> Self {
        let pty = openpty(None, None).expect("a terminal");
        let slave = File::from(pty.slave);
        let ends = || Stdio::from(slave.try_clone().expect("a descriptor"));
        let mut command = inside(":", "setsid");
        command
            .args(["--ctty", "--wait"])
            .args(shell)
            .env("PS1", PROMPT)
            .env("TERM", "dumb")
            .env_remove("ENV");
        // A copy of the terminal's other end in the shell would keep the terminal from hanging up.
        fcntl(pty.master.as_fd(), FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("to close it in children");
        let shell = command.stdin(ends()).stdout(ends()).stderr(ends()).spawn().expect("a shell");
        let master = File::from(pty.master);
        fcntl(master.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("not to block");
        let mut terminal = Self { shell, master, shown: String::new(), log: VecDeque::new() };
        terminal.wait_for(PROMPT);
        terminal
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("the terminal to take input");
    }

    /// Types a line and waits for the prompt; returns what was shown in between.
    pub(crate) fn line(&mut self, line: &str) -> String {
        self.send(&format!("{line}\n"));
        self.wait_for(PROMPT)
    }

    /// Waits until `text` is shown; returns what was shown before it.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let begin = Instant::now();
        loop {
            if let Some((before, after)) = self.shown.split_once(text) {
                let (before, after) = (before.to_owned(), after.to_owned());
                self.log.push_back(format!("{before}{text}"));
                self.shown = after;
                return before;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "waited in vain for `{text}`; shown: {:?} then {:?}",
                self.log,
                self.shown
            );
            self.read();
        }
    }

    /// Waits until the shell says that its job is stopped. A parent is told after the last thread has stopped, so `/proc`
    /// may show that before.
    pub(crate) fn wait_for_stopped_job(&mut self) {
        let begin = Instant::now();
        loop {
            let jobs = self.line("jobs");
            if jobs.contains("Stopped") {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{jobs}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn read(&mut self) {
        let mut fds = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::from(100u8));
        let mut bytes = [0; 4096];
        if let Ok(length) = self.master.read(&mut bytes) {
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..length]).replace('\r', ""));
        }
    }

    /// The process ID of the one emu that the shell has as its child.
    pub(crate) fn emu(&self) -> u32 {
        until_child(self.shell_pid(), "emu") as u32
    }

    /// The shell itself: `setsid` forks when it leads a process group. A child of the shell has the shell's name, too, until
    /// it runs its own program.
    fn shell_pid(&self) -> u32 {
        let pid = self.shell.id();
        if comm(pid as i32).as_deref() != Some("setsid") {
            return pid;
        }
        ["bash", "dash"].iter().find_map(|name| child_called(pid, name)).map_or(pid, |pid| pid as u32)
    }
}

impl Drop for Terminal {
    /// A hang-up ends the shell and its jobs.
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// The shells of this host that can be used.
pub(crate) fn shells() -> Vec<&'static [&'static str]> {
    let known: [&[&str]; 2] = [&["bash", "--norc", "--noprofile", "--noediting", "-i"], &["dash", "-i"]];
    let has = |name: &str| Command::new(name).args(["-c", ":"]).status().is_ok_and(|status| status.success());
    known.into_iter().filter(|shell| has(shell[0])).collect()
}

/// The beginning of a command line that emulates.
fn emu(what: &str, method: &str) -> String {
    format!("{EMU} {what} --quiet --speed 50% --method {method}")
}

/// Does `act` for each method, with the shells in turn.
pub(crate) fn with_each_method(act: impl Fn(&mut Terminal, &str)) {
    among(|shell, method, shells| method % shells == shell, act);
}

/// Does `act` for each shell and method.
fn everywhere(act: impl Fn(&mut Terminal, &str)) {
    among(|_, _, _| true, act);
}

/// Does `act` for the shells and methods that are `wanted`, by the number of the shell, that of the method, and how many
/// shells there are.
fn among(wanted: impl Fn(usize, usize, usize) -> bool, act: impl Fn(&mut Terminal, &str)) {
    let _alone = alone();
    let (shells, methods) = (shells(), methods());
    if shells.is_empty() || methods.is_empty() {
        skip("there is no shell with job control, or no method works here for this user");
        return;
    }
    for (number, shell) in shells.iter().enumerate() {
        for (_, method) in methods.iter().enumerate().filter(|(of, _)| wanted(number, *of, shells.len())) {
            let mut terminal = Terminal::open(shell);
            eprintln!("{} with {method}", shell[0]);
            act(&mut terminal, method);
        }
    }
}

/// Nothing of the emulation stops the command any more: no group of emu is frozen.
fn assert_let_go(emu: u32) {
    for group in groups_of(emu) {
        for (file, held) in
            [("freezer.state", "FROZEN"), ("freezer.state", "FREEZING"), ("cgroup.freeze", "1")]
        {
            let state = fs::read_to_string(group.join(file)).unwrap_or_default();
            assert_ne!(state.trim(), held, "{}", group.display());
        }
    }
}

#[test]
fn ctrl_c_interrupts_the_command_and_the_shell_sees_it() {
    with_each_method(|terminal, method| {
        let emu = emu("run", method);
        for (program, arguments) in [("sleep", "600"), ("sh", "-c 'while :; do :; done'")] {
            let command = format!("{program} {arguments}");
            terminal.send(&format!("{emu} -- {command}\n"));
            let pid = terminal.emu();
            until_child(pid, program);
            terminal.send("\x03");
            terminal.wait_for(PROMPT);
            assert_eq!(terminal.line("echo code-$?").lines().nth(1), Some("code-130"), "{command}");
            assert!(groups_of(pid).is_empty());
        }
    });
}

#[test]
fn ctrl_z_stops_the_job_fg_and_bg_continue_it() {
    everywhere(|terminal, method| {
        let emu = emu("run", method);
        terminal.send(&format!("{emu} -- sh -c 'trap \"exit 5\" TERM; while :; do sleep 0.02; done'\n"));
        let pid = terminal.emu();
        let command = until_child(pid, "sh");
        // Often, as the signal falls into another part of the period each time.
        for round in 0..3 {
            thread::sleep(Duration::from_millis(50 + 7 * round));
            terminal.send("\x1a");
            terminal.wait_for(PROMPT);
            terminal.wait_for_stopped_job();
            assert_eq!(state(pid as i32), Some('T'), "round {round}");
            // A shell that waits for its vfork child to run a program cannot stop; the child can.
            assert!(matches!(state(command), Some('T' | 'D')), "round {round}");
            assert_let_go(pid);
            terminal.send("fg\n");
            eventually("both are continued", || state(pid as i32) != Some('T'));
        }
        thread::sleep(Duration::from_millis(50));
        terminal.send("\x1a");
        terminal.wait_for(PROMPT);
        terminal.line("bg");
        eventually("both are continued", || state(pid as i32) != Some('T'));
        terminal.line("kill %1");
        let said = terminal.line("wait %1; echo code-$?");
        assert!(said.contains("code-5"), "{said}");
        assert!(groups_of(pid).is_empty());
    });
}

#[test]
fn ctrl_z_stops_the_run_of_a_test_command() {
    with_each_method(|terminal, method| {
        let dir = tempfile::tempdir().unwrap();
        let json = dir.path().join("ci.json");
        // Longer than the time that it runs, and shorter than that and the time for which it is stopped.
        let options = format!("--speeds 100%,50% --reps 1 --timeout 4s --json {}", json.display());
        terminal
            .send(&format!("{EMU} ci --quiet --method {method} --cpus 0 {options} -- sh -c 'sleep 1.5'\n"));
        let pid = terminal.emu();
        let run = until_child(pid, "emu");
        let command = until_child(run as u32, "sh");
        terminal.send("\x1a");
        terminal.wait_for(PROMPT);
        terminal.wait_for_stopped_job();
        assert!([pid as i32, run].iter().all(|emu| state(*emu) == Some('T')), "{method}");
        assert!(matches!(state(command), Some('T' | 'D')), "{method}");
        thread::sleep(Duration::from_secs(4));
        terminal.send("fg\n");
        terminal.wait_for(PROMPT);
        assert_eq!(terminal.line("echo code-$?").lines().nth(1), Some("code-0"), "{method}");
        let json: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        assert!(json["runs"][0]["wall_ns"].as_u64().unwrap() < 4_000_000_000, "{json}");
    });
}

#[test]
fn a_stopped_job_can_be_killed() {
    with_each_method(|terminal, method| {
        let emu = emu("run", method);
        terminal.send(&format!("{emu} -- sleep 600\n"));
        let pid = terminal.emu();
        until_child(pid, "sleep");
        terminal.send("\x1a");
        terminal.wait_for(PROMPT);
        // bash continues a stopped job that it kills; dash leaves that to the user.
        terminal.line("kill %1; kill -CONT %1");
        eventually("emu has ended", || state(pid as i32).is_none_or(|state| state == 'Z'));
        let said = terminal.line("wait %1; echo code-$?");
        assert!(said.contains("code-143"), "{said}");
        assert!(groups_of(pid).is_empty());
    });
}

#[test]
fn a_background_job_that_reads_stops_until_it_is_in_front() {
    with_each_method(|terminal, method| {
        let emu = emu("run", method);
        terminal.line(&format!("{emu} -- cat &"));
        let pid = terminal.emu();
        terminal.wait_for_stopped_job();
        assert_let_go(pid);
        terminal.send("fg\n");
        eventually("the job is continued", || state(pid as i32) != Some('T'));
        terminal.send("hello\n");
        terminal.wait_for("hello\nhello\n");
        terminal.send("\x04");
        terminal.wait_for(PROMPT);
        assert_eq!(terminal.line("echo code-$?").lines().nth(1), Some("code-0"));
    });
}

#[test]
fn a_command_that_stops_itself_gives_the_terminal_back() {
    with_each_method(|terminal, method| {
        let emu = emu("run", method);
        terminal.send(&format!("{emu} -- sh -c 'sleep 0.2; kill -TSTP $$; echo went-on; exit 4'\n"));
        terminal.wait_for(PROMPT);
        terminal.wait_for_stopped_job();
        terminal.send("fg\n");
        terminal.wait_for("went-on\n");
        terminal.wait_for(PROMPT);
        assert_eq!(terminal.line("echo code-$?").lines().nth(1), Some("code-4"));
    });
}

#[test]
fn an_interactive_shell_can_be_the_command() {
    with_each_method(|terminal, method| {
        let emu = emu("run", method);
        if shells().first().is_none_or(|shell| shell[0] != "bash") {
            skip("there is no bash");
            return;
        }
        if method == "cpu-lim" {
            // A shell may see its job stopped by the method before it is stopped itself.
            leave_out("cpu-lim uses the signals of job control");
            return;
        }
        // Spelled in another way than it will be shown, as the terminal shows what is typed.
        terminal.send(&format!("PS1='inner''> ' {emu} -- bash --norc --noprofile --noediting -i\n"));
        terminal.wait_for("inner> ");
        let inner = until_child(terminal.emu(), "bash");
        terminal.send("sleep 600\n");
        let sleeper = until_child(inner as u32, "sleep");
        terminal.send("\x1a");
        terminal.wait_for("inner> ");
        terminal.send("fg\n");
        eventually("the job is continued", || state(sleeper) != Some('T'));
        terminal.send("\x03");
        terminal.wait_for("inner> ");
        terminal.send("exit 6\n");
        terminal.wait_for(PROMPT);
        assert_eq!(terminal.line("echo code-$?").lines().nth(1), Some("code-6"));
    });
}

#[test]
fn without_a_shell_a_command_stopped_alone_stays_in_its_zone() {
    let _alone = alone();
    if methods().is_empty() {
        skip("no method works here for this user");
        return;
    }
    for method in methods() {
        // Without a terminal.
        let arguments = ["run", "--quiet", "--speed", "50%", "--method", &method, "--", "sleep", "600"];
        let mut emu = inside(":", "setsid").arg(EMU).args(arguments).spawn().unwrap();
        let sleeper = until_child(emu.id(), "sleep");
        let send = |signal| kill(Pid::from_raw(sleeper), signal).unwrap();
        send(Signal::SIGSTOP);
        eventually("the command is stopped", || state(sleeper) == Some('T'));
        // In vain, if it is right, and long enough for one that is wrong.
        thread::sleep(Duration::from_millis(200));
        assert_ne!(state(emu.id() as i32), Some('T'), "{method}");
        send(Signal::SIGCONT);
        send(Signal::SIGTERM);
        assert_eq!(emu.wait().unwrap().signal(), Some(Signal::SIGTERM as i32), "{method}");
        assert!(groups_of(emu.id()).is_empty());
    }
}

#[test]
fn a_hang_up_that_was_to_be_ignored_does_not_end_an_emulation() {
    let _alone = alone();
    let Some(method) = some_method().filter(|_| is_root()) else {
        skip("it needs root and a method that works");
        return;
    };
    let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
    let attach =
        ["attach", "--quiet", "--speed", "50%", "--method", &method, "--pid", &sleeper.id().to_string()];
    let mut emu = inside(":", "nohup").arg(EMU).args(attach).spawn().unwrap();
    eventually("emu has begun", || comm(emu.id() as i32).as_deref() == Some("emu"));
    let pid = Pid::from_raw(emu.id() as i32);
    kill(pid, Signal::SIGHUP).unwrap();
    thread::sleep(Duration::from_millis(500));
    assert!(emu.try_wait().unwrap().is_none(), "it has ended");
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(emu.wait().unwrap().code(), Some(0));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn a_hang_up_ends_command_and_emulation() {
    with_each_method(|terminal, method| {
        let emu = emu("run", method);
        terminal.send(&format!("{emu} -- sleep 600\n"));
        let pid = terminal.emu();
        let sleeper = until_child(pid, "sleep");
        // Without its last user, the terminal hangs up.
        terminal.master = File::open("/dev/null").unwrap();
        eventually("all have ended", || {
            state(sleeper).is_none_or(|s| s == 'Z') && state(pid as i32).is_none_or(|s| s == 'Z')
        });
        assert!(groups_of(pid).is_empty());
    });
}

/// As of `ssh -t HOST emu run …`: the command is in the foreground, but is not told.
#[test]
fn a_hang_up_ends_an_emulation_that_leads_its_session() {
    with_each_method(|terminal, method| {
        let (emu, pid) = (emu("run", method), terminal.shell_pid());
        terminal.send(&format!("exec {emu} -- sleep 600\n"));
        let sleeper = until_child(pid, "sleep");
        terminal.master = File::open("/dev/null").unwrap();
        eventually("all have ended", || {
            state(sleeper).is_none_or(|s| s == 'Z') && state(pid as i32).is_none_or(|s| s == 'Z')
        });
        assert!(groups_of(pid).is_empty());
    });
}

#[test]
fn attach_stops_and_continues_as_a_job() {
    with_each_method(|terminal, method| {
        let mut sleeper = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = sleeper.id();
        let attach = emu("attach", method);
        terminal.send(&format!("{attach} --pid {pid}\n"));
        let emu = terminal.emu();
        until_it_acts(emu);
        terminal.send("\x1a");
        terminal.wait_for(PROMPT);
        terminal.wait_for_stopped_job();
        assert_eq!(state(pid as i32), Some('S'), "the target runs freely");
        assert_let_go(emu);
        terminal.send("fg\n");
        eventually("emu is continued", || state(emu as i32) != Some('T'));
        terminal.send("\x03");
        terminal.wait_for(PROMPT);
        assert_eq!(terminal.line("echo code-$?").lines().nth(1), Some("code-0"));
        assert!(groups_of(emu).is_empty());
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    });
}

//! `emu node` on a terminal: a list that is watched, and an interactive shell on a node.

use emu_core::Trait;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::common::{
    EMU, alone, can_emulate, emu, eventually, run, skip, state, until_child, until_it_takes,
};
use crate::job_control::{PROMPT, Terminal, shells, with_each_method};
use crate::node::{Node, emu_node};

#[test]
fn a_watched_list_shows_what_changes_until_ctrl_c() {
    let _alone = alone();
    let shells = shells();
    let Some(shell) = shells.first().filter(|_| can_emulate()) else {
        skip("there is no shell with job control, or no method works here");
        return;
    };
    let mut terminal = Terminal::open(shell);
    // To a terminal that can do nothing, emu writes one list below the other.
    terminal.send(&format!("TERM=xterm {EMU} node list --watch\n"));
    terminal.wait_for("There is no node of yours here.");
    let node = Node::create("one", "--speed 50%");
    let shown = terminal.wait_for("50%");
    assert!(shown.contains("NODE") && shown.contains("one"), "{shown}");
    // What is new takes the place of what was there.
    assert!(shown.contains("\u{1b}[H\u{1b}[2J"), "{shown}");
    assert_eq!(emu_node("set one --speed 30%").code(), Some(0));
    terminal.wait_for("30%");
    drop(node);
    terminal.wait_for("There is no node of yours here.");
    terminal.send("\x1a");
    terminal.wait_for(PROMPT);
    terminal.wait_for_stopped_job();
    terminal.send("fg\n");
    terminal.wait_for("There is no node of yours here.");
    terminal.send("\x03");
    terminal.wait_for(PROMPT);
    assert_eq!(terminal.line("echo code-$?").lines().nth(1), Some("code-0"));
}

#[test]
fn making_a_node_stops_and_continues_as_a_job() {
    let _alone = alone();
    let shells = shells();
    let Some(shell) = shells.first().filter(|_| can_emulate()) else {
        skip("there is no shell with job control, or no method works here");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("profile.json");
    assert_eq!(run(emu(["profile", "--quick", "--quiet"]).arg(&profile), "").code(), Some(0));
    let mut terminal = Terminal::open(shell);
    // It measures for a while before the node is there.
    terminal.send(&format!("{EMU} node create one --cpus 0 --like {}\n", profile.display()));
    let pid = terminal.emu();
    until_it_takes(until_child(pid, "emu") as u32, Signal::SIGTERM);
    terminal.send("\x1a");
    terminal.wait_for(PROMPT);
    terminal.wait_for_stopped_job();
    assert_eq!(state(pid as i32), Some('T'));
    terminal.send("fg\n");
    eventually("it is continued", || state(pid as i32) != Some('T'));
    terminal.send("\x03");
    terminal.wait_for(PROMPT);
    assert_eq!(terminal.line("echo code-$?").lines().nth(1), Some("code-130"));
    assert_eq!(emu_node("list --json").code(), Some(0));
}

#[test]
fn an_interactive_shell_on_a_node_has_the_terminal() {
    let inner = shells().first().map(|shell| shell.join(" ")).unwrap_or_default();
    with_each_method(|terminal, method| {
        let node = Node::create("one", &format!("--speed 50% --method {method}"));
        terminal.line(&format!("{EMU} node exec one -- {inner}"));
        let said = terminal.line("echo pid-$$; tty");
        let pid = said.lines().find_map(|line| line.strip_prefix("pid-")?.parse::<u32>().ok());
        let pid = pid.unwrap_or_else(|| panic!("{said}"));
        assert!(said.contains("/dev/"), "it has a terminal: {said}");
        assert_eq!(node.shown()["members"], json!([pid]), "{method}");

        terminal.send("sleep 600\n");
        let sleep = until_child(pid, "sleep");
        assert_eq!(node.shown()["members"], json!([pid, sleep]), "{method}: its children are there");
        terminal.send("\x03");
        terminal.wait_for(PROMPT);
        assert_eq!(terminal.line("echo code-$?").lines().nth(1), Some("code-130"), "{method}");

        // A node that stops its processes by signals continues what the keyboard has stopped.
        if !emu_core::find(method).unwrap().about().has(Trait::SendsSignals) {
            terminal.send("sleep 600\n");
            let sleep = until_child(pid, "sleep");
            terminal.send("\x1a");
            terminal.wait_for(PROMPT);
            terminal.wait_for_stopped_job();
            assert_eq!(state(sleep), Some('T'), "{method}");
            terminal.send("fg\n");
            eventually("it is continued", || state(sleep) != Some('T'));
            terminal.send("\x03");
            terminal.wait_for(PROMPT);
        }
        terminal.line("exit 7");
        assert_eq!(terminal.line("echo code-$?").lines().nth(1), Some("code-7"), "{method}");
        assert_eq!(node.shown()["members"], json!([]), "{method}");
    });
}

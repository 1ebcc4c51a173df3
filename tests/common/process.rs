//! What the kernel tells of processes.

use std::fs;

use nix::sys::signal::Signal;

/// The child of `parent` whose name is `name`.
pub(crate) fn child_called(parent: u32, name: &str) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .find(|pid| comm(*pid).as_deref() == Some(name))
}

/// The name of a process.
pub(crate) fn comm(pid: i32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim().to_owned())
}

/// The state letter of a process: `R`, `S`, `D`, `T`, `Z`.
pub(crate) fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether a process takes this signal when it sees fit.
pub(crate) fn blocks(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    blocked >> (signal as i32 - 1) & 1 == 1
}

pub(crate) fn is_alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// Living processes that have the mark in their environment: the slowed program and its children.
pub(crate) fn marked(mark: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) && is_alive(*pid)
    })
    .collect()
}

/// Field 41 of `/proc/PID/stat`: the scheduling policy; 1 and 2 are the real-time ones.
pub(crate) fn is_real_time(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let policy = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(38));
    matches!(policy, Some("1" | "2"))
}

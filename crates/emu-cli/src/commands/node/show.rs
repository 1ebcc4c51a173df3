//! The table and the JSON of `emu node list`.

use emu_bench::columns;
use emu_bench::numbers::{rounded_size, size, span};
use emu_bench::table::{Table, wrap};
use emu_core::{CpuList, Exclusive, Memory, Pid, Result, Status};
use serde::{Deserialize, Serialize};

use super::killed::Killed;
use super::{Found, name};
use crate::control::Working;
use crate::output::{self, LIVE};
use crate::zone::summary;

/// A row for each node, or for each of its CPUs that are asked something else, and below what is wrong.
pub(super) fn text(nodes: &[Found], killed: &[Killed]) -> String {
    if nodes.is_empty() && killed.is_empty() {
        return "There is no node of yours here.\n".into();
    }
    let mut table = Table::new(columns![
        text "NODE", text "METHOD", text "CPUS", number "ASKED", number "SET", number "DELIVERED",
        number "STALL", number "PROCESSES",
    ]);
    let mut remarks: Vec<_> = killed.iter().map(|one| format!("{}: {}", one.name, one.in_words())).collect();
    for (session, working) in nodes {
        let name = name(session);
        let unknown = || [session.cpus.to_string(), "?".into(), "?".into(), "?".into()];
        let (rows, stall, processes) = match working {
            Ok(Working { status, members, memory, exclusive, .. }) => {
                remarks.extend(summary::remarks(name, status));
                remarks.extend(memory.map(|memory| format!("{name}: {}", self::memory(&memory))));
                let exclusive = exclusive.iter().flat_map(self::exclusive);
                remarks.extend(exclusive.map(|line| format!("{name}: {line}")));
                (summary::columns(status), span(status.longest_stall), members.len().to_string())
            }
            Err(why) => {
                remarks.push(format!("{name}: {}", why.in_words()));
                (vec![unknown()], "?".into(), "?".into())
            }
        };
        for [cpus, asked, set, delivered] in rows {
            let (name, method) = (name.to_owned(), session.method.clone());
            table.row([name, method, cpus, asked, set, delivered, stall.clone(), processes.clone()]);
        }
    }
    let table = if nodes.is_empty() { String::new() } else { table.text() };
    remarks.iter().fold(table, |text, remark| format!("{text}{}\n", wrap(remark, 0)))
}

fn memory(memory: &Memory) -> String {
    let used = format!("{} of {} memory used", rounded_size(memory.used), size(memory.limit));
    match memory.killed {
        Some(killed @ 1..) => format!("{used}, {killed} processes were killed for want of it"),
        _ => used,
    }
}

const NAMED: usize = 6;

pub(super) fn exclusive(exclusive: &Exclusive) -> Vec<String> {
    let Exclusive { taken, staying, kernel, kernel_others, interrupts, problem } = exclusive;
    let mut lines = vec![format!("{taken} threads of the host are kept off its CPUs")];
    if !staying.is_empty() {
        lines.push(format!("these stay there: {}", some_of(staying, "; ")));
    }
    let kernel = if kernel.is_empty() { "none that is bound".into() } else { some_of(kernel, ", ") };
    lines.push(format!("the kernel's threads stay there: {kernel}; {kernel_others} others may run there"));
    if !interrupts.is_empty() {
        lines.push(format!("these interrupts, too: {}", some_of(interrupts, ", ")));
    }
    lines.extend(problem.iter().map(|why| format!("new tasks cannot be kept off: {why}")));
    lines
}

fn some_of(names: &[String], between: &str) -> String {
    let shown: Vec<_> = names.iter().take(NAMED).map(String::as_str).collect();
    match names.len().saturating_sub(NAMED) {
        0 => shown.join(between),
        more => format!("{}, and {more} more", shown.join(between)),
    }
}

/// The nodes of a host.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct NodeList {
    /// Version of the form.
    pub(crate) schema: u32,
    /// Each node; what its emu does not answer is null.
    pub(crate) nodes: Vec<Node>,
    /// The names of those whose emu was killed, until they are made again or removed.
    pub(crate) killed: Vec<String>,
}

/// A node.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct Node {
    /// Its name.
    pub(crate) name: String,
    /// The process of the emu that keeps it.
    pid: Pid,
    /// The method.
    pub(crate) method: String,
    /// Its CPUs.
    pub(crate) cpus: CpuList,
    /// Its processes.
    members: Option<Vec<Pid>>,
    /// Its limit of memory, if it has one.
    memory: Option<Memory>,
    /// What keeps off its CPUs, if it has them for itself.
    exclusive: Option<Exclusive>,
    /// What it was asked, is set and has delivered.
    pub(crate) status: Option<Status>,
}

pub(super) fn json(nodes: Vec<Found>, killed: &[Killed]) -> Result<String> {
    let nodes = nodes.into_iter().map(|(session, working)| {
        let working = working.ok();
        Node {
            name: name(&session).to_owned(),
            pid: session.pid,
            members: working.as_ref().map(|working| working.members.clone()),
            memory: working.as_ref().and_then(|working| working.memory),
            exclusive: working.as_ref().and_then(|working| working.exclusive.clone()),
            status: working.map(|working| working.status),
            method: session.method,
            cpus: session.cpus,
        }
    });
    let killed = killed.iter().map(|one| one.name.clone()).collect();
    output::json(&NodeList { schema: LIVE, nodes: nodes.collect(), killed })
}

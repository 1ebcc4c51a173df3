//! The table and the JSON of `emu node list`.

use emu_bench::table::{Column, Table, wrap};
use emu_core::{CpuList, Pid, Result, Status};
use serde::Serialize;

use super::{Found, name};
use crate::control::Working;
use crate::output::{self, SCHEMA};
use crate::zone::summary;

/// A row for each node, or for each of its CPUs that are asked something else, and below what is wrong.
pub(super) fn text(nodes: &[Found]) -> String {
    if nodes.is_empty() {
        return "There is no node of yours here.\n".into();
    }
    let mut table = Table::new([
        Column::text("NODE"),
        Column::text("METHOD"),
        Column::text("CPUS"),
        Column::number("ASKED"),
        Column::number("SET"),
        Column::number("DELIVERED"),
        Column::number("PROCESSES"),
    ]);
    let mut remarks = Vec::new();
    for (session, working) in nodes {
        let name = name(session);
        let unknown = || [session.cpus.to_string(), "?".into(), "?".into(), "?".into()];
        let (rows, processes) = match working {
            Ok(Working { status, members, .. }) => {
                remarks.extend(summary::remarks(name, status));
                (summary::columns(status), members.len().to_string())
            }
            Err(why) => {
                remarks.push(format!("{name}: {}", why.in_words()));
                (vec![unknown()], "?".into())
            }
        };
        for [cpus, asked, set, delivered] in rows {
            let (name, method) = (name.to_owned(), session.method.clone());
            table.row([name, method, cpus, asked, set, delivered, processes.clone()]);
        }
    }
    remarks.iter().fold(table.text(), |text, remark| format!("{text}{}\n", wrap(remark, 0)))
}

/// All that is known; of a node whose emu does not answer, `status` is null.
pub(super) fn json(nodes: &[Found]) -> Result<String> {
    #[derive(Serialize)]
    struct Nodes<'a> {
        schema: u32,
        nodes: Vec<Node<'a>>,
    }
    #[derive(Serialize)]
    struct Node<'a> {
        name: &'a str,
        pid: Pid,
        method: &'a str,
        cpus: &'a CpuList,
        members: Option<&'a [Pid]>,
        status: Option<&'a Status>,
    }
    let nodes = nodes.iter().map(|(session, working)| {
        let working = working.as_ref().ok();
        Node {
            name: name(session),
            pid: session.pid,
            method: &session.method,
            cpus: &session.cpus,
            members: working.map(|working| &working.members[..]),
            status: working.map(|working| &working.status),
        }
    });
    output::json(&Nodes { schema: SCHEMA, nodes: nodes.collect() })
}

//! What the nodes of several hosts were given.

use std::fs;
use std::path::Path;

use emu_bench::numbers::percent;
use emu_bench::table;
use emu_bench::table::{notes, paragraph};
use emu_core::{CpuList, Delivered, Error, Result, input_file};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::commands::node::show::{Node, NodeList};
use crate::output::LIVE;
use crate::values::node_name;
use crate::zone::summary::between;

/// By how much what is delivered may differ from what is asked, as a share of it.
const TOLERANCE: f64 = 0.05;

/// The nodes of some hosts.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Hosts {
    /// Version of the form.
    schema: u32,
    /// How far from what was asked still passes, as a share of it.
    tolerance: f64,
    /// A row for each node.
    nodes: Vec<Row>,
    /// Hosts without nodes, and nodes whose emu was killed or did not answer, in words.
    notes: Vec<String>,
}

/// A node of a host.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Row {
    /// The host, by the name of its file.
    host: String,
    /// The node.
    node: String,
    /// The method.
    method: String,
    /// Its CPUs.
    cpus: CpuList,
    /// The share that its CPUs were asked for, on average.
    asked: f64,
    /// What was delivered; null where nothing wanted all that it could get, or too little was seen.
    delivered: Option<Delivered>,
    /// Whether that is what was asked.
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// The interval of what was delivered lies within the tolerance.
    Pass,
    /// It lies outside.
    Fail,
    /// It does neither, or nothing is known.
    Open,
}

impl Hosts {
    /// Reads the files of a folder that has no record; `None` where it has one, or no such file.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>> {
        if folder.join("record.json").exists() {
            return Ok(None);
        }
        let Ok(entries) = fs::read_dir(folder) else { return Ok(None) };
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|kind| kind == "json"));
        files.sort();
        if files.is_empty() {
            return Ok(None);
        }
        let mut hosts = Self { schema: LIVE, tolerance: TOLERANCE, nodes: Vec::new(), notes: Vec::new() };
        for file in files {
            let host = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            hosts.add(&host, list(&file)?);
        }
        Ok(Some(hosts))
    }

    fn add(&mut self, host: &str, list: NodeList) {
        if list.nodes.is_empty() && list.killed.is_empty() {
            self.notes.push(format!("{host}: no nodes"));
        }
        self.notes
            .extend(list.killed.iter().map(|node| format!("{host}: the emu of node {node} was killed")));
        for node in list.nodes {
            match Row::of(host, &node) {
                Some(row) => self.nodes.push(row),
                None => self.notes.push(format!("{host}: the emu of node {} did not answer", node.name)),
            }
        }
    }

    pub(crate) fn text(&self) -> String {
        let table = table! {
            for row in &self.nodes;
            text "HOST" = &row.host,
            text "NODE" = &row.node,
            text "METHOD" = &row.method,
            text "CPUS" = row.cpus.to_string(),
            percent "ASKED" = row.asked,
            number "DELIVERED" = row.delivered.map(|seen| between(seen.share, seen.low, seen.high)),
            text "VERDICT" = match row.verdict {
                Verdict::Pass => "pass",
                Verdict::Fail => "fail",
                Verdict::Open => "open",
            },
        };
        let meaning = format!(
            "pass: the 95 % interval of what was delivered lies within {} of what was asked. open: it does in part, or no task \
             wanted all that it could get.",
            percent(self.tolerance)
        );
        table.text() + &notes(&self.notes) + &paragraph(meaning)
    }
}

impl Row {
    /// `None` where its emu did not answer.
    fn of(host: &str, node: &Node) -> Option<Self> {
        let status = node.status.as_ref()?;
        let asked: f64 = status.cpus.iter().map(|cpu| cpu.asked.share).sum();
        let delivered = status.delivered;
        Some(Self {
            host: host.to_owned(),
            node: node.name.clone(),
            method: node.method.clone(),
            cpus: node.cpus.clone(),
            asked: delivered.map_or(asked / status.cpus.len() as f64, |seen| seen.asked),
            delivered,
            verdict: delivered.map_or(Verdict::Open, |seen| Verdict::of([seen.low, seen.high], seen.asked)),
        })
    }
}

impl Verdict {
    fn of(interval: [f64; 2], asked: f64) -> Self {
        let errors = interval.map(|share| share / asked - 1.0);
        let [low, high] = errors;
        if errors.iter().all(|error| error.abs() <= TOLERANCE) {
            Self::Pass
        } else if low > TOLERANCE || high < -TOLERANCE {
            Self::Fail
        } else {
            Self::Open
        }
    }
}

fn list(file: &Path) -> Result<NodeList> {
    #[derive(Deserialize)]
    struct Form {
        schema: u32,
        nodes: Option<IgnoredAny>,
    }
    let other = |cause: &dyn std::fmt::Display| {
        Error::usage(format!("{} is no JSON of `emu node list`: {cause}", file.display()))
            .hint("name a folder with a record of `emu bench`, or with such files alone")
    };
    let text =
        input_file::read(file, input_file::SIZE_MAX).map_err(|cause| Error::file("read", file, cause))?;
    let Form { schema, nodes } = serde_json::from_str(&text).map_err(|cause| other(&cause))?;
    // Others than lists count their forms for themselves.
    if schema != LIVE && nodes.is_some() {
        return Err(Error::usage(format!("{} is of form {schema}, and not {LIVE}", file.display()))
            .hint("read it with the version of emu that wrote it"));
    }
    let list: NodeList = serde_json::from_str(&text).map_err(|cause| other(&cause))?;
    // They come from other machines, and go to a terminal.
    let names = list.nodes.iter().map(|node| &node.name).chain(&list.killed);
    names.map(|name| node_name(name)).find_map(Result::err).map_or(Ok(list), |cause| Err(other(&cause)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_among_the_files_is_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let dir = tempfile::tempdir().unwrap();
        mknodat(CWD, dir.path().join("host.json"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let error = Hosts::read(dir.path()).unwrap_err();
        assert!(error.in_words().contains("no regular file"), "{}", error.in_words());
    }

    #[test]
    fn the_verdict_is_that_of_the_interval() {
        for (low, high, wanted) in [
            (0.48, 0.52, Verdict::Pass),
            (0.53, 0.54, Verdict::Fail),
            (0.40, 0.47, Verdict::Fail),
            (0.47, 0.50, Verdict::Open),
        ] {
            assert_eq!(Verdict::of([low, high], 0.5), wanted, "{low} {high}");
        }
    }
}

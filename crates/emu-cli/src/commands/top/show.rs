//! The table and the JSON of `emu top`.

use emu_bench::columns;
use emu_bench::numbers::span;
use emu_bench::table::{Table, notes, width};
use emu_core::{Error, LiveSession, Result, Roots};
use serde::Serialize;

use crate::control::Working;
use crate::output::LIVE;
use crate::zone::summary;

/// An emulation, and how it goes; or why it does not tell.
pub(super) type Found = (LiveSession, Result<Working>);

/// A row for each zone, or for each of its CPUs that are asked something else, and below what is wrong.
pub(super) fn text(roots: &Roots, found: &[Found]) -> String {
    if found.is_empty() {
        return "Nothing is slowed here by an emu of yours.\n".into();
    }
    let (mut all, mut remarks) = (Vec::new(), Vec::new());
    for (session, working) in found {
        let pid = session.pid.to_string();
        let unknown = || [session.cpus.to_string(), "?".into(), "?".into(), "?".into()];
        let (rows, stall, tasks) = match working {
            Ok(working @ Working { status, .. }) => {
                remarks.extend(summary::remarks(&pid, status));
                let tasks = working.processes(roots).map_or("?".into(), |count| count.to_string());
                (summary::columns(status), span(status.longest_stall), tasks)
            }
            Err(why) => {
                remarks.push(format!("{pid}: {}", why.in_words()));
                (vec![unknown()], "?".into(), "?".into())
            }
        };
        for [cpus, asked, set, delivered] in rows {
            let (pid, method) = (pid.clone(), session.method.clone());
            let row = [pid, method, cpus, asked, set, delivered, stall.clone(), tasks.clone()];
            all.push((row, session.name.as_str()));
        }
    }
    let table = |what: &dyn Fn(&str) -> String| {
        let mut table = Table::new(columns![
            number "PID", text "METHOD", text "CPUS", number "ASKED", number "SET", number "DELIVERED",
            number "STALL", number "PROCS", text "WHAT",
        ]);
        for (row, name) in &all {
            table.row(row.iter().cloned().chain([what(name)]));
        }
        table
    };
    let whole = table(&|_| String::new()).text_in(usize::MAX);
    let used = whole.lines().map(|line| line.chars().count()).max().unwrap_or(0) - "WHAT".len();
    let room = width().saturating_sub(used);
    // Where the table is too wide, its last part has the names beside the numbers of the processes.
    let room = if room < LEAST { width() - PIDS } else { room };
    table(&|name| short(name, room)).text() + &notes(&remarks)
}

/// The room for a name beside all other columns at their widest, in a table of the usual width.
const LEAST: usize = 9;

/// The column of process numbers at its widest, and the gap.
const PIDS: usize = 9;

fn short(name: &str, room: usize) -> String {
    if name.chars().count() <= room {
        return name.to_owned();
    }
    name.chars().take(room - 1).chain(['…']).collect()
}

/// What is at work at one time.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct Line<'a> {
    /// Version of the form.
    schema: u32,
    /// RFC 3339 in UTC.
    time: String,
    /// The emulations that have answered.
    zones: Vec<&'a Working>,
    /// Those that have not.
    silent: Vec<&'a LiveSession>,
}

pub(super) fn json(found: &[Found]) -> Result<String> {
    let line = Line {
        schema: LIVE,
        time: jiff::Timestamp::now().to_string(),
        zones: found.iter().filter_map(|(_, working)| working.as_ref().ok()).collect(),
        silent: found.iter().filter(|(_, working)| working.is_err()).map(|(session, _)| session).collect(),
    };
    let text = serde_json::to_string(&line).map_err(|e| Error::io("cannot write JSON", e.into()))?;
    Ok(text + "\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::zone::options::Options;
    use emu_bench::table::WIDTH;
    use emu_core::{CpuStatus, Demand, MethodId, Status, Target, Tasks};

    fn found(silent: bool) -> Found {
        let session = LiveSession {
            pid: 4_194_303,
            cpus: "0-1".parse().unwrap(),
            method: "cpu-freeze".into(),
            name: "a-command-with-a-long-name".into(),
        };
        let mut status = Status::new(MethodId::new("cpu-freeze"), Duration::from_millis(100));
        status.cpus = [(0, 0.4), (1, 0.8)]
            .map(|(cpu, share)| CpuStatus::new(cpu, Target { share, clock: None }))
            .into();
        let (pid, name) = (session.pid, session.name.clone());
        let working = Working {
            pid,
            name,
            tasks: Tasks::Processes(vec![7]),
            members: vec![],
            joined: vec![],
            watched: vec![],
            follows: None,
            like: None,
            memory: None,
            exclusive: None,
            options: Options::of(&Demand::new([].into())),
            status,
        };
        (session, if silent { Err(Error::unavailable("emu 4194303 does not answer")) } else { Ok(working) })
    }

    #[test]
    fn each_cpu_with_a_speed_of_its_own_has_a_row() {
        let text = text(&Roots::system(), &[found(false)]);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn a_name_has_the_room_that_the_figures_leave() {
        let mut silent = found(true);
        silent.0.name = format!("node worker-{}", "x".repeat(80));
        let text = text(&Roots::system(), &[silent]);
        let row = text.lines().nth(1).unwrap();
        assert!(row.chars().count() == WIDTH && row.ends_with("node worker-xxx…"), "{text}");
    }

    #[test]
    fn an_emu_that_does_not_answer_is_listed_without_figures() {
        let text = text(&Roots::system(), &[found(true)]);
        assert!(text.contains('?') && text.contains("does not answer"), "{text}");
        let line: serde_json::Value = serde_json::from_str(&json(&[found(true)]).unwrap()).unwrap();
        assert_eq!(line["silent"][0]["pid"], 4_194_303);
        assert_eq!(line["zones"].as_array().unwrap().len(), 0);
    }
}

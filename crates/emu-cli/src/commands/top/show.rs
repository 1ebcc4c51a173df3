//! The table and the JSON of `emu top`.

use emu_core::{CpuList, Error, Health, LiveSession, Result, Target};
use serde::Serialize;

use crate::control::Working;
use crate::output::SCHEMA;
use crate::output::numbers::{percent, span};
use crate::output::table::{Align, Table, wrap};
use crate::zone::summary::{alike, delivered};

/// An emulation, and how it goes; or why it does not tell.
pub(super) type Found = (LiveSession, Result<Working>);

/// A row for each zone, or for each of its CPUs that are asked something else, and below what is wrong.
pub(super) fn text(found: &[Found]) -> String {
    if found.is_empty() {
        return "Nothing is slowed here by an emu of yours.\n".into();
    }
    let mut table = Table::new([
        ("PID", Align::Right),
        ("METHOD", Align::Left),
        ("CPUS", Align::Left),
        ("ASKED", Align::Right),
        ("SET", Align::Right),
        ("DELIVERED", Align::Right),
        ("STALL", Align::Right),
        ("WHAT", Align::Left),
    ]);
    let mut remarks = Vec::new();
    for (session, working) in found {
        let pid = session.pid.to_string();
        match working {
            Ok(Working { status, .. }) => {
                for cpus in alike(&status.cpus) {
                    let list: CpuList = cpus.iter().map(|cpu| cpu.cpu).collect();
                    let set = cpus.iter().map(|cpu| cpu.set).sum::<f64>() / cpus.len() as f64;
                    table.row([
                        pid.clone(),
                        session.method.clone(),
                        list.to_string(),
                        cpus.first().map_or(String::new(), |cpu| asked(&cpu.asked)),
                        percent(set),
                        delivered(&cpus, status).unwrap_or_else(|| "?".into()),
                        span(status.longest_stall),
                        short(&session.name),
                    ]);
                }
                let problems = status.problems.iter().filter(|_| status.health != Health::Holding);
                remarks.extend(problems.map(|problem| format!("{pid}: {problem}")));
            }
            Err(why) => {
                let cpus = session.cpus.to_string();
                let unknown = || "?".to_owned();
                let name = short(&session.name);
                table.row([
                    pid.clone(),
                    session.method.clone(),
                    cpus,
                    unknown(),
                    unknown(),
                    unknown(),
                    unknown(),
                    name,
                ]);
                remarks.push(format!("{pid}: {}", why.in_words()));
            }
        }
    }
    remarks.iter().fold(table.render(), |text, remark| format!("{text}{}\n", wrap(remark, 0)))
}

/// The clock that was asked for, or the share.
fn asked(target: &Target) -> String {
    target.clock.map_or_else(|| percent(target.share), |clock| clock.to_string())
}

/// A name that leaves room for the other columns.
fn short(name: &str) -> String {
    const ROOM: usize = 14;
    if name.chars().count() <= ROOM {
        return name.to_owned();
    }
    name.chars().take(ROOM - 1).chain(['…']).collect()
}

/// All that is known, in one line.
pub(super) fn json(found: &[Found]) -> Result<String> {
    #[derive(Serialize)]
    struct Line<'a> {
        schema: u32,
        time: String,
        zones: Vec<&'a Working>,
        silent: Vec<&'a LiveSession>,
    }
    let line = Line {
        schema: SCHEMA,
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
    use crate::output::table::WIDTH;
    use emu_core::{CpuStatus, MethodId, Status, Tasks};

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
        let working = Working { pid, name, tasks: Tasks::Processes(vec![7]), status };
        (session, if silent { Err(Error::unavailable("emu 4194303 does not answer")) } else { Ok(working) })
    }

    #[test]
    fn each_cpu_with_a_speed_of_its_own_has_a_row() {
        let text = text(&[found(false)]);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    }

    #[test]
    fn an_emu_that_does_not_answer_is_listed_without_figures() {
        let text = text(&[found(true)]);
        assert!(text.contains('?') && text.contains("does not answer"), "{text}");
        let line: serde_json::Value = serde_json::from_str(&json(&[found(true)]).unwrap()).unwrap();
        assert_eq!(line["silent"][0]["pid"], 4_194_303);
        assert_eq!(line["zones"].as_array().unwrap().len(), 0);
    }
}

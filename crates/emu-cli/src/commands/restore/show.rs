//! What `emu restore` did.

use emu_bench::table::paragraph;
use emu_core::{RestoreReport, Result};
use serde::Serialize;

use crate::output::SCHEMA;

/// What was found and done.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct Document<'a> {
    /// Version of the form.
    schema: u32,
    #[serde(flatten)]
    report: &'a RestoreReport,
}

pub(crate) fn json(report: &RestoreReport) -> Result<String> {
    crate::output::json(&Document { schema: SCHEMA, report })
}

pub(crate) fn text(report: &RestoreReport) -> String {
    let all = [
        ("restored", &report.restored),
        ("left as it is", &report.notes),
        ("not restored", &report.problems),
    ];
    let marked = all.iter().flat_map(|(mark, lines)| lines.iter().map(move |line| format!("{mark}: {line}")));
    let undone: String = marked.map(paragraph).collect();
    let undone = if undone.is_empty() { "nothing to restore\n".to_owned() } else { undone };
    let live = report
        .live
        .iter()
        .map(|live| paragraph(format!("left alone: emu {} runs ({}, {})", live.pid, live.what(), live.name)));
    undone + &live.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_bench::table::WIDTH;
    use emu_core::LiveSession;

    #[test]
    fn each_thing_found_has_its_line() {
        assert_eq!(text(&RestoreReport::default()), "nothing to restore\n");
        let live = LiveSession {
            pid: 7,
            cpus: "0-1".parse().unwrap(),
            method: "fracas".into(),
            name: "make".into(),
        };
        let report = RestoreReport {
            restored: vec!["what emu 5 had left".into()],
            notes: vec!["/x was changed".into()],
            problems: vec!["/y is gone".into()],
            live: vec![live],
        };
        assert_eq!(
            text(&report),
            "restored: what emu 5 had left\n\
             left as it is: /x was changed\n\
             not restored: /y is gone\n\
             left alone: emu 7 runs (fracas on CPUs 0-1, make)\n"
        );
        let json: serde_json::Value = serde_json::from_str(&json(&report).unwrap()).unwrap();
        assert_eq!((&json["schema"], &json["problems"][0]), (&1.into(), &"/y is gone".into()));
        assert_eq!(json["live"][0]["pid"], 7);
        let long = RestoreReport { problems: vec!["word ".repeat(30)], ..report };
        assert!(text(&long).lines().all(|line| line.chars().count() <= WIDTH), "{}", text(&long));
    }
}

//! What `emu restore` did.

use emu_core::RestoreReport;

/// A line for each thing found.
pub(crate) fn text(report: &RestoreReport) -> String {
    let marked = |mark: &'static str, lines: &[String]| {
        lines.iter().map(|line| format!("{mark}: {line}\n")).collect::<Vec<_>>()
    };
    let mut lines = marked("restored", &report.restored);
    lines.extend(marked("left as it is", &report.notes));
    lines.extend(marked("not restored", &report.problems));
    if lines.is_empty() {
        lines.push("nothing to restore\n".to_owned());
    }
    for live in &report.live {
        let (pid, name) = (live.pid, &live.name);
        lines.push(format!("left alone: emu {pid} runs ({}, {name})\n", live.what()));
    }
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
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
    }
}

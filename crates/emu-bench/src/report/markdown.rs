//! The report as Markdown, to be pasted anywhere.

use std::fmt::Write as _;

use super::results::{Judged, Results};
use super::style::{off, percent, signed, span, verdict};

use emu_core::MethodId;

use crate::experiment::NONE;
use crate::stats::Fidelity;
use crate::table::escaped;
use crate::verify::Outliers;

/// The summary.
pub(super) fn summary(results: &Results) -> String {
    let machine = &results.machine;
    let mut text = format!(
        "# CPU emulation on {}\n\n{}\n\n{} CPUs, Linux {}, {}, core clock {}, emu {}\n\n",
        escaped(&machine.model),
        escaped(&results.conclusion),
        machine.cpus,
        escaped(&machine.kernel),
        escaped(machine.hypervisor.as_deref().unwrap_or("no hypervisor")),
        results.reference,
        escaped(&results.version)
    );
    for run in &results.runs {
        let _ = writeln!(text, "`{}` ({})\n", run.command.replace('`', ""), escaped(&run.date));
        if let Some(missing) = run.missing() {
            let _ = writeln!(text, "{missing}\n");
        }
    }
    text.push_str(&fidelity(results));
    text.push_str(&published(results));
    text.push_str(&unavailable(results));
    text
}

fn fidelity(results: &Results) -> String {
    let contenders: Vec<_> = results.contenders().into_iter().filter(|one| *one != NONE).collect();
    let names: Vec<_> = contenders.iter().map(|one| one.as_str()).collect();
    let mut text = format!("| work | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    let cell = |one: &Judged| match &one.fidelity {
        Some(Fidelity { bias, worst, .. }) => {
            format!("{} (worst {}) {}", signed(bias.estimate), off(worst.estimate), verdict(one.verdict))
        }
        None => verdict(one.verdict).to_owned(),
    };
    for ground in &results.grounds {
        let cells: Vec<_> = contenders
            .iter()
            .map(|one| results.judged(*one, ground).map_or_else(|| "–".into(), cell))
            .collect();
        let _ = writeln!(text, "| {} | {} |", escaped(&ground.name()), cells.join(" | "));
    }
    let total = |one: &MethodId| results.totals.iter().find(|total| total.contender == *one);
    let row = |value: &dyn Fn(&super::Total) -> String| {
        contenders
            .iter()
            .map(|one| total(one).map_or_else(|| "–".into(), value))
            .collect::<Vec<_>>()
            .join(" | ")
    };
    let _ = writeln!(text, "| score of the worst, 0–100 | {} |", row(&|total| format!("{:.0}", total.score)));
    let stall =
        |total: &super::Total| total.longest_stall_ns.map_or_else(|| "–".into(), |ns| span(ns as f64));
    let _ = writeln!(text, "| longest stall of cpu-loop | {} |", row(&stall));
    let _ = writeln!(
        text,
        "\nMean error of the perceived speed against the ideal, and the error at the worst speed. pass: at every speed the 95% interval and the mean lie within ±{}, and no more than one window in eight is far off. Disturbed pairs do not count.\n",
        percent(results.tolerance)
    );
    for one in results.fidelity.iter().filter(|one| one.contender != NONE) {
        if let Some(doubt) = one.doubt_in_words() {
            let ground = escaped(&one.ground_name());
            let _ = writeln!(text, "- no verdict: {}, {ground}, {doubt}", one.contender);
        }
    }
    for cell in results.cells.iter().filter(|cell| cell.finding.outliers.pairs > 0) {
        let Outliers { pairs, beyond } = cell.finding.outliers;
        let _ = writeln!(
            text,
            "- far off: {} at {}, {}: {pairs} of {} windows by more than {}",
            cell.contender,
            percent(cell.share),
            escaped(&super::results::ground_name(&cell.workload, cell.cores)),
            cell.finding.pairs,
            percent(beyond)
        );
    }
    text.push('\n');
    for doubt in results.grounds.iter().filter_map(super::Ground::doubt) {
        let _ = writeln!(text, "{}\n", escaped(&doubt));
    }
    text
}

fn published(results: &Results) -> String {
    if results.published.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "| slide | work | method | published | here | reproduced |\n|---|---|---|---|---|---|\n",
    );
    for one in &results.published {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            one.slide,
            escaped(&one.ground),
            one.contender,
            one.says.as_str(),
            escaped(&one.found),
            one.reproduced.as_str()
        );
    }
    text + "\n"
}

fn unavailable(results: &Results) -> String {
    let mut text = String::new();
    for refusal in &results.unavailable {
        let wanted = if refusal.wanted.is_empty() { String::new() } else { format!(" ({})", refusal.wanted) };
        let _ = writeln!(
            text,
            "- not measured: {}{}: {}",
            refusal.contender,
            escaped(&wanted),
            escaped(&refusal.why)
        );
    }
    text
}

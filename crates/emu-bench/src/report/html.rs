//! The report as one page: nothing is fetched, nothing runs.

use std::fmt::Write as _;

use super::markup::escape;
use super::results::{Ground, Judged, Results, RunInfo};
use super::style::{off, percent, signed, span, verdict};
use super::{figure, published::Compared};
use crate::experiment::NONE;
use crate::stats::{Coefficient, Fidelity, Interval, Spread, Verdict};
use emu_core::{MethodId, Result};

const STYLE: &str = include_str!("page.css");

/// What the figures and tables do not show; the same in every report.
const LIMITS: &[&str] = &[
    "A pair compares two moments of one process; what changes a program over hours is not seen.",
    "The workloads are kernels. A program of yours is a mixture of them, and shares caches and memory in its own way.",
    "All methods but frequency control switch programs on and off: within a period they run at full speed or not at \
     all. The granularity below tells over which time that shows.",
    "On a virtual machine the real clock and the hypervisor are not ours. Clock changes and steal are tagged where \
     they show, not undone.",
    "Speeds are relative to this machine. That a slower machine of another kind behaves alike is not claimed.",
];

/// The page.
///
/// # Errors
/// A figure cannot be drawn.
pub(super) fn page(results: &Results) -> Result<String> {
    let mut body = String::new();
    let title = format!("CPU emulation on {}", escape(&results.machine.model));
    let _ = write!(body, "<h1>{title}</h1>\n<p class=\"conclusion\">{}</p>\n", escape(&results.conclusion));
    body.push_str(&machine(results));
    body.push_str(&fidelity(results));
    body.push_str(&totals(results));
    section(&mut body, "Perceived speed over emulated frequency", &figures(results)?);
    if !results.published.is_empty() {
        section(&mut body, "Beside the published evaluation", &published(&results.published));
    }
    if let Some(svg) = figure::of_granularity(results)? {
        section(&mut body, "Granularity", &(granularity(results) + &inline(&svg)));
    }
    section(&mut body, "Noise of this machine", &noise(results));
    section(&mut body, "All cells", &cells(results));
    section(&mut body, "Lines through the speeds", &lines(results));
    section(&mut body, "What could not be measured", &unavailable(results));
    section(&mut body, "How to reproduce", &reproduce(results));
    section(
        &mut body,
        "What this does not show",
        &format!("<ul>\n<li>{}</li>\n</ul>\n", LIMITS.join("</li>\n<li>")),
    );
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n{body}</body>\n</html>\n"
    ))
}

fn section(body: &mut String, heading: &str, content: &str) {
    if !content.is_empty() {
        let _ = write!(body, "<section>\n<h2>{heading}</h2>\n{content}</section>\n");
    }
}

/// A table whose first column names its rows. Cells are HTML.
fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let head = header.join("</th><th scope=\"col\">");
    let mut text = format!(
        "<div class=\"wide\"><table>\n<thead><tr><th scope=\"col\">{head}</th></tr></thead>\n<tbody>\n"
    );
    for row in rows {
        text.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            // A cell may bring its own tag, to be coloured.
            let _ = match (column, cell.starts_with("<td")) {
                (0, _) => write!(text, "<th scope=\"row\">{cell}</th>"),
                (_, true) => write!(text, "{cell}"),
                (_, false) => write!(text, "<td>{cell}</td>"),
            };
        }
        text.push_str("</tr>\n");
    }
    text + "</tbody>\n</table></div>\n"
}

fn machine(results: &Results) -> String {
    let machine = &results.machine;
    let cpufreq: Vec<_> =
        machine.cpufreq.iter().map(|(driver, governor)| format!("{driver}/{governor}")).collect();
    let mut items = vec![
        format!("{} CPUs{}", machine.cpus, if machine.smt { " (SMT)" } else { "" }),
        format!("Linux {}", escape(&machine.kernel)),
        escape(machine.hypervisor.as_deref().unwrap_or("no hypervisor")),
        if cpufreq.is_empty() {
            "no cpufreq".into()
        } else {
            format!("cpufreq {}", escape(&cpufreq.join(", ")))
        },
        format!("core clock {} (100%)", results.reference),
        format!("emu {}", escape(&results.version)),
    ];
    items.extend(results.runs.iter().map(|run| escape(&run.date)));
    format!("<p class=\"machine\">{}</p>\n", items.join(" · "))
}

fn class(judged: Verdict) -> &'static str {
    match judged {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::NotEnoughData { .. } => "unsure",
    }
}

fn compared(results: &Results) -> Vec<MethodId> {
    results.contenders().into_iter().filter(|one| *one != NONE).collect()
}

fn fidelity(results: &Results) -> String {
    let contenders = compared(results);
    let mut header = vec!["work"];
    header.extend(contenders.iter().map(|one| one.as_str()));
    let row = |ground: &Ground| {
        let cells =
            contenders.iter().map(|one| results.judged(*one, ground).map_or_else(|| "–".into(), judged));
        std::iter::once(escape(&ground.name())).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = results.grounds.iter().map(row).collect();
    let mut text = table(&header, &rows);
    let _ = writeln!(
        text,
        "<p class=\"note\">Mean error of the perceived speed against the ideal over all speeds, with its 95% interval; \
         +5% is too fast. <b>worst</b>: how far it is off at the worst speed, either way. <b>pass</b>: at every \
         speed the interval and the mean lie within ±{0}, and no more than one window in eight is far off. <b>fail</b>: \
         at one speed the interval lies outside. <b>not enough data</b>: neither can be said. Disturbed pairs do not \
         count.</p>",
        percent(results.tolerance)
    );
    for doubt in results.grounds.iter().filter_map(Ground::doubt) {
        let _ = writeln!(text, "<p class=\"note\">{}</p>", escape(&doubt));
    }
    let mut section_text = String::new();
    section(&mut section_text, "Fidelity", &text);
    section_text
}

fn judged(one: &Judged) -> String {
    let mut text = format!("<td class=\"{}\">", class(one.verdict));
    if let Some(Fidelity { bias, .. }) = &one.fidelity {
        let _ = write!(text, "<b>{}</b> ", signed(bias.estimate));
    }
    text.push_str(verdict(one.verdict));
    if let Some(Fidelity { bias, worst, .. }) = &one.fidelity {
        let (low, high) = (signed(bias.low), signed(bias.high));
        let _ = write!(text, "<br><small>{low} … {high}<br>worst {}</small>", off(worst.estimate));
    }
    if let Some(doubt) = one.doubt_in_words() {
        let _ = write!(text, "<br><small>{}</small>", escape(&doubt));
    }
    text + "</td>"
}

fn totals(results: &Results) -> String {
    let row = |total: &super::results::Total| {
        vec![
            total.contender.to_string(),
            format!("{:.0}", total.score),
            escape(&total.worst),
            total.longest_stall_ns.map_or_else(|| "–".into(), |ns| span(ns as f64)),
            total.own_cpu.map_or_else(|| "–".into(), percent),
        ]
    };
    let totals = results.totals.iter().filter(|total| total.contender != NONE);
    let rows: Vec<_> = totals.map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    table(&["method", "score, 0–100", "of its worst work", "longest stall of cpu-loop", "own CPU"], &rows)
        + "<p class=\"note\">The score is that of the worst work: a method that breaks one kind of work cannot average \
           it away. 100 is no error beyond the noise, 50 an error of 5%.</p>\n"
}

fn figures(results: &Results) -> Result<String> {
    let mut text = String::from(
        "<p class=\"note\">Bars are 95% intervals of the median ratio of pairs, times the native speed. The dashed line \
         is what a really slower CPU would give. Methods are drawn beside each other where they were asked for the same \
         speed.</p>\n",
    );
    for ground in &results.grounds {
        text.push_str(&inline(&figure::of_ground(results, ground)?));
    }
    Ok(text)
}

/// A figure as part of the page.
fn inline(svg: &str) -> String {
    format!("<figure>\n{svg}</figure>\n")
}

fn published(all: &[Compared]) -> String {
    let row = |one: &Compared| {
        let class = match one.reproduced {
            super::published::Reproduced::Yes => "pass",
            super::published::Reproduced::No => "fail",
            _ => "unsure",
        };
        vec![
            format!("{}", one.slide),
            escape(&one.ground),
            one.contender.to_string(),
            one.says.as_str().to_owned(),
            escape(&one.found),
            format!("<td class=\"{class}\">{}</td>", one.reproduced.as_str()),
        ]
    };
    table(
        &["slide", "work", "method", "published", "here", "reproduced"],
        &all.iter().map(row).collect::<Vec<_>>(),
    ) + "<p class=\"note\">T. Buchert, L. Nussbaum, J. Gustedt: Methods for Emulation of Multi-Core CPU Performance, \
         HPCC 2011, slides 13 to 20. “As it should be” is taken as within 10% of the ideal at every speed.</p>\n"
}

fn granularity(results: &Results) -> String {
    let mut rows = Vec::new();
    let mut lengths: Vec<String> = Vec::new();
    for one in &results.smoothness {
        let windows = &one.spectrum.granularity.windows;
        lengths = windows.iter().map(|window| format!("{} ms", window.length_ms)).collect();
        let spread = |spread: Spread| match spread {
            Spread::Cv(cv) => percent(cv),
            Spread::NoWork => "no work".into(),
            Spread::SeriesTooShort | Spread::StampsTooSparse => "–".into(),
        };
        let mut row = vec![format!("{} at {}", one.contender, percent(one.share))];
        row.extend(windows.iter().map(|window| spread(window.spread)));
        row.push(
            one.spectrum.granularity.smooth_from_ms.map_or_else(|| "none".into(), |ms| format!("{ms} ms")),
        );
        row.push(span(one.spectrum.granularity.longest_stall_ns as f64));
        rows.push(row);
    }
    let mut header = vec!["method"];
    header.extend(lengths.iter().map(String::as_str));
    header.extend(["smooth from", "longest stall"]);
    table(&header, &rows)
        + "<p class=\"note\">How much the work done in windows of a length varies (coefficient of variation), for one \
           computing thread. Below 5% progress counts as smooth.</p>\n"
}

fn noise(results: &Results) -> String {
    let row = |ground: &Ground| {
        let mut row = vec![escape(&ground.name())];
        row.extend(match &ground.aa {
            None => ["too few controls".into(), "–".into(), "–".into()],
            Some(aa) => [
                format!("{} … {}", signed(aa.ratio.low - 1.0), signed(aa.ratio.high - 1.0)),
                percent(aa.floor),
                percent(aa.detectable),
            ],
        });
        row
    };
    let rows: Vec<_> = results.grounds.iter().map(row).collect();
    table(&["work", "native against native", "pairs differ by", "smallest effect found"], &rows)
        + "<p class=\"note\">Controls are pairs without emulation, taken among the others. Their interval should contain \
           0: outside, drift or order disturbs. An error smaller than the last column is found less than four times in \
           five with that many pairs.</p>\n"
}

fn cells(results: &Results) -> String {
    let mut rows = Vec::new();
    for ground in &results.grounds {
        for cell in results.cells_of(ground) {
            let finding = &cell.finding;
            let relative = &finding.relative;
            let error = |ratio: f64| signed(ratio - 1.0);
            rows.push(vec![
                escape(&ground.name()),
                cell.contender.to_string(),
                percent(cell.share),
                percent(finding.ideal),
                percent(finding.ratio.estimate),
                error(relative.estimate),
                format!("{} … {}", error(relative.low), error(relative.high)),
                format!(
                    "<td class=\"{}\">{}{}</td>",
                    class(finding.verdict),
                    verdict(finding.verdict),
                    finding.doubt.map_or_else(String::new, |doubt| format!("<br><small>{doubt}</small>"))
                ),
                format!("{}", finding.pairs),
                format!("{}", finding.tainted),
                format!("{} beyond {}", finding.outliers.pairs, percent(finding.outliers.beyond)),
                span(finding.longest_stall_ns as f64),
                if finding.periods == 0 {
                    "–".into()
                } else {
                    format!("{} of {}", finding.missed, finding.periods)
                },
            ]);
        }
    }
    let header = [
        "work",
        "method",
        "asked",
        "ideal",
        "perceived",
        "error",
        "95% interval",
        "verdict",
        "pairs",
        "disturbed",
        "far off",
        "stall",
        "missed periods",
    ];
    format!("<details><summary>{} cells</summary>\n{}</details>\n", rows.len(), table(&header, &rows))
}

fn lines(results: &Results) -> String {
    let row = |one: &Judged| {
        let line = one.line?;
        let number = |of: &Coefficient| {
            let Interval { estimate, low, high, .. } = of.interval;
            format!("{estimate:.3} <small>({low:.3} … {high:.3}), SE {:.3}</small>", of.standard_error)
        };
        Some(vec![
            escape(&super::results::ground_name(&one.workload, one.cores)),
            one.contender.to_string(),
            number(&line.slope),
            number(&line.intercept),
            line.r_squared.map_or_else(|| "–".into(), |r| format!("{r:.4}")),
            line.slope.p.map_or_else(|| "–".into(), |p| format!("{p:.1e}")),
            one.fidelity
                .and_then(|fidelity| fidelity.elasticity)
                .map_or_else(|| "–".into(), |e| format!("{:.2}", e.estimate)),
        ])
    };
    let rows: Vec<_> = results.fidelity.iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let header = ["work", "method", "slope", "intercept, GHz", "R²", "p of the slope", "elasticity"];
    format!(
        "<details><summary>{} lines</summary>\n{}<p class=\"note\">Perceived over emulated frequency, both in GHz, by \
         ordinary least squares over all pairs, with 95% intervals and standard errors. Slope 1 and intercept 0 \
         are proportional; a high R² alone says nothing of that. Elasticity: 1 where the speed follows the frequency, 0 where it ignores it.</p></details>\n",
        rows.len(),
        table(&header, &rows)
    )
}

fn unavailable(results: &Results) -> String {
    let row = |refusal: &crate::experiment::Refusal| {
        vec![
            refusal.contender.to_string(),
            if refusal.wanted.is_empty() { "anything".into() } else { escape(&refusal.wanted) },
            escape(&refusal.why),
            refusal.hint.as_deref().map_or_else(String::new, escape),
        ]
    };
    let rows: Vec<_> = results.unavailable.iter().map(row).collect();
    if rows.is_empty() {
        let is_whole = results.runs.iter().all(|run| run.missing().is_none());
        let told = if is_whole {
            "Everything that was asked for was measured."
        } else {
            "Nothing that was asked for is impossible here, but not all of it has been measured."
        };
        return format!("<p>{told}</p>\n");
    }
    table(&["method", "asked for", "why not", "what helps"], &rows)
}

fn reproduce(results: &Results) -> String {
    let run = |run: &RunInfo| {
        let costs = &run.own_costs;
        let mut text = format!(
            "<p><code>{}</code></p>\n<p class=\"note\">{}, seed {}: {} pairs, {} were disturbed and taken again, {} were \
             disturbed to the last and do not count.",
            escape(&run.command),
            escape(&run.date),
            run.seed,
            run.pairs,
            run.retaken,
            run.tainted
        );
        let kinds: Vec<_> = run.disturbances.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        if !kinds.is_empty() {
            let _ = write!(text, " Disturbances: {}.", kinds.join(", "));
        }
        let steady = if costs.steady { "" } else { ", without becoming steady" };
        let _ = write!(
            text,
            " Harness: a look at the clock {}, a wake-up {} late, warmed up for {}{steady}",
            span(costs.clock_read_ns),
            span(costs.wake_up_ns),
            span(costs.warm_up_ns as f64)
        );
        if let Some(outside) = run.outside_ns {
            let _ = write!(
                text,
                ", {} for each pair to start and end a process and the emulation",
                span(outside)
            );
        }
        text.push('.');
        if let Some(missing) = run.missing() {
            let _ = write!(text, " <b>{missing}</b>");
        }
        text + "</p>\n"
    };
    results.runs.iter().map(run).collect()
}

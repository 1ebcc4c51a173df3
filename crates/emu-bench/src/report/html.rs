//! The report as one page: nothing is fetched, nothing runs.

use emu_core::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::results::{Ground, Results, RunInfo};
use super::{figure, tables};
use crate::numbers::{nanos, percent};

const STYLE: &str = include_str!("page.css");

const LIMITS: &[&str] = &[
    "A pair compares two moments of one process; what changes a program over hours is not seen.",
    "The workloads are kernels. A program of yours is a mixture of them, and shares caches and memory in its own way.",
    "All methods but frequency control switch programs on and off: within a period they run at full speed or not at \
     all. The granularity below tells over which time that shows.",
    "On a virtual machine the real clock and the hypervisor are not ours. Clock changes and steal are tagged where \
     they show, not undone.",
    "Speeds are relative to this machine. That a slower machine of another kind behaves alike is not claimed.",
];

pub(super) fn page(results: &Results) -> Result<String> {
    let title = format!("CPU emulation on {}", results.machine.model);
    let of_ground = |ground| figure::of_ground(results, ground);
    let figures = results.grounds.iter().map(of_ground).collect::<Result<Vec<_>>>()?;
    let granularity = figure::of_granularity(results)?;
    let errors = figure::of_errors(results)?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                (mark(results))
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (title) }
                p.conclusion { (results.conclusion) }
                p.machine { (machine(results)) }
                @for svg in &errors { (inline(svg)) }
                p.note {
                    @if errors.is_empty() {
                        "There is no figure of errors: no method has a pair that was not disturbed."
                    } @else {
                        "Each point is the speed that is furthest off, each bar the 95% interval that its verdict rests on. \
                         What is filled passes, what is crossed out fails, and what is hollow is not decided: the table \
                         says why. What lies beyond the figure is an arrow at its edge, with its value."
                    }
                }
                (section("Fidelity", &fidelity(results)))
                (section("Perceived speed over emulated frequency", &html! {
                    p.note {
                        "Bars are 95% intervals of the median ratio of pairs, times the native speed. The dashed line \
                         is what a really slower CPU would give. Markers of methods that lie upon each other are of \
                         different sizes."
                    }
                    @for svg in &figures { (inline(svg)) }
                }))
                @if !results.beside.is_empty() { (section("Beside other tools", &beside(results))) }
                @if !results.published.is_empty() { (section("Beside the published evaluation", &published(results))) }
                @if let Some(svg) = &granularity {
                    (section("Granularity", &html! {
                        (tables::granularity(results).html())
                        p.note {
                            "How much the work done in windows of a length varies (coefficient of variation), for one \
                             computing thread. Below 5% progress counts as smooth."
                        }
                        (inline(svg))
                    }))
                }
                (section("Noise of this machine", &noise(results)))
                (section("All cells", &cells(results)))
                @if !tables::lines(results).is_empty() { (section("Lines through the speeds", &lines(results))) }
                (section("What could not be measured", &unavailable(results)))
                (section("How to reproduce", &html! { @for run in &results.runs { (reproduce(run)) } }))
                (section("What this does not show", &html! { ul { @for limit in LIMITS { li { (limit) } } } }))
            }
        }
    };
    Ok(page.into_string())
}

/// Which records a page is of.
pub(super) fn mark(results: &Results) -> Markup {
    let runs: Vec<_> = results.runs.iter().map(|run| format!("{} {}", run.date, run.seed)).collect();
    html! { meta name="emu-records" content=(runs.join(", ")); }
}

fn section(heading: &str, content: &Markup) -> Markup {
    html! { section { h2 { (heading) } (content) } }
}

/// Its text was escaped where it was drawn.
fn inline(svg: &str) -> Markup {
    html! { figure { (PreEscaped(svg)) } }
}

fn machine(results: &Results) -> String {
    let machine = &results.machine;
    let cpufreq: Vec<_> =
        machine.cpufreq.iter().map(|(driver, governor)| format!("{driver}/{governor}")).collect();
    let mut items = vec![
        format!("{} CPUs{}", machine.cpus, if machine.smt { " (SMT)" } else { "" }),
        format!("Linux {}", machine.kernel),
        machine.hypervisor.clone().unwrap_or_else(|| "no hypervisor".into()),
        if cpufreq.is_empty() { "no cpufreq".into() } else { format!("cpufreq {}", cpufreq.join(", ")) },
        format!("core clock {} (100%)", results.reference),
        format!("emu {}", results.version),
    ];
    items.extend(results.runs.iter().map(|run| run.date.clone()));
    items.join(" · ")
}

fn fidelity(results: &Results) -> Markup {
    html! {
        (results.fidelity_table().html())
        p.note {
            "Error of the perceived speed against the ideal, at the speed that is furthest off of those with the verdict, with \
             its 95% interval; +5% is too fast. "
            b { "mean" } ": over all speeds, where errors may cancel out. "
            b { "pass" } ": at every speed the interval and the mean lie within ±" (percent(results.tolerance))
            ", and no more than one window in eight is far off. "
            b { "fail" } ": at one speed the interval lies outside. "
            b { "not enough data" } ": neither can be said, or only if what native windows differ by is left out. Disturbed \
             pairs do not count."
        }
        @for doubt in results.grounds.iter().filter_map(Ground::doubt) { p.note { (doubt) } }
        @if !results.totals_table().is_empty() {
            (results.totals_table().html())
            p.note {
                "The score, 0 to 100, is that of the worst work: a method that breaks one kind of work cannot average it \
                 away. 100 is no error beyond the noise, 50 an error of 5%, and there is none without all verdicts. The longest stall is that of cpu-loop."
            }
        }
    }
}

fn beside(results: &Results) -> Markup {
    html! {
        (results.beside_table().html())
        p.note {
            "Who is nearer to the speed that was asked, over the rounds in which both met the same machine. "
            b { "ahead" } ": the interval of the difference is on the method's side. "
            b { "level" } ": they cannot be told apart, and the method is not behind by 1%. "
            b { "further off" } ": by how much the other tool's median is further from what was asked."
        }
    }
}

fn published(results: &Results) -> Markup {
    html! {
        (results.published_table().html())
        p.note {
            "T. Buchert, L. Nussbaum, J. Gustedt: Methods for Emulation of Multi-Core CPU Performance, HPCC 2011, slides \
             13 to 20. “As it should be” is taken as within 10% of the ideal at every speed, and “twice too slow” as 40 to \
             67% of it at every speed."
        }
    }
}

fn noise(results: &Results) -> Markup {
    html! {
        (tables::noise(results).html())
        p.note {
            "Controls are pairs without emulation, taken among the others. Their interval should contain 0: outside, \
             drift or order disturbs, and there is no verdict that as large an error could turn. An error smaller than the last column is found less than four times in five with \
             that many pairs."
        }
    }
}

fn cells(results: &Results) -> Markup {
    html! {
        details {
            summary { (results.cells.len()) " cells" }
            (tables::cells(results).html())
        }
    }
}

fn lines(results: &Results) -> Markup {
    html! {
        details {
            summary { (results.fidelity.iter().filter(|one| one.line.is_some()).count()) " lines" }
            (tables::lines(results).html())
            p.note {
                "Perceived over emulated frequency, both in GHz, by ordinary least squares over all pairs, with 95% \
                 intervals and standard errors. Slope 1 and intercept 0 are proportional; a high R² alone says nothing \
                 of that. Elasticity: 1 where the speed follows the frequency, 0 where it ignores it."
            }
        }
    }
}

fn unavailable(results: &Results) -> Markup {
    let is_whole = results.runs.iter().all(|run| run.missing().is_none());
    html! {
        @if !results.unavailable.is_empty() {
            (tables::unavailable(results).html())
        } @else if is_whole {
            p { "Everything that was asked for was measured." }
        } @else {
            p { "Nothing that was asked for is impossible here, but not all of it has been measured." }
        }
    }
}

fn reproduce(run: &RunInfo) -> Markup {
    let costs = &run.own_costs;
    let kinds: Vec<_> = run.disturbances.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    html! {
        p { code { (run.command) } }
        p.note {
            (run.date) ", seed " (run.seed) ": " (run.pairs) " pairs, " (run.retaken)
            " were disturbed and taken again, " (run.tainted) " were disturbed to the last and do not count."
            @if !kinds.is_empty() { " Disturbances: " (kinds.join(", ")) "." }
            " Harness: a look at the clock " (nanos(costs.clock_read_ns)) ", a wake-up " (nanos(costs.wake_up_ns))
            " late, warmed up for " (nanos(costs.warm_up_ns as f64))
            @if !costs.steady { ", without becoming steady" }
            @if let Some(outside) = run.outside_ns {
                ", " (nanos(outside)) " for each pair to start and end a process and the emulation"
            }
            "."
            @if let Some(missing) = run.missing() { " " b { (missing) } }
        }
    }
}

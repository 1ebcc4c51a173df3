//! A trace, or how it was followed, as a table and a figure.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use emu_bench::numbers::{percent, span};
use emu_bench::report::{Axis, Chart, Point, Series};
use emu_bench::table::Table;
use emu_bench::{columns, row};
use emu_core::{Delivered, Error, ErrorKind, Result, Speed, Stretch, Trace, input_file};
use serde::Deserialize;

use crate::zone::summary::between;

const LISTED: usize = 30;

/// Steps of one CPU, or of the zone.
#[derive(Debug, Default)]
struct Line {
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    from: f64,
    until: f64,
    asked: f64,
    delivered: Option<Delivered>,
}

#[derive(Debug)]
pub(super) struct Shown {
    title: String,
    /// Whether speeds are in GHz.
    is_clocks: bool,
    lines: BTreeMap<String, Line>,
}

/// What is read of the JSON of `run` and `attach`.
#[derive(Debug, Deserialize)]
struct Run {
    #[serde(default)]
    steps: Vec<Stretch>,
}

/// Reads a trace, or the record of a run in which the speed was changed.
pub(super) fn read(path: &Path) -> Result<Shown> {
    let text = input_file::read_any(path, input_file::TRACE_MAX).map_err(|e| {
        Error::file("read", path, e).with_kind(ErrorKind::Usage).hint("name a trace, or the JSON of a run")
    })?;
    let shown = if text.trim_start().starts_with('{') {
        of_run(&text).map(|lines| (lines, false))
    } else {
        of_trace(&text)
    };
    let (lines, is_clocks) = shown.map_err(|e: Error| e.during(format!("cannot show {}", path.display())))?;
    let title = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(Shown { title, is_clocks, lines })
}

fn of_run(text: &str) -> Result<BTreeMap<String, Line>> {
    let run: Run = serde_json::from_str(text).map_err(|e| {
        Error::usage(format!("it is no record of a run: {e}")).hint("name what --json has left")
    })?;
    if run.steps.is_empty() {
        return Err(Error::usage("its speed was never changed").hint("run it with --trace"));
    }
    let mut lines = BTreeMap::<String, Line>::new();
    for step in &run.steps {
        let [from, until] = [step.from, step.until].map(|at| at.as_secs_f64());
        for cpu in &step.cpus {
            let line = lines.entry(format!("CPU {}", cpu.cpu)).or_default();
            line.steps.push(Step { from, until, asked: cpu.asked.share, delivered: cpu.delivered });
        }
        // Of tasks that moved between CPUs the whole alone is known.
        let is_whole = step.cpus.iter().all(|cpu| cpu.delivered.is_none());
        if let Some(delivered) = step.delivered.filter(|_| is_whole) {
            let line = lines.entry("all CPUs".into()).or_default();
            line.steps.push(Step { from, until, asked: delivered.asked, delivered: Some(delivered) });
        }
    }
    Ok(lines)
}

/// The lines, and whether their speeds are clocks.
fn of_trace(text: &str) -> Result<(BTreeMap<String, Line>, bool)> {
    let trace: Trace = text.parse()?;
    let is_clock = |(.., speed): (_, _, Speed)| matches!(speed, Speed::Clock(_));
    let is_clocks = trace.changes().any(is_clock);
    if is_clocks && !trace.changes().all(is_clock) {
        return Err(Error::usage("some of its speeds are shares, and some are clocks"));
    }
    let mut lines = BTreeMap::<String, Line>::new();
    for (at, cpus, speed) in trace.changes() {
        let asked = match speed {
            Speed::Share(share) => share,
            Speed::Clock(clock) => clock.as_f64() / 1e9,
        };
        let name = cpus.map_or_else(|| "all CPUs".to_owned(), |cpus| format!("CPU {cpus}"));
        let line = lines.entry(name).or_default();
        let from = at.as_secs_f64();
        line.steps.iter_mut().next_back().iter_mut().for_each(|last| last.until = from);
        line.steps.push(Step { from, until: from, asked, delivered: None });
    }
    let end = trace.length().map(|length| length.as_secs_f64());
    for last in lines.values_mut().filter_map(|line| line.steps.last_mut()) {
        last.until = end.unwrap_or(last.from).max(last.from);
    }
    Ok((lines, is_clocks))
}

impl Shown {
    pub(super) fn text(&self) -> String {
        let steps: usize = self.lines.values().map(|line| line.steps.len()).sum();
        let mut table = Table::new(columns![
            text "OF", number "FROM", number "FOR", number "ASKED", number "DELIVERED", change "ERROR",
        ]);
        let mut row = |name: &str, from: f64, until: f64, asked: String, delivered: Option<Delivered>| {
            let [from, length] = [from, until - from].map(|s| span(Duration::from_secs_f64(s.max(0.0))));
            let share = delivered.map(|seen| between(seen.share, seen.low, seen.high));
            table.row(row![name, from, length, asked, share, delivered.map(|seen| seen.error)]);
        };
        for (name, line) in &self.lines {
            if steps <= LISTED {
                for step in &line.steps {
                    row(name, step.from, step.until, self.speed(step.asked), step.delivered);
                }
                continue;
            }
            let Some((first, last)) = line.steps.first().zip(line.steps.last()) else { continue };
            let shares = line.steps.iter().map(|step| step.asked);
            let (low, high) = (shares.clone().fold(f64::INFINITY, f64::min), shares.fold(0.0, f64::max));
            let asked = format!("{} to {}", self.speed(low), self.speed(high));
            row(name, first.from, last.until, asked, line.mean());
        }
        table.text()
    }

    fn speed(&self, speed: f64) -> String {
        if self.is_clocks { format!("{speed:.3} GHz") } else { percent(speed) }
    }

    pub(super) fn chart(&self) -> Chart {
        let mut series = Vec::new();
        let (scale, unit) = if self.is_clocks { (1.0, "GHz") } else { (100.0, "%") };
        for (name, line) in &self.lines {
            let ends = line.steps.iter().flat_map(|step| [step.from, step.until].map(|at| (at, step.asked)));
            let asked = ends.map(|(at, asked)| Point::new(at, scale * asked));
            series.push(Series::line(format!("asked, {name}"), asked.collect()));
            let delivered = line.steps.iter().filter_map(|step| {
                let seen = step.delivered?;
                let [y, low, high] = [seen.share, seen.low, seen.high].map(|share| scale * share);
                Some(Point::between(f64::midpoint(step.from, step.until), y, low, high))
            });
            let delivered: Vec<_> = delivered.collect();
            if !delivered.is_empty() {
                series.push(Series::points(format!("delivered, {name}"), delivered));
            }
        }
        let y = Axis::linear(format!("speed, {unit}")).from(0.0);
        Chart::new(self.title.clone(), Axis::linear("time, s"), y, series)
    }
}

impl Line {
    fn mean(&self) -> Option<Delivered> {
        let known: Vec<_> = self.steps.iter().filter_map(|step| step.delivered).collect();
        Delivered::mean(&known)
    }
}

//! Figures, as SVG: the error by work, perceived speed over emulated frequency, and how smooth progress is.

use emu_core::{MethodId, Result};

use super::axis::Axis;
use super::chart::{Chart, Point, Series};
use super::results::{CellResult, Ground, Results};
use super::style;
use crate::experiment::NONE;
use crate::numbers::percent;
use crate::stats::{Interval, Spread, Verdict};
use crate::workload::workload;

/// Neighbouring methods are moved apart by this share of the axis, so that none hides another.
const APART: f64 = 0.012;

/// The share of the distance between two works that is for methods.
const ROOM: f64 = 0.6;

/// In percent, unless the tolerance is wider. Larger errors are drawn at its end: small ones could not be told apart.
const ERROR_MAX: f64 = 30.0;

/// More works than these are drawn by number of CPUs.
const TOGETHER: usize = 5;

/// All works in one figure, or one for each number of CPUs.
pub(super) fn of_errors(results: &Results) -> Result<Vec<String>> {
    let all: Vec<_> = results.grounds.iter().collect();
    let mut cores: Vec<_> = all.iter().map(|ground| ground.cores).collect();
    cores.sort_unstable();
    cores.dedup();
    let each = |count: &usize| all.iter().copied().filter(|ground| ground.cores == *count).collect();
    let groups: Vec<Vec<_>> = if all.len() > TOGETHER { cores.iter().map(each).collect() } else { vec![all] };
    groups.iter().filter_map(|grounds| errors_at(results, grounds).transpose()).collect()
}

fn errors_at(results: &Results, grounds: &[&Ground]) -> Result<Option<String>> {
    let (methods, tolerance) = (results.methods(), results.tolerance * 100.0);
    let mut highest = tolerance * 1.6;
    let most = ERROR_MAX.max(highest);
    let mut series = Vec::new();
    for (place, method) in methods.iter().enumerate() {
        let moved = ((place as f64 + 0.5) / methods.len() as f64 - 0.5) * ROOM;
        let point = |(number, ground): (usize, &&Ground)| {
            let judged = results.judged(*method, ground)?;
            let error = judged.fidelity?.bias;
            let [y, low, high] =
                [error.estimate, error.low, error.high].map(|share| (share * 100.0).clamp(-most, most));
            let is_open = matches!(judged.verdict, Verdict::NotEnoughData { .. });
            Some(Point::between((number + 1) as f64 + moved, y, low, high).open(is_open))
        };
        let points: Vec<_> = grounds.iter().enumerate().filter_map(point).collect();
        highest = points.iter().fold(highest, |all, point| all.max(point.high.abs()).max(point.low.abs()));
        series.push(Series::points(method.to_string(), points).looking(style::of(*method)));
    }
    if series.iter().all(Series::is_empty) {
        return Ok(None);
    }
    let end = grounds.len() as f64 + 0.5;
    let x = Axis::of_names("work", grounds.iter().map(|ground| ground.name()).collect()).from(0.5);
    let y = Axis::linear("error of the speed, %").from(-highest * 1.05).to(highest * 1.05);
    Chart::new("error of the speed: 0 is right, above is too fast", x, y, series)
        .with_ideal("right", vec![(0.5, 0.0), (end, 0.0)])
        .with_band("passes", -tolerance..tolerance)
        .svg()
        .map(Some)
}

pub(super) fn of_ground(results: &Results, ground: &Ground) -> Result<String> {
    let cells = results.cells_of(ground);
    let highest = cells.iter().map(|cell| cell.perceived(ground).high).fold(ground.native.high, f64::max);
    let (scale, prefix) = style::prefix(highest);
    let unit = workload(&ground.workload).map_or("work", |workload| workload.unit());
    let reference = results.reference.as_f64() / 1e9;
    let contenders: Vec<_> = results.contenders();
    let curve = |contender: &MethodId| {
        let of_it: Vec<_> = cells.iter().filter(|cell| cell.contender == *contender).collect();
        let place = contenders.iter().position(|one| one == contender).unwrap_or(0) as f64;
        let moved = (place - (contenders.len() - 1) as f64 / 2.0) * APART * reference;
        let point = |cell: &&&CellResult| {
            let perceived = cell.perceived(ground);
            Point::of_interval(cell.emulated.as_f64() / 1e9 + moved, &scaled(&perceived, scale))
                .open(cell.contender != NONE && cell.finding.is_undecided())
        };
        let name = if *contender == NONE { "native".to_owned() } else { contender.to_string() };
        (!of_it.is_empty())
            .then(|| Series::curve(name, of_it.iter().map(point).collect()).looking(style::of(*contender)))
    };
    let ideal =
        ground.ideal.iter().map(|(share, ratio)| (share * reference, ratio * ground.native.estimate / scale));
    let x = Axis::linear("emulated CPU frequency, GHz").from(0.0).to(reference * 1.05);
    let y = Axis::linear(format!("perceived speed, {prefix}{unit}/s")).from(0.0).to(highest / scale * 1.08);
    let series = contenders.iter().filter_map(curve).collect();
    Chart::new(ground.name(), x, y, series).with_ideal("ideal", ideal.collect()).svg()
}

pub(super) fn of_granularity(results: &Results) -> Result<Option<String>> {
    let mut labels: Vec<String> = Vec::new();
    let mut series = Vec::new();
    let mut highest: f64 = 10.0;
    for one in &results.smoothness {
        let windows = &one.spectrum.granularity.windows;
        labels = windows.iter().map(|window| format!("{} ms", window.length_ms)).collect();
        let points: Vec<_> = windows
            .iter()
            .enumerate()
            .filter_map(|(place, window)| match window.spread {
                Spread::Cv(cv) => Some(Point::new((place + 1) as f64, cv * 100.0)),
                _ => None,
            })
            .collect();
        highest = points.iter().map(|point| point.y).fold(highest, f64::max);
        let name = format!("{} {}", one.contender, percent(one.share));
        series.push(Series::curve(name, points).looking(style::of(one.contender)));
    }
    if series.is_empty() {
        return Ok(None);
    }
    let end = labels.len() as f64 + 0.5;
    let x = Axis::of_names("length of the window", labels);
    let y = Axis::linear("variation of the work in a window, %").from(0.0).to(highest * 1.08);
    Chart::new("granularity: how uneven progress is", x, y, series)
        .with_ideal("smooth below", vec![(0.0, 5.0), (end, 5.0)])
        .svg()
        .map(Some)
}

fn scaled(interval: &Interval, scale: f64) -> Interval {
    Interval {
        estimate: interval.estimate / scale,
        low: interval.low / scale,
        high: interval.high / scale,
        level: interval.level,
    }
}

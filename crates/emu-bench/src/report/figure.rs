//! Figures, as SVG: the error by work, perceived speed over emulated frequency, and how smooth progress is.

use emu_core::{MethodId, Result};

use super::axis::Axis;
use super::chart::Chart;
use super::results::{CellResult, Ground, Judged, Results, ground_name};
use super::series::{Point, Series};
use super::style;
use crate::experiment::NONE;
use crate::numbers::{percent, prefix};
use crate::stats::Spread;
use crate::workload::workload;

/// The room for the methods of one work, as a share of the distance to the next.
const ROOM: f64 = 0.6;

/// Larger errors lie beyond the end of the axis: the small ones could not be told apart beside them. In percent, unless what
/// passes is wider.
const ERROR_MAX: f64 = 30.0;

/// More works than these are drawn by number of CPUs.
const TOGETHER: usize = 5;

/// The error of each method where it is furthest off, at each work, with the errors that pass: all in one figure, or one
/// for each number of CPUs.
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
            error_of(results.judged(*method, ground)?, (number + 1) as f64 + moved)
        };
        let points: Vec<_> = grounds.iter().enumerate().filter_map(point).collect();
        highest = points.iter().fold(highest, |all, point| all.max(point.high.abs()).max(point.low.abs()));
        series.push(Series::points(method.to_string(), points).looking(style::of(*method)));
    }
    if series.iter().all(Series::is_empty) {
        return Ok(None);
    }
    let end = grounds.len() as f64 + 0.5;
    // What all have in common stands in the title.
    let cores = grounds.first().map(|first| first.cores);
    let common = cores.filter(|&cores| grounds.iter().all(|ground| ground.cores == cores));
    let name = |ground: &&Ground| common.map_or_else(|| ground.name(), |_| ground.workload.clone());
    let x = Axis::of_names("work", grounds.iter().map(name).collect()).from(0.5);
    let reach = (highest * 1.05).min(most);
    let y = Axis::linear("error of the speed, %").from(-reach).to(reach);
    let what = "error of the speed that is furthest off";
    let what = common.map_or_else(|| what.to_owned(), |cores| ground_name(what, cores));
    Chart::new(format!("{what}: 0 is right, above is too fast"), x, y, series)
        .with_ideal("right", vec![(0.5, 0.0), (end, 0.0)])
        .with_band("passes", -tolerance..tolerance)
        .svg()
        .map(Some)
}

/// The error of a method where it is furthest off, in percent, with the interval of its verdict.
fn error_of(judged: &Judged, x: f64) -> Option<Point> {
    let error = judged.furthest?.relative.map(|relative| (relative - 1.0) * 100.0);
    Some(Point::of_interval(x, &error).judged(judged.verdict))
}

/// Perceived speed over emulated frequency, for a workload on some CPUs.
pub(super) fn of_ground(results: &Results, ground: &Ground) -> Result<String> {
    let cells = results.cells_of(ground);
    let highest = cells.iter().map(|cell| cell.perceived(ground).high).fold(ground.native.high, f64::max);
    let (scale, prefix) = prefix(highest);
    let unit = workload(&ground.workload).map_or("work", |workload| workload.unit());
    let reference = results.reference.as_f64() / 1e9;
    let contenders: Vec<_> = results.contenders();
    let curve = |contender: &MethodId| {
        let of_it: Vec<_> = cells.iter().filter(|cell| cell.contender == *contender).collect();
        let place = contenders.iter().position(|one| one == contender).unwrap_or(0);
        let look = style::of(*contender).nested(place, contenders.len());
        let name = if *contender == NONE { "native".to_owned() } else { contender.to_string() };
        let points = of_it.iter().map(|cell| speed_of(cell, ground, scale)).collect();
        (!of_it.is_empty()).then(|| Series::curve(name, points).looking(look))
    };
    let ideal =
        ground.ideal.iter().map(|(share, ratio)| (share * reference, ratio * ground.native.estimate / scale));
    let x = Axis::linear("emulated CPU frequency, GHz").from(0.0).to(reference * 1.05);
    let y = Axis::linear(format!("perceived speed, {prefix}{unit}/s")).from(0.0).to(highest / scale * 1.08);
    let series = contenders.iter().filter_map(curve).collect();
    Chart::new(ground.name(), x, y, series).with_ideal("ideal", ideal.collect()).svg()
}

/// The perceived speed at an emulated frequency in GHz.
fn speed_of(cell: &CellResult, ground: &Ground, scale: f64) -> Point {
    let perceived = cell.perceived(ground).map(|rate| rate / scale);
    let point = Point::of_interval(cell.emulated.as_f64() / 1e9, &perceived);
    if cell.contender == NONE { point } else { point.judged(cell.finding.verdict) }
}

/// How much work in windows of a length varies, for each method that was looked at; `None` where none was.
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

#[cfg(test)]
mod tests {
    use super::super::testing::{cell, judged};
    use super::*;
    use crate::stats::{Interval, Verdict};

    fn off(share: f64, error: f64) -> CellResult {
        cell(share, &[share * (1.0 + error); 12], 0)
    }

    #[test]
    fn the_figure_of_errors_shows_the_speed_furthest_off() {
        let cells = [off(0.2, 0.3), off(0.4, 0.3), off(0.6, -0.23), off(0.8, -0.23)];
        let point = error_of(&judged(&cells), 1.0).unwrap();
        assert!((point.y - 30.0).abs() < 1e-6, "{point:?}");
        assert_eq!(point, point.judged(Verdict::Fail));
        assert!(
            error_of(&judged(&[cell(0.4, &[0.4; 12], 12)]), 1.0).is_none(),
            "disturbed pairs show nothing"
        );
    }

    #[test]
    fn a_speed_lies_at_the_frequency_that_was_asked_for() {
        let native = Interval { estimate: 1e9, low: 1e9, high: 1e9, level: 0.95 };
        let (workload, ideal) = ("cpu-loop".to_owned(), vec![]);
        let ground = Ground { workload, cores: 1, native, ideal, aa: None, arrays: None };
        for share in [0.25, 0.8] {
            let point = speed_of(&off(share, 0.0), &ground, 1e9);
            assert!((point.x - share).abs() < 1e-9 && (point.y - point.x).abs() < 1e-9, "{point:?}");
        }
    }
}

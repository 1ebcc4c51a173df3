//! Figures, as SVG: perceived speed over emulated frequency, and how smooth progress is.

use emu_core::{Error, ErrorKind, Result};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::results::{CellResult, Ground, Results};
use super::style::{self, Shape};
use crate::experiment::Contender;
use crate::stats::{Interval, Spread};
use crate::workload::workload;

const SIZE: (u32, u32) = (760, 400);

/// Width of the legend, right of the plot.
const LEGEND: u32 = 170;

/// Radius of a marker, in pixels.
const MARKER: i32 = 5;

const FONT: &str = "sans-serif";

/// By how much neighbouring methods are moved apart, as a share of the axis, so that none hides another.
const APART: f64 = 0.012;

/// One curve.
struct Curve {
    name: String,
    contender: Contender,
    points: Vec<(f64, Interval)>,
}

/// What a figure says.
struct Figure {
    title: String,
    x: Axis,
    y: Axis,
    curves: Vec<Curve>,
    /// The dashed line and its name.
    ideal: Option<(Vec<(f64, f64)>, &'static str)>,
}

struct Axis {
    name: String,
    end: f64,
    /// Labels at whole numbers; numbers where there are none.
    labels: Vec<String>,
}

/// Perceived speed over emulated frequency, for a workload on some CPUs.
///
/// # Errors
/// It cannot be drawn.
pub(super) fn of_ground(results: &Results, ground: &Ground) -> Result<String> {
    let cells = results.cells_of(ground);
    let highest = cells.iter().map(|cell| cell.perceived(ground).high).fold(ground.native.high, f64::max);
    let (scale, prefix) = style::prefix(highest);
    let unit = workload(&ground.workload).map_or("work", |workload| workload.unit());
    let reference = results.reference.as_f64() / 1e9;
    let contenders: Vec<_> = results.contenders();
    let curve = |contender: &Contender| {
        let of_it: Vec<_> = cells.iter().filter(|cell| cell.contender == *contender).collect();
        let place = contenders.iter().position(|one| one == contender).unwrap_or(0) as f64;
        let moved = (place - (contenders.len() - 1) as f64 / 2.0) * APART * reference;
        let point = |cell: &&&CellResult| {
            let perceived = cell.perceived(ground);
            (cell.emulated.as_f64() / 1e9 + moved, scaled(&perceived, scale))
        };
        let name = match contender {
            Contender::None => "native".to_owned(),
            method @ Contender::Method(..) => method.to_string(),
        };
        Curve { name, contender: *contender, points: of_it.iter().map(point).collect() }
    };
    let ideal =
        ground.ideal.iter().map(|(share, ratio)| (share * reference, ratio * ground.native.estimate / scale));
    draw(&Figure {
        title: ground.name(),
        x: Axis { name: "emulated CPU frequency, GHz".into(), end: reference * 1.05, labels: vec![] },
        y: Axis {
            name: format!("perceived speed, {prefix}{unit}/s"),
            end: highest / scale * 1.08,
            labels: vec![],
        },
        curves: contenders.iter().map(curve).filter(|curve| !curve.points.is_empty()).collect(),
        ideal: Some((ideal.collect(), "ideal")),
    })
}

/// How much work in windows of a length varies, for each method that was looked at; `None` where none was.
///
/// # Errors
/// It cannot be drawn.
pub(super) fn of_granularity(results: &Results) -> Result<Option<String>> {
    let mut labels: Vec<String> = Vec::new();
    let mut curves = Vec::new();
    for one in &results.smoothness {
        let windows = &one.spectrum.granularity.windows;
        labels = windows.iter().map(|window| format!("{} ms", window.length_ms)).collect();
        let points = windows.iter().enumerate().filter_map(|(place, window)| match window.spread {
            Spread::Cv(cv) => {
                let cv = cv * 100.0;
                Some(((place + 1) as f64, Interval { estimate: cv, low: cv, high: cv, level: 0.0 }))
            }
            _ => None,
        });
        let name = format!("{} {}", one.contender, style::percent(one.share));
        curves.push(Curve { name, contender: one.contender, points: points.collect() });
    }
    if curves.is_empty() {
        return Ok(None);
    }
    let highest = curves.iter().flat_map(|curve| &curve.points).map(|(_, cv)| cv.high).fold(10.0, f64::max);
    let end = labels.len() as f64 + 0.5;
    draw(&Figure {
        title: "granularity: how uneven progress is".into(),
        x: Axis { name: "length of the window".into(), end, labels },
        y: Axis { name: "variation of the work in a window, %".into(), end: highest * 1.08, labels: vec![] },
        curves,
        ideal: Some((vec![(0.0, 5.0), (end, 5.0)], "smooth below")),
    })
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

fn draw(figure: &Figure) -> Result<String> {
    let mut svg = String::new();
    drawn(figure, &mut svg).map_err(|cause| {
        Error::new(ErrorKind::Failed, format!("cannot draw the figure {}: {cause}", figure.title))
    })?;
    // For readers who do not see it, and at any width.
    let title = super::html::escape(&format!("{}: {} over {}", figure.title, figure.y.name, figure.x.name));
    Ok(svg.replacen("<svg ", "<svg role=\"img\" ", 1).replacen(
        ">\n",
        &format!(">\n<title>{title}</title>\n"),
        1,
    ))
}

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

fn drawn(figure: &Figure, svg: &mut String) -> Drawn {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (plot, legend) = root.split_horizontally(SIZE.0 - LEGEND);
    let mut chart = ChartBuilder::on(&plot)
        .caption(&figure.title, (FONT, 18))
        .margin(10)
        .x_label_area_size(45)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..figure.x.end, 0.0..figure.y.end)?;
    let label = |value: &f64| {
        if figure.x.labels.is_empty() {
            return number(*value);
        }
        let place = (value.fract().abs() < 1e-9).then_some(*value as usize);
        place.and_then(|place| figure.x.labels.get(place.checked_sub(1)?)).cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_labels(if figure.x.labels.is_empty() { 8 } else { figure.x.labels.len() + 1 })
        .y_labels(6)
        .x_label_formatter(&label)
        .y_label_formatter(&|value| number(*value))
        .x_desc(&figure.x.name)
        .y_desc(&figure.y.name)
        .axis_desc_style((FONT, 14))
        .label_style((FONT, 13))
        .draw()?;
    if let Some((line, _)) = &figure.ideal {
        chart.draw_series(DashedLineSeries::new(
            line.iter().copied(),
            7,
            5,
            RGBColor(90, 90, 90).stroke_width(2),
        ))?;
    }
    for curve in &figure.curves {
        let (colour, shape) = style::of(curve.contender);
        chart.draw_series(LineSeries::new(
            curve.points.iter().map(|(x, y)| (*x, y.estimate)),
            colour.mix(0.5).stroke_width(1),
        ))?;
        let bars = || curve.points.iter().filter(|(_, y)| y.high > y.low);
        let bar = colour.stroke_width(2);
        chart.draw_series(bars().map(|(x, y)| PathElement::new(vec![(*x, y.low), (*x, y.high)], bar)))?;
        let ends = bars().flat_map(|(x, y)| [(*x, y.low), (*x, y.high)]);
        chart.draw_series(
            ends.map(|end| EmptyElement::at(end) + PathElement::new(vec![(-4, 0), (5, 0)], bar)),
        )?;
        chart.draw_series(curve.points.iter().map(|(x, y)| {
            EmptyElement::at((*x, y.estimate)) + Polygon::new(outline(shape), colour.filled())
        }))?;
    }
    draw_legend(figure, &legend)?;
    root.present()?;
    Ok(())
}

fn draw_legend(figure: &Figure, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Drawn {
    let style = (FONT, 14).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
    let mut y = 50;
    if let Some((_, name)) = &figure.ideal {
        let grey = RGBColor(90, 90, 90).stroke_width(2);
        for x in [2, 14] {
            area.draw(&PathElement::new(vec![(x, y), (x + 8, y)], grey))?;
        }
        area.draw(&Text::new((*name).to_owned(), (32, y), style.clone()))?;
        y += 24;
    }
    for curve in &figure.curves {
        let (colour, shape) = style::of(curve.contender);
        area.draw(&(EmptyElement::at((12, y)) + Polygon::new(outline(shape), colour.filled())))?;
        area.draw(&Text::new(curve.name.clone(), (32, y), style.clone()))?;
        y += 24;
    }
    Ok(())
}

/// The outline of a marker, in pixels around its place.
fn outline(shape: Shape) -> Vec<(i32, i32)> {
    let r = MARKER;
    match shape {
        Shape::Disc => {
            let corner = |step: u32| {
                let (sin, cos) = (f64::from(step) * std::f64::consts::TAU / 24.0).sin_cos();
                ((cos * f64::from(r)).round() as i32, (sin * f64::from(r)).round() as i32)
            };
            (0..24).map(corner).collect()
        }
        Shape::Square => vec![(1 - r, 1 - r), (r - 1, 1 - r), (r - 1, r - 1), (1 - r, r - 1)],
        Shape::Triangle => vec![(0, -r - 1), (r, r - 1), (-r, r - 1)],
        Shape::Diamond => vec![(0, -r - 1), (r + 1, 0), (0, r + 1), (-r - 1, 0)],
        Shape::Wedge => vec![(0, r + 1), (r, 1 - r), (-r, 1 - r)],
    }
}

fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

//! A chart as SVG: series of points with intervals over two axes, told apart by colour and by shape. What lies beyond a
//! fixed end of the vertical axis is an arrow at the edge, with its value.

use std::ops::Range;

use emu_core::{Error, ErrorKind, Result};
use maud::html;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::marker::{Mark, Path, marker};
use super::series::{Kind, Point, Series};
use super::style::{self, Look, outline};
use crate::distinct;
use crate::numbers::significant;

const SIZE: (u32, u32) = (760, 400);

/// Width of the legend, right of the plot.
const LEGEND: u32 = 170;

/// Width left of the plot, of a letter of a name on its axis, and between two names.
const LEFT: u32 = 80;
const LETTER: u32 = 7;
const SPACE: u32 = 12;

/// Length and half the width of an arrowhead, in pixels.
const ARROW: (i32, i32) = (9, 5);

const FONT: &str = "sans-serif";

const GREY: RGBColor = RGBColor(90, 90, 90);

/// The opacity of a band.
const BAND: f64 = 0.15;

/// What a chart says.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// What it is about.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What was measured, in the order of the legend.
    pub series: Vec<Series>,
    /// A dashed line to compare with, such as the ideal, and its name.
    pub ideal: Option<(Vec<(f64, f64)>, String)>,
    /// Its width, in pixels: as much as the names on its axis need.
    width: u32,
    /// A shaded band from left to right: its ends on the vertical axis, and its name.
    pub band: Option<(Range<f64>, String)>,
}

impl Chart {
    /// A chart without an ideal.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Self { title: title.into(), width: width(&x), x, y, series, ideal: None, band: None }
    }

    /// With a dashed line to compare with.
    #[must_use]
    pub fn with_ideal(self, name: impl Into<String>, line: Vec<(f64, f64)>) -> Self {
        Self { ideal: Some((line, name.into())), ..self }
    }

    /// With a shaded band.
    #[must_use]
    pub fn with_band(self, name: impl Into<String>, band: Range<f64>) -> Self {
        Self { band: Some((band, name.into())), ..self }
    }

    /// The chart as SVG.
    pub fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        self.draw(&mut svg).map_err(|cause| {
            Error::new(ErrorKind::Failed, format!("cannot draw the figure {}: {cause}", self.title))
        })?;
        // For readers who do not see it, and at any width.
        let title = html! { title { (self.title) ": " (self.y.name) " over " (self.x.name) } }.into_string();
        let named = svg.replacen("<svg ", "<svg role=\"img\" ", 1);
        Ok(named.replacen(">\n", &format!(">\n{title}\n"), 1))
    }

    fn draw(&self, svg: &mut String) -> Drawn {
        let root = SVGBackend::with_string(svg, (self.width, SIZE.1)).into_drawing_area();
        root.fill(&WHITE)?;
        let (plot, legend) = root.split_horizontally(self.width - LEGEND);
        let ideal = || self.ideal.iter().flat_map(|(line, _)| line.iter().copied());
        let points = || self.series.iter().flat_map(|series| &series.points);
        let lines = || ideal().chain(self.series.iter().flat_map(|series| series.along.iter().copied()));
        let x = self.x.range(points().map(|point| point.x).chain(lines().map(|(x, _)| x)));
        let y = self.y.range(
            points().flat_map(|point| [point.y, point.low, point.high]).chain(lines().map(|(_, y)| y)),
        );
        match (self.x.is_log, self.y.is_log) {
            (false, false) => self.draw_plot(&plot, [&x, &y], x.clone(), y.clone()),
            (true, false) => self.draw_plot(&plot, [&x, &y], x.clone().log_scale(), y.clone()),
            (false, true) => self.draw_plot(&plot, [&x, &y], x.clone(), y.clone().log_scale()),
            (true, true) => self.draw_plot(&plot, [&x, &y], x.clone().log_scale(), y.clone().log_scale()),
        }?;
        self.draw_legend(&legend)?;
        root.present()?;
        Ok(())
    }

    fn draw_plot<X, Y>(&self, area: &Area<'_>, [across, up]: [&Range<f64>; 2], x: X, y: Y) -> Drawn
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 18))
            .margin(10)
            .x_label_area_size(45)
            .y_label_area_size(60)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(225, 225, 225))
            .x_labels(self.x.label_count(8))
            .y_labels(self.y.label_count(6))
            .x_label_formatter(&|value| self.x.label(*value, across))
            .y_label_formatter(&|value| self.y.label(*value, up))
            .x_desc(&self.x.name)
            .y_desc(&self.y.name)
            .axis_desc_style((FONT, 14))
            .label_style((FONT, 13))
            .draw()?;
        if let Some((Range { start, end }, _)) = &self.band {
            let corners = [(across.start, *start), (across.end, *end)];
            chart.draw_series([Rectangle::new(corners, GREY.mix(BAND).filled())])?;
        }
        if let Some((line, _)) = &self.ideal {
            chart.draw_series(DashedLineSeries::new(line.iter().copied(), 7, 5, GREY.stroke_width(2)))?;
        }
        for (series, look) in self.looks() {
            let colour = look.colour;
            let shown = |point: &&Point| self.x.shows(point.x) && self.y.shows(point.y);
            let points = || series.points.iter().filter(shown);
            let along = series.along.iter().copied().filter(|(x, y)| self.x.shows(*x) && self.y.shows(*y));
            chart.draw_series(LineSeries::new(along, colour.stroke_width(2)))?;
            if series.kind != Kind::Points {
                let style = match series.kind {
                    Kind::Line => colour.stroke_width(2),
                    _ => colour.mix(0.5).stroke_width(1),
                };
                chart.draw_series(LineSeries::new(points().map(|point| (point.x, point.y)), style))?;
            }
            let bars = || points().filter(|point| point.high > point.low && self.y.shows(point.low));
            let bar = colour.stroke_width(2);
            chart.draw_series(
                bars().map(|point| PathElement::new(vec![(point.x, point.low), (point.x, point.high)], bar)),
            )?;
            let ends = bars().flat_map(|point| [(point.x, point.low), (point.x, point.high)]);
            chart.draw_series(
                ends.filter(|end| beyond(end.1, up).is_none())
                    .map(|end| EmptyElement::at(end) + PathElement::new(vec![(-4, 0), (5, 0)], bar)),
            )?;
            if series.kind == Kind::Line {
                continue;
            }
            let points: Vec<_> = points().collect();
            draw_beyond(&mut chart, &points, look, up)?;
            draw_markers(&mut chart, &points, look, up)?;
        }
        Ok(())
    }

    fn draw_legend(&self, area: &Area<'_>) -> Drawn {
        let style = (FONT, 14).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Center));
        let mut y = 50;
        if let Some((_, name)) = &self.ideal {
            for x in [2, 14] {
                area.draw(&PathElement::new(vec![(x, y), (x + 8, y)], GREY.stroke_width(2)))?;
            }
            area.draw(&Text::new(name.clone(), (32, y), style.clone()))?;
            y += 24;
        }
        if let Some((_, name)) = &self.band {
            area.draw(&Rectangle::new([(2, y - 6), (22, y + 6)], GREY.mix(BAND).filled()))?;
            area.draw(&Text::new(name.clone(), (32, y), style.clone()))?;
            y += 24;
        }
        for (series, Look { colour, shape, radius }) in self.looks() {
            if series.kind == Kind::Line {
                area.draw(&PathElement::new(vec![(2, y), (22, y)], colour.stroke_width(2)))?;
            } else {
                let marker = Polygon::new(outline(shape, radius), colour.filled());
                area.draw(&(EmptyElement::at((12, y)) + marker))?;
            }
            area.draw(&Text::new(series.name.clone(), (32, y), style.clone()))?;
            y += 24;
        }
        let marks: Vec<_> =
            self.series.iter().flat_map(|series| &series.points).map(|one| one.mark).collect();
        for mark in Mark::EXPLAINED.into_iter().filter(|mark| marks.contains(mark)) {
            let (fill, strokes) = marker(Look { colour: GREY, ..style::look(0) }, mark);
            area.draw(&(EmptyElement::at((12, y)) + Polygon::new(fill.0, fill.1)))?;
            for (path, style) in strokes {
                area.draw(&(EmptyElement::at((12, y)) + PathElement::new(path, style)))?;
            }
            area.draw(&Text::new(mark.as_str(), (32, y), style.clone()))?;
            y += 24;
        }
        Ok(())
    }

    fn looks(&self) -> impl Iterator<Item = (&Series, Look)> {
        let look = |(place, series): (usize, &Series)| series.look.unwrap_or_else(|| style::look(place));
        self.series.iter().enumerate().map(move |numbered| (numbered.1, look(numbered)))
    }
}

fn width(x: &Axis) -> u32 {
    let letters = |label: &String| label.chars().count() as u32;
    let neighbours = x.labels.iter().zip(x.labels.iter().skip(1).chain(x.labels.last()));
    // Each name has its middle at its place: half of it and half of the next one lie between two places.
    let apart = neighbours.map(|(one, next)| (letters(one) + letters(next)) * LETTER / 2 + SPACE).max();
    let names = x.labels.len() as u32 * apart.unwrap_or(0);
    SIZE.0.max(names + LEFT + LEGEND)
}

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Axes that can be drawn on.
type Plot<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;

/// Arrows at the edge for what lies beyond it, with the values of points.
fn draw_beyond<X, Y>(plot: &mut Plot<'_, '_, X, Y>, points: &[&Point], look: Look, up: &Range<f64>) -> Drawn
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    let arrows = points.iter().flat_map(|point| {
        let edges = [point.low, point.y, point.high].into_iter().filter_map(|value| beyond(value, up));
        distinct(edges).into_iter().map(|edge| (point.x, edge))
    });
    plot.draw_series(arrows.map(|(x, Edge { at, inwards })| {
        let (length, half) = ARROW;
        let head = vec![(0, 0), (half, length * inwards), (-half, length * inwards)];
        EmptyElement::at((x, at)) + Polygon::new(head, look.colour.filled())
    }))?;
    let values = points.iter().filter_map(|point| Some((point, beyond(point.y, up)?)));
    plot.draw_series(values.map(|(point, Edge { at, inwards })| {
        let anchor = if inwards > 0 { HPos::Right } else { HPos::Left };
        // Upright, as neighbours are nearer than a number is wide.
        let font = (FONT, 12).into_font().transform(FontTransform::Rotate270).color(&BLACK);
        let below = (ARROW.0 + 2 * look.radius + 6) * inwards;
        EmptyElement::at((point.x, at))
            + Text::new(significant(point.y), (0, below), font.pos(Pos::new(anchor, VPos::Center)))
    }))?;
    Ok(())
}

/// The markers; of a point beyond the edge, behind its arrow.
fn draw_markers<X, Y>(plot: &mut Plot<'_, '_, X, Y>, points: &[&Point], look: Look, up: &Range<f64>) -> Drawn
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    for point in points {
        let (y, down) = beyond(point.y, up)
            .map_or((point.y, 0), |edge| (edge.at, (ARROW.0 + look.radius) * edge.inwards));
        let moved = |(path, style): Path| {
            (path.into_iter().map(|(right, below)| (right, below + down)).collect::<Vec<_>>(), style)
        };
        let (fill, strokes) = marker(look, point.mark);
        let (fill, style) = moved(fill);
        plot.draw_series([EmptyElement::at((point.x, y)) + Polygon::new(fill, style)])?;
        plot.draw_series(strokes.into_iter().map(|stroke| {
            let (path, style) = moved(stroke);
            EmptyElement::at((point.x, y)) + PathElement::new(path, style)
        }))?;
    }
    Ok(())
}

/// An end of the vertical axis, and the direction towards the middle: 1 is down, as pixels are counted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Edge {
    at: f64,
    inwards: i32,
}

/// The end of the axis that a value lies beyond.
fn beyond(value: f64, axis: &Range<f64>) -> Option<Edge> {
    match value {
        value if value > axis.end => Some(Edge { at: axis.end, inwards: 1 }),
        value if value < axis.start => Some(Edge { at: axis.start, inwards: -1 }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Verdict;

    #[test]
    fn a_chart_is_as_wide_as_neighbouring_names_need() {
        let width = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            width(&Axis::of_names("", names))
        };
        assert_eq!(width(&["a"; 5]), SIZE.0);
        assert!(width(&["a long name", "b"].repeat(6)) < width(&["a long name"; 12]));
    }

    #[test]
    fn every_kind_of_series_is_drawn_on_every_kind_of_axis() {
        let points =
            vec![Point::new(1.0, 2.0), Point::between(10.0, 20.0, 15.0, 30.0), Point::new(-1.0, 0.0)];
        for (x, y) in [(false, false), (true, false), (false, true), (true, true)] {
            let axis = |is_log| if is_log { Axis::log("<a> & b") } else { Axis::linear("<a> & b") };
            let series = [
                Series::curve("c", points.clone()),
                Series::points("p", points.clone()).along(vec![(-1.0, 0.0), (10.0, 25.0)]),
                Series::line("l", points.clone()),
            ];
            let chart = Chart::new("t", axis(x), axis(y), series.to_vec())
                .with_ideal("i", vec![(1.0, 1.0), (10.0, 10.0)])
                .with_band("b", 2.0..3.0);
            let svg = chart.svg().unwrap();
            assert!(svg.contains("<title>t: &lt;a&gt; &amp; b over &lt;a&gt; &amp; b</title>"), "{svg}");
            for name in ["b", "c", "p", "l", "i"] {
                assert!(svg.contains(&format!(">\n{name}\n</text>")), "{name}: {svg}");
            }
            // Two series with markers, each once more in the legend; the point below 0 has no place on a logarithm.
            let markers = if x || y { 2 * 2 + 2 } else { 2 * 3 + 2 };
            assert_eq!(svg.matches("<polygon").count(), markers, "{svg}");
        }
    }

    /// A chart of a single point on a vertical axis from -30 to 30.
    fn svg_of(point: Point) -> String {
        let y = Axis::linear("y").from(-30.0).to(30.0);
        Chart::new("t", Axis::linear("x").to(2.0), y, vec![Series::points("p", vec![point])]).svg().unwrap()
    }

    #[test]
    fn what_lies_beyond_the_axis_is_an_arrow_with_its_value() {
        for (y, value) in [(-35.0, "-35"), (-100.0, "-100"), (42.0, "42")] {
            let svg = svg_of(Point::new(1.0, y));
            assert!(svg.contains(&format!(">\n{value}\n</text>")), "{y}: {svg}");
            assert_eq!(svg.matches("<polygon").count(), 3, "the marker, its arrow and the legend: {svg}");
        }
        let inside = svg_of(Point::new(1.0, 29.0));
        assert_eq!(inside.matches("<polygon").count(), 2, "{inside}");
        let bar = svg_of(Point::between(1.0, 20.0, 10.0, 99.0));
        assert!(
            bar.matches("<polygon").count() == 3 && !bar.contains("\n99\n"),
            "its bar has an arrow: {bar}"
        );
    }

    #[test]
    fn each_verdict_has_a_mark_of_its_own() {
        let untold = Verdict::NotEnoughData { pairs_needed: None };
        let [passes, fails, open] = [Verdict::Pass, Verdict::Fail, untold].map(|verdict| {
            let svg = svg_of(Point::new(1.0, 0.0).judged(verdict));
            let lines = svg.matches("<polyline").count() + svg.matches("<line").count();
            (lines, svg.contains("\nfails\n"), svg.contains("\nnot decided\n"))
        });
        assert_eq!((passes.1, passes.2), (false, false));
        // Two strokes or an outline, and again in the legend.
        assert_eq!(fails, (passes.0 + 4, true, false));
        assert_eq!(open, (passes.0 + 2, false, true));
    }
}

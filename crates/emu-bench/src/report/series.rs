//! What a chart shows: series of points, with bars and with marks of what they decide.

use super::marker::Mark;
use super::style::Look;
use crate::stats::{Interval, Verdict};

/// What belongs together in a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    pub(super) points: Vec<Point>,
    pub(super) kind: Kind,
    pub(super) look: Option<Look>,
    pub(super) along: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Curve,
    Points,
    /// Without markers: for more points than they have room.
    Line,
}

impl Series {
    /// Markers joined by a faint line, in the order given.
    pub fn curve(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { name: name.into(), points, kind: Kind::Curve, look: None, along: vec![] }
    }

    /// Markers that nothing joins. Each is an element of the SVG: give some thousand at most.
    pub fn points(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { kind: Kind::Points, ..Self::curve(name, points) }
    }

    /// A line without markers.
    pub fn line(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { kind: Kind::Line, ..Self::curve(name, points) }
    }

    /// With a line through them, such as a fit, in the same colour.
    #[must_use]
    pub fn along(self, line: Vec<(f64, f64)>) -> Self {
        Self { along: line, ..self }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    #[must_use]
    pub(super) fn looking(self, look: Look) -> Self {
        Self { look: Some(look), ..self }
    }
}

/// A point of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Its place on the horizontal axis.
    pub x: f64,
    /// Its place on the vertical axis.
    pub y: f64,
    /// The lower end of a bar through it; where it is not below the upper one there is no bar.
    pub low: f64,
    /// The upper end of the bar.
    pub high: f64,
    pub(super) mark: Mark,
}

impl Point {
    /// A point without a bar.
    pub fn new(x: f64, y: f64) -> Self {
        Self::between(x, y, y, y)
    }

    /// A point with a bar.
    pub fn between(x: f64, y: f64, low: f64, high: f64) -> Self {
        Self { x, y, low, high, mark: Mark::Plain }
    }

    /// An estimate with the bar of its interval.
    pub fn of_interval(x: f64, interval: &Interval) -> Self {
        Self::between(x, interval.estimate, interval.low, interval.high)
    }

    /// Lower by so much, with its bar.
    #[must_use]
    pub fn less(self, by: f64) -> Self {
        Self { y: self.y - by, low: self.low - by, high: self.high - by, ..self }
    }

    /// Hollow, where it decides nothing.
    #[must_use]
    pub fn open(self, is_open: bool) -> Self {
        Self { mark: if is_open { Mark::Open } else { Mark::Plain }, ..self }
    }

    /// As its verdict is: filled where it passes, crossed out where it fails, and hollow where there is none.
    #[must_use]
    pub fn judged(self, verdict: Verdict) -> Self {
        Self { mark: Mark::of(verdict), ..self }
    }
}

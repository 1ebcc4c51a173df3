//! Markers of points, and how a verdict shows in them.

use plotters::style::{BLACK, Color, ShapeStyle, WHITE};

use super::style::{Look, outline};
use crate::stats::Verdict;

/// What a marker says beside its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mark {
    /// Nothing; of a verdict, that it passes.
    #[default]
    Plain,
    /// It decides nothing: hollow.
    Open,
    /// There is no verdict: hollow, and in the legend.
    Undecided,
    /// It fails: crossed out.
    Fails,
}

impl Mark {
    /// Those that a legend explains.
    pub(super) const EXPLAINED: [Self; 2] = [Self::Undecided, Self::Fails];

    pub(super) fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Pass => Self::Plain,
            Verdict::Fail => Self::Fails,
            Verdict::NotEnoughData { .. } => Self::Undecided,
        }
    }

    pub(super) fn is_hollow(self) -> bool {
        matches!(self, Self::Open | Self::Undecided)
    }

    /// What it says, in words.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "passes",
            Self::Open => "decides nothing",
            Self::Undecided => "not decided",
            Self::Fails => "fails",
        }
    }
}

/// The strokes that cross out a marker of this radius.
fn cross(radius: i32) -> [Vec<(i32, i32)>; 2] {
    let reach = radius + 3;
    [vec![(-reach, -reach), (reach, reach)], vec![(-reach, reach), (reach, -reach)]]
}

/// A path in pixels around a place, and how it is drawn.
pub(super) type Path = (Vec<(i32, i32)>, ShapeStyle);

/// A marker: what is filled, and the strokes over it.
pub(super) fn marker(Look { colour, shape, radius }: Look, mark: Mark) -> (Path, Vec<Path>) {
    let body = outline(shape, radius);
    let fill = if mark.is_hollow() { WHITE } else { colour };
    let mut strokes = Vec::new();
    if mark.is_hollow() {
        let closed = body.iter().chain(body.first()).copied().collect();
        strokes.push((closed, colour.stroke_width(2)));
    }
    if mark == Mark::Fails {
        strokes.extend(cross(radius).map(|stroke| (stroke, BLACK.stroke_width(2))));
    }
    ((body, fill.filled()), strokes)
}

//! Markers of points: their shapes, and how a verdict shows in them.

use plotters::style::{BLACK, Color, ShapeStyle, WHITE};

use super::style::Look;
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

/// How many shapes there are: one for each contender.
pub(super) const SHAPES: usize = 13;

/// The outline of a marker of this shape and radius, in pixels around its place.
pub(super) fn outline(shape: usize, radius: i32) -> Vec<(i32, i32)> {
    let turned = |corners: u32, radius: &dyn Fn(u32) -> f64| -> Vec<(i32, i32)> {
        let corner = |step: u32| {
            let (sin, cos) = (f64::from(step) * std::f64::consts::TAU / f64::from(corners)).sin_cos();
            ((sin * radius(step)).round() as i32, (-cos * radius(step)).round() as i32)
        };
        (0..corners).map(corner).collect()
    };
    // Shapes with sharp ends need more room to be as heavy as the others.
    let (r, far, near, thin) = (radius, radius + 1, radius - 1, radius / 3 + 1);
    let mut arm = [(-thin, -far), (thin, -far), (thin, -thin)];
    let mut plus = Vec::new();
    for _ in 0..4 {
        plus.extend(arm);
        arm = arm.map(|(x, y)| (-y, x));
    }
    // In turn disc, square, triangle, diamond, wedge, plus, star, left, right, hourglass, bow, bar and plank.
    let all: [_; SHAPES] = [
        turned(24, &|_| f64::from(r)),
        vec![(-near, -near), (near, -near), (near, near), (-near, near)],
        vec![(0, -far), (r, near), (-r, near)],
        vec![(0, -far), (far, 0), (0, far), (-far, 0)],
        vec![(0, far), (r, -near), (-r, -near)],
        plus,
        turned(10, &|step| f64::from(far) * if step % 2 == 0 { 1.2 } else { 0.5 }),
        vec![(-far, 0), (near, -r), (near, r)],
        vec![(far, 0), (-near, -r), (-near, r)],
        vec![(-r, -r), (r, -r), (-r, r), (r, r)],
        vec![(-r, -r), (r, r), (r, -r), (-r, r)],
        vec![(-thin, -far), (thin, -far), (thin, far), (-thin, far)],
        vec![(-far, -thin), (far, -thin), (far, thin), (-far, thin)],
    ];
    all.into_iter().nth(shape).unwrap_or_default()
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

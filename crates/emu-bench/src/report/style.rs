//! How methods look in figures: told apart by shape as well as by colour.

use plotters::style::RGBColor;

use emu_core::MethodId;

use crate::experiment::{NONE, methods};

/// The palette of Okabe and Ito (*Color universal design*, 2008), without its yellow, which is too faint on white.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// Radius of a marker, in pixels; and of the smallest and the largest where several lie upon each other.
const MARKER: i32 = 5;
const NESTED: (i32, i32) = (3, 9);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) colour: RGBColor,
    /// Which [outline] its markers have.
    pub(super) shape: usize,
    /// Radius of its markers, in pixels.
    pub(super) radius: i32,
}

impl Look {
    /// As one of some that lie upon each other, the first lowest: each is smaller than the one below it.
    pub(super) fn nested(self, place: usize, of: usize) -> Self {
        let (least, most) = NESTED;
        let step = f64::from(most - least) / of.saturating_sub(1).max(1) as f64;
        let radius = if of > 1 { most - (step.min(2.0) * place as f64).round() as i32 } else { MARKER };
        Self { radius, ..self }
    }
}

/// The same in every figure of every report.
pub(super) fn of(contender: MethodId) -> Look {
    let look = look(methods::all().iter().position(|one| *one == contender).unwrap_or(0));
    if contender == NONE { Look { colour: RGBColor(120, 120, 120), ..look } } else { look }
}

/// The look of a place in a list, the first being 0; 91 of them are different.
pub(super) fn look(place: usize) -> Look {
    let colour = COLOURS.get(place % COLOURS.len()).copied().unwrap_or(RGBColor(0, 0, 0));
    Look { colour, shape: place % SHAPES, radius: MARKER }
}

/// How many shapes there are: one for each contender.
const SHAPES: usize = 13;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_contenders_have_one_shape() {
        let shapes: Vec<_> = methods::all().into_iter().map(|one| of(one).shape).collect();
        let outlines: Vec<_> = shapes.iter().map(|shape| outline(*shape, MARKER)).collect();
        for index in 0..shapes.len() {
            assert!(!shapes[..index].contains(&shapes[index]), "{:?}", methods::all()[index]);
            assert!(!outlines[..index].contains(&outlines[index]), "{:?}", shapes[index]);
        }
    }

    #[test]
    fn of_markers_upon_each_other_every_one_is_seen() {
        for count in 1..=7 {
            let radii: Vec<_> = (0..count).map(|place| look(0).nested(place, count).radius).collect();
            assert!(radii.is_sorted_by(|lower, upper| lower > upper), "{radii:?}");
        }
    }
}

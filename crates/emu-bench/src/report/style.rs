//! How methods look in figures: told apart by shape as well as by colour.

use plotters::style::RGBColor;

use emu_core::MethodId;

use super::marker::SHAPES;
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
    /// Which [outline](super::marker::outline) its markers have.
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

#[cfg(test)]
mod tests {
    use super::super::marker::outline;
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

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Disc,
    Square,
    Triangle,
    Diamond,
    Wedge,
}

const SHAPES: [Shape; 5] = [Shape::Disc, Shape::Square, Shape::Triangle, Shape::Diamond, Shape::Wedge];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) colour: RGBColor,
    pub(super) shape: Shape,
}

/// The same in every figure of every report.
pub(super) fn of(contender: MethodId) -> Look {
    if contender == NONE {
        return Look { colour: RGBColor(120, 120, 120), shape: Shape::Disc };
    }
    look(methods::all().iter().position(|one| *one == contender).unwrap_or(0))
}

/// The first place is 0; 35 looks are different.
pub(super) fn look(place: usize) -> Look {
    let pick = |count: usize| place % count;
    let colour = COLOURS.get(pick(COLOURS.len())).copied().unwrap_or(RGBColor(0, 0, 0));
    Look { colour, shape: SHAPES.get(pick(SHAPES.len())).copied().unwrap_or(Shape::Disc) }
}

pub(super) fn prefix(largest: f64) -> (f64, &'static str) {
    [(1e9, "G"), (1e6, "M"), (1e3, "k")].into_iter().find(|(scale, _)| largest >= *scale).unwrap_or((1.0, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_contenders_look_alike() {
        let looks: Vec<_> = methods::all().into_iter().map(of).collect();
        for (index, look) in looks.iter().enumerate() {
            assert!(!looks[..index].contains(look), "{:?}", methods::all()[index]);
        }
    }
}

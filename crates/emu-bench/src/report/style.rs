//! How methods and verdicts look: told apart by shape and words as well as by colour.

use plotters::style::RGBColor;

use emu_core::MethodId;

use crate::experiment::{NONE, methods};
use crate::stats::Verdict;

/// The palette of Okabe and Ito, made to be told apart whatever colours somebody sees (*Color universal design*,
/// 2008), without its yellow, which is too faint on white.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// The shape of a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Disc,
    Square,
    Triangle,
    Diamond,
    Wedge,
}

const SHAPES: [Shape; 5] = [Shape::Disc, Shape::Square, Shape::Triangle, Shape::Diamond, Shape::Wedge];

/// How a series is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) colour: RGBColor,
    pub(super) shape: Shape,
}

/// The look of a method: the same in every figure of every report.
pub(super) fn of(contender: MethodId) -> Look {
    if contender == NONE {
        return Look { colour: RGBColor(120, 120, 120), shape: Shape::Disc };
    }
    look(methods::all().iter().position(|one| *one == contender).unwrap_or(0))
}

/// The look of a place in a list, the first being 0; 35 of them are different.
pub(super) fn look(place: usize) -> Look {
    let pick = |count: usize| place % count;
    let colour = COLOURS.get(pick(COLOURS.len())).copied().unwrap_or(RGBColor(0, 0, 0));
    Look { colour, shape: SHAPES.get(pick(SHAPES.len())).copied().unwrap_or(Shape::Disc) }
}

/// A verdict in words.
pub(super) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::NotEnoughData { .. } => "not enough data",
    }
}

/// A share as percentage with its sign: `+0.4%`, `−12%`.
pub(super) fn signed(share: f64) -> String {
    let value = share * 100.0;
    let text = if value.abs() < 9.95 { format!("{value:+.1}%") } else { format!("{value:+.0}%") };
    text.replace('-', "−")
}

/// A share as percentage: `40%`, `3.5%`.
pub(super) fn percent(share: f64) -> String {
    let value = share * 100.0;
    let text = if value.abs() < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") };
    format!("{}%", text.strip_suffix(".0").unwrap_or(&text))
}

/// How far the worst speed is off, either way: `3.5%`, and beyond a half a factor, `2.0-fold`.
pub(super) fn off(worst: f64) -> String {
    if worst <= 0.5 { percent(worst) } else { format!("{:.1}-fold", 1.0 + worst) }
}

/// A number per second with its prefix: `3.1 G`.
pub(super) fn prefix(largest: f64) -> (f64, &'static str) {
    [(1e9, "G"), (1e6, "M"), (1e3, "k")].into_iter().find(|(scale, _)| largest >= *scale).unwrap_or((1.0, ""))
}

/// A span in the unit that suits it.
pub(super) fn span(nanos: f64) -> String {
    let (value, unit) = match nanos {
        n if n >= 1e9 => (n / 1e9, "s"),
        n if n >= 1e6 => (n / 1e6, "ms"),
        n if n >= 1e3 => (n / 1e3, "µs"),
        n => (n, "ns"),
    };
    let decimals = if value >= 99.5 { 0 } else { usize::from(value < 9.95) + usize::from(value < 99.5) - 1 };
    format!("{value:.decimals$} {unit}")
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

    #[test]
    fn numbers_are_short_and_have_their_sign() {
        assert_eq!([0.004, -0.5, 0.0].map(signed), ["+0.4%", "−50%", "+0.0%"]);
        assert_eq!([0.4, 0.035, 1.0].map(percent), ["40%", "3.5%", "100%"]);
        assert_eq!([31.0, 1500.0, 2.5e7, 3.2e9].map(span), ["31 ns", "1.5 µs", "25 ms", "3.2 s"]);
        assert_eq!(prefix(2e9).1, "G");
    }
}

//! An axis of a chart: its ends, and what is written at it.

use std::ops::Range;

/// A free end of an axis is this share of the range away from the outermost point.
const ROOM: f64 = 0.08;

/// What is this share of the range away from 0 is 0 on a linear axis.
const ROUNDING: f64 = 1e-9;

/// An axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    pub(super) name: String,
    pub(super) is_log: bool,
    from: Option<f64>,
    to: Option<f64>,
    pub(super) labels: Vec<String>,
}

impl Axis {
    /// A linear axis from 0, or from below the lowest point where one is negative, to above the highest point.
    pub fn linear(name: impl Into<String>) -> Self {
        Self { name: name.into(), is_log: false, from: None, to: None, labels: vec![] }
    }

    /// A logarithmic axis over whole decades. What is not above 0 is not drawn.
    pub fn log(name: impl Into<String>) -> Self {
        Self { is_log: true, ..Self::linear(name) }
    }

    /// An axis of things instead of numbers: the first is at 1, the next at 2.
    pub fn of_names(name: impl Into<String>, labels: Vec<String>) -> Self {
        let to = labels.len() as f64 + 0.5;
        Self { labels, ..Self::linear(name) }.to(to)
    }

    /// Begins here.
    #[must_use]
    pub fn from(self, from: f64) -> Self {
        Self { from: Some(from), ..self }
    }

    /// Ends here.
    #[must_use]
    pub fn to(self, to: f64) -> Self {
        Self { to: Some(to), ..self }
    }

    pub(super) fn shows(&self, value: f64) -> bool {
        value.is_finite() && (!self.is_log || value > 0.0)
    }

    pub(super) fn range(&self, values: impl Iterator<Item = f64>) -> Range<f64> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| self.shows(*value)) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = if self.is_log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        let (free_low, free_high) = if self.is_log {
            let (low, high) = (low.log10().floor(), high.log10().ceil());
            (10f64.powf(low), 10f64.powf(high.max(low + 1.0)))
        } else {
            let reach = high.max(0.0) - low.min(0.0);
            let reach = if reach > 0.0 { reach } else { 1.0 };
            let room = |end: f64| if end == 0.0 { 0.0 } else { reach * ROOM };
            (low.min(0.0) - room(low.min(0.0)), high.max(0.0) + room(high.max(0.0)))
        };
        let from = self.from.unwrap_or(free_low);
        let to = self.to.unwrap_or(free_high);
        from..if to > from { to } else { from + 1.0 }
    }

    /// What is written at a value, on an axis of this range.
    pub(super) fn label(&self, value: f64, range: &Range<f64>) -> String {
        if self.labels.is_empty() {
            // Steps from an end to 0 leave a rounding error there.
            let is_zero = !self.is_log && value.abs() < ROUNDING * (range.end - range.start);
            return number(if is_zero { 0.0 } else { value });
        }
        let place = (value.fract().abs() < 1e-9).then_some(value as usize);
        place.and_then(|place| self.labels.get(place.checked_sub(1)?)).cloned().unwrap_or_default()
    }

    pub(super) fn label_count(&self, usual: usize) -> usize {
        if self.labels.is_empty() { usual } else { self.labels.len() + 1 }
    }
}

/// Short: `0.25`, `20k`, `3µ`.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    let (scale, prefix) = match magnitude {
        m if m == 0.0 || (0.01..10_000.0).contains(&m) => (1.0, ""),
        m if m >= 1e9 => (1e9, "G"),
        m if m >= 1e6 => (1e6, "M"),
        m if m >= 1e4 => (1e3, "k"),
        m if m >= 1e-3 => (1e-3, "m"),
        m if m >= 1e-6 => (1e-6, "µ"),
        _ => (1e-9, "n"),
    };
    let text = format!("{:.2}", value / scale);
    format!("{}{prefix}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ends_leave_room_for_every_point() {
        let range = |axis: Axis, values: &[f64]| {
            let range = axis.range(values.iter().copied());
            (range.start, range.end)
        };
        assert_eq!(range(Axis::linear(""), &[1.0, 10.0]), (0.0, 10.8));
        assert_eq!(range(Axis::linear(""), &[-10.0, f64::NAN]), (-10.8, 0.0));
        assert_eq!(range(Axis::linear("").from(2.0).to(3.0), &[5.0]), (2.0, 3.0));
        assert_eq!(range(Axis::linear(""), &[]), (0.0, 1.08));
        assert_eq!(range(Axis::linear(""), &[0.0]), (0.0, 1.0));
        assert_eq!(range(Axis::log(""), &[0.0, 20.0, 3000.0]), (10.0, 10_000.0));
        assert_eq!(range(Axis::log(""), &[100.0]), (100.0, 1000.0));
        assert_eq!(range(Axis::of_names("", vec!["a".into(), "b".into()]), &[1.0]), (0.0, 2.5));
    }

    #[test]
    fn a_rounding_error_beside_zero_is_zero() {
        let label = |axis: Axis, value: f64, end: f64| axis.label(value, &(-end..end));
        for end in [0.5, 20.0, 1e9] {
            assert_eq!(label(Axis::linear(""), -1e-16 * end, end), "0");
        }
        assert_eq!(label(Axis::linear(""), -2e-9, 1e-8), "-2n");
        assert_eq!(label(Axis::log(""), 1.0, 1e12), "1");
    }

    #[test]
    fn labels_are_short() {
        let numbers = [0.0, 0.25, -3.0, 1000.0, 20_000.0, 1e6, 2.5e9, 0.002, -4e-6, 3e-9];
        let labels = ["0", "0.25", "-3", "1000", "20k", "1M", "2.5G", "2m", "-4µ", "3n"];
        assert_eq!(numbers.map(number), labels);
        let axis = Axis::of_names("", vec!["a".into(), "b".into()]);
        assert_eq!(
            [0.0, 1.0, 1.5, 2.0, 3.0].map(|place| axis.label(place, &(0.0..3.0))),
            ["", "a", "", "b", ""]
        );
    }
}

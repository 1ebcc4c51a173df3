//! What a column holds, and how its values are written for people.

use super::value::Value;
use crate::numbers::{nanos, percent, signed, significant};

/// One column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub(super) name: String,
    kind: Kind,
    /// Whether a value has the ends of an interval, which are fields of their own in CSV.
    pub(super) has_ends: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Verdict,
    Number,
    Fixed(usize),
    Percent,
    Change,
    Time,
}

impl Column {
    fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self { name: name.into(), kind, has_ends: false }
    }

    /// Words, on the left. They are wrapped where the table is too wide.
    pub fn text(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Text)
    }

    /// Verdicts, on the left.
    pub fn verdict(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Verdict)
    }

    /// Numbers, on the right: whole ones as they are, others with three significant digits. Words stand as they are.
    pub fn number(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Number)
    }

    /// Numbers with so many decimals.
    pub fn fixed(name: impl Into<String>, decimals: usize) -> Self {
        Self::new(name, Kind::Fixed(decimals))
    }

    /// Shares, written in percent: `39.6%`.
    pub fn percent(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Percent)
    }

    /// Differences as shares, written in percent with a sign: `-1.9%`.
    pub fn change(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Change)
    }

    /// Times in nanoseconds, in the unit that suits each: `6.13ms`.
    pub fn time(name: impl Into<String>) -> Self {
        Self::new(name, Kind::Time)
    }

    /// The same with intervals: `1.02 (0.98 to 1.05)`. In CSV `NAME`, `NAME_low` and `NAME_high`.
    #[must_use]
    pub fn with_interval(self) -> Self {
        Self { has_ends: true, ..self }
    }

    pub(super) fn is_text(&self) -> bool {
        self.kind == Kind::Text
    }

    pub(super) fn is_number(&self) -> bool {
        !matches!(self.kind, Kind::Text | Kind::Verdict)
    }

    /// Of a verdict, only the mark and the error.
    pub(super) fn draw(&self, value: &Value) -> String {
        match value {
            Value::Missing => "-".to_owned(),
            Value::Text(text) => text.clone(),
            Value::Verdict(judgement) => judgement.short(),
            Value::Whole(whole) => match self.kind {
                Kind::Text | Kind::Verdict | Kind::Number | Kind::Fixed(_) => whole.to_string(),
                _ => self.number_text(*whole as f64),
            },
            Value::Number(number) => self.number_text(*number),
            Value::Interval { estimate, low, high } => {
                let [estimate, low, high] = [estimate, low, high].map(|end| self.number_text(*end));
                format!("{estimate} ({})", crate::numbers::range(&low, &high))
            }
        }
    }

    fn number_text(&self, number: f64) -> String {
        match self.kind {
            Kind::Text | Kind::Verdict | Kind::Number => significant(number),
            Kind::Fixed(decimals) => format!("{number:.decimals$}"),
            Kind::Percent => percent(number),
            Kind::Change => signed(number),
            Kind::Time => nanos(number),
        }
    }
}

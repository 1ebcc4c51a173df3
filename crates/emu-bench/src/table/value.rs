//! What stands in a cell.

use std::time::Duration;

use emu_core::MethodId;

use crate::numbers::signed;
use crate::stats::{Interval, Verdict};

/// One cell, as it was measured. Most are made by `into`.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Not known: `-`, and in CSV an empty field.
    Missing,
    /// Words; also instead of a number: `n/a`.
    Text(String),
    /// A count, or a time in nanoseconds.
    Whole(u64),
    /// Any number.
    Number(f64),
    /// An estimate with the ends of its interval.
    Interval {
        /// The estimate.
        estimate: f64,
        /// The lower end.
        low: f64,
        /// The upper end.
        high: f64,
    },
    /// A verdict.
    Verdict(Judgement),
}

/// A verdict, the error that was found, and what else is to be said of it where there is room.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Instead of the verdict's own word.
    pub word: Option<&'static str>,
    /// The error, as a share.
    pub error: Option<f64>,
    /// In documents only.
    pub remarks: Vec<String>,
}

impl Judgement {
    /// `+0.4% pass`, `-7.3% FAIL`, `?`: a failure is seen at once; of what is undecided a table says why below.
    pub(super) fn short(&self) -> String {
        self.with_error(match (self.word, self.verdict) {
            (Some(word), _) => word,
            (None, Verdict::Pass) => "pass",
            (None, Verdict::Fail) => "FAIL",
            (None, Verdict::NotEnoughData { .. }) => "?",
        })
    }

    /// `+0.4% not enough data`.
    pub(super) fn in_words(&self) -> String {
        self.with_error(self.word())
    }

    pub(super) fn word(&self) -> &'static str {
        self.word.unwrap_or_else(|| self.verdict.as_str())
    }

    fn with_error(&self, word: &str) -> String {
        self.error.map_or_else(|| word.to_owned(), |error| format!("{} {word}", signed(error)))
    }
}

impl From<Verdict> for Value {
    fn from(verdict: Verdict) -> Self {
        Judgement { verdict, word: None, error: None, remarks: vec![] }.into()
    }
}

impl From<Judgement> for Value {
    fn from(judgement: Judgement) -> Self {
        Self::Verdict(judgement)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<MethodId> for Value {
    fn from(method: MethodId) -> Self {
        Self::Text(method.to_string())
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Self {
        Self::Text(is.to_string())
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Value {
    fn from(whole: u64) -> Self {
        Self::Whole(whole)
    }
}

impl From<u32> for Value {
    fn from(whole: u32) -> Self {
        Self::Whole(whole.into())
    }
}

impl From<u8> for Value {
    fn from(whole: u8) -> Self {
        Self::Whole(whole.into())
    }
}

impl From<usize> for Value {
    fn from(whole: usize) -> Self {
        Self::Whole(whole as u64)
    }
}

/// In nanoseconds.
impl From<Duration> for Value {
    fn from(span: Duration) -> Self {
        Self::Whole(crate::nanos(span))
    }
}

impl From<&Interval> for Value {
    fn from(of: &Interval) -> Self {
        Self::Interval { estimate: of.estimate, low: of.low, high: of.high }
    }
}

impl From<Interval> for Value {
    fn from(of: Interval) -> Self {
        Self::from(&of)
    }
}

impl From<(f64, f64, f64)> for Value {
    fn from((estimate, low, high): (f64, f64, f64)) -> Self {
        Self::Interval { estimate, low, high }
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Missing, Into::into)
    }
}

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

impl From<Verdict> for Judgement {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, word: None, error: None, remarks: vec![] }
    }
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

/// What a cell is made from, and which value that becomes.
macro_rules! becomes {
    ($($given:pat, $of:ty => $value:expr;)*) => {
        $(impl From<$of> for Value {
            fn from($given: $of) -> Self {
                $value
            }
        })*
    };
}

becomes! {
    text, &str => Self::Text(text.to_owned());
    text, String => Self::Text(text);
    text, &String => Self::Text(text.clone());
    method, MethodId => Self::Text(method.to_string());
    is, bool => Self::Text(is.to_string());
    number, f64 => Self::Number(number);
    whole, u64 => Self::Whole(whole);
    whole, u32 => Self::Whole(whole.into());
    whole, u8 => Self::Whole(whole.into());
    whole, usize => Self::Whole(whole as u64);
    span, Duration => Self::Whole(crate::nanos(span));
    (estimate, low, high), (f64, f64, f64) => Self::Interval { estimate, low, high };
    of, Interval => Self::from((of.estimate, of.low, of.high));
    of, &Interval => Self::from(*of);
    judgement, Judgement => Self::Verdict(judgement);
    verdict, Verdict => Self::Verdict(verdict.into());
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Missing, Into::into)
    }
}

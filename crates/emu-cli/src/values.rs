//! Values that more than one option takes.

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use emu_bench::workload::{WORKLOADS, Workload};
use emu_core::{AtEnd, Error, METHODS, MethodId, PERIOD_MAX, PERIOD_MIN, Pid, Result, Round, SpeedSpec};
use emu_machine::disk::{Column, Operation};
use emu_machine::doctor::KNOBS;
use jiff::SignedDuration;

pub(crate) const TOLERANCE: &str = "5%";

pub(crate) const PAIRS_MOST: u16 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MethodChoice {
    /// The most faithful that can do it.
    Auto,
    Named(MethodId),
}

impl MethodChoice {
    pub(crate) fn allows(self, name: &str) -> bool {
        match self {
            Self::Auto => true,
            Self::Named(id) => id.as_str() == name,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Methods {
    One(MethodChoice),
    All,
}

/// Parses `auto` or the name of a method; clap suggests the nearest name for another word.
pub(crate) fn method_or_auto() -> impl TypedValueParser<Value = MethodChoice> {
    let auto = PossibleValue::new("auto").help("the most faithful method that can do it here");
    let names = std::iter::once(auto).chain(method_names());
    PossibleValuesParser::new(names).try_map(|name| match name.as_str() {
        "auto" => Ok(MethodChoice::Auto),
        name => name.parse().map(MethodChoice::Named),
    })
}

pub(crate) fn methods() -> impl TypedValueParser<Value = Methods> {
    let all = PossibleValue::new("all").help("all methods that can do it here");
    let auto = PossibleValue::new("auto").help("the most faithful method that can do it here");
    let names = [all, auto].into_iter().chain(method_names());
    PossibleValuesParser::new(names).try_map(|name| match name.as_str() {
        "all" => Ok(Methods::All),
        "auto" => Ok(Methods::One(MethodChoice::Auto)),
        name => name.parse().map(|id| Methods::One(MethodChoice::Named(id))),
    })
}

/// Parses a share between 0 and 1: `5%`, `0.05`.
pub(crate) fn share(text: &str) -> Result<f64> {
    let bad =
        || Error::usage(format!("bad share `{text}`")).hint("write it as 5% or 0.05, above 0 and below 1");
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| bad());
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(text)?,
    };
    if share > 0.0 && share < 1.0 { Ok(share) } else { Err(bad()) }
}

pub(crate) fn method() -> impl TypedValueParser<Value = MethodId> {
    PossibleValuesParser::new(method_names()).try_map(|name| name.parse::<MethodId>())
}

fn method_names() -> impl Iterator<Item = PossibleValue> {
    METHODS.iter().map(|method| PossibleValue::new(method.id().as_str()).help(method.about().summary))
}

/// Refuses what `--variant` asked for, which is a method now.
pub(crate) fn variant(text: &str) -> Result<()> {
    let suffix = format!(":{text}");
    let ids = METHODS.iter().map(|method| method.id().as_str());
    let hint = match ids.filter(|id| id.ends_with(&suffix)).collect::<Vec<_>>().as_slice() {
        [] => "leave it out: every method is at its best unless its name says otherwise".to_owned(),
        names => format!("name the method: --method {}", names.join(" or --method ")),
    };
    Err(Error::usage("a variant is a method of its own now").hint(hint))
}

/// Refuses `--spare-others`, an old name.
pub(crate) fn spare_others(_: &str) -> Result<()> {
    Err(Error::usage("background load is excluded by another option").hint("pass --exclude-background"))
}

impl Display for MethodChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Named(id) => id.fmt(f),
        }
    }
}

impl Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(choice) => choice.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

/// A span to the nanosecond, as options take it.
pub(crate) fn exact(span: Duration) -> String {
    match span.as_nanos() {
        nanos if nanos.is_multiple_of(1_000_000) => format!("{}ms", nanos / 1_000_000),
        nanos if nanos.is_multiple_of(1_000) => format!("{}us", nanos / 1_000),
        nanos => format!("{nanos}ns"),
    }
}

pub(crate) fn round_name(round: Round) -> &'static str {
    match round {
        Round::Nearest => "nearest",
        Round::Down => "down",
        Round::Up => "up",
    }
}

pub(crate) fn round() -> impl TypedValueParser<Value = Round> {
    let all = &[
        (Round::Nearest, "the nearest one"),
        (Round::Down, "the next lower one"),
        (Round::Up, "the next higher one"),
    ];
    one_of(all, round_name)
}

pub(crate) fn at_end_name(at_end: AtEnd) -> &'static str {
    match at_end {
        AtEnd::Hold => "hold",
        AtEnd::Loop => "loop",
        AtEnd::Full => "full",
    }
}

/// Parses what comes after the end of a trace.
pub(crate) fn at_end() -> impl TypedValueParser<Value = AtEnd> {
    let all = &[
        (AtEnd::Hold, "its last speed stays"),
        (AtEnd::Loop, "it begins anew"),
        (AtEnd::Full, "full speed; `attach` ends"),
    ];
    one_of(all, at_end_name)
}

/// Parses the name of one of these, each with its help.
fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [(T, &'static str)],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let names = all.iter().map(|(one, help)| PossibleValue::new(name(*one)).help(*help));
    PossibleValuesParser::new(names).try_map(move |word| {
        all.iter().map(|(one, _)| *one).find(|one| name(*one) == word).ok_or("there is no such name")
    })
}

pub(crate) fn knobs() -> PossibleValuesParser {
    KNOBS.iter().map(|knob| PossibleValue::new(knob.name).help(knob.better)).collect::<Vec<_>>().into()
}

pub(crate) fn workloads() -> PossibleValuesParser {
    let name = |it: &&dyn Workload| PossibleValue::new(it.name()).help(it.about());
    WORKLOADS.iter().map(name).collect::<Vec<_>>().into()
}

/// Parses a whole number; `example` completes the hint: an option with its value.
pub(crate) fn whole<T>(
    what: &'static str,
    range: RangeInclusive<T>,
    example: &'static str,
) -> impl Fn(&str) -> Result<T> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text| {
        text.trim().parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            Error::usage(format!("bad {what} `{text}`"))
                .hint(format!("give a whole number from {least} to {most}: {example}"))
        })
    }
}

pub(crate) fn pairs(text: &str) -> Result<u16> {
    whole("number of pairs", 2..=PAIRS_MOST, "15, say; below 6 no interval reaches 95%")(text)
}

pub(crate) fn seed(text: &str) -> Result<u64> {
    whole("seed", 0..=u64::MAX, "--seed 7")(text)
}

pub(crate) fn threads(text: &str) -> Result<usize> {
    whole("number of threads", 1..=256, "--threads 1,2")(text)
}

pub(crate) fn step(text: &str) -> Result<f64> {
    let step = text.trim().parse().ok().filter(|step: &f64| step.is_finite() && *step > 0.0);
    let bad = || Error::usage(format!("bad step `{text}`")).hint("give a number of CPUs above 0: --step 0.1");
    step.ok_or_else(bad)
}

pub(crate) fn setting(text: &str) -> Result<f64> {
    let hint = "give a number as the other machine has it: --setting 0.5 for CPUs, --setting 1769 for MB";
    let setting = text.trim().parse().ok().filter(|setting: &f64| setting.is_finite());
    setting.ok_or_else(|| Error::usage(format!("bad setting `{text}`")).hint(hint))
}

/// Parses one of the speeds of an option that is given once for each.
pub(crate) fn speed_to_repeat(text: &str) -> Result<SpeedSpec> {
    text.parse().map_err(|error: Error| {
        if text.contains(',') && !text.contains('=') {
            let each: Vec<_> = text.split(',').map(|speed| format!("--speed {}", speed.trim())).collect();
            error.hint(format!("give the option once for each: {}", each.join(" ")))
        } else {
            error
        }
    })
}

/// Parses a positive duration with its unit: `10ms`, `500us`, `1m30s`.
pub(crate) fn duration(text: &str) -> Result<Duration> {
    let bad = |why: &str| {
        Error::usage(format!("bad duration `{text}`: {why}"))
            .hint("write a number and a unit: 500us, 10ms, 2s, 1m30s")
    };
    let signed: SignedDuration =
        text.trim().parse().map_err(|_| bad("it is not a number with a unit of time"))?;
    match Duration::try_from(signed) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(bad("it must be longer than zero")),
    }
}

/// Parses the length of an on/off cycle; methods have narrower limits of their own.
pub(crate) fn period(text: &str) -> Result<Duration> {
    let hint = "write a number and a unit, between 500us and 1s: 10ms is a good start";
    let period = duration(text).map_err(|error| error.hint(hint))?;
    if (PERIOD_MIN..=PERIOD_MAX).contains(&period) {
        return Ok(period);
    }
    Err(Error::usage(format!("bad period `{text}`: it is not between {PERIOD_MIN:?} and {PERIOD_MAX:?}"))
        .hint(hint))
}

/// Parses a size above zero: `4096`, `4KiB`, `4K`, `64MiB`, `1G`. K, M and G are powers of 1024.
pub(crate) fn size(text: &str) -> Result<u64> {
    let bad = || {
        Error::usage(format!("bad size `{text}`"))
            .hint("write a whole number of bytes, or with KiB, MiB or GiB: 4096, 4KiB, 64MiB")
    };
    let text = text.trim();
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit.trim() {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1u64 << 30,
        _ => return Err(bad()),
    };
    let size = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    size.filter(|size| *size > 0).ok_or_else(bad)
}

pub(crate) fn operation() -> impl TypedValueParser<Value = Operation> {
    one_of(&[(Operation::Read, "blocks are read"), (Operation::Write, "blocks are written")], Operation::name)
}

/// Parses how far a transfer goes. Not write-back, which is done at the end of all only: what goes on has none.
pub(crate) fn column() -> impl TypedValueParser<Value = Column> {
    let all = &[
        (Column::Direct, "past the page cache"),
        (Column::Durable, "each write to the disk, by fdatasync"),
        (Column::Cached, "to and from the page cache"),
    ];
    one_of(all, Column::name)
}

pub(crate) fn pid(text: &str) -> Result<Pid> {
    let hint = "name processes by number: --pid 1234,1240";
    let pid = text.trim().parse().ok().filter(|pid| *pid > 0);
    pid.ok_or_else(|| Error::usage(format!("`{text}` is not a process ID")).hint(hint))
}

const NODE_NAME_MAX: usize = 64;

pub(crate) fn node_name(text: &str) -> Result<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && text.chars().all(is_plain) && text.len() <= NODE_NAME_MAX {
        return Ok(text.to_owned());
    }
    Err(Error::usage(format!("`{text}` is not a name for a node"))
        .hint("begin with a letter or a digit; letters, digits, `-`, `_` and `.` may follow"))
}

/// A file for results: not `-`, as stdout belongs to the command.
pub(crate) fn output_file(text: &str) -> Result<PathBuf> {
    if matches!(text, "-" | "") {
        return Err(Error::usage(format!("cannot write JSON to `{text}`: stdout belongs to the command"))
            .hint("name a file, for example --json result.json"));
    }
    Ok(OsString::from(text).into())
}

#[cfg(test)]
mod tests;

//! Values that more than one option takes.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use emu_bench::measure::disk::{Column, Operation};
use emu_bench::workload::WORKLOADS;
use emu_core::doctor::KNOBS;
use emu_core::{Error, METHODS, MethodId, PERIOD_MAX, PERIOD_MIN, Pid, Result, Round, Variant};
use jiff::SignedDuration;

/// A method by name, or the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MethodChoice {
    /// The most faithful that can do it.
    Auto,
    /// This one and no other.
    Named(MethodId),
}

/// Which methods to verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Methods {
    /// The one that is picked or named.
    One(MethodChoice),
    /// All that can do it.
    All,
}

/// Parses `auto` or the name of a method; clap suggests the nearest name for another word.
pub(super) fn method_or_auto() -> impl TypedValueParser<Value = MethodChoice> {
    let auto = PossibleValue::new("auto").help("the most faithful method that can do it here");
    let names = std::iter::once(auto).chain(method_names());
    PossibleValuesParser::new(names).try_map(|name| match name.as_str() {
        "auto" => Ok(MethodChoice::Auto),
        name => name.parse().map(MethodChoice::Named),
    })
}

/// Parses `all`, `auto` or the name of a method.
pub(super) fn methods() -> impl TypedValueParser<Value = Methods> {
    let all = PossibleValue::new("all").help("all methods that can do it here");
    let auto = PossibleValue::new("auto").help("the most faithful method that can do it here");
    PossibleValuesParser::new([all, auto].into_iter().chain(method_names())).try_map(|name| {
        match name.as_str() {
            "all" => Ok(Methods::All),
            "auto" => Ok(Methods::One(MethodChoice::Auto)),
            name => name.parse().map(|id| Methods::One(MethodChoice::Named(id))),
        }
    })
}

/// Parses a share between 0 and 1: `5%`, `0.05`.
pub(super) fn share(text: &str) -> Result<f64> {
    let bad =
        || Error::usage(format!("bad share `{text}`")).hint("write it as 5% or 0.05, above 0 and below 1");
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| bad());
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(text)?,
    };
    if share > 0.0 && share < 1.0 { Ok(share) } else { Err(bad()) }
}

/// Parses the name of a method.
pub(super) fn method() -> impl TypedValueParser<Value = MethodId> {
    PossibleValuesParser::new(method_names()).try_map(|name| name.parse::<MethodId>())
}

fn method_names() -> impl Iterator<Item = PossibleValue> {
    METHODS.iter().map(|method| PossibleValue::new(method.id().as_str()).help(method.about().summary))
}

/// Parses the name of a variant.
pub(super) fn variant() -> impl TypedValueParser<Value = Variant> {
    PossibleValuesParser::new([
        PossibleValue::new("best").help("the method at its best"),
        PossibleValue::new("published").help("cpu-lim, fracas: as in the paper, with its known errors"),
        PossibleValue::new("shares").help("fracas: weights against burners, as in the paper"),
    ])
    .map(|name| match name.as_str() {
        "published" => Variant::Published,
        "shares" => Variant::Shares,
        _ => Variant::Best,
    })
}

/// Parses which way a frequency is rounded.
pub(super) fn round() -> impl TypedValueParser<Value = Round> {
    PossibleValuesParser::new([
        PossibleValue::new("nearest").help("the nearest one"),
        PossibleValue::new("down").help("the next lower one"),
        PossibleValue::new("up").help("the next higher one"),
    ])
    .map(|name| match name.as_str() {
        "down" => Round::Down,
        "up" => Round::Up,
        _ => Round::Nearest,
    })
}

/// Parses the name of a knob.
pub(super) fn knobs() -> PossibleValuesParser {
    KNOBS
        .iter()
        .map(|knob| PossibleValue::new(knob.about().name).help(knob.about().better))
        .collect::<Vec<_>>()
        .into()
}

/// Parses the name of a workload.
pub(super) fn workloads() -> PossibleValuesParser {
    WORKLOADS
        .iter()
        .map(|workload| PossibleValue::new(workload.name()).help(workload.about()))
        .collect::<Vec<_>>()
        .into()
}

/// Parses a number of CPUs.
pub(super) fn cores(text: &str) -> Result<u16> {
    text.trim().parse().ok().filter(|count| *count > 0).ok_or_else(|| {
        Error::usage(format!("bad number of CPUs `{text}`")).hint("give whole numbers from 1: --cores 1,2,4")
    })
}

/// Parses how often something is measured.
pub(super) fn repetitions(text: &str) -> Result<u16> {
    text.trim().parse().ok().filter(|count| (2..=1000).contains(count)).ok_or_else(|| {
        Error::usage(format!("bad number of repetitions `{text}`"))
            .hint("give 2 to 1000; below 6 no interval reaches 95%")
    })
}

/// Parses a positive duration with its unit: `10ms`, `500us`, `1m30s`.
pub(super) fn duration(text: &str) -> Result<Duration> {
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
pub(super) fn period(text: &str) -> Result<Duration> {
    let hint = "a period lies between 500us and 1s; 10ms is a good start";
    let period = duration(text).map_err(|error| error.hint(hint))?;
    if (PERIOD_MIN..=PERIOD_MAX).contains(&period) {
        return Ok(period);
    }
    Err(Error::usage(format!("bad period `{text}`: it is not between {PERIOD_MIN:?} and {PERIOD_MAX:?}"))
        .hint(hint))
}

/// Parses a number of threads.
pub(super) fn threads(text: &str) -> Result<usize> {
    text.trim().parse().ok().filter(|count| (1..=256).contains(count)).ok_or_else(|| {
        Error::usage(format!("bad number of threads `{text}`"))
            .hint("give whole numbers from 1 to 256: --threads 1,2")
    })
}

/// Parses a size above zero: `4096`, `4KiB`, `4K`, `64MiB`, `1G`. K, M and G are powers of 1024.
pub(super) fn size(text: &str) -> Result<u64> {
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

/// Parses what is done to a file.
pub(super) fn operation() -> impl TypedValueParser<Value = Operation> {
    PossibleValuesParser::new([
        PossibleValue::new(Operation::Read.name()).help("blocks are read"),
        PossibleValue::new(Operation::Write.name()).help("blocks are written"),
    ])
    .map(|name| match name.as_str() {
        "write" => Operation::Write,
        _ => Operation::Read,
    })
}

/// Parses how far a transfer goes. Not write-back, which is done at the end of all only: what goes on has none.
pub(super) fn column() -> impl TypedValueParser<Value = Column> {
    PossibleValuesParser::new([
        PossibleValue::new(Column::Direct.name()).help("past the page cache"),
        PossibleValue::new(Column::Durable.name()).help("each write to the disk, by fdatasync"),
        PossibleValue::new(Column::Cached.name()).help("to and from the page cache"),
    ])
    .map(|name| match name.as_str() {
        "durable" => Column::Durable,
        "cached" => Column::Cached,
        _ => Column::Direct,
    })
}

/// Parses a process ID.
pub(super) fn pid(text: &str) -> Result<Pid> {
    text.trim().parse().ok().filter(|pid| *pid > 0).ok_or_else(|| {
        Error::usage(format!("`{text}` is not a process ID"))
            .hint("name processes by number: --pid 1234,1240")
    })
}

/// A file for results: not `-`, as stdout belongs to the command.
pub(super) fn output_file(text: &str) -> Result<PathBuf> {
    if matches!(text, "-" | "") {
        return Err(Error::usage(format!("cannot write JSON to `{text}`: stdout belongs to the command"))
            .hint("name a file, for example --json result.json"));
    }
    Ok(OsString::from(text).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_a_length() {
        assert_eq!(duration("10ms").unwrap(), Duration::from_millis(10));
        assert_eq!(duration(" 1m 30s ").unwrap(), Duration::from_secs(90));
        assert_eq!(duration("0.5 ms").unwrap(), Duration::from_micros(500));
        for text in ["", "0", "0s", "10", "-1s", "1 fortnight", "ms", "NaNs", "1e3s", "99999999999999999999s"]
        {
            let error = duration(text).expect_err(text);
            assert_eq!(error.kind(), emu_core::ErrorKind::Usage, "{text}");
            assert!(error.hint_text().is_some(), "{text}");
        }
    }

    #[test]
    fn periods_out_of_any_methods_reach_are_refused_with_the_range() {
        for text in ["0", "1 ns", "499us", "1001ms", "1 h", "-10ms"] {
            let error = period(text).expect_err(text);
            assert!(error.hint_text().is_some_and(|hint| hint.contains("500us and 1s")), "{text}");
        }
        assert_eq!(period("500us").unwrap(), PERIOD_MIN);
        assert_eq!(period("1s").unwrap(), PERIOD_MAX);
    }

    #[test]
    fn shares_lie_between_nothing_and_all() {
        for (text, value) in [("5%", 0.05), ("0.05", 0.05), (" 2.5 %", 0.025)] {
            assert!((share(text).unwrap() - value).abs() < 1e-12, "{text}");
        }
        for text in ["", "%", "0", "0%", "100%", "1", "-5%", "NaN", "inf%", "5%%", "x"] {
            assert!(share(text).unwrap_err().hint_text().is_some(), "{text}");
        }
    }

    #[test]
    fn sizes_have_units_of_powers_of_two() {
        for (text, bytes) in [("1", 1), ("512B", 512), ("4KiB", 4096), (" 64 MiB", 64 << 20), ("2G", 2 << 30)]
        {
            assert_eq!(size(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "0", "0G", "-1", "1.5G", "KiB", "1KB", "1 T", "99999999999G"] {
            assert!(size(text).unwrap_err().hint_text().is_some(), "{text}");
        }
    }

    #[test]
    fn numbers_of_threads_are_counted_from_one() {
        assert_eq!(threads(" 2").unwrap(), 2);
        for text in ["", "0", "-1", "257", "1.5", "x"] {
            assert!(threads(text).unwrap_err().hint_text().is_some(), "{text}");
        }
    }

    #[test]
    fn columns_and_operations_have_the_names_by_which_they_are_shown() {
        let command = clap::Command::new("emu");
        let column = |name: &str| column().parse_ref(&command, None, name.as_ref());
        for kind in Column::ALL {
            let parsed = column(kind.name()).ok();
            assert_eq!(parsed, kind.ends_operations().then_some(kind), "{}", kind.name());
        }
        for kind in [Operation::Read, Operation::Write] {
            assert_eq!(operation().parse_ref(&command, None, kind.name().as_ref()).unwrap(), kind);
        }
    }

    #[test]
    fn process_ids_are_positive_numbers() {
        assert_eq!(pid("42").unwrap(), 42);
        for text in ["", "0", "-1", "1x", "99999999999"] {
            assert!(pid(text).is_err(), "{text}");
        }
    }
}

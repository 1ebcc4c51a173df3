//! Values that more than one option takes.

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use emu_bench::workload::WORKLOADS;
use emu_core::{Error, METHODS, MethodId, PERIOD_MAX, PERIOD_MIN, Pid, Result, Round, SpeedSpec};
use emu_machine::disk::{Column, Operation};
use emu_machine::doctor::KNOBS;
use emu_machine::kernel::random_access::THREADS_MAX;
use jiff::SignedDuration;

/// The tolerance unless given.
pub(crate) const TOLERANCE: &str = "5%";

/// The most pairs that can be asked for.
pub(crate) const PAIRS_MOST: u16 = 1000;

/// A method by name, or the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MethodChoice {
    /// The most faithful that can do it.
    Auto,
    /// This one and no other.
    Named(MethodId),
}

impl MethodChoice {
    /// Whether the method of this name may be the one.
    pub(crate) fn allows(self, name: &str) -> bool {
        match self {
            Self::Auto => true,
            Self::Named(id) => id.as_str() == name,
        }
    }
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
pub(crate) fn method_or_auto() -> impl TypedValueParser<Value = MethodChoice> {
    let auto = PossibleValue::new("auto").help("the most faithful method that can do it here");
    let names = std::iter::once(auto).chain(method_names());
    PossibleValuesParser::new(names).try_map(|name| match name.as_str() {
        "auto" => Ok(MethodChoice::Auto),
        name => name.parse().map(MethodChoice::Named),
    })
}

/// Parses `all`, `auto` or the name of a method.
pub(crate) fn methods() -> impl TypedValueParser<Value = Methods> {
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

/// Parses the name of a method.
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

/// The name by which rounding is asked for.
pub(crate) fn round_name(round: Round) -> &'static str {
    match round {
        Round::Nearest => "nearest",
        Round::Down => "down",
        Round::Up => "up",
    }
}

/// Parses which way a frequency is rounded.
pub(crate) fn round() -> impl TypedValueParser<Value = Round> {
    PossibleValuesParser::new([
        PossibleValue::new(round_name(Round::Nearest)).help("the nearest one"),
        PossibleValue::new(round_name(Round::Down)).help("the next lower one"),
        PossibleValue::new(round_name(Round::Up)).help("the next higher one"),
    ])
    .map(|name| match name.as_str() {
        "down" => Round::Down,
        "up" => Round::Up,
        _ => Round::Nearest,
    })
}

/// Parses the name of a knob.
pub(crate) fn knobs() -> PossibleValuesParser {
    KNOBS.iter().map(|knob| PossibleValue::new(knob.name).help(knob.better)).collect::<Vec<_>>().into()
}

/// Parses the name of a workload.
pub(crate) fn workloads() -> PossibleValuesParser {
    WORKLOADS
        .iter()
        .map(|workload| PossibleValue::new(workload.name()).help(workload.about()))
        .collect::<Vec<_>>()
        .into()
}

/// Parses a whole number within a range. `example` is an option with its value.
pub(crate) fn whole<T>(text: &str, what: &str, range: RangeInclusive<T>, example: &str) -> Result<T>
where
    T: FromStr + PartialOrd + Display,
{
    text.trim().parse().ok().filter(|number| range.contains(number)).ok_or_else(|| {
        let (least, most) = range.into_inner();
        Error::usage(format!("bad {what} `{text}`"))
            .hint(format!("give a whole number from {least} to {most}: {example}"))
    })
}

/// Parses a number of CPUs.
pub(crate) fn cores(text: &str) -> Result<u16> {
    whole(text, "number of CPUs", 1..=u16::MAX, "--cores 1,2,4")
}

/// Parses a number of pairs of samples.
pub(crate) fn pairs(text: &str) -> Result<u16> {
    whole(text, "number of pairs", 2..=PAIRS_MOST, "15, say; below 6 no interval reaches 95%")
}

/// Parses a number of pairs of windows for a knob.
pub(crate) fn knob_pairs(text: &str) -> Result<u32> {
    whole(text, "number of pairs", 6..=PAIRS_MOST.into(), "--pairs 12")
}

/// Parses a seed of random numbers.
pub(crate) fn seed(text: &str) -> Result<u64> {
    whole(text, "seed", 0..=u64::MAX, "--seed 7")
}

/// Parses a step from one quota to the next.
pub(crate) fn step(text: &str) -> Result<f64> {
    let step = text.trim().parse().ok().filter(|step: &f64| step.is_finite() && *step > 0.0);
    step.ok_or_else(|| {
        Error::usage(format!("bad step `{text}`")).hint("give a number of CPUs above 0: --step 0.1")
    })
}

/// Parses a setting of another machine.
pub(crate) fn setting(text: &str) -> Result<f64> {
    text.trim().parse().ok().filter(|setting: &f64| setting.is_finite()).ok_or_else(|| {
        Error::usage(format!("bad setting `{text}`"))
            .hint("give a number as the other machine has it: --setting 0.5 for CPUs, --setting 1769 for MB")
    })
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

/// Parses a number of threads.
pub(crate) fn threads(text: &str) -> Result<usize> {
    whole(text, "number of threads", 1..=256, "--threads 1,2")
}

/// Parses a number of threads for the kernels of the HPC Challenge.
pub(crate) fn hpcc_threads(text: &str) -> Result<usize> {
    whole(text, "number of threads", 1..=THREADS_MAX, "--threads 1,2")
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

/// Parses what is done to a file.
pub(crate) fn operation() -> impl TypedValueParser<Value = Operation> {
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
pub(crate) fn column() -> impl TypedValueParser<Value = Column> {
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
pub(crate) fn pid(text: &str) -> Result<Pid> {
    text.trim().parse().ok().filter(|pid| *pid > 0).ok_or_else(|| {
        Error::usage(format!("`{text}` is not a process ID"))
            .hint("name processes by number: --pid 1234,1240")
    })
}

/// The longest name of a node.
const NODE_NAME_MAX: usize = 64;

/// Checks the name of a node.
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
        for text in ["0", "10", "1 ns", "499us", "1001ms", "1 h", "-10ms"] {
            let error = period(text).expect_err(text);
            let hint = error.hint_text().unwrap();
            assert!(hint.contains("500us and 1s") && hint.contains("a unit"), "{text}: {hint}");
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
    fn whole_numbers_out_of_range_are_refused_with_an_example() {
        assert_eq!(threads(" 2").unwrap(), 2);
        for text in ["", "0", "-1", "257", "1.5", "x"] {
            let error = threads(text).unwrap_err();
            assert_eq!(error.to_string(), format!("bad number of threads `{text}`"));
            assert_eq!(
                error.hint_text().as_deref(),
                Some("give a whole number from 1 to 256: --threads 1,2")
            );
        }
        assert_eq!((hpcc_threads("128").unwrap(), hpcc_threads("129").is_err()), (128, true));
        assert_eq!((pairs("2").unwrap(), pairs("1000").unwrap()), (2, 1000));
        assert_eq!(
            (pairs("1").is_err(), pairs("1001").is_err(), knob_pairs("5").is_err()),
            (true, true, true)
        );
        assert_eq!((seed("0").unwrap(), seed("x").is_err(), seed("-1").is_err()), (0, true, true));
    }

    #[test]
    fn numbers_with_a_fraction_are_finite() {
        assert!((step("0.1").unwrap() - 0.1).abs() < 1e-12 && (setting("-1.5").unwrap() + 1.5).abs() < 1e-12);
        for text in ["", "x", "NaN", "inf"] {
            for error in [step(text).unwrap_err(), setting(text).unwrap_err()] {
                assert!(
                    error.to_string().contains(&format!("`{text}`")) && error.hint_text().is_some(),
                    "{text}"
                );
            }
        }
        assert!(step("0").is_err() && step("-0.1").is_err());
    }

    #[test]
    fn an_option_that_is_to_be_repeated_says_so() {
        assert!(speed_to_repeat("0=25%,1=50%").is_ok());
        let hint = |text: &str| speed_to_repeat(text).unwrap_err().hint_text().unwrap();
        assert_eq!(hint("25%,50%"), "give the option once for each: --speed 25% --speed 50%");
        assert!(hint("140%").starts_with("write "), "{}", hint("140%"));
    }

    #[test]
    fn columns_and_operations_have_the_names_that_are_shown() {
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

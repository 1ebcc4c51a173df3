//! How numbers are written for people: about three significant digits, with their unit. CSV and JSON have them unrounded.

use std::time::Duration;

/// A share as a percentage: `40%`, `39.6%`, `0.25%`.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    let decimals = if value.abs() >= 10.0 { 1 } else { 2 };
    format!("{}%", trimmed(value, decimals))
}

/// A difference in percent, with its sign: `+0.4%`, `-12.3%`, `0.0%`.
pub fn signed(share: f64) -> String {
    let text = format!("{:+.1}%", share * 100.0);
    if matches!(text.as_str(), "-0.0%" | "+0.0%") { "0.0%".to_owned() } else { text }
}

/// A span with the unit that suits it: `812µs`, `6.13ms`, `12.3s`, `2m05s`, `3h20m`.
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs_f64();
    let minutes = span.as_secs() / 60;
    match seconds {
        _ if span.is_zero() => "0".to_owned(),
        s if s < 0.999_5e-3 => format!("{}µs", significant(s * 1e6)),
        s if s < 0.999_5 => format!("{}ms", significant(s * 1e3)),
        s if s < 60.0 => format!("{}s", significant(s)),
        s if s < 3600.0 => format!("{minutes}m{:02}s", span.as_secs() % 60),
        _ => format!("{}h{:02}m", minutes / 60, minutes % 60),
    }
}

const SIZES: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];

/// A size with the largest unit in which it is whole: `1 B`, `4 KiB`, `260 MiB`.
pub fn size(bytes: u64) -> String {
    let unit = SIZES.into_iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{bytes} B"), |(unit, name)| format!("{} {name}", bytes / unit))
}

/// A size as the value of an option: `4KiB`, `2GiB`.
pub fn whole_size(bytes: u64) -> String {
    size(bytes).replace(' ', "")
}

/// A size with three digits that matter: `812 KiB`, `1.97 GiB`.
pub fn rounded_size(bytes: u64) -> String {
    let unit = SIZES.into_iter().find(|(unit, _)| bytes >= *unit);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(unit, name)| format!("{} {name}", significant(bytes as f64 / unit as f64)),
    )
}

/// A number of things each second with the unit that suits it, in powers of 1000: `1.37 GB/s`.
pub fn rate(per_second: f64, unit: &str) -> String {
    let (scale, prefix) = prefix(per_second);
    format!("{} {prefix}{unit}/s", significant(per_second / scale))
}

/// The power of 1000 that suits a value, and its prefix.
pub fn prefix(value: f64) -> (f64, &'static str) {
    let powers = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    powers.into_iter().find(|(power, _)| value >= 0.999_5 * power).unwrap_or((1.0, ""))
}

/// A time in the unit that suits it, with tenths below 100 ns: `1.4ns`, `187ns`, `61.2µs`.
pub fn nanos(nanos: f64) -> String {
    match nanos {
        ns if ns < 99.95 => format!("{ns:.1}ns"),
        ns if ns < 999.5 => format!("{ns:.0}ns"),
        ns => span(Duration::from_nanos(ns.round() as u64)),
    }
}

/// A range whose ends have one unit: `-1.9 to +2.0%`.
pub fn range(low: &str, high: &str) -> String {
    let number = |c: char| c.is_ascii_digit() || c == '.';
    let unit = high.trim_start_matches(['+', '-']).trim_start_matches(number);
    let bare = low.strip_suffix(unit).filter(|bare| bare.ends_with(number)).unwrap_or(low);
    format!("{bare} to {high}")
}

/// Three significant digits, without trailing zeros; whole numbers keep all of theirs.
pub fn significant(value: f64) -> String {
    let size = value.abs();
    trimmed(value, if size < 9.995 { 2 } else { usize::from(size < 99.95) })
}

fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let text = if decimals == 0 { &text } else { text.trim_end_matches('0').trim_end_matches('.') };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A size with its unit in powers of 1024: `4KiB`, `1m`, `512`.
pub fn parsed_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor).filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_in_powers_of_1024() {
        let sizes = ["4k", "1024KiB", "512", "1M", "0", "k", "4x", "99999999999999g"].map(parsed_size);
        assert_eq!(sizes, [Some(4096), Some(1 << 20), Some(512), Some(1 << 20), None, None, None, None]);
    }

    #[test]
    fn shares_have_as_many_digits_as_matter() {
        for (share, text) in [
            (0.4, "40%"),
            (0.396_04, "39.6%"),
            (0.0025, "0.25%"),
            (0.05, "5%"),
            (1.0, "100%"),
            (-0.034, "-3.4%"),
            (-0.000_01, "0%"),
        ] {
            assert_eq!(percent(share), text);
        }
    }

    #[test]
    fn differences_have_a_sign_where_there_is_one() {
        for (share, text) in [
            (0.004, "+0.4%"),
            (-0.1234, "-12.3%"),
            (0.0, "0.0%"),
            (-0.0, "0.0%"),
            (-0.000_4, "0.0%"),
            (0.000_4, "0.0%"),
            (-0.000_6, "-0.1%"),
        ] {
            assert_eq!(signed(share), text);
        }
    }

    #[test]
    fn sizes_are_whole_in_their_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1, "1 B"),
            (1000, "1000 B"),
            (4096, "4 KiB"),
            (260 << 20, "260 MiB"),
            (2 << 30, "2 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!((whole_size(4096), rounded_size(1000)), ("4KiB".into(), "1000 B".into()));
        assert_eq!(rounded_size(2_115_000_000), "1.97 GiB");
    }

    #[test]
    fn rates_have_the_prefix_that_suits_them() {
        for (value, text) in [
            (0.5, "0.5 B/s"),
            (999.9, "1 kB/s"),
            (83.4e6, "83.4 MB/s"),
            (1.397e9, "1.4 GB/s"),
            (3e12, "3 TB/s"),
        ] {
            assert_eq!(rate(value, "B"), text);
        }
    }

    #[test]
    fn the_unit_of_a_range_is_written_once() {
        assert_eq!(range("-1.9%", "+2.0%"), "-1.9 to +2.0%");
        assert_eq!(range("812µs", "6.13ms"), "812µs to 6.13ms");
        assert_eq!(range("1.3s", "2m05s"), "1.3s to 2m05s");
        assert_eq!(range("0.98", "1.05"), "0.98 to 1.05");
    }

    #[test]
    fn three_digits_are_significant() {
        assert_eq!([0.123, -12.34, 1234.5, -0.001].map(significant), ["0.12", "-12.3", "1234", "0"]);
    }

    #[test]
    fn short_times_are_told_in_nanoseconds() {
        for (time, text) in
            [(1.44, "1.4ns"), (99.96, "100ns"), (187.4, "187ns"), (999.6, "1µs"), (61_234.0, "61.2µs")]
        {
            assert_eq!(nanos(time), text);
        }
    }

    #[test]
    fn spans_have_the_unit_that_suits_them() {
        for (nanos, text) in [
            (0, "0"),
            (400, "0.4µs"),
            (812_300, "812µs"),
            (999_900, "1ms"),
            (6_130_000, "6.13ms"),
            (10_000_000, "10ms"),
            (999_900_000, "1s"),
            (12_340_000_000, "12.3s"),
            (125_000_000_000, "2m05s"),
            (12_000_000_000_000, "3h20m"),
        ] {
            assert_eq!(span(Duration::from_nanos(nanos)), text);
        }
    }
}

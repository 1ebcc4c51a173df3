//! Numbers for people: three digits that matter, with their unit.

use std::time::Duration;

/// A share as a percentage: `40%`, `39.6%`, `0.25%`.
pub(crate) fn percent(share: f64) -> String {
    let value = share * 100.0;
    let decimals = if value.abs() >= 10.0 { 1 } else { 2 };
    format!("{}%", trimmed(value, decimals))
}

/// A span with the unit that suits it: `812µs`, `6.13ms`, `12.3s`, `2m05s`, `3h20m`.
pub(crate) fn span(span: Duration) -> String {
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

/// Three significant digits, without trailing zeros.
fn significant(value: f64) -> String {
    trimmed(value, if value < 9.995 { 2 } else { usize::from(value < 99.95) })
}

fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_as_many_digits_as_matter() {
        for (share, text) in [
            (0.4, "40%"),
            (0.396_04, "39.6%"),
            (0.0025, "0.25%"),
            (0.05, "5%"),
            (1.0, "100%"),
            (-0.034, "-3.4%"),
        ] {
            assert_eq!(percent(share), text);
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

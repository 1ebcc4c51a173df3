//! `--peak`: what was measured beside the rate that a vendor names.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use emu_bench::numbers::{percent, rate};
use emu_core::{Error, Result};

use crate::options::option;

/// How much more than the peak may be measured, as clocks differ: a share.
const SLACK: f64 = 0.02;

/// The rate of a memory or a disk by its data sheet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Peak(f64);

#[derive(Debug, Args)]
pub(crate) struct PeakArgs {
    /// The rate that the vendor names, as 59.7GB/s: the share of it that is reached is told, too
    #[arg(long, value_name = "RATE", conflicts_with = "length", allow_hyphen_values = true)]
    peak: Option<Peak>,
}

impl PeakArgs {
    pub(super) fn option(&self) -> String {
        option("peak", self.peak)
    }

    /// That no share is told, and why, in a sentence.
    pub(super) fn untold(&self, why: &str) -> Option<String> {
        Some(format!("No share of the peak that was given, {}, is told: {why}.", self.peak?))
    }

    /// The best of what was measured beside the peak, in a sentence: `triad`, and bytes each second.
    pub(super) fn note(&self, best: Option<(&str, f64)>) -> Option<String> {
        let (peak, (what, best)) = self.peak.zip(best)?;
        let (shown, share) = (rate(best, "B"), best / peak.0);
        Some(if share > 1.0 + SLACK {
            format!(
                "{what} makes {shown}, which is more than the peak that was given, {peak}: it is not that of this machine."
            )
        } else {
            format!("{what} makes {shown}, {} of the peak that was given, {peak}.", percent(share))
        })
    }
}

impl fmt::Display for Peak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}GB/s", self.0 / 1e9)
    }
}

impl FromStr for Peak {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::usage(format!("bad rate `{text}`"))
                .hint("write a number with MB/s, GB/s, MiB/s or GiB/s: 59.7GB/s")
        };
        let text = text.trim();
        let (number, unit) =
            text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?);
        let factor = match unit.trim() {
            "MB/s" => 1e6,
            "GB/s" => 1e9,
            "MiB/s" => f64::from(1 << 20),
            "GiB/s" => f64::from(1 << 30),
            _ => return Err(bad()),
        };
        let bytes = number.parse::<f64>().map_err(|_| bad())? * factor;
        if bytes > 0.0 && bytes.is_finite() { Ok(Self(bytes)) } else { Err(bad()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_data_sheets_write_them() {
        for (text, bytes) in [("59.7GB/s", 59.7e9), (" 550 MB/s ", 550e6), ("1GiB/s", 1_073_741_824.0)] {
            assert!((text.parse::<Peak>().unwrap().0 / bytes - 1.0).abs() < 1e-12, "{text}");
        }
        for text in ["", "59.7", "0GB/s", "-1GB/s", "1.2.3GB/s", "NaNGB/s", "1e9GB/s", "6Gbit/s", "GB/s"] {
            assert!(text.parse::<Peak>().unwrap_err().hint_text().is_some(), "{text}");
        }
        assert_eq!("59.7GB/s".parse::<Peak>().unwrap().to_string(), "59.7GB/s");
    }

    #[test]
    fn more_than_the_peak_is_no_share() {
        let peak = PeakArgs { peak: Some(Peak(40e9)) };
        let note = |best| peak.note(Some(("triad", best))).unwrap();
        assert_eq!(note(30e9), "triad makes 30 GB/s, 75% of the peak that was given, 40GB/s.");
        assert!(note(41e9).contains("not that of this machine"));
        assert_eq!((peak.note(None), PeakArgs { peak: None }.note(Some(("x", 1.0)))), (None, None));
        assert_eq!(peak.option(), " --peak 40GB/s");
        assert_eq!(peak.untold("x").unwrap(), "No share of the peak that was given, 40GB/s, is told: x.");
    }
}

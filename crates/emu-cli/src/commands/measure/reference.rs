//! `--reference`: rates in those of another machine, or of another state of this one.

use std::path::PathBuf;

use clap::Args;
use emu_bench::stats::{Interval, Level, Sample};
use emu_bench::table;
use emu_bench::table::paragraph;
use emu_core::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::measuring::Document;

#[derive(Debug, Args)]
pub(crate) struct ReferenceArgs {
    /// Tell the percentage of another machine's rates: its record of the same measurement
    #[arg(long, value_name = "DIR", conflicts_with = "length")]
    reference: Option<PathBuf>,
}

impl ReferenceArgs {
    pub(super) fn read<R: DeserializeOwned>(&self, name: &str) -> Result<Option<Document<R>>> {
        self.reference.as_ref().map(|path| Document::read(path, name)).transpose()
    }
}

/// The rates of one kind of work.
#[derive(Debug, Clone)]
pub(super) struct Rates {
    /// What was done, in which both machines are alike.
    pub(super) what: String,
    /// One for each sample: more is better.
    pub(super) samples: Vec<f64>,
    /// Whether others had a part of the CPUs meanwhile.
    pub(super) disturbed: bool,
}

/// A result, and what it is of a reference.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Referred<R> {
    #[serde(flatten)]
    pub(super) result: R,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reference: Option<Reference>,
}

/// A reference and the shares of its rates.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Reference {
    /// The processor of the reference.
    model: String,
    shares: Vec<Share>,
    /// What was measured here and not there.
    without_counterpart: Vec<String>,
}

/// A kind of work on both machines.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Share {
    /// What was done.
    what: String,
    /// The mean rate here in that of the reference; 1 is the same.
    of_means: Interval,
    /// Whether others disturbed it, here or there: it decides nothing then.
    disturbed: bool,
}

impl<R> Referred<R> {
    /// A result beside that of a reference, by the rates of `of`.
    pub(super) fn new(result: R, reference: Option<Document<R>>, of: impl Fn(&R) -> Vec<Rates>) -> Self {
        let reference = reference.map(|there| {
            let (model, there) = (there.about.machine.model, of(&there.result));
            let (mut shares, mut without_counterpart) = (Vec::new(), Vec::new());
            for here in of(&result) {
                let same = there.iter().find(|other| other.what == here.what);
                match same.and_then(|there| here.share(there)) {
                    Some(share) => shares.push(share),
                    None => without_counterpart.push(here.what),
                }
            }
            Reference { model, shares, without_counterpart }
        });
        Self { result, reference }
    }

    pub(super) fn text(&self) -> String {
        self.reference.as_ref().map_or_else(String::new, Reference::text)
    }
}

impl Rates {
    /// `None` where a rate is none, as in a damaged record, or one has a single sample.
    fn share(&self, there: &Self) -> Option<Share> {
        let sample = |rates: &Self| Sample::new(rates.samples.as_slice()).ok();
        let of_means = Interval::of_ratio(&sample(self)?, &sample(there)?, Level::P95).ok()?;
        let disturbed = self.disturbed || there.disturbed;
        Some(Share { what: self.what.clone(), of_means, disturbed })
    }
}

impl Reference {
    fn text(&self) -> String {
        let table = table! {
            for Share { what, of_means, disturbed } in &self.shares;
            text "WORK" = what,
            number "OF THE REFERENCE" = format!("{:.1}%", of_means.estimate * 100.0),
            number "95%" = format!("{:.1} to {:.1}%", of_means.low * 100.0, of_means.high * 100.0),
            text "" = if *disturbed { "disturbed" } else { "" },
        };
        let mut note =
            format!("The reference is of {}. Mean rates, with the interval of their ratio.", self.model);
        if !self.without_counterpart.is_empty() {
            note.extend([" The reference has no counterpart of ", &self.without_counterpart.join(", "), "."]);
        }
        format!("\n{}\n{}", table.text(), paragraph(note))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_bench::table::WIDTH;

    fn rates(what: &str, samples: &[f64], disturbed: bool) -> Rates {
        Rates { what: what.into(), samples: samples.to_vec(), disturbed }
    }

    #[test]
    fn rates_are_compared_with_those_of_the_same_work() {
        let here = rates("copy, 2 threads", &[8.0, 8.2, 8.1], false);
        let there = rates("copy, 2 threads", &[16.2, 16.0, 16.4], true);
        let Share { of_means: share, disturbed, .. } = here.share(&there).unwrap();
        assert!((share.estimate - 0.5).abs() < 0.01 && share.low < 0.5 && share.high < 0.52, "{share:?}");
        assert!(disturbed);
        for damaged in [&[][..], &[0.0, 1.0], &[f64::NAN, 1.0], &[1.0]] {
            assert!(here.share(&rates("copy, 2 threads", damaged, false)).is_none(), "{damaged:?}");
        }
    }

    #[test]
    fn the_table_names_what_has_no_counterpart() {
        let interval = Interval { estimate: 0.912, low: 0.87, high: 0.953, level: 0.95 };
        let share = Share { what: "STREAM triad, 2 threads".into(), of_means: interval, disturbed: true };
        let without_counterpart = vec!["loads from 4096 B".into()];
        let text = Reference { model: "Some CPU".into(), shares: vec![share], without_counterpart }.text();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("2 threads 91.2% 87.0 to 95.3% disturbed"), "{text}");
        assert!(words.ends_with("The reference has no counterpart of loads from 4096 B."), "{text}");
    }
}

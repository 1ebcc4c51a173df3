//! Results for tests.

use std::time::Duration;

use emu_core::Hertz;

use super::results::{CellResult, Furthest, Judged, Rate};
use crate::stats::{Interval, Verdict};
use crate::verify::testing::pair;
use crate::verify::{Pair, Plan, Taint, Trial, findings};
use crate::workload::Job;

/// A cell of `cpu-hogs` with `cpu-loop` at this share, whose pairs have these ratios; the first ones are disturbed.
pub(super) fn cell(share: f64, ratios: &[f64], disturbed: usize) -> CellResult {
    let numbered = ratios.iter().enumerate();
    let mut pairs: Vec<Pair> = numbered.map(|(number, ratio)| pair(number, &[1e9], &[1e9 * ratio])).collect();
    pairs.iter_mut().take(disturbed).for_each(|pair| pair.taints.push(Taint::Steal(0.5)));
    let job = Job::new("cpu-loop", &[0].into_iter().collect());
    let trial = Trial { job, shares: vec![(0, share)], clocks: vec![] };
    let one = Interval { estimate: 1.0, low: 1.0, high: 1.0, level: 0.95 };
    let rate = Rate { mean: None, median: one, mad: 0.0, per_cycle: None };
    CellResult {
        contender: "cpu-hogs".parse().unwrap(),
        workload: "cpu-loop".into(),
        cores: 1,
        share,
        emulated: Hertz((share * 1e9) as u64),
        period: Duration::from_millis(10),
        exclude_background: false,
        finding: findings(&trial, &pairs, &Plan::new(1)).unwrap().remove(0),
        native_rate: rate,
        emulated_rate: rate,
    }
}

/// A method over some cells.
pub(super) fn judged(cells: &[CellResult]) -> Judged {
    let verdict = Verdict::of_all(cells.iter().map(|cell| cell.finding.verdict)).unwrap();
    Judged {
        contender: cells[0].contender,
        workload: cells[0].workload.clone(),
        cores: cells[0].cores,
        verdict,
        doubt: cells.iter().find_map(|cell| cell.finding.doubt.map(|doubt| (cell.share, doubt))),
        furthest: Furthest::of(cells, verdict),
        fidelity: None,
        line: None,
    }
}

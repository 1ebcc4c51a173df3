//! The types of results: everything that any output shows.

use std::collections::BTreeMap;
use std::fmt;
use std::mem::discriminant;
use std::time::Duration;

use emu_core::{AsNs, Hertz, MethodId};
use schemars::JsonSchema;
use serde::Serialize;

use super::published::Compared;
use crate::distinct;
use crate::experiment::{NONE, OwnCosts, Refusal, in_order};
use crate::memory::StreamSize;
use crate::numbers::percent;
use crate::record::Machine;
use crate::stats::{AaTest, Fidelity, Interval, LinearFit, Verdict};
use crate::verify::{Doubt, Finding, Spectrum};
use crate::workload::{Workload, workload};

/// Version of the form of results.
pub(super) const SCHEMA: u32 = 1;

/// What one or several records of a machine show.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Results {
    /// Version of this form.
    pub schema: u32,
    /// The runs, one for each record.
    pub runs: Vec<RunInfo>,
    /// The machine.
    pub machine: Machine,
    /// The emu that measured.
    pub version: String,
    /// The core clock that 100 % stands for.
    pub reference: Hertz,
    /// How far from the ideal passes, as a share.
    pub tolerance: f64,
    /// Length of a window, at least.
    #[serde(rename = "window_ns", with = "AsNs")]
    pub window: Duration,
    /// The preset by which it was asked for.
    pub preset: Option<String>,
    /// Each workload on a number of CPUs.
    pub grounds: Vec<Ground>,
    /// Each cell.
    pub cells: Vec<CellResult>,
    /// Each method on each ground, over all speeds.
    pub fidelity: Vec<Judged>,
    /// Each method over all.
    pub totals: Vec<Total>,
    /// How smoothly work progressed.
    pub smoothness: Vec<Smoothness>,
    /// What could not be measured here, and why.
    pub unavailable: Vec<Refusal>,
    /// Each method beside each other tool that was measured.
    pub beside: Vec<Beside>,
    /// What was published beside what was found, where a preset asks for that.
    pub published: Vec<Compared>,
    /// What to use here for what, in a sentence or two.
    pub conclusion: String,
}

/// One run.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RunInfo {
    /// When it was begun.
    pub date: String,
    /// The command that takes the same measurements again.
    pub command: String,
    /// Start of the random numbers.
    pub seed: u64,
    /// Pairs planned for each cell.
    pub repetitions: usize,
    /// Whether it came to its end.
    pub complete: bool,
    /// Cells with fewer pairs than planned: the time was up, the run was cut short, or they failed.
    pub short_cells: usize,
    /// Pairs that were kept.
    pub pairs: usize,
    /// Pairs that were disturbed and taken again.
    pub retaken: usize,
    /// Pairs that were disturbed to the last, and so decide nothing.
    pub tainted: usize,
    /// What disturbed how many pairs.
    pub disturbances: BTreeMap<&'static str, usize>,
    /// Time of a pair beyond its windows and the time to settle, in nanoseconds; the median.
    pub outside_ns: Option<f64>,
    /// What the harness itself costs.
    pub own_costs: OwnCosts,
}

/// A workload on a number of CPUs, as it runs natively.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Ground {
    /// The workload.
    pub workload: String,
    /// The number of CPUs.
    pub cores: usize,
    /// Native work per second; the median over all pairs, with its interval.
    pub native: Interval,
    /// The ratio of emulated and native speed that a really slower CPU would give, at shares from 5 % to 100 %.
    pub ideal: Vec<(f64, f64)>,
    /// Native against native; `None` for too few controls.
    pub aa: Option<AaTest>,
    /// How long the arrays were, where it works on such.
    pub arrays: Option<StreamSize>,
}

/// A cell and what was found in it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CellResult {
    /// The method.
    pub contender: MethodId,
    /// The workload.
    pub workload: String,
    /// The number of CPUs.
    pub cores: usize,
    /// The speed asked for, as a share.
    pub share: f64,
    /// The same as a clock.
    pub emulated: Hertz,
    /// Length of an on/off cycle, in nanoseconds.
    #[serde(rename = "period_ns", with = "AsNs")]
    pub period: Duration,
    /// Whether other tasks kept the time that they use.
    pub exclude_background: bool,
    /// The judgement.
    pub finding: Finding,
    /// Native work per second.
    pub native_rate: Rate,
    /// Emulated work per second.
    pub emulated_rate: Rate,
}

/// Work per second, in two ways.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct Rate {
    /// The mean with its 95 % t-interval, as published; `None` for a single sample.
    pub mean: Option<Interval>,
    /// The median with its interval.
    pub median: Interval,
    /// Median absolute deviation.
    pub mad: f64,
    /// Work per cycle of the core clock around the window; the median, `None` where that was not measured.
    pub per_cycle: Option<f64>,
}

/// A method on a ground, over all speeds.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Judged {
    /// The method.
    pub contender: MethodId,
    /// The workload.
    pub workload: String,
    /// The number of CPUs.
    pub cores: usize,
    /// Every speed passes, one fails, or that cannot be told.
    pub verdict: Verdict,
    /// Why that cannot be told, and the share of which speed, where it is not the intervals alone.
    pub doubt: Option<(f64, Doubt)>,
    /// The speed that is furthest off, of those with this verdict; `None` where no speed has an undisturbed pair.
    pub furthest: Option<Furthest>,
    /// How far it is from the ideal; `None` where no speed has two undisturbed pairs.
    pub fidelity: Option<Fidelity>,
    /// Perceived on emulated frequency, both in GHz; `None` for a single speed.
    pub line: Option<LinearFit>,
}

/// The speed at which a method is furthest off on a ground.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Furthest {
    /// The speed asked for, as a share.
    pub share: f64,
    /// Emulated / native / ideal there, with the interval that its verdict rests on; see
    /// [`Finding::relative`].
    pub relative: Interval,
}

/// A method over all.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Total {
    /// The method.
    pub contender: MethodId,
    /// The score of the worst ground, 0 to 100, of those that emulation promises to get right; `None` where one of them has
    /// no verdict, or was measured at a speed with others only.
    pub score: Option<f64>,
    /// That ground.
    pub worst: String,
    /// The longest time without progress in any window of one thread that computes: more of them than CPUs stall each
    /// other. `None` where that was not measured.
    pub longest_stall_ns: Option<u64>,
    /// CPU time of emu itself as a share of each emulated CPU; the largest of the cells' medians.
    pub own_cpu: Option<f64>,
}

/// How smoothly work progresses under a method.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Smoothness {
    /// The method.
    pub contender: MethodId,
    /// The speed asked for, as a share.
    pub share: f64,
    /// The spectrum.
    pub spectrum: Spectrum,
}

/// A method beside another tool: the same work, on the same CPUs, at the same speed, in the same run.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Beside {
    /// The workload.
    pub workload: String,
    /// The number of CPUs.
    pub cores: usize,
    /// The speed asked for, as a share.
    pub share: f64,
    /// The method.
    pub method: MethodId,
    /// The other tool.
    pub tool: MethodId,
    /// Who is nearer to what was asked.
    pub standing: Standing,
    /// How much further the tool's median is from what was asked than the method's, as a share; `None` for too few rounds.
    pub lead: Option<Interval>,
}

/// Who is nearer to what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// The method.
    Ahead,
    /// The run cannot tell them apart, and the method is not behind by 1 %.
    Level,
    /// The tool.
    Behind,
    /// The run cannot tell whether the method is behind by more than that.
    Untold,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ahead => "ahead",
            Self::Level => "level",
            Self::Behind => "behind",
            Self::Untold => "cannot be told",
        })
    }
}

impl RunInfo {
    /// What of the plan was not measured, in a sentence; `None` where all of it was.
    pub fn missing(&self) -> Option<String> {
        if !self.complete {
            return Some("The record is not complete: emu bench --resume goes on.".into());
        }
        (self.short_cells > 0).then(|| {
            format!(
                "{} cells have fewer pairs than planned: the time was up, or they failed.",
                self.short_cells
            )
        })
    }
}

impl Results {
    /// The methods that were measured, in the order in which methods are listed.
    pub fn contenders(&self) -> Vec<MethodId> {
        in_order(self.cells.iter().map(|cell| cell.contender))
    }

    /// The same without the controls.
    pub fn methods(&self) -> Vec<MethodId> {
        self.contenders().into_iter().filter(|one| *one != NONE).collect()
    }

    /// A method on a ground.
    pub fn judged(&self, contender: MethodId, ground: &Ground) -> Option<&Judged> {
        self.fidelity.iter().find(|one| one.contender == contender && ground.is_of(&one.workload, one.cores))
    }

    /// The cells of a ground, slowest speed first.
    pub fn cells_of(&self, ground: &Ground) -> Vec<&CellResult> {
        let mut cells: Vec<_> =
            self.cells.iter().filter(|cell| ground.is_of(&cell.workload, cell.cores)).collect();
        cells.sort_by(|a, b| a.share.total_cmp(&b.share));
        cells
    }
}

impl Ground {
    pub(super) fn is_of(&self, workload: &str, cores: usize) -> bool {
        self.workload == workload && self.cores == cores
    }

    /// Its name: `multithread, 2 CPUs`.
    pub fn name(&self) -> String {
        ground_name(&self.workload, self.cores)
    }

    /// Why its figures are not what their name says, in a sentence; `None` where they are.
    pub fn doubt(&self) -> Option<String> {
        let arrays = self.arrays.filter(|arrays| !arrays.obeys_rule())?;
        Some(format!(
            "{}: the arrays of {} MiB are not four times the caches, as STREAM's rule has it: caches may have been measured.",
            self.name(),
            arrays.array_bytes >> 20
        ))
    }
}

/// `multithread, 2 CPUs`.
pub(super) fn ground_name(workload: &str, cores: usize) -> String {
    format!("{workload}, {cores} CPU{}", if cores == 1 { "" } else { "s" })
}

impl Judged {
    /// The work, as in the tables: `multithread, 2 CPUs`.
    pub fn ground_name(&self) -> String {
        ground_name(&self.workload, self.cores)
    }

    /// Why there is no verdict, where that is not the intervals alone: `at 50%: 9 of 15 pairs were disturbed, …`.
    pub fn doubt_in_words(&self) -> Option<String> {
        self.doubt.map(|(share, doubt)| format!("at {}: {doubt}", percent(share)))
    }
}

impl Furthest {
    /// Of some cells, of which those with this verdict go before.
    pub(super) fn of<'a>(cells: impl IntoIterator<Item = &'a CellResult>, verdict: Verdict) -> Option<Self> {
        let rank = |cell: &CellResult| {
            let has_it = discriminant(&cell.finding.verdict) == discriminant(&verdict);
            (has_it, cell.finding.relative.estimate.ln().abs())
        };
        let counting = cells.into_iter().filter(|cell| cell.finding.pairs > 0);
        let furthest = counting.max_by(|a, b| {
            let (a, b) = (rank(a), rank(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        })?;
        Some(Self { share: furthest.share, relative: furthest.finding.relative })
    }

    /// Relative error of the speed: −0.01 is one percent too slow.
    pub fn error(&self) -> f64 {
        self.relative.estimate - 1.0
    }
}

impl CellResult {
    /// The perceived speed at the ground's native clock: the native one times the relative speed of the pairs.
    pub fn perceived(&self, ground: &Ground) -> Interval {
        let ideal = ground.native.estimate * self.finding.ideal;
        self.finding.relative.map(|relative| relative * ideal)
    }
}

/// The speeds at which others were measured at such works, and this one was not: it was refused there, or failed.
pub(super) fn missing(
    cells: &[CellResult],
    contender: MethodId,
    is_meant: impl Fn(&str) -> bool,
) -> Vec<f64> {
    let of = |cell: &CellResult| (cell.workload.clone(), cell.cores, cell.share);
    let own: Vec<_> = cells.iter().filter(|cell| cell.contender == contender).map(of).collect();
    let is_missing =
        |cell: &&CellResult| cell.contender != NONE && is_meant(&cell.workload) && !own.contains(&of(cell));
    distinct(cells.iter().filter(is_missing).map(|cell| cell.share))
}

pub(super) fn is_promised(name: &str) -> bool {
    workload(name).is_ok_and(Workload::is_promised)
}

#[cfg(test)]
mod tests {
    use super::super::testing::cell;
    use super::*;

    #[test]
    fn a_speed_that_was_refused_or_failed_is_missing() {
        let of = |method: &str, share| CellResult {
            contender: method.parse().unwrap(),
            ..cell(share, &[share; 12], 0)
        };
        // Refused and failed ones have no cell.
        let cells = [of("cpu-hogs", 0.5), of("cpu-hogs", 0.25), of("cpu-lim", 0.5), of("none", 0.75)];
        let missing = |method: &str, work| missing(&cells, method.parse().unwrap(), |name| name == work);
        assert_eq!(missing("cpu-lim", "cpu-loop"), [0.25]);
        assert!(missing("cpu-hogs", "cpu-loop").is_empty() && missing("cpu-lim", "stream").is_empty());
    }

    #[test]
    fn the_furthest_speed_is_one_with_the_verdict_of_all() {
        let off = |share: f64, error: f64, disturbed| cell(share, &[share * (1.0 + error); 12], disturbed);
        let cells = [off(0.2, 0.3, 0), off(0.4, 0.04, 0), off(0.6, -0.4, 12), off(0.8, -0.3, 0)];
        let of = |verdict| Furthest::of(&cells, verdict).map(|one| (one.share, (one.error() * 1e3).round()));
        assert_eq!(of(Verdict::Fail), Some((0.8, -300.0)), "ln 0.7 is further from 0 than ln 1.3");
        assert_eq!(of(Verdict::Pass), Some((0.4, 40.0)));
        assert_eq!(Furthest::of(&cells[2..3], Verdict::NotEnoughData { pairs_needed: None }), None);
    }
}

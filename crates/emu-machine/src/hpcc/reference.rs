//! The share of a reference machine's rates that this one reaches, by kernel and size (P. Luszczek et al. 2011, § 6: of
//! bare metal, in a virtual machine).

use std::ops::RangeInclusive;

use emu_bench::stats::Interval;
use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HpccPlan, Kernel, Measured, Problem, Row};
use crate::witness::is_of_disturbance;

/// A kernel on both machines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// Which.
    pub kernel: Kernel,
    /// Threads at once.
    pub threads: usize,
    /// Equations of LINPACK by which the size was chosen, in a series of these.
    pub order: Option<usize>,
    /// Its size.
    pub size: usize,
    /// The best rate there, in work per second.
    pub there: f64,
    /// The best rate here in that of the reference; 1 is the same.
    pub share: f64,
    /// Its standard deviation, by the propagation of those of both machines' runs.
    pub sd: f64,
    /// The mean rate here in that of the reference, by the runs of both that count; `None` where one has a single run.
    pub of_means: Option<Interval>,
}

/// Rows of a measurement that a reference has no counterpart of, by their names.
pub fn without_counterpart(here: &Measured, there: &Measured) -> Vec<String> {
    here.rows.iter().filter(|row| counterpart(row, there).is_none()).map(Row::name).collect()
}

/// The row of a reference that is of the same work.
fn counterpart<'a>(here: &Row, there: &'a Measured) -> Option<&'a Row> {
    let work = |row: &Row| (row.kernel, row.threads, row.order, row.size);
    there.rows.iter().find(|there| work(there) == work(here))
}

impl Measured {
    /// Refuses a reference that nothing can be compared with.
    ///
    /// # Errors
    /// Usage, for one with a wrong result, or with a rate that is none.
    pub fn check_reference(&self) -> Result<()> {
        if !self.passed() {
            return Err(Error::usage("cannot compare with the reference: one of its results is wrong")
                .hint("measure it again on a machine that calculates right"));
        }
        let is_rate = |rate: f64| PLAUSIBLE.contains(&rate);
        let is_bad = |row: &&Row| !is_rate(row.best) || row.runs.iter().any(|run| !is_rate(run.rate));
        match self.rows.iter().find(is_bad) {
            Some(row) => Err(Error::usage(format!(
                "cannot compare with the reference: its rate of {} is none: {:e}",
                row.name(),
                row.best
            ))
            .hint("the record is damaged: measure it again")),
            None => Ok(()),
        }
    }

    /// Notes on what was disturbed while it was measured.
    pub fn disturbances(&self) -> impl Iterator<Item = &str> {
        self.notes.iter().map(String::as_str).filter(|note| is_of_disturbance(note))
    }
}

impl HpccPlan {
    /// Refuses a reference that nothing planned can be compared with.
    ///
    /// # Errors
    /// As [`check_reference`](Measured::check_reference); usage, where both have nothing in common.
    pub fn check_reference(&self, there: &Measured) -> Result<()> {
        there.check_reference()?;
        let is_of = |row: &Row, problem: &Problem| {
            (problem.order, problem.size(row.kernel, row.threads)) == (row.order, row.size)
        };
        let is_planned = |row: &Row| {
            self.threads.contains(&row.threads) && self.problems.iter().any(|problem| is_of(row, problem))
        };
        if there.rows.iter().any(is_planned) {
            return Ok(());
        }
        Err(Error::usage(
            "cannot compare with the reference: no kernel is run with the same size and threads on both",
        )
        .hint("measure both in the same way: with the same --sizes, --threads and --quick"))
    }
}

/// Work in a second that a machine can do: a run of less would not end, and nothing does more.
const PLAUSIBLE: RangeInclusive<f64> = 1.0..=1e21;

impl Share {
    /// What was measured here in what a reference has measured, for each kernel, number of threads and size of both.
    pub fn all(here: &Measured, there: &Measured) -> Vec<Self> {
        let of = |here: &Row| {
            let there = counterpart(here, there)?;
            let share = here.best / there.best;
            let relative = |row: &Row| row.sd() / row.best;
            Some(Self {
                kernel: here.kernel,
                threads: here.threads,
                order: here.order,
                size: here.size,
                there: there.best,
                share,
                sd: share * relative(here).hypot(relative(there)),
                of_means: here.ratio(there),
            })
        };
        here.rows.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Run, Sizes};
    use super::*;
    use crate::testing::host_of;

    fn measured(threads: usize, rates: &[f64], passed: bool) -> Measured {
        let run = |rate: &f64| Run { seconds: 1.0, rate: *rate, error: None, passed, disturbed: false };
        let problem = Problem { order: Some(500), sizes: Sizes::LEAST, stream_bytes: 8000 };
        let row = Row::new(Kernel::Fft, threads, &problem, rates.iter().map(run).collect()).unwrap();
        Measured { rows: vec![row], stream_obeys_rule: true, notes: vec![], conclusion: String::new() }
    }

    #[test]
    fn a_share_is_of_the_best_with_the_scatter_of_both() {
        let (here, there) = (measured(2, &[8.0, 10.0], true), measured(2, &[20.0, 20.0], true));
        let [share] = Share::all(&here, &there)[..] else { panic!() };
        assert_eq!((share.share, share.order, share.there), (0.5, Some(500), 20.0));
        assert!((share.sd - 0.5 * 2.0_f64.sqrt() / 10.0).abs() < 1e-12, "{share:?}");
        let of_means = share.of_means.unwrap();
        assert!((of_means.estimate - 80_f64.sqrt() / 20.0).abs() < 1e-12, "{of_means:?}");
        assert!(of_means.high - of_means.low > 4.0 * share.sd, "of two runs little is known: {of_means:?}");
    }

    #[test]
    fn rows_are_compared_with_those_of_the_same_series_only() {
        let here = measured(2, &[8.0, 9.0], true);
        let mut there = here.clone();
        there.rows.push(Row { threads: 1, ..here.rows[0].clone() });
        assert!(without_counterpart(&here, &there).is_empty());
        there.rows[0].order = Some(300);
        assert_eq!(without_counterpart(&here, &there), ["fft 500 (2 threads)"]);
        assert!(Share::all(&here, &there).is_empty());
    }

    #[test]
    fn a_reference_without_a_rate_is_refused() {
        for bad in [0.0, -1.0, 1e-300, 1e300, f64::INFINITY, f64::NAN] {
            let mut there = measured(2, &[8.0, 9.0], true);
            there.rows[0].best = bad;
            let error = there.check_reference().unwrap_err();
            assert_eq!(error.kind(), emu_core::ErrorKind::Usage, "{bad}");
            assert!(error.to_string().contains("fft 500 (2 threads) is none"), "{error}");
        }
    }

    #[test]
    fn references_are_refused_before_anything_is_measured() {
        let host = host_of(&["0-1"], "0-1");
        let plan = HpccPlan::new(&host, true, 1, &[2]).unwrap();
        let problem = &plan.problems[0];
        let mut there = measured(2, &[8.0], true);
        there.rows[0] = Row::new(Kernel::Fft, 2, problem, there.rows[0].runs.clone()).unwrap();
        plan.check_reference(&there).unwrap();
        let series = plan.clone().of_series(&host, &[500]).unwrap();
        let fewer = HpccPlan { threads: vec![1], ..plan.clone() };
        let mut full = plan.clone();
        full.problems[0].sizes.fft *= 2;
        for other in [series, fewer, full] {
            let error = other.check_reference(&there).unwrap_err();
            assert!(error.to_string().contains("no kernel is run with the same size"), "{error}");
        }
        let wrong = measured(2, &[8.0], false);
        assert!(plan.check_reference(&wrong).unwrap_err().to_string().contains("is wrong"));
    }
}

//! The share of a reference machine's rates that this one reaches, by kernel and size (P. Luszczek et al. 2011, § 6: of
//! bare metal, in a virtual machine).

use emu_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{Kernel, Measured, Row};

/// A kernel on both machines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
}

impl Share {
    /// What was measured here in what a reference has measured, for each kernel, number of threads and size of both.
    pub fn all(here: &Measured, there: &Measured) -> Result<Vec<Self>> {
        if !there.passed() {
            return Err(Error::usage("cannot compare with the reference: one of its results is wrong"));
        }
        let of = |here: &Row| {
            let is_same = |there: &&Row| {
                (there.kernel, there.threads, there.size) == (here.kernel, here.threads, here.size)
            };
            let there = there.rows.iter().find(is_same)?;
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
            })
        };
        let all: Vec<_> = here.rows.iter().filter_map(of).collect();
        if all.is_empty() {
            return Err(Error::usage(
                "cannot compare with the reference: no kernel was run with the same size and threads on both",
            )
            .hint("measure both in the same way: with the same --sizes and --threads"));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Problem, Run, Sizes};
    use super::*;

    fn measured(threads: usize, rates: &[f64], passed: bool) -> Measured {
        let run = |rate: &f64| Run { seconds: 1.0, rate: *rate, error: None, passed };
        let problem = Problem { order: Some(500), sizes: Sizes::LEAST, stream_bytes: 8000 };
        let row = Row::new(Kernel::Fft, threads, &problem, rates.iter().map(run).collect()).unwrap();
        Measured { rows: vec![row], stream_obeys_rule: true, notes: vec![], conclusion: String::new() }
    }

    #[test]
    fn a_share_is_of_the_best_with_the_scatter_of_both() {
        let (here, there) = (measured(2, &[8.0, 10.0], true), measured(2, &[20.0, 20.0], true));
        let [share] = Share::all(&here, &there).unwrap()[..] else { panic!() };
        assert_eq!((share.share, share.order, share.there), (0.5, Some(500), 20.0));
        assert!((share.sd - 0.5 * 2.0_f64.sqrt() / 10.0).abs() < 1e-12, "{share:?}");
    }

    #[test]
    fn references_that_are_wrong_or_of_something_else_are_refused() {
        let here = measured(2, &[8.0], true);
        for (there, part) in
            [(measured(2, &[8.0], false), "is wrong"), (measured(1, &[8.0], true), "no kernel")]
        {
            assert!(Share::all(&here, &there).unwrap_err().to_string().contains(part));
        }
    }
}

//! Measures how faithful CPU emulation is: workloads, paired sampling, statistics, records.
//!
//! ```no_run
//! use emu_bench::verify::{Plan, SessionEmulated, Trial, verify};
//! use emu_core::{Demand, Host, Roots, Target, ids};
//!
//! # fn main() -> emu_core::Result<()> {
//! let host = Host::detect(&Roots::system())?;
//! let demand = Demand::new([(0, Target { share: 0.5, clock: None })].into());
//! let mut hogs = SessionEmulated::named(&host, &demand, ids::CPU_HOGS)?;
//! let plan = Plan::new(42);
//! let trial = Trial::of("cpu-loop", hogs.demand(), &plan.setting(&hogs, &hogs.demand().targets))?;
//! for finding in verify(&mut hogs, &trial, &plan, &mut |_| Ok(()))?.findings {
//!     println!("{:?} {:?}", finding.verdict, finding.relative);
//! }
//! # Ok(())
//! # }
//! ```

#![allow(
    clippy::missing_errors_doc,
    reason = "an error says itself what is wrong; docs tell what a caller acts on"
)]

pub mod experiment;
pub mod external;
pub mod memory;
pub mod numbers;
pub mod record;
pub mod report;
pub mod stats;
pub mod stream;
pub mod table;
pub mod throttle;
pub mod ticks;
pub mod verify;
pub mod worker;
pub mod workload;

use std::fmt::Display;

pub use emu_core::as_ns::nanos;
use emu_core::{Error, ErrorKind};

/// A result that is not what it must be, and in words what of it: nothing that was measured meanwhile counts.
pub fn wrong(what: impl Display) -> Error {
    Error::new(ErrorKind::WrongResult, format!("wrong {what}; the sample is void"))
}

/// Each value once, in the order in which they come.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    values.into_iter().fold(Vec::new(), |mut all, value| {
        if !all.contains(&value) {
            all.push(value);
        }
        all
    })
}

/// Values in groups of those that are alike, in the order in which the first of each comes.
pub fn grouped<T>(values: impl IntoIterator<Item = T>, are_alike: impl Fn(&T, &T) -> bool) -> Vec<Vec<T>> {
    values.into_iter().fold(Vec::new(), |mut groups: Vec<Vec<T>>, value| {
        match groups.iter_mut().find(|group| group.first().is_some_and(|first| are_alike(first, &value))) {
            Some(group) => group.push(value),
            None => groups.push(vec![value]),
        }
        groups
    })
}

/// Words as in a sentence: `a, b and c`.
pub fn listed(words: &[impl AsRef<str>]) -> String {
    let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
    match &words[..] {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn values_that_come_again_are_left_out() {
        assert_eq!(super::distinct([2, 1, 2, 3, 1]), [2, 1, 3]);
    }

    #[test]
    fn words_are_joined_as_in_a_sentence() {
        let words = |words: &[&str]| super::listed(words);
        assert_eq!([words(&[]), words(&["a"]), words(&["a", "b", "c"])], ["", "a", "a, b and c"]);
    }
}

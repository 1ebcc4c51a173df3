//! Statistics of measurements: estimates with intervals, comparisons with verdicts.
//!
//! Nothing here reads a clock, a file or an unseeded random number: the same measurements and the same seed give the same
//! figures on every host. Values enter through [`Sample`], [`Pair`] or [`Stamp`]; what is not a measurement is refused, so no
//! figure is NaN. A comparison is a ratio with an [`Interval`], never "no significant difference": too little data is a
//! [`Verdict`] of its own.
//!
//! ```
//! use emu_bench::stats::{Band, Centre, Level, Pair, PairedRatios, Verdict};
//! let pairs = [(49.6, 100.0), (50.0, 100.0), (50.5, 100.0)].map(|(emulated, native)| Pair::new(emulated, native).unwrap());
//! let ratio = PairedRatios::new(&pairs)?.relative_to(0.5)?.ratio(Centre::Mean, Level::P95)?;
//! assert!(ratio.contains(1.0));
//! assert_eq!(Verdict::of(&ratio, pairs.len(), Band::FIVE_PERCENT, Level::P95)?, Verdict::Pass);
//! # Ok::<(), emu_core::Error>(())
//! ```

mod aa;
mod bootstrap;
mod dips;
mod distribution;
mod equivalence;
mod fairness;
mod fidelity;
mod granularity;
mod interval;
mod median;
mod noise;
#[cfg(test)]
pub(crate) mod oracles;
mod paired;
mod power;
mod regression;
mod sample;
mod scatter;
mod segments;
mod signed_ranks;

pub use aa::AaTest;
pub use bootstrap::Bootstrap;
pub use dips::{Dip, Dips};
pub(crate) use equivalence::pairs_for_a_median;
pub use equivalence::{Band, Verdict};
pub use fairness::fairness;
pub use fidelity::{Cell, Fidelity};
pub use granularity::{Granularity, SMOOTH_CV, Spread, Stamp, WINDOWS_MS, Window};
pub use interval::{Interval, Level};
pub use noise::Noise;
pub use paired::{Centre, Pair, PairedRatios};
pub use regression::{Coefficient, FTest, LinearFit, slope_through_origin};
pub use sample::Sample;
pub use scatter::{Place, Scatter};
pub use segments::{Segment, segments};

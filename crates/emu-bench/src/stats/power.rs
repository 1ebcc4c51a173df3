//! Planning: what a number of pairs can tell, and how many pairs are needed to tell it.

use emu_core::Result;

use super::distribution::t_critical;
use super::interval::Level;

/// The chance that an experiment of the planned size decides, when the effect is as assumed (Cohen 1988: 80 %).
const POWER: f64 = 0.8;

/// Experiments of more pairs than this are not planned.
const PAIRS_MAX: usize = 1_000_000;

/// The effect, as a multiple of the standard error, that `pairs` pairs (two or more) find with the chance [`POWER`]: the
/// interval's half width and what chance takes back one time in five, t(level) + t(power), the usual approximation to the
/// noncentral t (Julious 2004, *Sample sizes for clinical trials with normal data*, Stat. Med. 23).
fn standard_errors(pairs: usize, level: Level) -> Result<f64> {
    let df = (pairs - 1) as f64;
    Ok(t_critical(level.get(), df)? + t_critical(2.0 * POWER - 1.0, df)?)
}

/// The spread of a single pair that would give `pairs` pairs this half width: exact for t intervals; for medians the effective
/// spread, so that one plan serves both.
fn spread(half_width: f64, pairs: usize, level: Level) -> Result<f64> {
    Ok(half_width * (pairs as f64).sqrt() / t_critical(level.get(), (pairs - 1) as f64)?)
}

/// The smallest effect that `pairs` pairs (two or more) with intervals of this half width find with the chance [`POWER`].
pub(super) fn detectable(half_width: f64, pairs: usize, level: Level) -> Result<f64> {
    Ok(standard_errors(pairs, level)? * spread(half_width, pairs, level)? / (pairs as f64).sqrt())
}

/// Pairs in all that decide about an estimate `distance` from the border with the chance [`POWER`], when `pairs` of them gave
/// this half width. `None` beyond a million: the estimate lies on the border.
pub(super) fn pairs_needed(
    half_width: f64,
    pairs: usize,
    level: Level,
    distance: f64,
) -> Result<Option<usize>> {
    let spread = spread(half_width, pairs, level)?;
    let decides = |n: usize| {
        Ok::<_, emu_core::Error>(standard_errors(n, level)? * spread <= distance * (n as f64).sqrt())
    };
    let (mut too_few, mut enough) = (pairs, PAIRS_MAX);
    if too_few >= enough || !decides(enough)? {
        return Ok(None);
    }
    while enough - too_few > 1 {
        let middle = usize::midpoint(too_few, enough);
        if decides(middle)? { enough = middle } else { too_few = middle }
    }
    Ok(Some(enough))
}

#[cfg(test)]
mod tests {
    use super::super::oracles::{close, oracles};
    use super::*;

    #[test]
    fn plans_agree_with_a_search_in_scipy() {
        for case in &oracles().plans {
            let level = Level::new(case.level).unwrap();
            close(detectable(case.half_width, case.pairs, level).unwrap(), case.detectable, "detectable");
            let needed = pairs_needed(case.half_width, case.pairs, level, case.distance).unwrap();
            assert_eq!(needed, case.needed, "{} pairs, distance {}", case.pairs, case.distance);
        }
    }

    #[test]
    fn no_number_of_pairs_decides_on_the_border() {
        assert_eq!(pairs_needed(0.1, 10, Level::P95, 0.0).unwrap(), None);
        assert_eq!(pairs_needed(0.1, 10, Level::P95, 1e-6).unwrap(), None);
    }
}

//! The granularity spectrum: over which time an emulated CPU looks like a smoothly slower one.

use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sample::Sample;

/// The window lengths of the spectrum, in milliseconds.
pub const WINDOWS_MS: [u64; 6] = [1, 3, 10, 30, 100, 300];

/// Work per window counts as smooth below this coefficient of variation.
pub const SMOOTH_CV: f64 = 0.05;

/// The fewest windows whose variation is stated; of ten, its own relative error is about 25 %.
const WINDOWS_MIN: u64 = 10;

/// Stamps that must fall into a typical window: a stamp is off by up to one quantum of work at each border.
const STAMPS_PER_WINDOW: f64 = 10.0;

/// The longest series accepted, one hour: it bounds the number of windows.
const SPAN_MAX_NS: u64 = 3_600_000_000_000;

/// A progress report: so much work had been done at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Stamp {
    /// Monotonic clock, nanoseconds.
    pub time_ns: u64,
    /// Work done since any fixed start, in any unit.
    pub work: u64,
}

/// How the work per window spreads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// Coefficient of variation; 0 is perfectly smooth.
    Cv(f64),
    /// No work was done in any window: what there was came after the last whole one. Not smooth.
    NoWork,
    /// Unknown: the series holds fewer than ten windows.
    SeriesTooShort,
    /// Unknown: the typical distance of stamps is more than a tenth of the window.
    StampsTooSparse,
}

/// One line of the spectrum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// Length in milliseconds.
    pub length_ms: u64,
    /// Variation of the work done in windows of this length.
    pub spread: Spread,
}

/// How smoothly work progressed, by fixed time quanta (Sottile & Minnich 2004, *Analysis of microbenchmarks for
/// performance tuning of clusters*: FTQ).
///
/// A slower clock is smooth at every length; an on/off method only at lengths well above its period, or at
/// whole multiples of it. Assumes stamps by the worker itself after every small, equal quantum of work, and
/// progress at an even rate between two stamps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Granularity {
    /// The spectrum, shortest window first; one entry for each of [`WINDOWS_MS`].
    pub windows: Vec<Window>,
    /// The shortest known window that is smooth ([`SMOOTH_CV`]) and after which all longer known ones are. An
    /// upper bound when shorter ones are unknown; `None` when the longest known window is not smooth.
    pub smooth_from_ms: Option<u64>,
    /// The longest time without any progress, in nanoseconds; the quantum of work that ended it is included.
    pub longest_stall_ns: u64,
}

impl Granularity {
    /// Computes the spectrum of stamps in the order of time, over at most an hour.
    pub fn of(stamps: &[Stamp]) -> Result<Self> {
        let (first, last) = ends(stamps)?;
        let span_ns = last.time_ns - first.time_ns;
        let gaps: Vec<f64> = stamps
            .windows(2)
            .filter_map(|pair| match pair {
                [a, b] if b.time_ns > a.time_ns => Some((b.time_ns - a.time_ns) as f64),
                _ => None,
            })
            .collect();
        let typical_gap_ns = Sample::new(gaps)?.median();
        let windows = WINDOWS_MS
            .iter()
            .map(|&length_ms| {
                let length_ns = length_ms * 1_000_000;
                let spread = if span_ns / length_ns < WINDOWS_MIN {
                    Spread::SeriesTooShort
                } else if typical_gap_ns * STAMPS_PER_WINDOW > length_ns as f64 {
                    Spread::StampsTooSparse
                } else {
                    let works = work_per_window(stamps, first, length_ns, span_ns / length_ns)?;
                    works.cv().map_or(Spread::NoWork, Spread::Cv)
                };
                Ok(Window { length_ms, spread })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            smooth_from_ms: smooth_from(&windows),
            windows,
            longest_stall_ns: longest_stall(stamps, first, last),
        })
    }
}

fn ends(stamps: &[Stamp]) -> Result<(Stamp, Stamp)> {
    let (Some(&first), Some(&last)) = (stamps.first(), stamps.last()) else {
        return Err(Error::usage("cannot see progress in an empty series"));
    };
    let backwards = |pair: &[Stamp]| match pair {
        [a, b] => b.time_ns < a.time_ns || b.work < a.work,
        _ => false,
    };
    if let Some(index) = stamps.windows(2).position(backwards) {
        return Err(Error::usage(format!(
            "cannot see progress: time or work runs backwards after stamp {index}"
        )));
    }
    let span_ns = last.time_ns - first.time_ns;
    if span_ns == 0 || span_ns > SPAN_MAX_NS {
        return Err(Error::usage(format!("cannot see progress in a series of {span_ns} ns"))
            .hint("stamp for at least some milliseconds and at most an hour"));
    }
    if last.work == first.work {
        return Err(Error::usage(format!("cannot see progress: no work was done in {span_ns} ns")));
    }
    Ok((first, last))
}

fn work_per_window(stamps: &[Stamp], first: Stamp, length_ns: u64, count: u64) -> Result<Sample> {
    let mut later = stamps.iter().copied().skip(1).peekable();
    let mut before = first;
    let mut done = 0.0;
    let mut works = Vec::with_capacity(count as usize);
    for index in 1..=count {
        let border_ns = first.time_ns + index * length_ns;
        while let Some(stamp) = later.next_if(|stamp| stamp.time_ns <= border_ns) {
            before = stamp;
        }
        let at_border = (before.work - first.work) as f64
            + later.peek().map_or(0.0, |after| {
                let share = (border_ns - before.time_ns) as f64 / (after.time_ns - before.time_ns) as f64;
                share * (after.work - before.work) as f64
            });
        works.push(at_border - done);
        done = at_border;
    }
    Sample::new(works)
}

fn smooth_from(windows: &[Window]) -> Option<u64> {
    windows
        .iter()
        .rev()
        .filter(|window| !matches!(window.spread, Spread::SeriesTooShort | Spread::StampsTooSparse))
        .take_while(|window| matches!(window.spread, Spread::Cv(cv) if cv < SMOOTH_CV))
        .map(|window| window.length_ms)
        .last()
}

fn longest_stall(stamps: &[Stamp], first: Stamp, last: Stamp) -> u64 {
    let mut latest = first;
    let mut longest = 0;
    for &stamp in stamps {
        if stamp.work > latest.work {
            longest = longest.max(stamp.time_ns - latest.time_ns);
            latest = stamp;
        }
    }
    longest.max(last.time_ns - latest.time_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// A worker that does one unit of work in 20 µs while it may run, over `span_ms`, and runs for `on_us` of
    /// each `period_us`.
    fn on_off(span_ms: u64, period_us: u64, on_us: u64) -> Vec<Stamp> {
        let mut stamps = vec![Stamp { time_ns: 0, work: 0 }];
        let (mut now_us, mut work) = (0, 0);
        while now_us < span_ms * 1000 {
            let mut left = 20;
            while left > 0 {
                if now_us % period_us < on_us {
                    left -= 1;
                }
                now_us += 1;
            }
            work += 1;
            stamps.push(Stamp { time_ns: now_us * 1000, work });
        }
        stamps
    }

    fn cv_of(granularity: &Granularity, length_ms: u64) -> f64 {
        let window = granularity.windows.iter().find(|window| window.length_ms == length_ms).unwrap();
        match window.spread {
            Spread::Cv(cv) => cv,
            unknown => panic!("{length_ms} ms: {unknown:?}"),
        }
    }

    #[test]
    fn a_slower_clock_is_smooth_at_every_length() {
        let stamps: Vec<Stamp> = (0..100_000).map(|i| Stamp { time_ns: i * 50_000, work: i }).collect();
        let got = Granularity::of(&stamps).unwrap();
        assert_eq!((got.smooth_from_ms, got.longest_stall_ns), (Some(1), 50_000));
        assert!(WINDOWS_MS.iter().all(|&length_ms| cv_of(&got, length_ms) < 1e-9), "{got:?}");
    }

    /// Half speed in periods of 20 ms. Windows of 1 ms are on or off: CV 1 (a fair coin). Windows of 10 ms are
    /// all on or all off too. 30 ms hold one and a half periods, so work is 10 or 20 ms: CV 1/3. 100 and 300 ms
    /// hold whole periods.
    #[test]
    fn an_on_off_method_is_smooth_at_multiples_of_its_period() {
        let got = Granularity::of(&on_off(6000, 20_000, 10_000)).unwrap();
        for (length_ms, expected) in [(1, 1.0), (10, 1.0), (30, 1.0 / 3.0), (100, 0.0), (300, 0.0)] {
            let cv = cv_of(&got, length_ms);
            assert!((cv - expected).abs() < 0.02, "{length_ms} ms: {cv}");
        }
        assert_eq!(got.smooth_from_ms, Some(100));
        assert!((10 * MS..=10 * MS + 20_000).contains(&got.longest_stall_ns), "{}", got.longest_stall_ns);
    }

    #[test]
    fn a_short_period_is_smooth_earlier_than_a_long_one() {
        let short = Granularity::of(&on_off(4000, 1000, 250)).unwrap();
        let long = Granularity::of(&on_off(4000, 100_000, 25_000)).unwrap();
        assert_eq!(short.smooth_from_ms, Some(1));
        assert_eq!(long.smooth_from_ms, Some(100));
        assert!((75 * MS..=75 * MS + 20_000).contains(&long.longest_stall_ns), "{}", long.longest_stall_ns);
    }

    #[test]
    fn a_known_stall_is_found_with_its_size() {
        let stall = |i: u64| if i > 40_000 { 123 * MS } else { 0 };
        let stamps: Vec<Stamp> =
            (0..100_000).map(|i| Stamp { time_ns: i * 50_000 + stall(i), work: 3 * i }).collect();
        assert_eq!(Granularity::of(&stamps).unwrap().longest_stall_ns, 123 * MS + 50_000);
    }

    /// An observer stamps by the clock and sees the same work again and again, also at the very end.
    #[test]
    fn stamps_without_progress_belong_to_one_stall() {
        let work = |i: u64| if i < 30_000 { i } else { 30_000 };
        let stamps: Vec<Stamp> = (0..40_000).map(|i| Stamp { time_ns: i * 50_000, work: work(i) }).collect();
        assert_eq!(Granularity::of(&stamps).unwrap().longest_stall_ns, 9_999 * 50_000);
    }

    #[test]
    fn what_the_series_cannot_show_is_called_unknown() {
        let stamps: Vec<Stamp> = (0..1000).map(|i| Stamp { time_ns: i * 500_000, work: i }).collect();
        let got = Granularity::of(&stamps).unwrap();
        let spreads: Vec<Spread> = got.windows.iter().map(|window| window.spread).collect();
        assert_eq!(spreads[..2], [Spread::StampsTooSparse; 2]);
        assert!(matches!(spreads[2..4], [Spread::Cv(_), Spread::Cv(_)]), "{spreads:?}");
        assert_eq!(spreads[4..], [Spread::SeriesTooShort; 2]);
        assert_eq!(got.smooth_from_ms, Some(10));
    }

    #[test]
    fn a_rough_longest_window_leaves_no_smooth_one() {
        let got = Granularity::of(&on_off(4000, 700_000, 350_000)).unwrap();
        assert_eq!(got.smooth_from_ms, None);
    }

    #[test]
    fn work_only_after_the_last_whole_window_is_not_smooth() {
        let stamps: Vec<Stamp> =
            (0..4300).map(|i| Stamp { time_ns: i * 25_000, work: i.saturating_sub(4290) }).collect();
        let got = Granularity::of(&stamps).unwrap();
        assert_eq!(got.windows[2].spread, Spread::NoWork);
        assert_eq!(got.smooth_from_ms, None);
    }

    #[test]
    fn series_that_show_no_progress_are_refused() {
        let stamp = |time_ns, work| Stamp { time_ns, work };
        for bad in [
            vec![],
            vec![stamp(1, 1)],
            vec![stamp(1, 1), stamp(1, 2)],
            vec![stamp(0, 5), stamp(MS, 5)],
            vec![stamp(5, 1), stamp(4, 2), stamp(6, 3)],
            vec![stamp(0, 1), stamp(1, 0), stamp(2, 9)],
            vec![stamp(0, 0), stamp(u64::MAX, 1)],
        ] {
            assert!(Granularity::of(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn stamps_at_the_same_time_are_no_trouble() {
        let stamps: Vec<Stamp> = (0..40_000).map(|i| Stamp { time_ns: i / 2 * 50_000, work: i }).collect();
        assert_eq!(Granularity::of(&stamps).unwrap().smooth_from_ms, Some(1));
    }

    proptest! {
        #[test]
        fn windows_share_out_the_work_and_lose_none(
            steps in prop::collection::vec((1_u64..60_000, 0_u64..50), 2..400), length_ns in 1000_u64..100_000,
        ) {
            let mut stamps = vec![Stamp { time_ns: 7, work: 3 }];
            for (time, work) in steps {
                let last = stamps[stamps.len() - 1];
                stamps.push(Stamp { time_ns: last.time_ns + time, work: last.work + work });
            }
            let (first, last) = (stamps[0], stamps[stamps.len() - 1]);
            let count = (last.time_ns - first.time_ns) / length_ns;
            prop_assume!(count > 0);
            let works = work_per_window(&stamps, first, length_ns, count).unwrap();
            prop_assert!(works.min() >= -1e-9);
            let sum: f64 = works.values().iter().sum();
            let whole = (last.work - first.work) as f64;
            prop_assert!(sum <= whole + 1e-6);
            if (last.time_ns - first.time_ns) == count * length_ns {
                prop_assert!((sum - whole).abs() < 1e-6);
            }
        }

        #[test]
        fn the_unit_of_work_and_the_start_of_the_clock_do_not_matter(
            steps in prop::collection::vec((40_000_u64..60_000, 1_u64..50), 300..600), unit in 1_u64..1000, start in 0..u64::MAX / 2,
        ) {
            let (mut plain, mut other) = (vec![], vec![]);
            let (mut time, mut work) = (0, 0);
            for (dt, dw) in steps {
                plain.push(Stamp { time_ns: time, work });
                other.push(Stamp { time_ns: start + time, work: work * unit });
                time += dt;
                work += dw;
            }
            let (plain, other) = (Granularity::of(&plain).unwrap(), Granularity::of(&other).unwrap());
            prop_assert_eq!(plain.longest_stall_ns, other.longest_stall_ns);
            for (a, b) in plain.windows.iter().zip(&other.windows) {
                match (a.spread, b.spread) {
                    (Spread::Cv(a), Spread::Cv(b)) => prop_assert!((a - b).abs() < 1e-9),
                    (a, b) => prop_assert_eq!(a, b),
                }
            }
        }
    }
}

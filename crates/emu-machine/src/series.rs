//! The same measurement again and again for a long time: does the machine always give as much?

use std::time::{Duration, Instant};

use emu_bench::nanos;
use emu_bench::stats::{Dip, Dips, Sample};
use emu_core::{Error, Host, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Event, Watch, notes_of_build, tell};
use crate::witness::{Others, Witness};

/// Samples that a median needs to mean something.
const SAMPLES_MIN: u64 = 10;

const EVERY_MIN: Duration = Duration::from_millis(10);

/// The longest sample: nothing else is looked at meanwhile, a signal to emu neither.
const EVERY_MAX: Duration = Duration::from_secs(10);

/// How long and how closely is looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SeriesPlan {
    /// The whole time.
    pub length_ns: u64,
    /// From the begin of one sample to that of the next.
    pub every_ns: u64,
}

impl SeriesPlan {
    /// A plan for these times: ten samples at least, each of 10 ms to 10 s.
    pub fn new(length: Duration, every: Duration) -> Result<Self> {
        let (length_ns, every_ns) = (nanos(length), nanos(every));
        let (what, hint) = if every < EVERY_MIN {
            let hint = format!("--every {EVERY_MIN:?} is the least");
            (format!("samples of {every:?} are too short"), hint)
        } else if every > EVERY_MAX {
            let hint = format!("--every {EVERY_MAX:?} is the most: a series ends between samples only");
            (format!("samples of {every:?} are too long"), hint)
        } else if length_ns / every_ns < SAMPLES_MIN {
            let seen = format!("dips are seen in {SAMPLES_MIN} samples at least");
            let hint = format!("{seen}: make --for longer, or --every shorter");
            (format!("{length:?} is too short for samples of {every:?}"), hint)
        } else {
            return Ok(Self { length_ns, every_ns });
        };
        Err(Error::usage(what).hint(hint))
    }

    fn samples(self) -> u64 {
        self.length_ns / self.every_ns
    }

    fn time(self, samples: u64) -> Duration {
        Duration::from_nanos(self.every_ns.saturating_mul(samples))
    }

    fn begun(self, time: Duration) -> u64 {
        nanos(time) / self.every_ns
    }
}

/// A long series and its dips.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// What was done, and in what its rates are counted.
    pub what: String,
    /// What the rates count each second.
    pub unit: String,
    /// From the begin of one sample to that of the next, in seconds.
    pub every_s: f64,
    /// The rate of every step, each second. A sample that was held up for several steps is the rate of each of them.
    pub rates: Vec<f64>,
    /// Where the rate was far lower than usual.
    pub dips: Dips,
    /// Whether others had a part of the CPUs meanwhile: the dips may be theirs, and so may what is usual.
    pub disturbed: bool,
    /// The steps, from 0, in which they had, of those that are long enough to tell.
    pub disturbed_steps: Vec<usize>,
    /// What is to be known of the figures, in sentences.
    pub notes: Vec<String>,
}

impl Series {
    /// From the begin of a dip to that of the next, in seconds; `None` where they come irregularly.
    pub fn period_s(&self) -> Option<f64> {
        self.dips.period_values.map(|values| values * self.every_s)
    }

    /// How many of the dips have a step in which others had a part of the CPUs.
    pub fn disturbed_dips(&self) -> usize {
        let is_disturbed = |dip: &&Dip| {
            self.disturbed_steps.iter().any(|step| (dip.begin..dip.begin + dip.values).contains(step))
        };
        self.dips.dips.iter().filter(is_disturbed).count()
    }
}

/// A sample of a series.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Told {
    /// When it began, from the begin of the series.
    at_s: f64,
    /// The rate, in the unit of the series.
    rate: f64,
    /// Whether others used the CPUs meanwhile.
    disturbed: bool,
}

/// Takes samples at even intervals. `sample` is given the time until the next one is due, and returns a rate.
pub fn run(
    host: &Host,
    plan: SeriesPlan,
    names: (&str, &str),
    sample: impl FnMut(Duration) -> Result<f64>,
    watch: Watch<'_>,
) -> Result<Series> {
    run_beside(Witness::new(host, 1, Others::Count), plan, names, sample, watch)
}

pub(crate) fn run_beside(
    mut witness: Witness<'_>,
    plan: SeriesPlan,
    names: (&str, &str),
    mut sample: impl FnMut(Duration) -> Result<f64>,
    watch: Watch<'_>,
) -> Result<Series> {
    let begin = Instant::now();
    // What is little of the whole may be all of a step.
    let step = |left| witness.beside_step(|| sample(left)).map(|(rate, seen)| (rate, seen.is_notable()));
    let (mut series, seen) = witness.beside(|| run_by(|| begin.elapsed(), plan, names, step, watch))?;
    series.disturbed = witness.note(names.0, seen);
    series.notes.splice(..0, witness.notes());
    Ok(series)
}

/// As [`run`], by a clock that tells the time since the begin.
fn run_by(
    clock: impl Fn() -> Duration,
    plan: SeriesPlan,
    (what, unit): (&str, &str),
    mut sample: impl FnMut(Duration) -> Result<(f64, bool)>,
    watch: Watch<'_>,
) -> Result<Series> {
    let (mut rates, mut disturbed_steps) = (Vec::new(), Vec::new());
    let mut number = 0;
    while number < plan.samples() {
        watch(Event::Next { what, left: plan.time(plan.samples() - number) })?;
        let at = clock();
        // A sample that ended late makes the next one shorter, so that the series keeps its step.
        let due = plan.time(number + 1);
        let left = due.saturating_sub(at).max(plan.time(1) / 10);
        let (rate, disturbed) = sample(left)?;
        let next = plan.begun(clock()).clamp(number + 1, plan.samples());
        tell(watch, "series", &Told { at_s: at.as_secs_f64(), rate, disturbed })?;
        // One that was held up for several steps is a dip of as many.
        rates.extend((number..next).map(|_| rate));
        disturbed_steps.extend((number..next).filter(|_| disturbed).map(|step| step as usize));
        number = next;
    }
    let dips = Dips::of(&Sample::new(rates.clone())?)?;
    Ok(Series {
        what: what.into(),
        unit: unit.into(),
        every_s: plan.time(1).as_secs_f64(),
        rates,
        dips,
        disturbed: false,
        disturbed_steps,
        notes: notes_of_build(),
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use emu_core::Roots;

    const STEP: Duration = Duration::from_secs(1);

    #[test]
    fn too_few_or_too_short_samples_are_refused() {
        let plan =
            |length, every| SeriesPlan::new(Duration::from_millis(length), Duration::from_millis(every));
        assert_eq!(plan(1000, 100).unwrap().samples(), 10);
        for (length, every) in [(999, 100), (1000, 9), (0, 10), (1, 1000), (1_000_000, 10_001)] {
            assert!(plan(length, every).unwrap_err().hint_text().is_some(), "{length} {every}");
        }
    }

    #[test]
    fn a_machine_that_dips_every_eighth_sample_is_found_out() {
        let plan = SeriesPlan::new(64 * STEP, STEP).unwrap();
        let (time, mut number) = (Cell::new(Duration::ZERO), 0);
        let sample = |left: Duration| {
            time.set(time.get() + left);
            number += 1;
            let rate = if number % 8 == 0 { 50.0 } else { 100.0 + f64::from(number % 3) };
            Ok((rate, number == 16))
        };
        let mut told = 0;
        let series = run_by(|| time.get(), plan, ("test", "operations"), sample, &mut |event| {
            told += usize::from(matches!(event, Event::Sample { .. }));
            Ok(())
        })
        .unwrap();
        assert_eq!((series.rates.len(), told), (64, 64));
        assert_eq!((series.dips.dips.len(), series.disturbed_dips()), (8, 1));
        assert!((series.period_s().unwrap() - 8.0).abs() < 1e-12);
        assert!((series.dips.share - 0.125).abs() < 1e-12);
    }

    #[test]
    fn a_sample_that_is_held_up_is_a_dip_as_long_as_it_was() {
        let plan = SeriesPlan::new(100 * STEP, STEP).unwrap();
        let time = Cell::new(Duration::ZERO);
        let sample = |left: Duration| {
            // The machine stands still once, for 20 s.
            let held = time.get() == 30 * STEP;
            time.set(time.get() + if held { 20 * STEP } else { left });
            Ok((if held { 5.0 } else { 100.0 }, held))
        };
        let series = run_by(|| time.get(), plan, ("test", "operations"), sample, &mut |_| Ok(())).unwrap();
        assert_eq!((series.rates.len(), series.dips.dips.len()), (100, 1));
        assert_eq!((series.dips.dips[0].begin, series.dips.dips[0].values), (30, 20));
        assert!((series.dips.share - 0.2).abs() < 1e-12);
        assert_eq!(series.disturbed_steps, (30..50).collect::<Vec<_>>());
    }

    #[test]
    fn a_series_that_is_stopped_until_its_end_is_not_longer() {
        let plan = SeriesPlan::new(10 * STEP, STEP).unwrap();
        let time = Cell::new(Duration::ZERO);
        let sample = |left: Duration| {
            time.set(time.get() + if time.get() == 9 * STEP { 50 * STEP } else { left });
            Ok((1.0, false))
        };
        let series = run_by(|| time.get(), plan, ("test", "operations"), sample, &mut |_| Ok(())).unwrap();
        assert_eq!(series.rates.len(), 10);
    }

    #[test]
    fn a_series_ends_when_it_is_told_to() {
        let plan = SeriesPlan { length_ns: 64_000, every_ns: 1000 };
        let host = Host::detect(&Roots::system()).unwrap();
        let ended = run(&host, plan, ("test", "x"), |_| Ok(1.0), &mut |_| Err(Error::usage("ended")));
        assert_eq!(ended.unwrap_err().to_string(), "ended");
    }
}

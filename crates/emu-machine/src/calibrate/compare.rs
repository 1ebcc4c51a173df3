//! Calibrations laid over one another: what a setting of a machine does to its rates.

use emu_bench::stats::{self, Interval, Level};
use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Analysis, Measured, Model, Threads};

/// A calibration under the name of what was set.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// How it is called.
    pub name: &'a str,
    /// The calibration.
    pub measured: &'a Measured,
}

/// A calibration beside the first one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Compared {
    /// How it is called.
    pub name: String,
    /// How many threads solved.
    pub threads: Threads,
    /// The model of its rates as they are: what a setting does to the clock is an effect of it.
    pub model: Model,
    /// CPUs of the largest quota.
    pub cpus: usize,
    /// Quotas of which every sample was disturbed.
    pub disturbed_quotas: Vec<f64>,
    /// The mean ratio of its rates to those of the first calibration over the quotas of both that were not disturbed, less
    /// 1; `None` for the first, and where fewer than three quotas are such.
    pub against_first: Option<Interval>,
}

/// Compares calibrations, in the order given.
///
/// # Errors
/// Usage, for fewer than two, and for such as have different systems or no number of threads in common.
pub fn compare(settings: &[Setting<'_>]) -> Result<Vec<Compared>> {
    let (Some(first), true) = (settings.first(), settings.len() > 1) else {
        return Err(Error::usage("cannot compare fewer than two calibrations").hint("name another one"));
    };
    let equations = |setting: &Setting<'_>| setting.measured.equations;
    if let Some(other) = settings.iter().find(|setting| equations(setting) != equations(first)) {
        return Err(Error::usage(format!(
            "cannot compare {} of {} equations with {} of {}: LINPACK's rate depends on them",
            other.name,
            equations(other),
            first.name,
            equations(first)
        ))
        .hint("calibrate both by the same sizes"));
    }
    let of = |setting: &Setting<'_>, threads: Threads| -> Option<Analysis> {
        setting.measured.analyses.iter().find(|one| one.threads == threads).cloned()
    };
    let is_common = |threads: &Threads| settings.iter().all(|setting| of(setting, *threads).is_some());
    let Some(threads) = Threads::EVERY.into_iter().find(is_common) else {
        return Err(Error::usage("cannot compare calibrations that have no number of threads in common")
            .hint("calibrate all of them in the same way: as published, or not"));
    };
    let all = settings.iter().filter_map(|setting| Some((setting, of(setting, threads)?)));
    let all: Vec<_> = all.collect();
    all.iter()
        .enumerate()
        .map(|(number, (setting, one))| {
            let base = all.first().filter(|_| number > 0).map(|(_, base)| base);
            Ok(Compared {
                name: setting.name.to_owned(),
                threads,
                model: one.measured.clone(),
                cpus: setting.measured.cpus,
                disturbed_quotas: one.disturbed_quotas.clone(),
                against_first: base.map(|base| ratio(one, base)).transpose()?.flatten(),
            })
        })
        .collect()
}

fn ratio(one: &Analysis, base: &Analysis) -> Result<Option<Interval>> {
    // Quotas are multiples of a step, but for rounding.
    let is_same = |quota: f64, other: f64| (other / quota - 1.0).abs() < 1e-9;
    let logs = one.measured.places.iter().filter_map(|place| {
        let mut disturbed = one.disturbed_quotas.iter().chain(&base.disturbed_quotas);
        if disturbed.any(|quota| is_same(*quota, place.x)) {
            return None;
        }
        let other = base.measured.places.iter().find(|other| is_same(other.x, place.x))?;
        Some((place.mean / other.mean).ln())
    });
    let logs: Vec<f64> = logs.collect();
    if logs.len() < 3 {
        return Ok(None);
    }
    Ok(Some(Interval::of_mean(&stats::Sample::new(logs)?, Level::P95)?.map(f64::exp_m1)))
}

#[cfg(test)]
mod tests {
    use super::super::Order;
    use super::super::testing::{measurement, sweep, twice};
    use super::*;
    use emu_core::ErrorKind;

    fn measured(rate: impl Fn(f64) -> f64, equations: usize, threads: Threads) -> Measured {
        let samples = twice(&sweep(Order::Random, rate), 0.01);
        Measured { equations, sizes: vec![equations], ..measurement(samples, threads, 2) }
    }

    #[test]
    fn settings_are_compared_with_the_first() {
        let slow = measured(|quota| 50.0 * quota, 1000, Threads::All);
        let fast = measured(|quota| 55.0 * quota * (1.0 + 0.01 * (quota * 40.0).sin()), 1000, Threads::All);
        let settings = [("1.d", &slow), ("1.c", &fast), ("1.d again", &slow)];
        let settings = settings.map(|(name, measured)| Setting { name, measured });
        let compared = compare(&settings).unwrap();
        assert_eq!(compared.len(), 3);
        assert_eq!((compared[0].name.as_str(), compared[0].against_first), ("1.d", None));
        let [faster, same] = [1, 2].map(|number: usize| compared[number].against_first.unwrap());
        assert!(faster.contains(0.1) && !faster.contains(0.0), "{faster:?}");
        assert!(same.estimate.abs() < 1e-9, "{same:?}");
    }

    #[test]
    fn a_record_of_no_cpu_is_refused() {
        let mut damaged = Measured { cpus: 0, ..measured(|quota| 50.0 * quota, 1000, Threads::All) };
        damaged.analyses[0].threads = Threads::Ceiling;
        assert_eq!(damaged.analysed_again().unwrap_err().kind(), ErrorKind::Usage);
    }

    #[test]
    fn quotas_that_others_disturbed_are_not_compared() {
        let calm = measured(|quota| 50.0 * quota, 1000, Threads::All);
        let mut other = calm.clone();
        for sample in other.samples.iter_mut().filter(|sample| sample.quota < 1.05) {
            (sample.gflops, sample.foreign) = (sample.gflops / 2.0, Some(0.5));
        }
        let other = other.analysed_again().unwrap();
        for settings in [[&calm, &other], [&other, &calm]] {
            let settings = settings.map(|measured| Setting { name: "a", measured });
            let compared = compare(&settings).unwrap();
            assert!(compared[1].against_first.unwrap().estimate.abs() < 1e-9, "{compared:?}");
            assert_eq!(compared.iter().map(|one| one.disturbed_quotas.len()).sum::<usize>(), 10);
        }
    }

    #[test]
    fn calibrations_of_other_systems_or_threads_are_refused() {
        let one = measured(|quota| 50.0 * quota, 1000, Threads::All);
        let larger = measured(|quota| 50.0 * quota, 2000, Threads::All);
        let mut fewer = one.clone();
        fewer.analyses[0].threads = Threads::Ceiling;
        for (other, part) in [(&larger, "b of 2000 equations"), (&fewer, "no number of threads in common")] {
            let settings = [("a", &one), ("b", other)].map(|(name, measured)| Setting { name, measured });
            let refused = compare(&settings).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Usage);
            assert!(refused.to_string().contains(part), "{refused}");
        }
        assert!(compare(&[Setting { name: "a", measured: &one }]).is_err());
    }

    #[test]
    fn quotas_that_differ_are_not_compared() {
        let one = measured(|quota| 50.0 * quota, 1000, Threads::All);
        let mut other = one.clone();
        other.samples.iter_mut().for_each(|sample| sample.quota += 0.05);
        let other = other.analysed_again().unwrap();
        let settings = [("a", &one), ("b", &other)].map(|(name, measured)| Setting { name, measured });
        assert_eq!(compare(&settings).unwrap()[1].against_first, None);
    }
}

//! Composing two calibrations: the local quota that equals a setting of another machine.

use std::fmt;

use emu_bench::stats::{Level, LinearFit, Place};
use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::analysis::{at_equal_clock, decisive, own};
use super::model::{is_linear, line};
use super::{Analysis, Measured, Residuals, Threads};

/// The other machine: rates at its settings, which are CPUs or anything else, such as megabytes of a cloud function.
#[derive(Debug, Clone, PartialEq)]
pub struct Other {
    settings: Vec<f64>,
    gflops: Vec<f64>,
    disturbed_quotas: usize,
    linpack: Option<Linpack>,
}

/// On what a rate of LINPACK depends besides the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Linpack {
    equations: usize,
    threads: Threads,
}

impl Linpack {
    fn of(measured: &Measured) -> Result<Self> {
        Ok(Self { equations: measured.equations, threads: main(measured)?.threads })
    }
}

impl fmt::Display for Linpack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} equations and threads {}", self.equations, self.threads.name())
    }
}

/// A machine that does not follow a line, or that others disturbed, so that the equivalent may be off by more than its error
/// says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Doubt {
    /// Whether it is the local one.
    pub is_local: bool,
    /// Share of the variance that the line explains; `None` where the rate is constant.
    pub r_squared: Option<f64>,
    /// How far its rates are from the line.
    pub residuals: Residuals,
    /// Whether the line is a model all the same.
    #[serde(default)]
    pub is_linear: bool,
    /// Quotas of which every sample was disturbed.
    #[serde(default)]
    pub disturbed_quotas: usize,
}

impl Doubt {
    fn of(is_local: bool, fit: &LinearFit, residuals: Residuals, disturbed_quotas: usize) -> Option<Self> {
        let is_linear = is_linear(fit, &residuals);
        let r_squared = fit.r_squared;
        (!is_linear || disturbed_quotas > 0).then_some(Self {
            is_local,
            r_squared,
            residuals,
            is_linear,
            disturbed_quotas,
        })
    }
}

/// What equals a setting of the other machine here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Equivalent {
    /// The setting of the other machine.
    pub setting: f64,
    /// How far its equivalent may be off, in units of the setting: the standard deviations of both lines' residuals.
    pub setting_sd: f64,
    /// Its rate there, on its line.
    pub gflops: f64,
    /// The quota that has this rate here, in CPUs.
    pub quota: f64,
    /// How far it may be off: the standard deviations of both lines' residuals, in CPUs.
    pub quota_sd: f64,
    /// The same as a speed of all CPUs.
    pub speed: f64,
    /// And its error.
    pub speed_sd: f64,
    /// Whether both lines are models: R² of 0.99 at least, and no rate off the line by more than 5 % of the largest.
    pub both_linear: bool,
    /// The machines of which that is not so.
    pub doubts: Vec<Doubt>,
}

impl Other {
    /// Another machine's calibration, with the threads that stand for it, at equal core clock where that is known.
    pub fn of(measured: &Measured) -> Result<Self> {
        let linpack = Linpack::of(measured)?;
        let (own, disturbed) = decisive(&own(&measured.samples, linpack.threads, measured.cpus));
        let own = at_equal_clock(&own).unwrap_or(own);
        let (settings, gflops) = own.iter().map(|sample| (sample.quota, sample.gflops)).unzip();
        Ok(Self { settings, gflops, disturbed_quotas: disturbed.len(), linpack: Some(linpack) })
    }

    /// Lines of `setting,gflops`, of which the first may have their names instead.
    pub fn of_csv(text: &str) -> Result<Self> {
        let text = text.trim_start_matches('\u{feff}');
        let is_name = |field: &str| field.trim().parse::<f64>().is_err();
        let has_names = text.lines().next().is_some_and(|first| first.split(',').all(is_name));
        let lines = text.lines().enumerate().skip(usize::from(has_names));
        let points = lines.filter(|(_, line)| !line.trim().is_empty()).map(|(number, line)| {
            point(line).ok_or_else(|| {
                Error::usage(format!("line {} is not `setting,gflops`: `{line}`", number + 1))
                    .hint("two numbers a line; the first line may have names")
            })
        });
        let (settings, gflops) = points.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        Ok(Self { settings, gflops, disturbed_quotas: 0, linpack: None })
    }
}

fn point(line: &str) -> Option<(f64, f64)> {
    let (setting, gflops) = line.split_once(',')?;
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    Some((number(setting)?, number(gflops)?))
}

fn main(measured: &Measured) -> Result<&Analysis> {
    measured.analyses.first().ok_or_else(|| Error::usage("the calibration has no analysis"))
}

/// The local quota that has the same rate as a setting of another machine, by the lines at equal core clock where that is
/// known.
///
/// # Errors
/// Usage, for calibrations by different systems or threads, and for a setting outside of those that were measured there;
/// unavailable, where a rate does not rise with the setting, is not above 0, or was not measured here: lines end where their
/// points do.
pub fn equivalent(here: &Measured, there: &Other, setting: f64) -> Result<Equivalent> {
    let ours = Linpack::of(here)?;
    if let Some(theirs) = there.linpack.filter(|theirs| *theirs != ours) {
        return Err(Error::usage(format!(
            "cannot compare a calibration of {theirs} with this one of {ours}: LINPACK's rate depends on both"
        ))
        .hint("calibrate both machines in the same way: with --quick or without, with the same --preset"));
    }
    let fit = LinearFit::of(&there.settings, &there.gflops, Level::P95)?;
    let places = Place::all(there.settings.iter().copied().zip(there.gflops.iter().copied()))?;
    let theirs = line(&places)?;
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), one| (low.min(one), high.max(one)))
    };
    let (low, high) = range(&mut there.settings.iter().copied());
    if !(low..=high).contains(&setting) {
        return Err(Error::usage(format!(
            "the setting {setting} is outside of the {low} to {high} that were measured there"
        ))
        .hint("a line is no model of what was not measured; calibrate the other machine at that setting"));
    }
    let gflops = theirs.at(setting);
    let main = main(here)?;
    let own = main.model();
    let [slope, their_slope] = [own.line(), &theirs].map(|line| line.slope.interval.estimate);
    for (slope, machine) in [(slope, "this machine"), (their_slope, "the other machine")] {
        if slope.is_nan() || slope <= 0.0 {
            return Err(Error::unavailable(format!(
                "the rate of {machine} does not rise with its setting: {slope:.3} GFLOPS for one more"
            ))
            .hint("take settings that change its speed, and calibrate it again while nothing else runs"));
        }
    }
    if gflops <= 0.0 {
        return Err(Error::unavailable(format!(
            "the line of the other machine has no rate at the setting {setting}: {gflops:.2} GFLOPS"
        ))
        .hint("it begins at a larger setting; choose one"));
    }
    let quota = (gflops - own.line().intercept.interval.estimate) / slope;
    let (least, most) = range(&mut here.samples.iter().map(|sample| sample.quota));
    if !(least..=most).contains(&quota) {
        return Err(Error::unavailable(format!(
            "{gflops:.1} GFLOPS would need a quota of {quota:.2} CPUs, and {least:.2} to {most:.2} were measured here"
        ))
        .hint("this machine has no measured setting that is as fast; choose another setting"));
    }
    let doubts = [
        Doubt::of(true, &own.fit, own.residuals, main.disturbed_quotas.len()),
        Doubt::of(false, &fit, Residuals::of(&theirs, &places)?, there.disturbed_quotas),
    ];
    let doubts: Vec<_> = doubts.into_iter().flatten().collect();
    let sd = theirs.residual_sd.hypot(own.line().residual_sd);
    let cpus = here.cpus as f64;
    Ok(Equivalent {
        setting,
        setting_sd: sd / their_slope,
        gflops,
        quota,
        quota_sd: sd / slope,
        speed: quota / cpus,
        speed_sd: sd / slope / cpus,
        both_linear: doubts.iter().all(|doubt| doubt.is_linear),
        doubts,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{measurement, sample};
    use super::super::{Order, Sample};
    use super::*;
    use emu_core::ErrorKind;

    /// A machine of four CPUs with this line.
    fn machine(intercept: f64, slope: f64) -> Measured {
        of(|quota| intercept + slope * quota)
    }

    /// A machine of four CPUs with this rate at a quota.
    fn of(rate: impl Fn(f64) -> f64) -> Measured {
        let quotas = (1..=40).map(|tenth| f64::from(tenth) / 10.0);
        measured(quotas.map(|quota| sample(Order::Ascending, quota, 4, rate(quota))).collect())
    }

    fn measured(samples: Vec<Sample>) -> Measured {
        measurement(samples, Threads::All, 4)
    }

    /// The paper's Lambda line, as points.
    fn lambda() -> Other {
        let line = |mb: f64| format!("{mb},{}\n", 0.0197 * mb - 1.995);
        Other::of_csv(&("memory,gflops\n".to_owned() + &[256.0, 1024.0, 2048.0, 10_240.0].map(line).concat()))
            .unwrap()
    }

    #[test]
    fn a_setting_of_the_cloud_becomes_a_local_quota() {
        let found = equivalent(&machine(-1.820, 54.118), &lambda(), 1769.0).unwrap();
        let gflops = 0.0197 * 1769.0 - 1.995;
        assert!((found.gflops - gflops).abs() < 1e-9);
        assert!((found.quota - (gflops + 1.820) / 54.118).abs() < 1e-9);
        assert!((found.speed - found.quota / 4.0).abs() < 1e-12 && found.both_linear);
    }

    #[test]
    fn the_machine_whose_rate_does_not_rise_is_named() {
        let csv = |rates: [f64; 3]| {
            let lines =
                [1.0, 2.0, 3.0].into_iter().zip(rates).map(|(setting, rate)| format!("{setting},{rate}\n"));
            Other::of_csv(&lines.collect::<String>()).unwrap()
        };
        let refused = |here: &Measured, there: &Other| equivalent(here, there, 2.0).unwrap_err();
        for flat in [csv([30.0, 30.0, 30.0]), csv([30.0, 25.0, 20.0])] {
            let error = refused(&machine(0.0, 20.0), &flat);
            assert!(error.to_string().contains("of the other machine does not rise"), "{error}");
            assert!(error.hint_text().is_some());
        }
        let error = refused(&machine(90.0, -5.0), &csv([10.0, 20.0, 30.0]));
        assert!(error.to_string().contains("of this machine does not rise"), "{error}");
    }

    #[test]
    fn a_machine_equals_itself() {
        let one = machine(-3.0, 23.4);
        let found = equivalent(&one, &Other::of(&one).unwrap(), 1.7).unwrap();
        assert!((found.quota - 1.7).abs() < 1e-9);
    }

    #[test]
    fn a_first_line_is_of_names_only_where_it_has_no_number() {
        let of = |first: &str| Other::of_csv(&format!("{first}\n2,20\n3,30\n"));
        assert_eq!(of("memory,gflops").unwrap().settings, [2.0, 3.0]);
        assert_eq!(of("\u{feff}1,10").unwrap().settings, [1.0, 2.0, 3.0]);
        for damaged in ["1,1O", "1", "l,10", "1,10,5"] {
            assert!(of(damaged).unwrap_err().to_string().contains("line 1 is not"), "{damaged}");
        }
    }

    #[test]
    fn a_calibration_that_others_disturbed_is_in_doubt() {
        let calm = machine(0.0, 50.0);
        let mut samples = calm.samples.clone();
        samples.iter_mut().take(3).for_each(|sample| sample.foreign = Some(0.3));
        let disturbed = measured(samples);
        for (here, there, is_local) in [(&calm, &disturbed, false), (&disturbed, &calm, true)] {
            let found = equivalent(here, &Other::of(there).unwrap(), 2.0).unwrap();
            let [doubt] = found.doubts[..] else { panic!("{found:?}") };
            assert_eq!((doubt.is_local, doubt.is_linear, doubt.disturbed_quotas), (is_local, true, 3));
            assert!(found.both_linear);
        }
    }

    #[test]
    fn a_calibration_that_is_no_line_is_in_doubt_on_either_side() {
        let good = machine(0.0, 10.0);
        let bad = of(|quota| if quota > 3.95 { 9.0 * quota } else { 10.0 * quota });
        let model = bad.analyses[0].model();
        assert!(model.fit.r_squared.unwrap() > 0.99 && !model.is_linear(), "R² alone would pass");
        let doubted = |here: &Measured, there: &Measured| -> Vec<bool> {
            let found = equivalent(here, &Other::of(there).unwrap(), 1.7).unwrap();
            assert_eq!(found.both_linear, found.doubts.is_empty());
            found.doubts.iter().map(|doubt| doubt.is_local).collect()
        };
        assert!(doubted(&good, &good).is_empty());
        assert_eq!((doubted(&good, &bad), doubted(&bad, &good)), (vec![false], vec![true]));
        assert_eq!(doubted(&bad, &bad), [true, false]);
    }

    #[test]
    fn an_error_is_told_in_both_units() {
        let samples = super::super::testing::twice(&machine(0.0, 10.0).samples, 0.02);
        let other = Other::of_csv("1,5\n2,10.2\n3,14.8\n4,20\n").unwrap();
        let found = equivalent(&measured(samples), &other, 2.0).unwrap();
        assert!(found.quota_sd > 0.0);
        assert!(
            (found.setting_sd / found.quota_sd - 2.0).abs() < 0.1,
            "a unit there is half of one here: {found:?}"
        );
        assert!((found.speed_sd - found.quota_sd / 4.0).abs() < 1e-12);
    }

    #[test]
    fn a_clock_that_moved_is_made_up_for_on_both_sides() {
        let mut samples = machine(0.0, 10.0).samples;
        for (number, sample) in samples.iter_mut().enumerate() {
            let factor = if number % 2 == 0 { 1.0 } else { 1.2 };
            (sample.gflops, sample.clock_hz) = (sample.gflops * factor, Some(3e9 * factor));
        }
        let moved = measured(samples);
        // The median clock lies between both.
        let steady = machine(0.0, 11.0);
        for (here, there) in [(&moved, &steady), (&steady, &moved), (&moved, &moved)] {
            let found = equivalent(here, &Other::of(there).unwrap(), 1.7).unwrap();
            assert!((found.quota - 1.7).abs() < 1e-9 && found.both_linear, "{found:?}");
        }
    }

    #[test]
    fn nothing_is_extrapolated() {
        let outside = equivalent(&machine(-1.820, 54.118), &lambda(), 100.0).unwrap_err();
        assert_eq!(outside.kind(), ErrorKind::Usage);
        assert!(equivalent(&machine(-1.8, 54.1), &lambda(), f64::NAN).is_err());
        let slow = equivalent(&machine(-1.0, 5.0), &lambda(), 10_000.0).unwrap_err();
        assert_eq!(slow.kind(), ErrorKind::Unavailable);
        assert!(equivalent(&machine(9.0, -1.0), &lambda(), 1000.0).is_err());
    }

    #[test]
    fn calibrations_by_other_systems_or_threads_are_not_compared() {
        let one = machine(-3.0, 23.4);
        let larger = Measured { equations: 4000, ..one.clone() };
        let fewer = Analysis { threads: Threads::Ceiling, ..one.analyses[0].clone() };
        let fewer = Measured { analyses: vec![fewer], ..one.clone() };
        for (there, words) in [(larger, "4000 equations"), (fewer, "threads ceil(quota)")] {
            let refused = equivalent(&one, &Other::of(&there).unwrap(), 1.7).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Usage);
            assert!(refused.to_string().contains(words), "{refused}");
        }
        assert!(equivalent(&one, &lambda(), 1769.0).is_ok(), "of a CSV nothing of it is known");
    }

    #[test]
    fn a_setting_without_a_rate_has_no_equivalent() {
        let dead = Other::of_csv("1,-1\n2,9\n3,19\n").unwrap();
        // The line here has such a rate at 0.7 CPUs.
        let refused = equivalent(&machine(-8.0, 10.0), &dead, 1.0).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(refused.to_string().contains("no rate at the setting 1"), "{refused}");
    }

    #[test]
    fn a_csv_without_names_keeps_its_first_point() {
        let (with, without) = ("a,b\n1,2\n3,4\n", "1,2\n3,4\n");
        assert_eq!(Other::of_csv(with).unwrap(), Other::of_csv(without).unwrap());
        assert_eq!(Other::of_csv(without).unwrap().settings.len(), 2);
        assert!(Other::of_csv("").unwrap().settings.is_empty());
    }

    #[test]
    fn strange_lines_are_named() {
        for text in ["a,b\n1;2\n", "a,b\n1,x\n", "a,b\n1,NaN\n"] {
            assert!(Other::of_csv(text).unwrap_err().to_string().contains("line 2"), "{text}");
        }
        let few = Other::of_csv("a,b\n1,2\n").unwrap();
        assert!(equivalent(&machine(-1.0, 5.0), &few, 1.0).is_err());
    }
}

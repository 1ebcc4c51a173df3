//! Composing two calibrations: the local quota that equals a setting of another machine.

use emu_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{Analysis, Measured};
use crate::stats::{Level, LinearFit};

/// The other machine: rates at its settings, which are CPUs or anything else, such as megabytes of a cloud function.
#[derive(Debug, Clone, PartialEq)]
pub struct Other {
    settings: Vec<f64>,
    gflops: Vec<f64>,
}

/// What equals a setting of the other machine here.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Equivalent {
    /// The setting of the other machine.
    pub setting: f64,
    /// Its rate there, on its line.
    pub gflops: f64,
    /// The quota that has this rate here, in CPUs.
    pub quota: f64,
    /// How far it may be off: the standard deviations of both lines' residuals, in CPUs.
    pub quota_sd: f64,
    /// The same as a speed of all CPUs.
    pub speed: f64,
    /// Whether both lines are models (R² of 0.99 at least).
    pub both_linear: bool,
}

impl Other {
    /// Another machine's calibration, with threads as many as each quota fills.
    ///
    /// # Errors
    /// It has no samples.
    pub fn of(measured: &Measured) -> Result<Self> {
        let threads = main(measured)?.threads;
        let own =
            measured.samples.iter().filter(|one| one.threads == threads.count(one.quota, measured.cpus));
        let (settings, gflops) = own.map(|sample| (sample.quota, sample.gflops)).unzip();
        Ok(Self { settings, gflops })
    }

    /// Lines of `setting,gflops` under a line of names.
    ///
    /// # Errors
    /// Usage, naming the line that is something else.
    pub fn of_csv(text: &str) -> Result<Self> {
        let lines = text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty());
        let points = lines.map(|(number, line)| {
            let point = line.split_once(',').and_then(|(setting, gflops)| {
                let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
                Some((number(setting)?, number(gflops)?))
            });
            point.ok_or_else(|| {
                Error::usage(format!("line {} is not `setting,gflops`: `{line}`", number + 1))
                    .hint("a line of names first, then two numbers a line")
            })
        });
        let (settings, gflops) = points.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        Ok(Self { settings, gflops })
    }
}

/// The analysis that stands for a calibration: the first.
fn main(measured: &Measured) -> Result<&Analysis> {
    measured.analyses.first().ok_or_else(|| Error::usage("the calibration has no analysis"))
}

/// The local quota that has the same rate as a setting of another machine.
///
/// # Errors
/// Usage, for a setting outside of those that were measured there, or a rate outside of those that were measured here:
/// lines end where their points do. A machine whose rate does not rise with the setting has no equivalent.
pub fn equivalent(here: &Measured, there: &Other, setting: f64) -> Result<Equivalent> {
    let fit = LinearFit::of(&there.settings, &there.gflops, Level::P95)?;
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
    let gflops = fit.intercept.interval.estimate + fit.slope.interval.estimate * setting;
    let own = main(here)?;
    let slope = own.fit.slope.interval.estimate;
    if !(slope > 0.0 && fit.slope.interval.estimate > 0.0) {
        return Err(Error::unavailable("the rate of one machine does not rise with its setting"));
    }
    let quota = (gflops - own.fit.intercept.interval.estimate) / slope;
    let (least, most) = range(&mut here.samples.iter().map(|sample| sample.quota));
    if !(least..=most).contains(&quota) {
        return Err(Error::unavailable(format!(
            "{gflops:.1} GFLOPS would need a quota of {quota:.2} CPUs, and {least:.2} to {most:.2} were measured here"
        ))
        .hint("this machine has no measured setting that is as fast; choose another setting"));
    }
    let is_model =
        |fit: &LinearFit| fit.r_squared.is_some_and(|r_squared| r_squared >= super::analysis::R_SQUARED_MIN);
    Ok(Equivalent {
        setting,
        gflops,
        quota,
        quota_sd: fit.residual_sd.hypot(own.fit.residual_sd) / slope,
        speed: quota / here.cpus as f64,
        both_linear: is_model(&fit) && is_model(&own.fit),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Order, Sample, Threads};
    use super::*;
    use emu_core::ErrorKind;

    /// A machine of four CPUs with this line.
    fn machine(intercept: f64, slope: f64) -> Measured {
        let samples: Vec<_> = (1..=40)
            .map(|tenth| {
                let quota = f64::from(tenth) / 10.0;
                let gflops = intercept + slope * quota;
                Sample {
                    order: Order::Ascending,
                    quota,
                    threads: 4,
                    solutions: 1,
                    seconds: 1.0,
                    gflops,
                    cpus_used: quota,
                    residual: Some(0.01),
                    passed: true,
                }
            })
            .collect();
        let analyses = vec![Analysis::of(&samples, Threads::All, 4).unwrap()];
        Measured { samples, cpus: 4, equations: 1000, analyses, verdict: String::new() }
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
    fn a_machine_equals_itself() {
        let one = machine(-3.0, 23.4);
        let found = equivalent(&one, &Other::of(&one).unwrap(), 1.7).unwrap();
        assert!((found.quota - 1.7).abs() < 1e-9);
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
    fn strange_lines_are_named() {
        for text in ["a,b\n1;2\n", "a,b\n1,x\n", "a,b\n1,NaN\n"] {
            assert!(Other::of_csv(text).unwrap_err().to_string().contains("line 2"), "{text}");
        }
        let few = Other::of_csv("a,b\n1,2\n").unwrap();
        assert!(equivalent(&machine(-1.0, 5.0), &few, 1.0).is_err());
    }
}

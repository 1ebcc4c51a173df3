//! What is wanted: a share of the reference clock or an absolute frequency, for each CPU.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::cpu_list::{CpuId, CpuList};
use crate::error::{Error, Result};
use crate::hint::{Hint, Setting};

/// A frequency in hertz.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Hertz(pub u64);

impl Hertz {
    /// From kHz, the unit of cpufreq's files.
    pub fn from_khz(khz: u64) -> Self {
        Self(khz.saturating_mul(1_000))
    }

    /// As a float, for arithmetic.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
}

impl fmt::Display for Hertz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hertz = self.as_f64();
        match hertz {
            1e9.. => write!(f, "{:.3} GHz", hertz / 1e9),
            1e6.. => write!(f, "{:.1} MHz", hertz / 1e6),
            _ => write!(f, "{:.1} kHz", hertz / 1e3),
        }
    }
}

/// The lowest share, of one second in eleven days: less is a slip.
const LOWEST: f64 = 1e-6;

/// The speed wanted of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Speed {
    /// Share of the reference frequency, 10⁻⁶ to 1.
    Share(f64),
    /// A core clock that the program should perceive.
    Clock(Hertz),
}

impl Speed {
    /// A share of the reference frequency.
    ///
    /// # Errors
    /// `share` is not within 10⁻⁶ and 1.
    pub fn share(share: f64) -> Result<Self> {
        if (LOWEST..=1.0).contains(&share) {
            Ok(Self::Share(share))
        } else {
            Err(bad_speed(&format!("{}%", share * 100.0), "a share lies within 0.0001 % and 100 %"))
        }
    }

    /// What the speed means on a CPU whose reference clock is `reference`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::error::ErrorKind) when the clock asked for is above the reference.
    pub fn target(self, cpu: CpuId, reference: Option<Hertz>) -> Result<Target> {
        match (self, reference) {
            (Self::Share(share), _) => Ok(Target { share, clock: None }),
            (Self::Clock(clock), Some(reference)) if clock <= reference => {
                Ok(Target { share: clock.as_f64() / reference.as_f64(), clock: Some(clock) })
            }
            (Self::Clock(clock), Some(reference)) => Err(Error::unavailable(format!(
                "cannot emulate {clock} on CPU {cpu}: its own clock is {reference}"
            ))
            .hint("a CPU can only be made slower; ask for less, or for a share such as 80%")),
            (Self::Clock(clock), None) => Err(Error::unavailable(format!(
                "cannot emulate {clock} on CPU {cpu}: its own clock is not known"
            ))
            .hint("ask for a share such as 40%")),
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(share) => write!(f, "{}%", trimmed(share * 100.0)),
            Self::Clock(clock) => clock.fmt(f),
        }
    }
}

/// At most four decimals, without trailing zeros.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl FromStr for Speed {
    type Err = Error;

    /// Parses `40%`, `0.4`, `1.2GHz`, `800 MHz`, `800000kHz`.
    ///
    /// # Errors
    /// Zero, negative, above 100 %, not a number, or an unknown unit.
    fn from_str(text: &str) -> Result<Self> {
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| c.is_ascii_alphabetic() || c == '%').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let scale = match unit.to_ascii_lowercase().as_str() {
            "" => None,
            "%" => Some(0.01),
            "ghz" => Some(1e9),
            "mhz" => Some(1e6),
            "khz" => Some(1e3),
            "hz" => Some(1.0),
            _ => return Err(bad_speed(text, &format!("`{}` is not a unit of speed", unit.trim()))),
        };
        let number = number.trim();
        let plain =
            !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b'-');
        let value = number
            .parse::<f64>()
            .ok()
            .filter(|value| plain && value.is_finite())
            .ok_or_else(|| bad_speed(text, "it is not a number"))?;
        if value <= 0.0 {
            return Err(bad_speed(text, "a speed lies above 0"));
        }
        match scale {
            Some(scale) if scale >= 1.0 => {
                let hertz = (value * scale).round();
                // A clock outside 1 kHz to 100 GHz is a slip of the unit, not a wish.
                if (1e3..=1e11).contains(&hertz) {
                    Ok(Self::Clock(Hertz(hertz as u64)))
                } else {
                    Err(bad_speed(text, "no CPU has such a clock"))
                }
            }
            scale => {
                let share = value * scale.unwrap_or(1.0);
                if share < LOWEST {
                    Err(bad_speed(text, "nothing would ever end: at least 0.0001 %"))
                } else if share <= 1.0 {
                    Ok(Self::Share(share))
                } else {
                    Err(bad_speed(text, "a CPU can only be made slower: at most 100 % (or 1)"))
                }
            }
        }
    }
}

fn bad_speed(text: &str, why: &str) -> Error {
    Error::usage(format!("bad speed `{text}`: {why}")).hint("write 40%, 0.4, 1.2GHz or 800MHz")
}

fn bad_speeds(text: &str, why: &str) -> Error {
    bad_speed(text, why).hint("give one speed for all CPUs: 40%, or name each CPU once: 0-1=25%,2=50%")
}

/// Speeds as asked for: one for all CPUs, or one for each.
///
/// ```
/// let spec: emu_core::SpeedSpec = "0-1=1.2GHz,2=40%".parse().unwrap();
/// assert_eq!(spec.cpus().unwrap().to_string(), "0-2");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpeedSpec {
    /// The same for every CPU of the zone.
    Uniform(Speed),
    /// A speed for each CPU named.
    PerCpu(BTreeMap<CpuId, Speed>),
}

impl SpeedSpec {
    /// What targets ask for.
    pub fn of_targets(targets: &Targets) -> Self {
        let speed = |target: &Target| target.clock.map_or(Speed::Share(target.share), Speed::Clock);
        let mut speeds = targets.values().map(speed);
        match speeds.next() {
            Some(one) if speeds.all(|other| other == one) => Self::Uniform(one),
            _ => Self::PerCpu(targets.iter().map(|(&cpu, target)| (cpu, speed(target))).collect()),
        }
    }

    /// The CPUs that the specification names, if it names any.
    pub fn cpus(&self) -> Option<CpuList> {
        match self {
            Self::Uniform(_) => None,
            Self::PerCpu(speeds) => Some(speeds.keys().copied().collect()),
        }
    }

    /// The speed of each CPU of a zone.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) when `cpus` is empty or not exactly the CPUs named.
    pub fn for_cpus(&self, cpus: &CpuList) -> Result<Speeds> {
        if cpus.is_empty() {
            return Err(Error::usage("a zone needs at least one CPU"));
        }
        match self {
            Self::Uniform(speed) => Ok(cpus.iter().map(|cpu| (cpu, *speed)).collect()),
            Self::PerCpu(speeds) => {
                let named: CpuList = speeds.keys().copied().collect();
                if &named == cpus {
                    return Ok(speeds.clone());
                }
                Err(Error::usage(format!("speeds are given for CPUs {named}, but the zone has CPUs {cpus}"))
                    .hint(
                        Hint::from("give a speed for each CPU of the zone").or(Hint::LeaveOut(Setting::Cpus)),
                    ))
            }
        }
    }
}

impl FromStr for SpeedSpec {
    type Err = Error;

    /// # Errors
    /// A bad speed, a bad CPU list, or a CPU that is named twice.
    fn from_str(text: &str) -> Result<Self> {
        if !text.contains('=') {
            if text.contains(',') {
                return Err(bad_speeds(text, "it is several"));
            }
            return text.parse().map(Self::Uniform);
        }
        let mut speeds = BTreeMap::new();
        // `0-1,4=40%,2=1GHz`: a comma ends a speed only where an `=` came before it.
        let mut cpus_text = String::new();
        for part in text.split(',') {
            let (cpus, speed) = match part.split_once('=') {
                None => (part, None),
                Some((cpus, speed)) => (cpus, Some(speed)),
            };
            if !cpus_text.is_empty() {
                cpus_text.push(',');
            }
            cpus_text.push_str(cpus);
            let Some(speed) = speed else { continue };
            let speed: Speed = speed.parse()?;
            for cpu in std::mem::take(&mut cpus_text).parse::<CpuList>()?.iter() {
                if speeds.insert(cpu, speed).is_some() {
                    return Err(bad_speeds(text, &format!("CPU {cpu} is named twice")));
                }
            }
        }
        if text.ends_with(',') {
            Err(bad_speeds(text, "something is missing after the last comma"))
        } else if cpus_text.is_empty() {
            Ok(Self::PerCpu(speeds))
        } else {
            Err(bad_speeds(text, &format!("CPUs {cpus_text} have no speed")))
        }
    }
}

impl fmt::Display for SpeedSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform(speed) => speed.fmt(f),
            Self::PerCpu(speeds) => {
                let parts: Vec<_> = speeds.iter().map(|(cpu, speed)| format!("{cpu}={speed}")).collect();
                f.write_str(&parts.join(","))
            }
        }
    }
}

/// The speed of each CPU of a zone.
pub type Speeds = BTreeMap<CpuId, Speed>;

/// What a method has to deliver on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Target {
    /// Share of the reference clock, above 0 and at most 1, as it was when the zone was made.
    pub share: f64,
    /// The clock to hold while the real one moves, where a frequency was asked for.
    pub clock: Option<Hertz>,
}

/// The target of each CPU of a zone.
pub type Targets = BTreeMap<CpuId, Target>;

/// The lowest share of them, 1 where there is none.
pub fn lowest_share(targets: &Targets) -> f64 {
    targets.values().map(|target| target.share).fold(1.0, f64::min)
}

/// The one share that all CPUs are to have, 1 where there is none; `None` where they differ.
pub(crate) fn uniform_share(targets: &Targets) -> Option<f64> {
    let mut shares = targets.values().map(|target| target.share);
    let first = shares.next().unwrap_or(1.0);
    shares.all(|share| (share - first).abs() < 1e-12).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_way_of_writing_a_speed_is_understood() {
        for (text, speed) in [
            ("40%", Speed::Share(0.4)),
            ("0.4", Speed::Share(0.4)),
            ("1", Speed::Share(1.0)),
            ("100 %", Speed::Share(1.0)),
            ("1.2GHz", Speed::Clock(Hertz(1_200_000_000))),
            ("1.2 ghz", Speed::Clock(Hertz(1_200_000_000))),
            ("800MHz", Speed::Clock(Hertz(800_000_000))),
            ("800000kHz", Speed::Clock(Hertz(800_000_000))),
        ] {
            assert_eq!(text.parse::<Speed>().unwrap(), speed, "{text}");
        }
    }

    #[test]
    fn senseless_speeds_are_refused() {
        for text in [
            "0.00000000000000000000001%",
            "0.0000009",
            "0",
            "0%",
            "-5%",
            "140%",
            "1.01",
            "1.2 parsecs",
            "NaN",
            "inf",
            "",
            "%",
            "GHz",
            "1e3",
            "1e-3GHz",
            "0.0001Hz",
            "5THz",
            "1..2",
            "--1",
            "40%%",
            "0x10",
            "1000GHz",
        ] {
            let error = text.parse::<Speed>().unwrap_err();
            assert_eq!(error.kind(), crate::error::ErrorKind::Usage, "{text}");
            assert!(error.hint_text().is_some(), "{text}");
        }
    }

    #[test]
    fn speeds_for_each_cpu_take_lists_on_the_left() {
        let SpeedSpec::PerCpu(speeds) = "0-1,4=40%,2=1GHz".parse().unwrap() else { panic!() };
        assert_eq!(speeds.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 4]);
        assert_eq!(speeds[&4], Speed::Share(0.4));
        assert_eq!(speeds[&2], Speed::Clock(Hertz(1_000_000_000)));
    }

    #[test]
    fn a_cpu_named_twice_or_without_speed_is_refused() {
        for text in ["0=40%,0=50%", "0-2=40%,1=50%", "0=40%,1", "=40%", "0=", "0=40%,"] {
            assert!(text.parse::<SpeedSpec>().is_err(), "{text}");
        }
        for text in ["0=40%,0=50%", "0=40%,1", "0=40%,", "25%,50%"] {
            let error = text.parse::<SpeedSpec>().unwrap_err();
            assert!(error.hint_text().unwrap().contains("name each CPU once"), "{text}");
        }
    }

    #[test]
    fn a_clock_above_the_reference_is_unavailable_not_a_slip() {
        let error = Speed::Clock(Hertz(5_000_000_000)).target(0, Some(Hertz(3_600_000_000))).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Unavailable);
    }

    #[test]
    fn speeds_must_be_for_the_cpus_of_the_zone() {
        let spec: SpeedSpec = "0=40%".parse().unwrap();
        assert!(spec.for_cpus(&"0-1".parse().unwrap()).is_err());
        assert!(spec.for_cpus(&CpuList::default()).is_err());
        assert_eq!(spec.for_cpus(&"0".parse().unwrap()).unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn shares_round_trip(permille in 1u32..=1000) {
            let speed = Speed::Share(f64::from(permille) / 1000.0);
            let Speed::Share(back) = speed.to_string().parse().unwrap() else { panic!() };
            prop_assert!((back - f64::from(permille) / 1000.0).abs() < 1e-9);
        }

        #[test]
        fn clocks_round_trip_as_far_as_they_are_printed(exponent in 3.0f64..11.0) {
            let hertz = 10f64.powf(exponent).round() as u64;
            let Speed::Clock(back) = Speed::Clock(Hertz(hertz)).to_string().parse().unwrap() else { panic!() };
            prop_assert!((back.as_f64() / hertz as f64 - 1.0).abs() < 0.051, "{}", back);
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "\\PC*") {
            let _ = text.parse::<SpeedSpec>();
        }
    }
}

//! A speed that changes with time, as it is written: one that a machine had, or that it is to have.

mod player;
#[cfg(test)]
mod tests;

pub use player::{AtEnd, Player};

use std::str::FromStr;
use std::time::Duration;

use crate::cpu_list::CpuList;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::speed::Speed;

/// The shortest step of a trace. The periods of most methods are not shorter.
pub const STEP_MIN: Duration = Duration::from_millis(10);

/// A step may be shorter by this: times are written as decimals.
const ROUNDING: Duration = Duration::from_micros(1);

/// From the first line on, what a trace looks like.
const FORM: &str = "after the heading `time_s,cpu,speed` a line is like `1.5,0,40%` or `2,*,1.2GHz`, and the last one may \
                    be `20,*,end`";

/// A speed that changes with time.
///
/// As text it is CSV with the columns `time_s,cpu,speed`. The time is in seconds from the begin and never decreases; lines of
/// the same time belong together, and others lie [`STEP_MIN`] apart at least. The CPU is a number or a list such as `0-3`; `*`
/// is for all of the zone. The speed is a share (`40%`, `0.4`) or a clock (`1.2GHz`). A last line with the speed `end` tells how
/// long the last step is. With the column `load` instead of `speed` it is the share that other work would take, and the speed
/// is the rest. What follows a `#` is left out.
///
/// ```
/// let trace: emu_core::Trace = "time_s,cpu,speed\n0,*,100%\n0.5,*,40%\n1,*,end\n".parse().unwrap();
/// assert_eq!((trace.steps(), trace.length().unwrap().as_secs()), (2, 1));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    changes: Vec<Change>,
    length: Option<Duration>,
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
struct Change {
    at: Duration,
    /// `None` for all CPUs.
    cpus: Option<CpuList>,
    speed: Speed,
}

impl Trace {
    /// The CPUs that it names; `None` where it is for all CPUs alike.
    pub fn cpus(&self) -> Option<CpuList> {
        let named = self.changes.iter().filter_map(|change| change.cpus.as_ref());
        named.cloned().reduce(|all, cpus| all.iter().chain(cpus.iter()).collect())
    }

    /// Its lines: from when on which CPUs (`None`: all) have which speed.
    pub fn changes(&self) -> impl Iterator<Item = (Duration, Option<&CpuList>, Speed)> {
        self.changes.iter().map(|change| (change.at, change.cpus.as_ref(), change.speed))
    }

    /// The CPUs of a zone that follows it: those given, else those that it names, else all that are allowed.
    pub fn cpus_of(&self, host: &Host, cpus: Option<&CpuList>) -> CpuList {
        let mut first = self.changes.iter().take_while(|change| change.at.is_zero());
        let named = first.all(|change| change.cpus.is_some()).then(|| self.cpus()).flatten();
        cpus.cloned().or(named).unwrap_or_else(|| host.allowed.clone())
    }

    /// From begin to end; `None` where its last step has no end.
    pub fn length(&self) -> Option<Duration> {
        self.length
    }

    /// The shortest time between two moments at which a speed changes; `None` where there is one.
    pub fn shortest_step(&self) -> Option<Duration> {
        let moments = self.changes.iter().map(|change| change.at).chain(self.length);
        let spans = moments.clone().zip(moments.skip(1)).map(|(begin, end)| end.saturating_sub(begin));
        spans.filter(|span| !span.is_zero()).min()
    }

    /// The number of moments at which a speed changes, the first one included.
    pub fn steps(&self) -> usize {
        self.changes.chunk_by(|a, b| a.at == b.at).count()
    }
}

impl FromStr for Trace {
    type Err = Error;

    /// Parses a trace.
    ///
    /// # Errors
    /// The first line that is none, and why.
    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim_start_matches('\u{feff}');
        let mut lines = (1..)
            .zip(text.lines().map(str::trim))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let (number, heading) = lines.next().ok_or_else(|| bad(1, "it is empty"))?;
        let is_load = match fields(heading) {
            Some(["time_s", "cpu", "speed"]) => false,
            Some(["time_s", "cpu", "load"]) => true,
            _ => return Err(bad(number, "its columns are not `time_s,cpu,speed` or `time_s,cpu,load`")),
        };
        let mut trace = Self { changes: Vec::new(), length: None };
        for (number, line) in lines {
            trace.add(line, is_load).map_err(|why| bad(number, &why))?;
        }
        match trace.changes.first() {
            None => Err(bad(number, "nothing follows")),
            Some(first) if !first.at.is_zero() => Err(bad(number, "it does not begin at time 0")),
            Some(_) => Ok(trace),
        }
    }
}

impl Trace {
    fn add(&mut self, line: &str, is_load: bool) -> Result<(), String> {
        let line = line.split_once('#').map_or(line, |(line, _)| line.trim());
        let [time, cpus, speed] = fields(line).ok_or("it has not three fields")?;
        let at = seconds(time).ok_or_else(|| format!("`{time}` is no time in seconds"))?;
        if self.length.is_some() {
            return Err("something follows the end".into());
        }
        if let Some(last) = self.changes.last() {
            if at < last.at {
                return Err(format!("{time} s is before the line above"));
            }
            if at > last.at && at.saturating_sub(last.at) + ROUNDING < STEP_MIN {
                return Err(format!("the step before it is shorter than {} ms", STEP_MIN.as_millis()));
            }
        }
        let cpus = match cpus {
            "*" => None,
            cpus => {
                let list = cpus.parse::<CpuList>().map_err(|e| e.in_words())?;
                Some(Some(list).filter(|list| !list.is_empty()).ok_or("it names no CPU")?)
            }
        };
        if speed == "end" {
            if cpus.is_some() {
                return Err("the end is one for all CPUs: `*`".into());
            }
            if self.changes.last().is_none_or(|last| last.at == at) {
                return Err("the end is at the begin of its step".into());
            }
            self.length = Some(at);
            return Ok(());
        }
        let speed = if is_load { of_load(speed) } else { speed.parse().map_err(|e: Error| e.in_words()) }?;
        self.changes.push(Change { at, cpus, speed });
        Ok(())
    }
}

/// What a load leaves.
fn of_load(text: &str) -> Result<Speed, String> {
    let bad = || format!("bad load `{text}`: write it as 30% or 0.3, below 1");
    let (number, scale) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let load = number.trim().parse::<f64>().map_err(|_| bad())? / scale;
    if load.is_sign_negative() && load != 0.0 {
        return Err(bad());
    }
    Speed::share(1.0 - load).map_err(|_| bad())
}

fn fields(line: &str) -> Option<[&str; 3]> {
    let fields: Vec<_> = line.split(',').map(str::trim).collect();
    fields.try_into().ok()
}

fn seconds(text: &str) -> Option<Duration> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| seconds.is_finite())?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn bad(line: usize, why: &str) -> Error {
    Error::usage(format!("bad trace, line {line}: {why}")).hint(FORM)
}

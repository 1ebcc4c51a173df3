//! The machine as looked at over a moment: what its files say, how busy it is, how its clock runs.

use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{CpuList, Host, Result, Roots, control_file, meter};

/// Readings of each CPU's clock, and the time for each. A change of the clock shows between them.
const READINGS: usize = 5;
const READING: Duration = Duration::from_millis(10);

/// At most so many CPUs' clocks are read: they are read one after another.
const CPUS: usize = 8;

/// The machine as looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    /// What its files say.
    pub host: Host,
    /// The CPUs that are to be quiet: those that the runs will use.
    pub cpus: CpuList,
    /// How busy it was while it was looked at; `None` where `/proc/stat` cannot be read.
    pub load: Option<Load>,
    /// Readings of the core clock, in Hz, or why there are none.
    pub clocks: Result<Vec<f64>, String>,
}

/// Shares of the CPU time of all CPUs, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Time in tasks and interrupts.
    pub busy: f64,
    /// Time that the hypervisor gave to others.
    pub stolen: f64,
}

impl Machine {
    /// Looks at the machine for `time`, and at the clocks a little longer. `cpus` are those to be quiet, by default
    /// all that are allowed.
    ///
    /// # Errors
    /// There is no procfs, or one of the CPUs cannot be used.
    pub fn look(roots: &Roots, cpus: Option<&CpuList>, time: Duration) -> Result<Self> {
        let machine = Self::of_files(roots, cpus)?;
        let stat = || control_file::read(&roots.proc.join("stat")).unwrap_or_default();
        let before = stat();
        thread::sleep(time);
        let load = Load::between(&before, &stat());
        let clocks = clocks(&machine.cpus);
        Ok(Self { load, clocks, ..machine })
    }

    /// What the files of the machine say alone, without a look at its load and its clocks.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub fn of_files(roots: &Roots, cpus: Option<&CpuList>) -> Result<Self> {
        let host = Host::detect(roots)?;
        let cpus = cpus.cloned().unwrap_or_else(|| host.allowed.clone());
        host.check_cpus(&cpus)?;
        Ok(Self { host, cpus, load: None, clocks: Err("it was not measured".into()) })
    }
}

/// Several readings of each clock.
fn clocks(cpus: &CpuList) -> Result<Vec<f64>, String> {
    let readings = cpus.iter().take(CPUS).flat_map(|cpu| std::iter::repeat_n(cpu, READINGS));
    let clocks = readings.map(|cpu| meter::measure(cpu, READING).map(|reading| reading.clock.as_f64()));
    clocks.collect::<Result<_>>().map_err(|error| error.in_words())
}

impl Load {
    /// From two texts of `/proc/stat`: the line `cpu`, whose first eight fields are user, nice, system, idle, iowait,
    /// irq, softirq and steal (`proc_stat(5)`). `None` when they have no such line or no time has passed.
    pub(super) fn between(before: &str, after: &str) -> Option<Self> {
        let [before, after] = [before, after].map(ticks);
        let spent: Vec<u64> =
            after?.iter().zip(before?).map(|(after, before)| after.saturating_sub(before)).collect();
        let field = |index: usize| spent.get(index).copied().unwrap_or(0) as f64;
        let all = spent.iter().sum::<u64>() as f64;
        let (idle, stolen) = (field(3) + field(4), field(7));
        (all > 0.0).then(|| Self { busy: (all - idle - stolen) / all, stolen: stolen / all })
    }
}

fn ticks(stat: &str) -> Option<Vec<u64>> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    line.split_whitespace().take(8).map(|field| field.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_two_looks() {
        let before = "cpu  100 10 50 1000 40 5 5 20 3 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let after = "cpu  110 12 55 1060 50 6 7 30 9 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let load = Load::between(before, after).unwrap();
        assert!((load.busy - 0.20).abs() < 1e-12 && (load.stolen - 0.10).abs() < 1e-12, "{load:?}");
    }

    #[test]
    fn without_time_or_account_there_is_no_load() {
        let stat = "cpu  100 10 50 1000 40 5 5 20 3 0\n";
        for (before, after) in [(stat, stat), ("", stat), (stat, ""), ("cpu  x\n", stat)] {
            assert_eq!(Load::between(before, after), None, "{before} {after}");
        }
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let machine = Machine::look(&Roots::system(), None, Duration::from_millis(200)).unwrap();
        assert_eq!(machine.cpus, machine.host.allowed);
        assert!(machine.load.is_some_and(|load| (0.0..=1.0).contains(&load.busy)), "{machine:?}");
        let none = Machine::of_files(&Roots::system(), Some(&"1023".parse().unwrap()));
        assert_eq!(none.unwrap_err().kind(), crate::ErrorKind::Usage);
    }
}

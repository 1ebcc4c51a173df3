//! The machine as looked at over a moment: what its files say, how busy it is, how its clock runs.

use std::thread;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use emu_core::{CpuList, CpuTimes, Host, Result, Roots, clock, control_file};

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

/// Shares of a CPU's time, from 0 to 1, each of that one of the quiet CPUs where it is the largest: a run on a busy CPU
/// is disturbed however idle the others are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// Time in tasks and interrupts.
    pub busy: f64,
    /// Time that the hypervisor gave to others.
    pub stolen: f64,
}

impl Machine {
    /// Looks at the machine for `time`, and at the clocks a little longer. `cpus` are to be quiet, by default all allowed.
    pub fn look(roots: &Roots, cpus: Option<&CpuList>, time: Duration) -> Result<Self> {
        let machine = Self::of_files(roots, cpus)?;
        let stat = || control_file::read(&roots.proc.join("stat")).unwrap_or_default();
        let before = stat();
        thread::sleep(time);
        let load = Load::between(&before, &stat(), &machine.cpus);
        let clocks = clocks(&machine.cpus);
        Ok(Self { load, clocks, ..machine })
    }

    /// What the files of the machine say alone, without a look at its load and its clocks.
    pub fn of_files(roots: &Roots, cpus: Option<&CpuList>) -> Result<Self> {
        let host = Host::detect(roots)?;
        let cpus = cpus.cloned().unwrap_or_else(|| host.allowed.clone());
        host.check_cpus(&cpus)?;
        Ok(Self { host, cpus, load: None, clocks: Err("it was not measured".into()) })
    }
}

fn clocks(cpus: &CpuList) -> Result<Vec<f64>, String> {
    let readings = cpus.iter().take(CPUS).flat_map(|cpu| std::iter::repeat_n(cpu, READINGS));
    let clocks = readings.map(|cpu| clock::measure(cpu, READING).map(|reading| reading.clock.as_f64()));
    clocks.collect::<Result<_>>().map_err(|error| error.in_words())
}

impl Load {
    /// From two texts of `/proc/stat`. `None` when they have a line for none of the CPUs, or no time has passed.
    pub(super) fn between(before: &str, after: &str, cpus: &CpuList) -> Option<Self> {
        let spent = |cpu| Some(CpuTimes::of(after, cpu)?.since(CpuTimes::of(before, cpu)?));
        let loads = cpus.iter().filter_map(spent).filter_map(Self::of_cpu);
        loads.reduce(|a, b| Self { busy: a.busy.max(b.busy), stolen: a.stolen.max(b.stolen) })
    }

    fn of_cpu(spent: CpuTimes) -> Option<Self> {
        let CpuTimes { all, idle, stolen, .. } = spent;
        let share = |ticks: u64| ticks as f64 / all as f64;
        let busy = all.saturating_sub(idle + stolen);
        (all > 0).then(|| Self { busy: share(busy), stolen: share(stolen) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(list: &str) -> CpuList {
        list.parse().unwrap()
    }

    #[test]
    fn shares_are_of_the_time_between_two_looks() {
        let before = "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 100 10 50 1000 40 5 5 20 3 0\n";
        let after = "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 110 12 55 1060 50 6 7 30 9 0\n";
        let load = Load::between(before, after, &cpus("0")).unwrap();
        assert!((load.busy - 0.20).abs() < 1e-12 && (load.stolen - 0.10).abs() < 1e-12, "{load:?}");
    }

    #[test]
    fn one_busy_cpu_is_told_only_where_measured_despite_idle_ones() {
        let line = |cpu: u32, busy: u32, idle: u32, stolen: u32| {
            format!("cpu{cpu} {busy} 0 0 {idle} 0 0 0 {stolen} 0 0\n")
        };
        let before: String = (0..=10).map(|cpu| line(cpu, 7, 7, 7)).collect();
        let after = |cpu| match cpu {
            1 => line(1, 107, 7, 7),
            10 => line(10, 7, 87, 27),
            idle => line(idle, 7, 107, 7),
        };
        let after: String = (0..=10).map(after).collect();
        let load = |list| Load::between(&before, &after, &cpus(list)).unwrap();
        assert_eq!(load("0-10"), Load { busy: 1.0, stolen: 0.2 });
        assert_eq!(load("0,2-9"), Load { busy: 0.0, stolen: 0.0 });
        assert_eq!(load("10-12"), Load { busy: 0.0, stolen: 0.2 }, "some have no line");
    }

    #[test]
    fn without_time_or_account_there_is_no_load() {
        let stat = "cpu0 100 10 50 1000 40 5 5 20 3 0\n";
        for (before, after) in [(stat, stat), ("", stat), (stat, ""), ("cpu0 x\n", stat)] {
            assert_eq!(Load::between(before, after, &cpus("0")), None, "{before} {after}");
        }
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let machine = Machine::look(&Roots::system(), None, Duration::from_millis(200)).unwrap();
        assert_eq!(machine.cpus, machine.host.allowed);
        assert!(machine.load.is_some_and(|load| (0.0..=1.0).contains(&load.busy)), "{machine:?}");
        let none = Machine::of_files(&Roots::system(), Some(&"1023".parse().unwrap()));
        assert_eq!(none.unwrap_err().kind(), emu_core::ErrorKind::Usage);
    }
}

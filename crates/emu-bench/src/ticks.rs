//! CPU time by the kernel's account of each CPU.

use std::fs;
use std::path::Path;

use emu_core::{CpuList, Error, Result};
use rustix::param::clock_ticks_per_second;

/// A tick of `/proc/stat`, in seconds.
fn tick() -> f64 {
    1.0 / clock_ticks_per_second() as f64
}

/// CPU time of some CPUs by the kernel's account, from `/proc/stat` (`proc_stat(5)`), in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticks {
    all: u64,
    idle: u64,
    stolen: u64,
}

impl Ticks {
    /// The account of `cpus` now.
    ///
    /// # Errors
    /// `/proc/stat` cannot be read, or does not list one of the CPUs.
    pub(crate) fn now(proc: &Path, cpus: &CpuList) -> Result<Self> {
        let path = proc.join("stat");
        let text = fs::read_to_string(&path).map_err(|cause| Error::file("read", &path, cause))?;
        Self::parse(&text, cpus)
    }

    fn parse(text: &str, cpus: &CpuList) -> Result<Self> {
        cpus.iter().try_fold(Self { all: 0, idle: 0, stolen: 0 }, |sum, cpu| {
            let mut fields = text
                .lines()
                .map(str::split_ascii_whitespace)
                .find_map(|mut line| (line.next() == Some(&format!("cpu{cpu}"))).then_some(line))
                .ok_or_else(|| {
                    Error::unavailable(format!("cannot read the CPU time of CPU {cpu}: it is not there"))
                })?;
            // user nice system idle iowait irq softirq steal; guest times are part of user and nice.
            let ticks: Vec<u64> = fields.by_ref().take(8).map_while(|field| field.parse().ok()).collect();
            let tick = |field| ticks.get(field).copied().unwrap_or(0);
            Ok(Self {
                all: sum.all + ticks.iter().sum::<u64>(),
                idle: sum.idle + tick(3) + tick(4),
                stolen: sum.stolen + tick(7),
            })
        })
    }

    /// What has been added since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            all: self.all.saturating_sub(earlier.all),
            idle: self.idle.saturating_sub(earlier.idle),
            stolen: self.stolen.saturating_sub(earlier.stolen),
        }
    }

    /// Share of the time that was stolen.
    pub(crate) fn stolen_share(self) -> f64 {
        self.stolen as f64 / self.all.max(1) as f64
    }

    /// How much was stolen, in seconds.
    pub(crate) fn stolen_s(self) -> f64 {
        self.stolen as f64 * tick()
    }

    /// Share of the time of `cpus` CPUs over `wall_s` that was neither idle nor stolen nor known to be used, at
    /// least.
    ///
    /// Idle time is exact on kernels that stop the tick when idle; who was busy is only sampled at each tick,
    /// which says little about work on a grid. So busy is what was not idle, less a tick for rounding.
    pub(crate) fn foreign(self, wall_s: f64, cpus: usize, known_s: f64) -> f64 {
        let capacity = wall_s * cpus as f64;
        let unused = (self.idle + self.stolen + cpus as u64) as f64 * tick();
        ((capacity - unused - known_s) / capacity).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  30 0 30 300 0 0 0 9 0 0\n\
                        cpu0 10 0 10 100 0 0 0 4 0 0\n\
                        cpu1 20 0 20 200 0 0 0 5 0 0\n\
                        intr 1\n";

    #[test]
    fn steal_is_summed_over_the_cpus_asked_for() {
        let cpus = |text: &str| text.parse::<CpuList>().unwrap();
        let before = Ticks::parse(STAT, &cpus("0-1")).unwrap();
        assert_eq!(before, Ticks { all: 369, idle: 300, stolen: 9 });
        let after = Ticks { all: 469, idle: 300, stolen: 11 };
        assert!((after.since(before).stolen_share() - 0.02).abs() < 1e-9);
        assert!(before.since(after).stolen_share().abs() < 1e-9);
        assert_eq!(Ticks::parse(STAT, &cpus("1")).unwrap().stolen, 5);
        assert!(Ticks::parse(STAT, &cpus("2")).is_err());
    }

    #[test]
    fn time_that_nobody_accounts_for_is_foreign() {
        // Two CPUs for 1 s: 0.5 s idle, 0.1 s stolen, 0.9 s known; 0.02 s may be rounding.
        let ticks = Ticks { all: 200, idle: 50, stolen: 10 };
        assert!((ticks.foreign(1.0, 2, 0.9) - 0.24).abs() < 1e-9);
        assert!(ticks.foreign(1.0, 2, 1.4).abs() < 1e-9);
    }

    #[test]
    fn an_old_kernel_without_steal_has_none() {
        let ticks = Ticks::parse("cpu0 1 2 3 4\n", &"0".parse().unwrap()).unwrap();
        assert_eq!(ticks, Ticks { all: 10, idle: 4, stolen: 0 });
    }
}

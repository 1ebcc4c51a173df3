//! CPU time by the kernel's account of each CPU.

use std::fs;
use std::path::Path;

use emu_core::{CpuList, CpuTimes, Error, Result};
use rustix::param::clock_ticks_per_second;

/// A tick of `/proc/stat`, in seconds.
fn tick() -> f64 {
    1.0 / clock_ticks_per_second() as f64
}

/// CPU time of some CPUs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticks(CpuTimes);

impl Ticks {
    /// The account of `cpus` now, from `/proc/stat`.
    pub fn now(proc: &Path, cpus: &CpuList) -> Result<Self> {
        let path = proc.join("stat");
        let text = fs::read_to_string(&path).map_err(|cause| Error::file("read", &path, cause))?;
        Self::parse(&text, cpus)
    }

    fn parse(text: &str, cpus: &CpuList) -> Result<Self> {
        let of_cpu = |cpu| {
            CpuTimes::of(text, cpu).ok_or_else(|| {
                Error::unavailable(format!("cannot read the CPU time of CPU {cpu}: it is not there"))
            })
        };
        cpus.iter().try_fold(CpuTimes::default(), |sum, cpu| Ok(sum + of_cpu(cpu)?)).map(Self)
    }

    /// What has been added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0.since(earlier.0))
    }

    /// Share of the time that was stolen.
    pub fn stolen_share(self) -> f64 {
        self.0.stolen as f64 / self.0.all.max(1) as f64
    }

    /// How much was stolen, in seconds.
    pub fn stolen_s(self) -> f64 {
        self.0.stolen as f64 * tick()
    }

    /// Share of the time of `cpus` CPUs over `wall_s` that was neither idle nor stolen nor known to be used, at least. Idle
    /// time is exact on kernels that stop the tick when idle; who was busy is only sampled at each tick. So busy is what was
    /// not idle, less a tick for rounding.
    pub fn foreign(self, wall_s: f64, cpus: usize, known_s: f64) -> f64 {
        let capacity = wall_s * cpus as f64;
        let unused = (self.0.idle + self.0.stolen + cpus as u64) as f64 * tick();
        ((capacity - unused - known_s) / capacity).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_over_the_cpus_asked_for() {
        const STAT: &str = "cpu0 10 0 10 100 0 0 0 4 0 0\n\
                            cpu1 20 0 20 200 0 0 0 5 0 0\n";
        let ticks = |list: &str| Ticks::parse(STAT, &list.parse().unwrap());
        assert_eq!(ticks("0-1").unwrap(), Ticks(CpuTimes { all: 369, idle: 300, interrupts: 0, stolen: 9 }));
        assert_eq!(ticks("1").unwrap().0.stolen, 5);
        assert!(ticks("0-2").is_err());
    }

    #[test]
    fn the_stolen_share_is_of_all_time() {
        let ticks = Ticks(CpuTimes { all: 100, idle: 0, interrupts: 0, stolen: 2 });
        assert!((ticks.stolen_share() - 0.02).abs() < 1e-9);
        assert!(Ticks(CpuTimes::default()).stolen_share().abs() < 1e-9);
    }

    #[test]
    fn time_that_nobody_accounts_for_is_foreign() {
        // Two CPUs for 1 s: 0.5 s idle, 0.1 s stolen, 0.9 s known; 0.02 s may be rounding.
        let ticks = Ticks(CpuTimes { all: 200, idle: 50, interrupts: 0, stolen: 10 });
        assert!((ticks.foreign(1.0, 2, 0.9) - 0.24).abs() < 1e-9);
        assert!(ticks.foreign(1.0, 2, 1.4).abs() < 1e-9);
    }
}

//! How CPUs have spent their time, by the kernel's account in `/proc/stat`.

use std::ops::Add;

use crate::cpu_list::CpuId;

/// Time of one or more CPUs from `/proc/stat` (`proc_stat(5)`), in ticks of `sysconf(_SC_CLK_TCK)`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// All time.
    pub all: u64,
    /// Idle time, including waits for a disk.
    pub idle: u64,
    /// Time in interrupts; without precise accounting, the ticks that fell into one.
    pub interrupts: u64,
    /// Time that the hypervisor gave to other guests; zero where the kernel does not report it.
    pub stolen: u64,
}

/// The rest of the line of `cpu` in `/proc/stat` or `/proc/schedstat`.
pub(super) fn line_of(text: &str, cpu: CpuId) -> Option<&str> {
    let name = format!("cpu{cpu} ");
    text.lines().find_map(|line| line.strip_prefix(name.as_str()))
}

impl CpuTimes {
    /// The times of `cpu` from the text of `/proc/stat`; `None` where its line is missing or unreadable.
    pub fn of(stat: &str, cpu: CpuId) -> Option<Self> {
        let line = line_of(stat, cpu)?;
        // user nice system idle iowait irq softirq steal; guest times are part of user and nice.
        let fields = line.split_ascii_whitespace().take(8).map(|field| field.parse().ok());
        let ticks: Vec<u64> = fields.collect::<Option<_>>()?;
        let tick = |field: usize| ticks.get(field).copied().unwrap_or(0);
        Some(Self {
            all: ticks.iter().sum(),
            idle: tick(3) + tick(4),
            interrupts: tick(5) + tick(6),
            stolen: tick(7),
        })
    }

    /// The time since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            all: self.all.saturating_sub(earlier.all),
            idle: self.idle.saturating_sub(earlier.idle),
            interrupts: self.interrupts.saturating_sub(earlier.interrupts),
            stolen: self.stolen.saturating_sub(earlier.stolen),
        }
    }
}

impl Add for CpuTimes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            all: self.all + other.all,
            idle: self.idle + other.idle,
            interrupts: self.interrupts + other.interrupts,
            stolen: self.stolen + other.stolen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  30 0 30 300 0 0 0 9 0 0\n\
                        cpu0 10 0 10 100 6 2 3 4 2 0\n\
                        cpu10 20 0 20 200 0 0 0 5 0 0\n\
                        intr 1\n";

    #[test]
    fn the_line_of_a_cpu_is_summed_without_guests() {
        assert_eq!(CpuTimes::of(STAT, 0), Some(CpuTimes { all: 135, idle: 106, interrupts: 5, stolen: 4 }));
        assert_eq!(CpuTimes::of(STAT, 10), Some(CpuTimes { all: 245, idle: 200, interrupts: 0, stolen: 5 }));
        assert_eq!(CpuTimes::of(STAT, 1), None);
    }

    #[test]
    fn an_old_kernel_without_steal_has_none() {
        assert_eq!(
            CpuTimes::of("cpu0 1 2 3 4\n", 0),
            Some(CpuTimes { all: 10, idle: 4, interrupts: 0, stolen: 0 })
        );
    }

    #[test]
    fn strange_text_is_no_account() {
        for text in ["", "cpu0", "cpu0 1 x 3", "cpu0 -1 2 3 4"] {
            assert_eq!(CpuTimes::of(text, 0), None, "{text}");
        }
    }

    #[test]
    fn times_that_run_backwards_add_nothing() {
        let (before, after) = (
            CpuTimes { all: 9, idle: 5, interrupts: 0, stolen: 1 },
            CpuTimes { all: 12, idle: 4, interrupts: 0, stolen: 1 },
        );
        assert_eq!(after.since(before), CpuTimes { all: 3, idle: 0, interrupts: 0, stolen: 0 });
    }
}

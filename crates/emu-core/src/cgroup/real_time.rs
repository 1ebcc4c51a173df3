//! Time for real-time tasks in a group of version 1.
//!
//! Where the kernel divides that time among groups (`CONFIG_RT_GROUP_SCHED`), a new group has none: no task in it can become
//! real-time, and no real-time task can be moved there (Documentation/scheduler/sched-rt-group.rst).

use std::path::Path;

use crate::control_file;

const RUNTIME: &str = "cpu.rt_runtime_us";
const PERIOD: &str = "cpu.rt_period_us";

/// Less is of no use to any task, in microseconds.
const LEAST: u64 = 1_000;

/// Gives a group what `above` can spare of its real-time time, at most one part of `parts`. Siblings must not have more
/// together than the group above, so that another emu may have left only a half.
pub(crate) fn share(above: &Path, group: &Path, parts: usize) {
    let number = |folder: &Path, name: &str| control_file::probe::<u64>(&folder.join(name));
    let times = number(above, RUNTIME).zip(number(above, PERIOD)).zip(number(group, PERIOD));
    let Some(((runtime, period), own_period)) = times.filter(|((_, period), _)| *period > 0) else { return };
    let whole = runtime.saturating_mul(own_period) / period / parts.max(1) as u64;
    let mut tries =
        std::iter::successors(Some(whole), |last| Some(last / 2)).take_while(|some| *some >= LEAST);
    // A group above that spares nothing has no real-time tasks either.
    let _ = tries.find(|some| control_file::write(&group.join(RUNTIME), &some.to_string()).is_ok());
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_group_gets_its_part_of_what_is_above() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("group");
        fs::create_dir(&group).unwrap();
        let own = || fs::read_to_string(group.join(RUNTIME)).unwrap().trim().to_owned();
        share(dir.path(), &group, 2);
        assert!(!group.join(RUNTIME).exists(), "a kernel without such time");
        for (folder, runtime, period) in [(dir.path(), "950000\n", "1000000\n"), (&group, "0\n", "500000\n")]
        {
            fs::write(folder.join(RUNTIME), runtime).unwrap();
            fs::write(folder.join(PERIOD), period).unwrap();
        }
        share(dir.path(), &group, 2);
        assert_eq!(own(), "237500");
        fs::write(group.join(RUNTIME), "0\n").unwrap();
        fs::write(dir.path().join(RUNTIME), "0\n").unwrap();
        share(dir.path(), &group, 2);
        assert_eq!(own(), "0");
    }
}

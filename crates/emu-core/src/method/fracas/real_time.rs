//! The threads of a group, and the real-time ones among them, which no quota limits.

use std::path::{Path, PathBuf};

use crate::cgroup::lists;
use crate::control_file;
use crate::error::Result;
use crate::process::Stat;
use crate::sys::Pid;

/// Where real-time threads are looked for, when there is no balancer that sees every thread anyway.
#[derive(Debug, Clone)]
pub(crate) struct Threads {
    pub(crate) file: PathBuf,
    pub(crate) procfs: PathBuf,
}

pub(super) fn is_real_time(stat: &Stat) -> bool {
    const DEADLINE: i32 = 6;
    matches!(stat.policy, Some(libc::SCHED_FIFO | libc::SCHED_RR | DEADLINE))
}

pub(crate) fn count_real_time(threads: &Threads) -> Result<usize> {
    let looks = threads_of(&threads.file)?.into_iter().filter_map(|tid| Stat::read(&threads.procfs, tid));
    Ok(looks.filter(is_real_time).count())
}

/// The threads that a file lists. It is opened anew each time: on v1 an open file keeps the list that it had
/// when it was first read.
pub(super) fn threads_of(members: &Path) -> Result<Vec<Pid>> {
    Ok(lists::named(&control_file::read(members)?).collect())
}

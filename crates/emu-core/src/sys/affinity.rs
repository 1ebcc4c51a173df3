//! Which CPUs a task may run on, for any number of CPUs.

#![expect(unsafe_code, reason = "the fixed 1024-CPU sets of the crates are too small for large machines")]

use std::io;

use rustix::io::Errno;

use crate::cpu_list::{CPU_ID_MAX, CpuId, CpuList};
use crate::sys::Pid;

const WORDS: usize = (CPU_ID_MAX + 1) / 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mask([u64; WORDS]);

impl Default for Mask {
    fn default() -> Self {
        Self([0; WORDS])
    }
}

impl Mask {
    pub(crate) const ALL: Self = Self([u64::MAX; WORDS]);

    pub(crate) fn of(cpus: impl IntoIterator<Item = CpuId>) -> Self {
        let mut mask = Self::default();
        cpus.into_iter().for_each(|cpu| mask.insert(cpu));
        mask
    }

    pub(crate) fn insert(&mut self, cpu: CpuId) {
        if let Some(word) = self.0.get_mut(cpu / 64) {
            *word |= 1 << (cpu % 64);
        }
    }

    pub(crate) fn intersection(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= other);
        self
    }

    pub(crate) fn list(&self) -> CpuList {
        let is_in = |cpu: &CpuId| self.0.get(cpu / 64).is_some_and(|word| word >> (cpu % 64) & 1 == 1);
        (0..=CPU_ID_MAX).filter(is_in).collect()
    }

    /// `sched_getaffinity(tid)`; 0 is the calling thread. CPUs that are not active are left out.
    pub(crate) fn get(tid: Pid) -> Result<Self, Errno> {
        let mut mask = [0; WORDS];
        // SAFETY: the kernel writes at most `size_of_val(&mask)` bytes to `mask`.
        let code =
            unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&mask), mask.as_mut_ptr()) };
        if code < 0 { Err(last_error()) } else { Ok(Self(mask)) }
    }

    /// `sched_setaffinity(tid, self)`; 0 is the calling thread.
    pub(crate) fn set(&self, tid: Pid) -> Result<(), Errno> {
        let Self(mask) = self;
        // SAFETY: the kernel reads `size_of_val(mask)` bytes from `mask`, which lives until the call returns.
        let code =
            unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, size_of_val(mask), mask.as_ptr()) };
        if code == 0 { Ok(()) } else { Err(last_error()) }
    }
}

fn last_error() -> Errno {
    Errno::from_raw_os_error(nix::errno::Errno::last_raw())
}

/// `sched_setaffinity(tid, cpus)`; 0 is the calling thread. `EINVAL` when none of the CPUs is online and allowed by
/// the task's cpuset, `EPERM` for another user's task, `ESRCH` when it is gone.
pub(crate) fn set(tid: Pid, cpus: &CpuList) -> io::Result<()> {
    Ok(Mask::of(cpus.iter()).set(tid)?)
}

/// Binds the calling thread to this CPU; fails as [`set`].
pub(crate) fn bind(cpu: CpuId) -> io::Result<()> {
    Ok(Mask::of([cpu]).set(0)?)
}

/// `sched_getaffinity(tid)`; 0 is the calling thread.
pub(crate) fn get(tid: Pid) -> io::Result<CpuList> {
    Ok(Mask::get(tid)?.list())
}

pub(crate) fn current_cpu() -> Option<usize> {
    nix::sched::sched_getcpu().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_the_affinity_it_asks_for() {
        // On a thread of its own, so that no other test runs with a narrowed affinity.
        std::thread::spawn(|| {
            let all = get(0).unwrap();
            let one: CpuList = all.first().into_iter().collect();
            let ways: [&dyn Fn() -> io::Result<()>; 2] = [&|| set(0, &one), &|| bind(all.first().unwrap())];
            for way in ways {
                way().unwrap();
                assert_eq!(get(0).unwrap(), one);
                assert_eq!(current_cpu(), all.first());
                set(0, &all).unwrap();
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_set_without_a_usable_cpu_is_refused() {
        assert_eq!(set(0, &CpuList::default()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}

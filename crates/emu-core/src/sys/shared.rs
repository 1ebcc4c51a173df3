//! A counter in memory that a forked child shares with its parent.

#![expect(unsafe_code, reason = "no crate gives a typed view of shared anonymous memory")]

use std::io;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Counts for both processes; begins at 0.
#[derive(Debug)]
pub(crate) struct SharedCounter(NonNull<AtomicU64>);

// SAFETY: the pointer is to an atomic in a mapping that only `drop` removes.
unsafe impl Send for SharedCounter {}
// SAFETY: as above; an atomic may be used by any number of threads.
unsafe impl Sync for SharedCounter {}

impl SharedCounter {
    /// `mmap(MAP_SHARED | MAP_ANONYMOUS)` of a page.
    pub(crate) fn new() -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at a place of the kernel's choice replaces none.
        let page = unsafe { mmap_anonymous(ptr::null_mut(), size_of::<AtomicU64>(), access, flags) }?;
        NonNull::new(page.cast()).map(Self).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

impl Deref for SharedCounter {
    type Target = AtomicU64;

    fn deref(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped, aligned and zeroed, which is a valid atomic, until `self` is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedCounter {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this length, and nothing borrows from it any more.
        let unmapped = unsafe { munmap(self.0.as_ptr().cast(), size_of::<AtomicU64>()) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::sys::fork::fork;

    #[test]
    fn a_child_counts_for_its_parent() {
        let counter = SharedCounter::new().unwrap();
        assert_eq!(counter.load(Ordering::Relaxed), 0);
        let count = || loop {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        // SAFETY: only computes.
        let child = unsafe { fork([], count) }.unwrap();
        while counter.load(Ordering::Relaxed) < 1000 {
            std::thread::yield_now();
        }
        child.end();
    }
}

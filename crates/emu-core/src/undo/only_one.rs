//! One emu of this user at a time, for what two would undo for each other.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};

use rustix::fs::{Mode, OFlags, openat};

use super::state::StateDir;
use crate::error::{Error, Result};
use crate::roots::Roots;

/// Held by the one process that does something at a time: a locked file of the state folder (`flock(2)`), which the kernel
/// releases however the process ends.
#[derive(Debug)]
pub struct OnlyOne(File);

impl OnlyOne {
    /// Takes the lock that has this name in the state folder.
    ///
    /// # Errors
    /// `taken`, with the process ID of the holder, where another process has it. The state folder cannot be used.
    pub fn take(roots: &Roots, name: &str, taken: impl FnOnce(&str) -> Error) -> Result<Self> {
        let state = StateDir::open(roots)?;
        let failed = |e| Error::file("lock", &state.path.join(name), e);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            openat(state.folder(), name, flags, Mode::RUSR | Mode::WUSR).map_err(|e| failed(e.into()))?;
        let mut file = File::from(file);
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // The holder may just be writing it.
                let _ = file.read_to_string(&mut holder);
                return Err(taken(holder.trim()));
            }
            Err(TryLockError::Error(e)) => return Err(failed(e)),
        }
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            write!(file, "{}", std::process::id())
        };
        write(&mut file).map_err(failed)?;
        Ok(Self(file))
    }
}

impl Drop for OnlyOne {
    fn drop(&mut self) {
        // A child that another thread has just forked shares the lock, so that closing the file would not release it.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        let take = || OnlyOne::take(&roots, "one", |holder| Error::unavailable(format!("held by {holder}")));
        let first = take().unwrap();
        assert_eq!(take().unwrap_err().to_string(), format!("held by {}", std::process::id()));
        drop(first);
        take().unwrap();
    }
}

//! One emu of this user at a time, for what two would undo for each other.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::thread;
use std::time::Duration;

use super::state::{StateDir, StateLock};
use crate::error::{Error, Result};
use crate::roots::Roots;

/// How often, and how long apart, the name of the one that holds it is looked for.
const LOOKS: u32 = 20;
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Held by the one process that does something at a time: a locked file of the state folder, which the kernel releases however
/// the process ends.
#[derive(Debug)]
pub struct OnlyOne {
    _lock: StateLock,
}

impl OnlyOne {
    /// Takes the lock that has this name in the state folder.
    ///
    /// # Errors
    /// `taken`, with the process ID of the holder, where another process has it. The state folder cannot be used.
    pub fn take(roots: &Roots, name: &str, taken: impl FnOnce(&str) -> Error) -> Result<Self> {
        let state = StateDir::open(roots)?;
        let mut lock = state.lock_file(name, Duration::ZERO)?.map_err(|mut file| {
            let mut holder = String::new();
            // The holder may just be writing it.
            for _ in 0..LOOKS {
                if file.read_to_string(&mut holder).is_ok_and(|length| length > 0) {
                    break;
                }
                thread::sleep(LOOK_EVERY);
            }
            taken(holder.trim())
        })?;
        sign(&mut lock.0).map_err(|e| Error::file("write", &state.path.join(name), e))?;
        Ok(Self { _lock: lock })
    }
}

fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())
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

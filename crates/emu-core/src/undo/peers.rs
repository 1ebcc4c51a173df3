//! The other sessions at work: what this one has changed, they may rely on.
//!
//! Sessions on CPUs of their own overlap in time and share files of the machine as a whole, such as a limit or a list
//! of controllers. So each that relies on a value has a record of it, with the value that the first one found. Who ends
//! leaves the file to those who go on, and the last one puts the old value back.
//!
//! Nothing here allocates.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, RawDir, flock, fstat, openat};
use rustix::io::{Errno, pread};

use super::field::{Field, Values};
use super::lines::{Backwards, DONE, ENDING, LEFT, WINDOW};
use super::places::Places;
use super::record::{Step, Task};
use super::state::{SUFFIX, lock_within, not_ours_alone};
use super::task;

/// How much of a journal is read to learn whose it is.
const START: usize = 128;

/// The sessions of a state folder but one.
#[derive(Clone, Copy)]
pub(super) struct Peers<'a> {
    pub(super) folder: BorrowedFd<'a>,
    /// The file of the one that asks.
    pub(super) own: &'a CStr,
    pub(super) places: &'a Places,
}

/// As long as this lives, no other session takes up or gives up a shared file.
pub(super) struct SharingLock(OwnedFd);

impl Drop for SharingLock {
    fn drop(&mut self) {
        // Closing alone would leave it locked by a child that another thread has forked meanwhile.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Peers<'_> {
    /// Takes the lock on the folder itself: its file `lock` is held by those who wait for a guardian.
    ///
    /// # Errors
    /// The folder cannot be opened or locked; `EWOULDBLOCK` when another session has it for longer than `patience`.
    pub(super) fn lock(&self, patience: Duration) -> rustix::io::Result<SharingLock> {
        let folder = self.open_folder()?;
        if lock_within(&folder, patience)? { Ok(SharingLock(folder)) } else { Err(Errno::WOULDBLOCK) }
    }

    /// Whether `is_it` holds for the record of a control file in the journal of a live session that is not ending:
    /// old value and new ones, of which there is none while a write is under way. Of each journal the newest record
    /// of the file counts, or with `all` every one.
    ///
    /// A journal that cannot be read counts for none: whoever restores tells of it.
    pub(super) fn any(
        &self,
        path: Field<'_>,
        all: bool,
        is_it: &mut dyn FnMut(Field<'_>, Values<'_>) -> bool,
    ) -> bool {
        let Ok(folder) = self.open_folder() else { return false };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(&folder, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            let name = entry.file_name();
            if name.to_bytes().ends_with(SUFFIX)
                && name != self.own
                && self.has(name, path, all, is_it).unwrap_or(false)
            {
                return true;
            }
        }
        false
    }

    fn open_folder(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(self.folder, c".", flags, Mode::empty())
    }

    #[expect(
        clippy::large_stack_arrays,
        reason = "the guardian has no other memory, and its stack is a thread's"
    )]
    fn has(
        &self,
        name: &CStr,
        path: Field<'_>,
        all: bool,
        is_it: &mut dyn FnMut(Field<'_>, Values<'_>) -> bool,
    ) -> rustix::io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let journal = openat(self.folder, name, flags, Mode::empty())?;
        if !self.is_live(&journal)? {
            return Ok(false);
        }
        let mut window = [0; WINDOW];
        let mut lines = Backwards::new(journal.as_fd(), &mut window)?;
        let mut newest = true;
        while let Some(line) = lines.next()? {
            if newest && [DONE, LEFT, ENDING].contains(&line) {
                return Ok(false);
            }
            if let Some(Step::File { path: theirs, old, new, .. }) = Step::parse(line)
                && theirs == path
                && (newest || !new.is_empty())
            {
                let found = is_it(old, new);
                if found || !all {
                    return Ok(found);
                }
            }
            newest = false;
        }
        Ok(false)
    }

    /// Whether the emu that wrote a journal lives.
    fn is_live(&self, journal: &OwnedFd) -> rustix::io::Result<bool> {
        let about = fstat(journal)?;
        if not_ours_alone(about.st_uid, about.st_mode).is_some() {
            return Ok(false);
        }
        let mut start = [0; START];
        let length = pread(journal, &mut start[..], 0)?;
        // The end of what was read may be amid a field; the first four, two words and two numbers, are whole.
        let mut fields = start.get(..length).unwrap_or_default().splitn(5, |&byte| byte == b'\t');
        let (Some(_magic), Some(_version)) = (fields.next(), fields.next()) else { return Ok(false) };
        let number = |field: Option<&[u8]>| field.and_then(|text| Field::from(text).number::<u64>());
        let (Some(pid), Some(starttime)) = (number(fields.next()), number(fields.next())) else {
            return Ok(false);
        };
        task::is_alive(self.places.proc(), Task { pid: pid as crate::sys::Pid, starttime })
    }
}

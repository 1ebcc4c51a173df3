//! The other live sessions, which may rely on what this one has changed. Nothing here allocates.
//!
//! Sessions on different CPUs share files of the whole machine, such as a limit or a list of controllers. Each
//! session that relies on a value has a record of it, with the value that the first session found. A session that
//! ends leaves the file to the others, and the last one restores the old value.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, RawDir, fstat, openat};
use rustix::io::{Errno, pread};

use super::field::{Field, Fields, Values};
use super::lines::{Backwards, DONE, ENDING, LEFT, WINDOW};
use super::places::Places;
use super::record::{Step, Task};
use super::state::{SUFFIX, StateLock, lock_within, not_ours_alone};
use super::task;

/// How much of a journal is read to learn which process wrote it, in bytes.
const START: usize = 128;

#[derive(Clone, Copy)]
pub(super) struct Peers<'a> {
    pub(super) folder: BorrowedFd<'a>,
    /// The session file of the one that asks.
    pub(super) own: &'a CStr,
    pub(super) places: &'a Places,
}

impl Peers<'_> {
    /// While the lock exists, no other session begins or ends the use of a shared file. It is that of the folder itself: its
    /// file `lock` is taken by emus that wait for a guardian.
    pub(super) fn lock(&self, patience: Duration) -> rustix::io::Result<StateLock> {
        let folder = self.open_folder()?;
        if lock_within(&folder, patience)? { Ok(StateLock(folder.into())) } else { Err(Errno::WOULDBLOCK) }
    }

    /// Whether `is_it` holds for the record of a control file in the journal of a live session that is not ending.
    /// Its arguments are the old value and the new ones, none while a write is under way. Only the newest record of
    /// the file in each journal counts, or with `all` every one.
    pub(super) fn any(
        &self,
        path: Field<'_>,
        all: bool,
        is_it: &mut dyn FnMut(Field<'_>, Values<'_>) -> bool,
    ) -> bool {
        self.any_step(&mut |step, newest| match step {
            Step::File { path: theirs, old, new, .. } if theirs == path && (newest || !new.is_empty()) => {
                let found = is_it(old, new);
                (found || !all).then_some(found)
            }
            _ => None,
        })
    }

    /// Whether `look` finds what it looks for in the journal of a live session that is not ending. It is given the records,
    /// newest first, and whether each is the newest; a journal is done with once it returns something. One that cannot be
    /// read is skipped: restoring reports it.
    pub(super) fn any_step(&self, look: &mut dyn FnMut(Step<'_>, bool) -> Option<bool>) -> bool {
        let Ok(folder) = self.open_folder() else { return false };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut entries = RawDir::new(&folder, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            let name = entry.file_name();
            if name.to_bytes().ends_with(SUFFIX) && name != self.own && self.has(name, look).unwrap_or(false)
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
        look: &mut dyn FnMut(Step<'_>, bool) -> Option<bool>,
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
            if let Some(found) = Step::parse(line).and_then(|step| look(step, newest)) {
                return Ok(found);
            }
            newest = false;
        }
        Ok(false)
    }

    fn is_live(&self, journal: &OwnedFd) -> rustix::io::Result<bool> {
        let about = fstat(journal)?;
        if not_ours_alone(about.st_uid, about.st_mode).is_some() {
            return Ok(false);
        }
        let mut start = [0; START];
        let length = pread(journal, &mut start[..], 0)?;
        // The text may end within a field; the task stands after the magic and the version.
        let whole = start.get(..length).unwrap_or_default().rsplitn(2, |&byte| byte == b'\t').nth(1);
        let fields = whole.and_then(Fields::of).map(|fields| fields.skip(2));
        let task = fields.and_then(|mut fields| Task::parse(&mut fields));
        task.map_or(Ok(false), |task| task::is_alive(self.places.proc(), task))
    }
}

//! The state folder: which sessions exist, which of them live, and whose CPUs overlap.
//!
//! A session is one file, locked by its guardian for as long as that lives: a file that is not locked belongs to a
//! live session only if its emu lives. The lock is not emu's own: its children would share it and might be frozen
//! with it.

use std::ffi::{CStr, CString};
use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, flock, openat, unlinkat};
use rustix::io::Errno;

use super::header::{Header, LiveSession};
use super::lines::{Backwards, LEFT, LINE_MAX, WINDOW};
use super::places::Places;
use super::record::Task;
use super::task;
use crate::error::{Error, ErrorKind, Result};
use crate::roots::Roots;
use crate::sys::time;

const LOCK: &str = "lock";
pub(super) const SUFFIX: &[u8] = b".journal";

/// How opening to write fails for what is no file: a folder, a link, a socket.
const NO_FILE: [i32; 3] = [libc::EISDIR, libc::ELOOP, libc::ENXIO];

/// How long another emu or a guardian at work may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) enum Found {
    Live(LiveSession),
    /// Its emu has ended and left changes. This process has locked the file.
    Dead(File, Header),
    /// Its emu died before any change, or the machine has been booted since. This process has locked the file.
    Void(File),
    Gone,
}

/// The state folder, checked to be writable by this user only.
#[derive(Debug)]
pub(super) struct StateDir {
    pub(super) path: PathBuf,
    folder: OwnedFd,
}

/// The folder, or a file of it, that this process has locked, for as long as this exists (`flock(2)`).
#[derive(Debug)]
pub(super) struct StateLock(pub(super) File);

impl Drop for StateLock {
    fn drop(&mut self) {
        // Closing does not release the lock: a child forked by another thread shares it.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl StateDir {
    /// Creates the folder where it is missing.
    pub(super) fn open(roots: &Roots) -> Result<Self> {
        if !roots.state.is_absolute() {
            return Err(Error::usage(format!("the state folder {} is not absolute", roots.state.display())));
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&roots.state)
            .or_else(|cause| {
                // Not a folder: reported when it is opened.
                if cause.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(cause) }
            })
            .map_err(|cause| {
                let error = Error::file("create the state folder", &roots.state, cause);
                let refused = [libc::EACCES, libc::EPERM, libc::EROFS];
                // Without root it is in the folder that the environment names.
                match roots.state.parent().filter(|_| !nix::unistd::geteuid().is_root()) {
                    Some(parent) if parent.is_dir() => error.hint_on(
                        &refused,
                        "name a folder of yours that can be written: XDG_RUNTIME_DIR=FOLDER",
                    ),
                    Some(parent) => error.hint(format!(
                        "XDG_RUNTIME_DIR names {}, which is not there: make it, or unset the variable",
                        parent.display()
                    )),
                    None => error,
                }
            })?;
        Self::open_existing(&roots.state)
    }

    pub(super) fn open_if_present(roots: &Roots) -> Result<Option<Self>> {
        match roots.state.symlink_metadata() {
            Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            _ => Self::open_existing(&roots.state).map(Some),
        }
    }

    fn open_existing(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty()).map_err(|cause| {
            let error = Error::file("open the state folder", path, cause.into());
            if matches!(cause, Errno::NOTDIR | Errno::LOOP) {
                error.hint("it must be a folder, not a link or a file; remove it")
            } else {
                error
            }
        })?;
        let stat = rustix::fs::fstat(&folder).map_err(|cause| Error::file("look at", path, cause.into()))?;
        if let Some(why) = not_ours_alone(stat.st_uid, stat.st_mode) {
            return Err(Error::new(ErrorKind::Failed, format!("the state folder {} {why}", path.display()))
                .hint("check who made it, then remove it"));
        }
        Ok(Self { path: path.to_owned(), folder })
    }

    /// Waits until no other emu lists, creates or removes sessions.
    pub(super) fn lock(&self) -> Result<StateLock> {
        self.within_patience(self.lock_file(LOCK, PATIENCE))
    }

    /// As [`lock`](Self::lock), for one who only looks; `None` where the file system is read-only and has no such file.
    pub(super) fn lock_to_look(&self) -> Result<Option<StateLock>> {
        match self.lock() {
            Err(why) if why.raw_os_error() == Some(libc::EROFS) => {}
            locked => return locked.map(Some),
        }
        match self.lock_opened(LOCK, OFlags::RDONLY, PATIENCE) {
            Err(why) if why.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            locked => self.within_patience(locked).map(Some),
        }
    }

    fn within_patience(&self, locked: Result<std::result::Result<StateLock, File>>) -> Result<StateLock> {
        locked?.map_err(|_| {
            let path = self.path.join(LOCK);
            let message = format!("cannot lock {}: another emu has held it for {PATIENCE:?}", path.display());
            Error::new(ErrorKind::Failed, message).hint("is an emu stopped? continue or kill it")
        })
    }

    /// The file is made where it is missing, and returned open where another process keeps it locked for `patience`.
    pub(super) fn lock_file(
        &self,
        name: &str,
        patience: Duration,
    ) -> Result<std::result::Result<StateLock, File>> {
        self.lock_opened(name, OFlags::RDWR | OFlags::CREATE, patience)
    }

    fn lock_opened(
        &self,
        name: &str,
        flags: OFlags,
        patience: Duration,
    ) -> Result<std::result::Result<StateLock, File>> {
        let path = self.path.join(name);
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|cause| Error::file("open", &path, cause.into()))
            .map_err(|e| e.hint_on(&NO_FILE, "it must be a file, not a folder or a link; remove it"))?;
        let is_ours =
            lock_within(&file, patience).map_err(|cause| Error::file("lock", &path, cause.into()))?;
        let file = File::from(file);
        Ok(if is_ours { Ok(StateLock(file)) } else { Err(file) })
    }

    /// The names of the session files. The caller has locked the folder.
    pub(super) fn sessions(&self) -> Result<Vec<CString>> {
        let failed = |cause: Errno| Error::file("list", &self.path, cause.into());
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().to_bytes().ends_with(SUFFIX) {
                names.push(entry.file_name().to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// The caller has locked the folder.
    pub(super) fn create(&self, task: Task) -> Result<(CString, File)> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut number = 0;
        loop {
            // A process may have several sessions, on CPUs of their own.
            let ordinal = if number == 0 { String::new() } else { format!("-{number}") };
            let name = format!("{}-{}{ordinal}.journal", task.pid, task.starttime);
            let made = CString::new(name.as_str())
                .map_err(|_| Errno::INVAL)
                .and_then(|name| Ok((openat(&self.folder, &name, flags, Mode::RUSR | Mode::WUSR)?, name)))
                // Not 0, 1 or 2 in a program that has closed those: its output would go into the journal.
                .and_then(|(file, name)| match rustix::io::fcntl_dupfd_cloexec(file, 3) {
                    Ok(file) => Ok((file, name)),
                    Err(cause) => remove(self.folder(), &name).and(Err(cause)),
                });
            match made {
                Ok((file, name)) => return Ok((name, file.into())),
                Err(Errno::EXIST) => number += 1,
                Err(cause) => return Err(Error::file("create", &self.path.join(name), cause.into())),
            }
        }
    }

    /// Opens a session file once more, for a separate lock; on a read-only file system to be read.
    pub(super) fn reopen(&self, name: &CStr) -> Result<File> {
        let flags = OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |access| openat(&self.folder, name, flags | access, Mode::empty());
        open(OFlags::RDWR)
            .or_else(|cause| if cause == Errno::ROFS { open(OFlags::RDONLY) } else { Err(cause) })
            .map(File::from)
            .map_err(|cause| Error::file("open", &self.file(name), cause.into()))
    }

    /// A missing file is no error.
    pub(super) fn remove(&self, name: &CStr) -> Result<()> {
        remove(self.folder(), name).map_err(|cause| Error::file("remove", &self.file(name), cause.into()))
    }

    pub(super) fn file(&self, name: &CStr) -> PathBuf {
        self.path.join(std::ffi::OsStr::from_bytes(name.to_bytes()))
    }

    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// The caller has locked the folder. A file that is refused is left unchanged.
    pub(super) fn inspect(&self, name: &CStr, places: &Places, boot: &str) -> Result<Found> {
        let path = self.file(name);
        let failed = |operation: &str, cause: io::Error| Error::file(operation, &path, cause);
        let file = match self.reopen(name) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(Found::Gone),
            file => file?,
        };
        let metadata = file.metadata().map_err(|cause| failed("look at", cause))?;
        if let Some(why) = not_ours_alone(metadata.uid(), metadata.mode()) {
            return Err(bad_journal(&path, why));
        }
        if !metadata.is_file() {
            return Err(bad_journal(&path, "is not a regular file"));
        }
        let mut free = lock_within(&file, Duration::ZERO).map_err(|cause| failed("lock", cause.into()))?;
        let mut start = Vec::new();
        let read = (&file).take(LINE_MAX as u64).read_to_end(&mut start);
        let length = read.map_err(|cause| failed("read", cause))?;
        let Some(end) = start.iter().position(|&byte| byte == b'\n') else {
            let whole = Header::magic();
            return if !free {
                // Its guardian lives, so it had a header: the file has just been removed and emptied.
                Err(bad_journal(&path, "is in use but has no header"))
            } else if length < LINE_MAX && (start.starts_with(&whole) || whole.starts_with(&start)) {
                Ok(Found::Void(file))
            } else {
                Err(bad_journal(&path, "is not a journal of this version of emu"))
            };
        };
        let Some(header) = Header::parse(start.get(..end).unwrap_or_default()) else {
            return Err(bad_journal(&path, "is not a journal of this version of emu"));
        };
        let another_boot = !boot.is_empty() && !header.boot.is_empty() && header.boot != boot;
        if another_boot && free {
            return Ok(Found::Void(file));
        }
        let alive = task::is_alive(places.proc(), header.task).map_err(|cause| {
            Error::io(format!("cannot look for process {}", header.task.pid), cause.into())
        })?;
        if alive && !(free && was_left(&file)) {
            return Ok(Found::Live(header.session));
        }
        if !free {
            // The guardian of a dead emu is undoing it.
            free = lock_within(&file, PATIENCE).map_err(|cause| failed("lock", cause.into()))?;
        }
        if !free {
            return Err(bad_journal(&path, "is being undone by its guardian, which does not get on"));
        }
        match file.metadata().map_err(|cause| failed("look at", cause))?.nlink() {
            0 => Ok(Found::Gone),
            _ => Ok(Found::Dead(file, header)),
        }
    }
}

/// Whether the session has given up on what it could not undo.
fn was_left(file: &File) -> bool {
    let mut window = vec![0; WINDOW];
    let newest =
        Backwards::new(file.as_fd(), &mut window).and_then(|mut lines| Ok(lines.next()? == Some(LEFT)));
    newest.unwrap_or(false)
}

/// A missing file is no error. This does not allocate.
pub(super) fn remove(folder: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(cause) => Err(cause),
    }
}

/// Locks a file; false when another process keeps it locked for `patience`.
pub(super) fn lock_within(file: impl AsFd, patience: Duration) -> rustix::io::Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) if Instant::now() >= deadline => return Ok(false),
            Err(Errno::WOULDBLOCK) => time::sleep(Duration::from_millis(1)),
            Err(Errno::INTR) => {}
            Err(cause) => return Err(cause),
        }
    }
}

/// Why a folder or file may have been written by another user.
pub(super) fn not_ours_alone(owner: u32, mode: u32) -> Option<&'static str> {
    if owner != rustix::process::geteuid().as_raw() {
        Some("belongs to another user")
    } else if mode & 0o022 != 0 {
        Some("may be written by other users")
    } else {
        None
    }
}

fn bad_journal(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::RestoreIncomplete, format!("the journal {} {why}", path.display()))
        .hint("nothing was done on its account; look at it, then remove it")
}

#[cfg(test)]
mod tests;

//! The open journal of a session of this process: its file, its guardian, and the values it has written.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::copy;
use super::field::{Field, Values, push};
use super::file::is_claimed;
use super::form::Form;
use super::guardian::Guardian;
use super::header::{Header, LiveSession};
use super::lines::{LINE_MAX, WINDOW};
use super::peers::Peers;
use super::places::Places;
use super::record::{Step, Task, Undo};
use super::replay::{check, finish, undo, undo_of};
use super::state::{PATIENCE, StateDir, StateLock, lock_within};
use super::task;
use super::undoer::{Gravity, pause};
use super::written::Written;
use crate::control_file;
use crate::error::{Error, ErrorKind, Result};
use crate::hint::Hint;
use crate::sys::Pid;

/// In bytes, without what copies have replaced: some 400 000 records of a process.
const JOURNAL_MAX: u64 = 16 << 20;

/// The length in bytes at which a journal is copied.
const COPY_AT: u64 = 1 << 20;

/// How long a file may read as before it was written: the kernel applies limits of cpufreq in a worker thread.
const APPLIED: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) enum Phase {
    Open,
    Ended,
    /// Undone, except for these problems.
    Left(Vec<String>),
}

/// What a [`Journal`](super::Journal) shares with its clones.
pub(super) struct OpenJournal {
    pub(super) owner: Pid,
    dir: StateDir,
    name: CString,
    pub(super) file: File,
    /// The length of the complete records in the file.
    pub(super) length: u64,
    header: u64,
    /// The position of the first record that counts.
    begin: u64,
    copy_at: u64,
    places: Places,
    window: Vec<u8>,
    pub(super) guardian: Guardian,
    pub(super) kept: Vec<Box<dyn Any + Send>>,
    written: HashMap<PathBuf, Written>,
    pub(super) notes: Vec<String>,
    pub(super) others: Vec<LiveSession>,
    pub(super) phase: Phase,
}

impl OpenJournal {
    pub(super) fn begin(
        header: &Header,
        dir: StateDir,
        name: CString,
        file: File,
        places: Places,
        notes: Vec<String>,
    ) -> Result<Self> {
        let mut window = vec![0; WINDOW];
        let line = header.line();
        let path = dir.file(&name);
        let begun = write_line(&file, &line).map_err(|cause| no_record(&path, cause)).and_then(|()| {
            // A lock of its own: when this descriptor is closed here, only the guardian has it.
            let locked = dir.reopen(&name)?;
            lock_within(&locked, Duration::ZERO).map_err(|cause| Error::file("lock", &path, cause.into()))?;
            Guardian::start(&dir, &name, &locked, &places, &mut window, &header.session).map_err(|cause| {
                let hint = match cause.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::MFILE | Errno::NFILE) => "raise the limit of open files: ulimit -n",
                    Some(Errno::AGAIN | Errno::NOMEM) => {
                        "processes or memory are short, or limited: ulimit -u, ulimit -v, ulimit -d, a cgroup's pids.max"
                    }
                    _ => "emu needs Linux 5.9, and pidfds (pidfd_open, CLONE_PIDFD) that nothing forbids",
                };
                Error::io("cannot start the guardian process", cause).hint(hint)
            })
        });
        match begun {
            Ok(guardian) => Ok(Self {
                owner: header.task.pid,
                dir,
                name,
                file,
                length: line.len() as u64,
                header: line.len() as u64,
                begin: line.len() as u64,
                copy_at: COPY_AT,
                places,
                window,
                guardian,
                kept: Vec::new(),
                written: HashMap::new(),
                notes,
                others: Vec::new(),
                phase: Phase::Open,
            }),
            Err(error) => {
                // Nothing has been changed yet. If the empty journal stays, the next emu removes it.
                let _ = dir.remove(&name);
                Err(error)
            }
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.file(&self.name)
    }

    /// Whether this process opened it, and is not a forked child.
    fn is_ours(&self) -> bool {
        self.owner == std::process::id() as Pid
    }

    pub(super) fn record(&mut self, undo: &Undo) -> Result<()> {
        let Undo::File { path, old, new } = undo else { return self.append(undo) };
        if new.is_empty() {
            return self.append(undo);
        }
        let _lock = self.sharing_lock()?;
        let known = self.written.get(path).filter(|written| written.found == old.trim()).cloned();
        let mut written = known.unwrap_or_else(|| self.found(path, Form::Plain, old.trim()));
        written.add(new.iter().map(String::as_str));
        self.append(&written.undo(path))?;
        self.written.insert(path.clone(), written);
        Ok(())
    }

    /// Records that the session enables controllers in a list, or relies on another live session that has.
    pub(super) fn claim(&mut self, path: &Path, names: &[&str]) -> Result<()> {
        let _lock = self.sharing_lock()?;
        let field = field_of(path);
        let is_shared = |name: &str| {
            let is_it = &mut |old: Field<'_>, new: Values<'_>| is_claimed(old, new, name.as_bytes());
            self.peers().any(Field::from(field.as_slice()), true, is_it)
        };
        let current = control_file::read(path)?;
        let old: Vec<_> = current.split_whitespace().filter(|name| !is_shared(name)).collect();
        let claimed: Vec<_> = names.iter().copied().filter(|name| !old.contains(name)).collect();
        if claimed.is_empty() {
            return Ok(());
        }
        let new = vec![[old.as_slice(), &claimed].concat().join(" ")];
        self.append(&Undo::File { path: path.into(), old: old.join(" "), new })
    }

    pub(super) fn is_shared(&self, path: &Path) -> bool {
        self.peers().any(Field::from(field_of(path).as_slice()), false, &mut |_, _| true)
    }

    /// The value to restore: `current`, or the one that was there before another live session changed it.
    fn found(&self, path: &Path, form: Form, current: &str) -> Written {
        let mut original = None;
        let field = field_of(path);
        self.peers().any(Field::from(field.as_slice()), false, &mut |old, theirs| {
            let is_theirs = theirs.is_empty() || theirs.contains(current.as_bytes());
            if is_theirs {
                original = String::from_utf8(old.bytes().collect()).ok();
            }
            is_theirs
        });
        Written::new(form, current, original.as_deref())
    }

    fn peers(&self) -> Peers<'_> {
        Peers { folder: self.dir.folder(), own: &self.name, places: &self.places }
    }

    fn sharing_lock(&self) -> Result<StateLock> {
        self.peers().lock(PATIENCE).map_err(|cause| {
            let error = Error::file("lock", &self.dir.path, cause.into());
            error.hint_on(&[libc::EWOULDBLOCK], "is an emu stopped? continue or kill it")
        })
    }

    fn append(&mut self, undo: &Undo) -> Result<()> {
        if !self.is_ours() || !matches!(self.phase, Phase::Open) {
            return Err(Error::new(
                ErrorKind::Failed,
                "the emulation has ended: nothing more may be changed",
            ));
        }
        let line = undo.line();
        let text = line.strip_suffix(b"\n").unwrap_or_default();
        let refused = match Step::parse(text) {
            _ if line.len() > LINE_MAX => Some("it is too long"),
            Some(step) => check(step, &self.places).err(),
            None => Some("it could not be read back"),
        };
        if let Some(why) = refused {
            let record = Field::from(text);
            return Err(Error::new(ErrorKind::Failed, format!("cannot record `{record}`: {why}")));
        }
        if self.length - self.begin > self.copy_at {
            // Else it grows on.
            let _ = self.copy(&[]);
        }
        let length = self.length + line.len() as u64;
        if length - self.begin > JOURNAL_MAX {
            let path = self.path();
            let message =
                format!("the journal {} has reached its limit of {JOURNAL_MAX} bytes", path.display());
            return Err(Error::new(ErrorKind::Failed, message).hint("end this emulation and start it anew"));
        }
        self.write(&line)
    }

    fn write(&mut self, lines: &[u8]) -> Result<()> {
        if let Err(cause) = write_line(&self.file, lines) {
            let error = no_record(&self.path(), cause);
            // A partial line would make the next one unreadable.
            if let Err(cause) = self.file.set_len(self.length) {
                let problem = format!("cannot shorten {}: {cause}", self.path().display());
                self.phase = Phase::Left(vec![problem]);
            }
            return Err(error);
        }
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Copies the records that still count, not those of tasks that have `left`, and frees the space before them. If that fails,
    /// all records count on.
    pub(super) fn copy(&mut self, left: &[Task]) -> Result<()> {
        let mut lines = vec![0; (self.length - self.begin) as usize];
        let first = self.length;
        let read = self.file.read_exact_at(&mut lines, self.begin);
        read.map_err(|cause| Error::file("read", &self.path(), cause))?;
        let proc = self.places.proc();
        let copied = copy::copied(&lines, &|task| task::is_same(proc, task).unwrap_or(true), left);
        self.copy_at = COPY_AT.max(2 * copied.len() as u64);
        self.write(&copied)?;
        self.begin = first;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // The header and the newline before the copy stay. A file system frees whole blocks and zeroes the rest, or cannot: then
        // the file grows.
        let _ = fallocate(&self.file, flags, self.header, first - 1 - self.header);
        Ok(())
    }

    pub(super) fn write_file(&mut self, path: &Path, form: Form, value: &str) -> Result<String> {
        let read = || control_file::read(path).map(|text| form.value_of(&text).to_owned());
        let mut current = read()?;
        let known = |current: &str| self.written.get(path).filter(|written| written.knows(current)).cloned();
        let (mut written, _lock) = match known(&current) {
            Some(_) if current == value => return Ok(current),
            Some(written) => (written, None),
            None => {
                let lock = self.sharing_lock()?;
                current = read()?;
                (self.found(path, form, &current), Some(lock))
            }
        };
        if current == value {
            // The value must stay when the session that set it ends.
            if written.old != current {
                self.settle(path, &mut written, [value, value])?;
            }
            return Ok(current);
        }
        if written.knows(value) {
            control_file::write(path, value)?;
            let now = applied(read, &current, value)?;
            if !written.knows(&now) {
                self.settle(path, &mut written, [value, &now])?;
            } else if written.old != value {
                // Every record of that session names the value already.
                written.add([value]);
                self.written.insert(path.into(), written);
            }
            return Ok(now);
        }
        // Until the kernel's version of the value is known, whatever the file holds counts as ours.
        self.append(&written.undo_under_way(path))?;
        if let Err(error) = control_file::write(path, value) {
            self.settle(path, &mut written, [value, value])?;
            return Err(error);
        }
        match applied(read, &current, value) {
            Ok(now) => self.settle(path, &mut written, [value, &now]).map(|()| now),
            Err(error) => {
                control_file::write(path, &written.found)?;
                Err(error)
            }
        }
    }

    /// Records the values that this session wrote to a file. If that fails, restores the old value.
    fn settle(&mut self, path: &Path, written: &mut Written, values: [&str; 2]) -> Result<()> {
        written.add(values);
        if let Err(error) = self.append(&written.undo(path)) {
            control_file::write(path, &written.found)?;
            return Err(error);
        }
        self.written.insert(path.into(), written.clone());
        Ok(())
    }

    pub(super) fn undo_of(&mut self, tasks: &[Task], processes: &[Pid]) -> Result<()> {
        let mut problems = Vec::new();
        let Self { places, file, window, .. } = self;
        let read = undo_of((tasks, processes), file.as_fd(), places, window, &mut |gravity, message| {
            if gravity == Gravity::Failure {
                problems.push(message.to_string());
            }
        });
        read.map_err(|cause| Error::file("read", &self.path(), cause.into()))?;
        if problems.is_empty() { Ok(()) } else { Err(incomplete(&problems)) }
    }

    pub(super) fn undo(&mut self) -> Result<()> {
        if !self.is_ours() {
            return Ok(());
        }
        match &self.phase {
            Phase::Open => {}
            Phase::Ended => return Ok(()),
            Phase::Left(problems) => return Err(incomplete(problems)),
        }
        self.kept.clear();
        // If this line cannot be written, a session that ends at the same moment may leave its values to us.
        let _ = write_line(&self.file, b"ending\n");
        let (mut notes, mut problems) = (Vec::new(), Vec::new());
        let Self { dir, name, places, file, window, .. } = self;
        let peers = Peers { folder: dir.folder(), own: name, places };
        let outcome =
            undo(file.as_fd(), places, Some(peers), window, &mut |gravity, message| match gravity {
                Gravity::Note => notes.push(message.to_string()),
                Gravity::Failure => problems.push(message.to_string()),
            });
        self.notes.append(&mut notes);
        let result = if outcome.failed == 0 {
            self.phase = Phase::Ended;
            finish(self.file.as_fd(), self.dir.folder(), &self.name)
                .map_err(|cause| Error::file("remove", &self.path(), cause.into()))
        } else {
            // Lets other emus restore before this process ends; without the line they wait for its end.
            let _ = write_line(&self.file, b"left\n");
            let error = incomplete(&problems);
            self.phase = Phase::Left(problems);
            Err(error)
        };
        self.guardian.end();
        result
    }
}

impl Drop for OpenJournal {
    fn drop(&mut self) {
        // What cannot be undone stays in the file.
        let _ = self.undo();
        if !self.is_ours() {
            // In a forked child the helpers' threads do not exist, and joining them would never return.
            std::mem::forget(std::mem::take(&mut self.kept));
        }
    }
}

/// The kernel's version of `value`, which was just written where `before` was.
fn applied(read: impl Fn() -> Result<String>, before: &str, value: &str) -> Result<String> {
    let end = Instant::now() + APPLIED;
    loop {
        let now = read()?;
        if now != before || now == value || Instant::now() >= end {
            return Ok(now);
        }
        pause();
    }
}

/// One `write(2)`, then `fdatasync(2)`: the record is on disk before its change is made. Where only a part has been written, a
/// second one tells why.
fn write_line(mut file: &File, line: &[u8]) -> io::Result<()> {
    file.write_all(line)?;
    file.sync_data()
}

fn field_of(path: &Path) -> Vec<u8> {
    let mut field = Vec::new();
    push(&mut field, path.as_os_str().as_bytes());
    field
}

fn no_record(path: &Path, cause: io::Error) -> Error {
    Error::io(
        format!("cannot write to the journal {}, and without it nothing is changed", path.display()),
        cause,
    )
    .hint_on(&[libc::ENOSPC, libc::EDQUOT], "make room on its file system")
    .hint_on(&[libc::EFBIG], "raise the limit of the size of files: ulimit -f")
}

fn incomplete(problems: &[String]) -> Error {
    Error::new(ErrorKind::RestoreIncomplete, format!("cannot undo everything: {}", problems.join("; ")))
        .hint(Hint::Restore)
}

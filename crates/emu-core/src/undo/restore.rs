//! Undoing what killed emus have left, and listing the sessions that live.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;

use super::header::{Header, LiveSession, boot};
use super::lines::{Backwards, WINDOW};
use super::peers::Peers;
use super::places::Places;
use super::record::Step;
use super::replay::{finish, undo};
use super::state::{Found, StateDir, StateLock};
use super::undoer::Gravity;
use crate::error::{Error, Result};
use crate::roots::Roots;

/// What [`restore`] found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RestoreReport {
    /// The dead sessions that were undone, in words.
    pub restored: Vec<String>,
    /// What was not undone because another program has changed it since.
    pub notes: Vec<String>,
    /// What could not be undone or understood; its record is kept.
    pub problems: Vec<String>,
    /// The live sessions, which were left alone.
    pub live: Vec<LiveSession>,
}

/// Undoes what emus have left that were killed together with their guardian.
///
/// A journal that cannot be read, or that another user may have written, is reported and left.
///
/// # Errors
/// The state folder or procfs cannot be used at all.
pub fn restore(roots: &Roots) -> Result<RestoreReport> {
    let Some(dir) = StateDir::open_if_present(roots)? else { return Ok(RestoreReport::default()) };
    let places = Places::open(roots)?;
    let lock = dir.lock()?;
    restore_in(&dir, &lock, &places, &boot(roots))
}

/// The emulations at work on this host under the caller's user.
///
/// # Errors
/// The state folder or procfs cannot be used.
pub fn live_sessions(roots: &Roots) -> Result<Vec<LiveSession>> {
    let Some(dir) = StateDir::open_if_present(roots)? else { return Ok(Vec::new()) };
    let (places, boot) = (Places::open(roots)?, boot(roots));
    let _lock = dir.lock_to_look()?;
    let found = dir.sessions()?.into_iter().map(|name| dir.inspect(&name, &places, &boot));
    Ok(found
        .filter_map(|found| if let Ok(Found::Live(session)) = found { Some(session) } else { None })
        .collect())
}

/// The session that tunes this machine, and the first of `folders` below which it has changed a file. A journal that
/// cannot be read counts as none.
pub(crate) fn tuning_below(roots: &Roots, folders: &[&Path]) -> Result<Option<(LiveSession, usize)>> {
    let Some(dir) = StateDir::open_if_present(roots)? else { return Ok(None) };
    let (places, boot) = (Places::open(roots)?, boot(roots));
    let _lock = dir.lock_to_look()?;
    let mut window = vec![0; WINDOW];
    for name in dir.sessions()? {
        let Ok(Found::Live(session)) = dir.inspect(&name, &places, &boot) else { continue };
        if !session.is_tuning() {
            continue;
        }
        let Ok(Some(folder)) = changed_below(&dir.file(&name), &mut window, folders) else { continue };
        return Ok(Some((session, folder)));
    }
    Ok(None)
}

fn changed_below(journal: &Path, window: &mut [u8], folders: &[&Path]) -> io::Result<Option<usize>> {
    let journal = File::open(journal)?;
    let mut lines = Backwards::new(journal.as_fd(), window)?;
    let mut first = None;
    while let Some(line) = lines.next()? {
        let Some(Step::File { path, .. }) = Step::parse(line) else { continue };
        let path: Vec<u8> = path.bytes().collect();
        let folder =
            folders.iter().position(|folder| Path::new(OsStr::from_bytes(&path)).starts_with(folder));
        first = folder.into_iter().chain(first).min();
    }
    Ok(first)
}

pub(super) fn restore_in(
    dir: &StateDir,
    _lock: &StateLock,
    places: &Places,
    boot: &str,
) -> Result<RestoreReport> {
    let mut report = RestoreReport::default();
    for name in dir.sessions()? {
        match dir.inspect(&name, places, boot) {
            Ok(Found::Live(session)) => report.live.push(session),
            Ok(Found::Gone) => {}
            Ok(Found::Void(_locked)) => {
                if let Err(error) = dir.remove(&name) {
                    report.problems.push(error.in_words());
                }
            }
            Ok(Found::Dead(journal, header)) => report.undo(dir, &name, &journal, &header, places),
            Err(error) => report.problems.push(error.in_words()),
        }
    }
    Ok(report)
}

impl RestoreReport {
    fn undo(&mut self, dir: &StateDir, name: &CStr, journal: &File, header: &Header, places: &Places) {
        let mut window = vec![0; WINDOW];
        let peers = Peers { folder: dir.folder(), own: name, places };
        let mut report = |gravity, message: std::fmt::Arguments<'_>| match gravity {
            Gravity::Note => self.notes.push(message.to_string()),
            Gravity::Failure => self.problems.push(message.to_string()),
        };
        let outcome = undo(journal.as_fd(), places, Some(peers), &mut window, &mut report);
        if outcome.failed > 0 {
            self.problems
                .push(format!("{} is kept, as not all of it could be undone", dir.file(name).display()));
            return;
        }
        if let Err(cause) = finish(journal.as_fd(), dir.folder(), name) {
            self.problems.push(Error::file("remove", &dir.file(name), cause.into()).in_words());
        }
        if outcome.undone > 0 && !outcome.was_done {
            let LiveSession { pid, name, .. } = &header.session;
            self.restored.push(format!("what emu {pid} had left of {} for {name}", header.session.what()));
        }
    }
}

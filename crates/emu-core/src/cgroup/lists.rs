//! The lists of a group's processes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::host::delegation::PROCS;
use crate::sys::Pid;

/// A list as text. A group that has been removed lists nobody, and neither does one whose list cannot be read
/// because it is threaded: the group above it lists its processes.
fn text(list: &Path) -> Result<String> {
    match fs::read_to_string(list) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP)) => {
            Ok(String::new())
        }
        text => text.map_err(|e| Error::file("read", list, e)),
    }
}

/// Appends the processes, or threads, that a group's file lists.
///
/// # Errors
/// It cannot be read. A group that has been removed lists nobody.
pub(crate) fn read(list: &Path, pids: &mut Vec<Pid>) -> Result<()> {
    pids.extend(named(&text(list)?));
    Ok(())
}

/// The tasks that the text of a list names. One of a PID namespace that we do not see is listed as 0, and written back that
/// would move the task that writes.
pub(crate) fn named(list: &str) -> impl Iterator<Item = Pid> {
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).filter(|&pid| pid > 0)
}

/// What the files of this name list, in a group and in all groups nested in it.
///
/// # Errors
/// As [`collect`] and [`read`].
pub(crate) fn read_all(folder: &Path, name: &str) -> Result<Vec<Pid>> {
    let (mut lists, mut pids) = (Vec::new(), Vec::new());
    collect(folder, &mut lists)?;
    lists.iter().try_for_each(|list| read(&list.with_file_name(name), &mut pids))?;
    Ok(pids)
}

/// Appends the list of a group and those of all groups nested in it.
///
/// # Errors
/// A folder cannot be listed.
pub(super) fn collect(folder: &Path, lists: &mut Vec<PathBuf>) -> Result<()> {
    lists.push(folder.join(PROCS));
    // The link count of a folder is two and one for each folder in it: most groups need not be listed.
    match fs::metadata(folder) {
        Ok(metadata) if metadata.nlink() > 2 => {}
        _ => return Ok(()),
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::file("list", folder, e)),
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), lists)?;
        }
    }
    Ok(())
}

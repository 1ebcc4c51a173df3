//! Reading the files that list a group's processes and threads.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::host::delegation::PROCS;
use crate::sys::Pid;

/// The list is empty for a removed group, and for a threaded one, whose processes the group above lists.
fn text(list: &Path) -> Result<String> {
    match fs::read_to_string(list) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP)) => {
            Ok(String::new())
        }
        text => text.map_err(|e| Error::file("read", list, e)),
    }
}

pub(crate) fn read(list: &Path, pids: &mut Vec<Pid>) -> Result<()> {
    pids.extend(named(&text(list)?));
    Ok(())
}

/// A task outside this PID namespace is listed as 0; writing 0 back would move the writer.
pub(crate) fn named(list: &str) -> impl Iterator<Item = Pid> {
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).filter(|&pid| pid > 0)
}

/// The entries of the files `name` of a group and of all groups nested in it.
pub(crate) fn read_all(folder: &Path, name: &str) -> Result<Vec<Pid>> {
    let (mut lists, mut pids) = (Vec::new(), Vec::new());
    collect(folder, &mut lists)?;
    lists.iter().try_for_each(|list| read(&list.with_file_name(name), &mut pids))?;
    Ok(pids)
}

pub(super) fn collect(folder: &Path, lists: &mut Vec<PathBuf>) -> Result<()> {
    lists.push(folder.join(PROCS));
    // The link count of a folder is 2 plus its subfolders: most groups need not be listed.
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

//! Reading the files that list a group's processes and threads.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Folder;
use crate::control_file;
use crate::error::{Error, Result};
use crate::host::delegation::PROCS;
use crate::process::{process_of, threads};
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

/// Refuses a group whose processes emu cannot name: without them nothing would be slowed, or watched.
pub(super) fn check(folder: &Path) -> Result<()> {
    let kind = control_file::read_if_present(&folder.join("cgroup.type"))?.unwrap_or_default();
    if matches!(kind.as_str(), "threaded" | "domain invalid") {
        return Err(Error::usage(format!("the cgroup {} is `{}`", folder.display(), kind))
            .hint("name the group above it that has the processes of its threads"));
    }
    let list = text(&folder.join(PROCS))?;
    if named(&list).count() < list.split_ascii_whitespace().count() {
        return Err(Error::unavailable(format!(
            "the cgroup {} has processes of a PID namespace that emu does not see",
            folder.display()
        ))
        .hint("run emu where they have numbers, as in the initial PID namespace"));
    }
    Ok(())
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

/// The processes with a thread in a group, or in one nested in it. `cgroup.procs` of version 2 has one whose first thread has
/// ended where that was (kernel/cgroup/cgroup.c, `css_task_iter_advance`), wherever its other threads are now.
pub(crate) fn processes(proc: &Path, folder: &Folder) -> Result<Vec<Pid>> {
    let mut pids = read_all(&folder.path, PROCS)?;
    let tids: BTreeSet<Pid> = read_all(&folder.path, folder.threads_name())?.into_iter().collect();
    pids.retain(|pid| tids.contains(pid));
    if pids.len() < tids.len() {
        let known = pids.iter().flat_map(|&pid| threads(proc, pid)).collect();
        let unlisted = tids.difference(&known).filter_map(|&tid| process_of(proc, tid));
        pids.extend(unlisted.collect::<BTreeSet<_>>());
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_whose_processes_have_no_numbers_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write(PROCS, "12\n13\n");
        // Version 1, the root of version 2 and other groups.
        for kind in ["", "domain\n", "domain threaded\n"] {
            if !kind.is_empty() {
                write("cgroup.type", kind);
            }
            check(dir.path()).unwrap();
        }
        write(PROCS, "12\n0\n");
        assert!(check(dir.path()).unwrap_err().to_string().contains("PID namespace"));
        write("cgroup.type", "threaded\n");
        assert!(check(dir.path()).unwrap_err().to_string().contains("is `threaded`"));
    }
}

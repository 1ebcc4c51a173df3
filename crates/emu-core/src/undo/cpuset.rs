//! Giving the tasks of cpusets all CPUs before they leave them. Nothing here allocates.
//!
//! A fork copies the CPUs of the parent first and puts the child into the parent's group last. A parent that is moved to the
//! root group in between has a child that is bound to the CPUs of the old cpuset for good: the kernel corrects the child in
//! every group but the root (`cpuset_fork`). In a cpuset that has all CPUs, children are born with all of them.

use std::os::fd::BorrowedFd;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::thread::{Timespec, nanosleep};

use super::field::Field;
use super::lines::{Backwards, DONE};
use super::places::{FixedText, Located, Places, VALUE_MAX};
use super::record::Step;
use crate::process::FORK;

const CPUS: &[u8] = b"cpuset.cpus";
/// In version 2 the file of CPUs may be empty; this one, which version 1 lacks, has those in force.
const EFFECTIVE: &[u8] = b"cpuset.cpus.effective";

/// Gives every group of a journal that is a cpuset the CPUs of the group above, and waits for the forks that are
/// under way. It only avoids a race: where it is not possible, the tasks leave the groups all the same.
pub(super) fn widen_all(journal: BorrowedFd<'_>, places: &Places, window: &mut [u8]) {
    // The newest group comes first, and may be in an older one: the second time, that has all CPUs to give.
    let is_any_wider = [(); 2].map(|()| widen_each(journal, places, window)).contains(&true);
    if is_any_wider {
        let _ = nanosleep(&Timespec { tv_sec: 0, tv_nsec: FORK });
    }
}

fn widen_each(journal: BorrowedFd<'_>, places: &Places, window: &mut [u8]) -> bool {
    let Ok(mut lines) = Backwards::new(journal, window) else { return false };
    let mut is_any_wider = false;
    while let Ok(Some(line)) = lines.next() {
        if line == DONE {
            break;
        }
        if let Some(Step::Group { path, members, .. }) = Step::parse(line) {
            let group = places.locate(path);
            is_any_wider |= group.is_some_and(|group| widen(&group, members).unwrap_or(false));
        }
    }
    is_any_wider
}

/// Returns whether tasks of the group had fewer CPUs before.
fn widen(group: &Located<'_>, members: Field<'_>) -> rustix::io::Result<bool> {
    let [mut own, mut above] = [[0; VALUE_MAX]; 2];
    let above = in_force(&group.parent(), &mut above)?;
    if in_force(group, &mut own)? == above {
        return Ok(false);
    }
    group.join(CPUS)?.write(above)?;
    has_tasks(group, members)
}

fn in_force<'b>(group: &Located<'_>, buffer: &'b mut [u8]) -> rustix::io::Result<&'b [u8]> {
    let effective = group.join(EFFECTIVE)?;
    let is_there = effective.open(OFlags::PATH).is_ok();
    (if is_there { effective } else { group.join(CPUS)? }).read(buffer)
}

fn has_tasks(group: &Located<'_>, members: Field<'_>) -> rustix::io::Result<bool> {
    let mut name = FixedText::new();
    name.extend(members.bytes()).ok_or(Errno::NAMETOOLONG)?;
    let list = group.join(name.as_bytes())?.open(OFlags::RDONLY)?;
    match rustix::io::read(&list, &mut [0; 1]) {
        // A threaded group does not list its processes.
        Err(Errno::OPNOTSUPP) => Ok(true),
        read => read.map(|count| count > 0),
    }
}

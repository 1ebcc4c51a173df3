//! Compaction of a long journal.
//!
//! A session that runs for days writes a record for every new value of a file. From time to time it copies the
//! records that still count to the end of its journal: a line `copying`, the records each after a `+`, a line
//! `copied`. A complete copy replaces all lines before it; one without its last line, as a killed emu leaves it, is
//! ignored.

use std::collections::HashMap;

use super::file::SWITCHES;
use super::lines::{COPIED, COPY, COPYING};
use super::places::FixedText;
use super::record::{Step, Task};

type FileField<'a> = (&'a [u8], &'a [u8]);

/// What is of a single task counts while the task `exists`; of one that has `left`, what would be done however it is by then, does
/// not.
pub(super) fn copied(lines: &[u8], exists: &dyn Fn(Task) -> bool, left: &[Task]) -> Vec<u8> {
    let records: Vec<_> = lines
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty() && ![COPYING, COPIED].contains(line))
        .map(|line| line.strip_prefix(COPY).unwrap_or(line))
        .collect();
    let mut counts = vec![true; records.len()];
    let mut all_continued = false;
    // For each file and old value: the positions of the newest record and of the oldest so far.
    let mut files: HashMap<FileField<'_>, (usize, usize)> = HashMap::new();
    for (number, (record, counts)) in records.iter().zip(counts.iter_mut()).enumerate().rev() {
        let newest = number + 1 == records.len();
        match Step::parse(record) {
            Some(
                Step::Continue(task) | Step::Return { task, .. } | Step::Affinity { task, ours: None, .. },
            ) if left.contains(&task) => {
                *counts = false;
            }
            Some(Step::File { new, .. }) if new.is_empty() => *counts = newest,
            Some(Step::File { path, old, .. }) => {
                let mut text = FixedText::new();
                if text.extend(path.bytes()).is_some() && text.name() != SWITCHES {
                    let (_, oldest) =
                        files.entry((path.escaped(), old.escaped())).or_insert((number, number));
                    *oldest = number;
                }
            }
            Some(Step::Continue(task)) => *counts = !all_continued && exists(task),
            Some(Step::ContinueAll { .. } | Step::Thaw { .. }) => *counts = !all_continued,
            Some(Step::Return { task, .. } | Step::Affinity { task, .. }) => *counts = exists(task),
            Some(Step::Continued) => {
                *counts = false;
                all_continued = true;
            }
            _ => {}
        }
    }
    let mut copy = Vec::new();
    let mut push = |prefix: &[u8], line: &[u8]| {
        copy.extend_from_slice(prefix);
        copy.extend_from_slice(line);
        copy.push(b'\n');
    };
    push(COPYING, b"");
    for (number, record) in records.iter().enumerate() {
        // The oldest one counts as well: undoing the records in between may have changed the file again.
        let is_outlived = match Step::parse(record) {
            Some(Step::File { path, old, new, .. }) if !new.is_empty() => files
                .get(&(path.escaped(), old.escaped()))
                .is_some_and(|&(newest, oldest)| number != newest && number != oldest),
            _ => false,
        };
        if counts.get(number) == Some(&true) && !is_outlived {
            push(COPY, record);
        }
    }
    push(COPIED, b"");
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_is_copied_in_its_order() {
        let records = "copying\n+kill\t1\t1\n+file\t/sys/a\t1\t2\ncopied\n\
            file\t/sys/boost\t1\t0\nfile\t/sys/a\t1\nfile\t/sys/a\t1\t3\nfile\t/sys/a\t1\t4\nfile\t/sys/a\t5\t6\n\
            continue\t1\t1\ncontinued\ncontinue\t2\t2\n\
            file\t/sys/cgroup.subtree_control\t\tcpu\nfile\t/sys/cgroup.subtree_control\t\tio\n\
            file\t/sys/cgroup.subtree_control\t\tpids\nfile\t/sys/b\t1\n";
        let expected = "copying\n+kill\t1\t1\n+file\t/sys/a\t1\t2\n\
            +file\t/sys/boost\t1\t0\n+file\t/sys/a\t1\t4\n+file\t/sys/a\t5\t6\n+continue\t2\t2\n\
            +file\t/sys/cgroup.subtree_control\t\tcpu\n+file\t/sys/cgroup.subtree_control\t\tio\n\
            +file\t/sys/cgroup.subtree_control\t\tpids\n+file\t/sys/b\t1\ncopied\n";
        let copied = |text: &str| String::from_utf8(copied(text.as_bytes(), &|_| true, &[])).unwrap();
        let copy = copied(records);
        assert_eq!(copy, expected);
        assert_eq!(copied(&copy), expected);
    }

    #[test]
    fn what_is_of_tasks_that_have_ended_or_left_is_not_copied() {
        let of = |pid: u32| {
            format!("+return\t{pid}\t1\t/sys/x\n+affinity\t{pid}\t1\t0-1\t0\n+continue\t{pid}\t1\n")
        };
        let records = of(1) + &of(2) + "+inherited-of\t1\t1\t1\t0-1\t0\n";
        let exists = |task: Task| task == Task { pid: 2, starttime: 1 };
        let copied = |left: &[(i32, u64)]| {
            String::from_utf8(copied(records.as_bytes(), &exists, &Task::all(left))).unwrap()
        };
        assert_eq!(copied(&[]), format!("copying\n{}+inherited-of\t1\t1\t1\t0-1\t0\ncopied\n", of(2)));
        let left = copied(&[(2, 1)]);
        assert_eq!(left, "copying\n+affinity\t2\t1\t0-1\t0\n+inherited-of\t1\t1\t1\t0-1\t0\ncopied\n");
        assert_eq!(copied(&[(2, 7)]), copied(&[]));
    }
}

//! Carrying out the records of a journal, newest first.
//!
//! This runs in the guardian, a fork of a program that may have had many threads. So nothing here allocates, locks or
//! panics: buffers have fixed sizes, and system calls are made directly. Every step is idempotent.

use std::ffi::CStr;
use std::fmt;
use std::os::fd::BorrowedFd;

use rustix::process::Signal;

use super::affinity::are_cpus;
use super::cpuset;
use super::field::Field;
use super::group;
use super::lines::{Backwards, DONE, ENDING, LEFT};
use super::peers::Peers;
use super::places::{Cause, Places, VALUE_MAX, write_once};
use super::record::{Step, Task, TaskSetField};
use super::state::remove;
use super::undoer::{Gravity, LeftFiles, Report, Undoer};
use crate::sys::Pid;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Records that were carried out or needed nothing.
    pub(super) undone: usize,
    /// Records that must be kept.
    pub(super) failed: usize,
    /// The session had ended in order.
    pub(super) was_done: bool,
}

/// Carries out every record of a journal whose header has been checked, using `window` to read it. Values that
/// `peers` rely on are left to them. The caller makes sure that no one writes to the journal or undoes it at the same
/// time.
///
/// Where a record fails, all are tried once more: the kernel may accept a value only together with another, as a
/// quota with its period.
pub(super) fn undo(
    journal: BorrowedFd<'_>,
    places: &Places,
    peers: Option<Peers<'_>>,
    window: &mut [u8],
    report: Report<'_>,
) -> Outcome {
    cpuset::widen_all(journal, places, window);
    let mut only = |wanted: Gravity| {
        undo_once(journal, (places, peers), window, &mut |gravity, message| {
            if gravity == wanted {
                report(gravity, message);
            }
        })
    };
    let first = only(Gravity::Note);
    if first.failed == 0 { first } else { only(Gravity::Failure) }
}

type Context<'a> = (&'a Places, Option<Peers<'a>>);

fn undo_once(
    journal: BorrowedFd<'_>,
    context: Context<'_>,
    window: &mut [u8],
    report: Report<'_>,
) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(cause) = undo_lines(journal, context, window, report, &mut outcome) {
        outcome.failed += 1;
        report(Gravity::Failure, format_args!("cannot read the journal: {}", Cause(cause)));
    }
    outcome
}

fn undo_lines(
    journal: BorrowedFd<'_>,
    (places, peers): Context<'_>,
    window: &mut [u8],
    report: Report<'_>,
    outcome: &mut Outcome,
) -> rustix::io::Result<()> {
    let mut lines = Backwards::new(journal, window)?;
    let mut newest = true;
    // Whether the records that are read next were made before the session let all its tasks run.
    let mut all_continued = false;
    let mut left = LeftFiles::default();
    while let Some(line) = lines.next()? {
        if line == DONE {
            outcome.was_done = true;
            return Ok(());
        }
        if line == LEFT || line == ENDING {
            continue;
        }
        let undone = match Step::parse(line) {
            // What is stopped or frozen now is so by another program.
            Some(Step::Continue(_) | Step::ContinueAll { .. } | Step::Thaw { .. }) if all_continued => true,
            Some(step) => {
                all_continued |= matches!(step, Step::Continued);
                Undoer { places, peers, newest, left: &mut left, report: &mut *report }.carry_out(step)
            }
            None => {
                report(Gravity::Failure, format_args!("refused `{}`: it is no record", Field::from(line)));
                false
            }
        };
        *(if undone { &mut outcome.undone } else { &mut outcome.failed }) += 1;
        newest = false;
    }
    Ok(())
}

/// Continues and thaws all tasks that the journal's session may have stopped; leaves all else, the journal too, as it
/// is. Its emu is stopped: it goes on with its work where it is continued meanwhile.
pub(super) fn let_run(journal: BorrowedFd<'_>, places: &Places, window: &mut [u8]) {
    let Ok(mut lines) = Backwards::new(journal, window) else { return };
    let mut left = LeftFiles::default();
    while let Ok(Some(line)) = lines.next() {
        match Step::parse(line) {
            Some(Step::Continued) => break,
            Some(step @ (Step::Continue(_) | Step::ContinueAll { .. } | Step::Thaw { .. })) => {
                let mut silent = |_: Gravity, _: fmt::Arguments<'_>| {};
                let (peers, newest, left) = (None, false, &mut left);
                let mut undoer = Undoer { places, peers, newest, left, report: &mut silent };
                undoer.carry_out(step);
            }
            _ => {}
        }
    }
}

/// Moves tasks back and gives them the CPUs back, and to all threads of `processes` those that they have inherited from them.
/// Leaves all else, the journal too, as it is.
pub(super) fn undo_of(
    (tasks, processes): (&[Task], &[Pid]),
    journal: BorrowedFd<'_>,
    places: &Places,
    window: &mut [u8],
    report: Report<'_>,
) -> rustix::io::Result<()> {
    let mut lines = Backwards::new(journal, window)?;
    let mut left = LeftFiles::default();
    while let Some(line) = lines.next()? {
        let mut undoer = Undoer { places, peers: None, newest: false, left: &mut left, report: &mut *report };
        match Step::parse(line) {
            Some(step @ (Step::Return { task, .. } | Step::Affinity { task, .. }))
                if tasks.contains(&task) =>
            {
                undoer.carry_out(step);
            }
            Some(Step::Inherited { tasks: TaskSetField::DescendantsOf(task), since, cpus, ours })
                if tasks.contains(&task) =>
            {
                undoer.restore_processes(processes, since, [cpus, ours]);
            }
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn finish(journal: BorrowedFd<'_>, folder: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<()> {
    // For an emu that dies before the removal. Where no space is left for the line, removing is enough.
    let _ = write_once(journal, b"done\n");
    remove(folder, name)
}

/// Whether [`undo`] would carry out a record; if not, the reason.
pub(super) fn check(step: Step<'_>, places: &Places) -> Result<(), &'static str> {
    let located = |path: Field<'_>| match places.locate(path) {
        Some(located) => Ok(located),
        None => Err("its path is not below sysfs or procfs"),
    };
    let lists_tasks = |path: Field<'_>| {
        if group::is_member_file(located(path)?.path.name()) {
            Ok(())
        } else {
            Err("its file lists no tasks")
        }
    };
    match step {
        Step::File { path, old, .. } => {
            located(path)?;
            if old.bytes().count() > VALUE_MAX { Err("its value is too long") } else { Ok(()) }
        }
        Step::Group { path, members, return_to } => {
            located(path)?;
            lists_tasks(return_to)?;
            if group::MEMBER_FILES.iter().any(|name| members.is(name)) {
                Ok(())
            } else {
                Err("its file lists no tasks")
            }
        }
        Step::Thaw { file, value } => {
            let thaws = match located(file)?.path.name() {
                b"cgroup.freeze" => value.is(b"0"),
                b"freezer.state" => value.is(b"THAWED"),
                _ => false,
            };
            if thaws { Ok(()) } else { Err("it does not thaw") }
        }
        Step::ContinueAll { members } | Step::Return { members, .. } => lists_tasks(members),
        Step::Affinity { cpus, ours, .. } => are_cpus([cpus, ours.unwrap_or(cpus)]),
        Step::Inherited { tasks, cpus, ours, .. } => {
            if let TaskSetField::Members(members) = tasks {
                lists_tasks(members)?;
            }
            are_cpus([cpus, ours])
        }
        Step::Continue(_) | Step::Continued | Step::Kill(_) => Ok(()),
    }
}

impl Undoer<'_, '_> {
    fn carry_out(&mut self, step: Step<'_>) -> bool {
        if let Err(why) = check(step, self.places) {
            return self.failed(format_args!("refused a record: {why}"));
        }
        match step {
            Step::File { form, path, old, new } => self.restore_file(path, form, old, new),
            Step::Group { path, members, return_to } => self.dissolve(path, members, return_to),
            Step::Thaw { file, value } => self.thaw(file, value),
            Step::Continue(task) => self.signal(task, Signal::CONT, "continue"),
            Step::ContinueAll { members } => self.continue_all(members),
            // It only affects other records.
            Step::Continued => true,
            Step::Return { task, members } => self.return_task(task, members),
            Step::Affinity { task, cpus, ours } => self.restore_affinity(task, cpus, ours),
            Step::Inherited { tasks, since, cpus, ours } => {
                self.restore_inherited(tasks, since, [cpus, ours])
            }
            Step::Kill(task) => self.signal(task, Signal::KILL, "kill"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::super::lines::WINDOW;
    use super::super::tests::{Sleeper, playground};
    use super::*;

    #[test]
    fn processes_stopped_by_others_stay_once_all_are_continued() {
        let (_dir, roots) = playground();
        let places = Places::open(&roots).unwrap();
        let run = |records: &str| {
            let mut journal = tempfile::tempfile().unwrap();
            journal.write_all(format!("header\n{records}").as_bytes()).unwrap();
            undo(journal.as_fd(), &places, None, &mut vec![0; WINDOW], &mut |_, message| panic!("{message}"))
        };
        let sleeper = Sleeper::start();
        let Task { pid, starttime } = sleeper.task();
        sleeper.stop();
        sleeper.reaches('T');
        let members = roots.sys.join("cgroup.procs");
        fs::write(&members, pid.to_string()).unwrap();
        let all = Outcome { undone: 3, ..Outcome::default() };
        let records = format!("continue\t{pid}\t{starttime}\ncontinue-all\t{}\n", members.display());
        assert_eq!(run(&format!("{records}continued\n")), all);
        assert_eq!(sleeper.state(), 'T');
        for record in records.lines() {
            // A later record: emu has stopped the process again.
            sleeper.stop();
            sleeper.reaches('T');
            assert_eq!(run(&format!("continued\n{record}\n")), Outcome { undone: 2, ..all });
            sleeper.reaches('S');
        }
    }
}

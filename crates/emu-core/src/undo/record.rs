//! The records of the journal and their text, one line each. A [`Step`] is an [`Undo`] borrowed from the file, for
//! the code that must not allocate.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::field::{Field, Fields, Values, push, push_all};
use super::form::Form;
use crate::cpu_list::CpuList;
use crate::error::{Error, Result};
use crate::process::Stat;
use crate::roots::Roots;
use crate::sys::Pid;

/// How one change to the machine is undone. Recorded before the change is made.
///
/// Paths are absolute and lie below [`Roots::sys`](crate::roots::Roots::sys) or
/// [`Roots::proc`](crate::roots::Roots::proc). `starttime` is the 22nd field of `/proc/<pid>/stat`: it prevents
/// acting on a later process with the same number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undo {
    /// Writes `old` back if the file now holds one of `new`. A value that another program has written since stays,
    /// and is reported.
    ///
    /// An empty `new` stands for a write whose result is not yet known: as the newest record it accepts any value as
    /// ours, otherwise it is void, because the record after it lists the values.
    ///
    /// `cgroup.subtree_control` takes `+name` and `-name`: there, the names in `new` that are not in `old` are
    /// disabled.
    File {
        /// The control file.
        path: PathBuf,
        /// Its value before, without surrounding white space.
        old: String,
        /// The values that emu wrote and what the kernel made of them, without surrounding white space.
        new: Vec<String>,
    },
    /// As [`File`](Self::File), for a file that reads as all its choices with the current one in brackets, such as
    /// `always [madvise] never`.
    Choice {
        /// The control file.
        path: PathBuf,
        /// The current choice before.
        old: String,
        /// The choices that emu made; none while a write is under way.
        new: Vec<String>,
    },
    /// Moves every task out of a group that emu made, and removes it. The caller makes sure that it did not exist
    /// before.
    Group {
        /// The group's folder.
        path: PathBuf,
        /// The folder's file that lists the tasks: `cgroup.procs`, `cgroup.threads` or `tasks`.
        members: String,
        /// The file of another group that takes the tasks; if it is gone, the parent group does.
        return_to: PathBuf,
    },
    /// Thaws a frozen group: `0` for `cgroup.freeze`, `THAWED` for `freezer.state`.
    Thaw {
        /// The control file.
        file: PathBuf,
        /// What to write.
        value: String,
    },
    /// Continues a stopped process.
    Continue {
        /// The process.
        pid: Pid,
        /// When it started.
        starttime: u64,
    },
    /// Continues every stopped process of a group.
    ContinueAll {
        /// The group's file that lists them.
        members: PathBuf,
    },
    /// The session has let everything run that it stopped: what is stopped or frozen now is so by another program. Cancels
    /// all earlier [`Continue`](Self::Continue), [`ContinueAll`](Self::ContinueAll) and [`Thaw`](Self::Thaw) records.
    Continued,
    /// Moves a process back to the group it came from, if that still exists.
    Return {
        /// The process.
        pid: Pid,
        /// When it started.
        starttime: u64,
        /// The group's file to write its number to.
        members: PathBuf,
    },
    /// Restores the CPU affinity of a task, if it is still as emu has set it.
    Affinity {
        /// The thread.
        tid: Pid,
        /// When it started.
        starttime: u64,
        /// The CPUs that it was allowed before.
        cpus: CpuList,
        /// The CPUs that emu bound it to. Empty where the kernel may have changed the list: any affinity counts as
        /// ours.
        ours: CpuList,
    },
    /// As [`Affinity`](Self::Affinity), for threads and children that have inherited emu's setting. Recorded before
    /// the tasks that they may have it from, and so undone after them.
    Inherited {
        /// The tasks to look at.
        tasks: TaskSet,
        /// Only tasks that started later, in clock ticks since boot: older ones have chosen the affinity.
        since: u64,
        /// The CPUs that their parents were allowed before.
        cpus: CpuList,
        /// The CPUs that their parents were bound to.
        ours: CpuList,
    },
    /// Kills a process that emu started, such as a burner, and waits until it has ended.
    Kill {
        /// The process.
        pid: Pid,
        /// When it started.
        starttime: u64,
    },
}

/// The tasks that may have inherited a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskSet {
    /// All of the host.
    All,
    /// The members of a group, given by the file that lists them.
    Members(PathBuf),
    /// A process and its descendants. Those whose parents have ended are known by their start, their session and their
    /// user.
    DescendantsOf {
        /// The process.
        pid: Pid,
        /// When it started.
        starttime: u64,
    },
}

impl Undo {
    /// Continues a process that is there now.
    ///
    /// # Errors
    /// Usage: there is none of that number.
    pub fn continuing(roots: &Roots, pid: Pid) -> Result<Self> {
        let stat = Stat::read(&roots.proc, pid);
        let starttime = stat.ok_or_else(|| Error::usage(format!("there is no process {pid}")))?.starttime;
        Ok(Self::Continue { pid, starttime })
    }

    pub(super) fn line(&self) -> Vec<u8> {
        let mut line = Vec::new();
        match self {
            Self::File { path, old, new } => push_file(&mut line, b"file", path, old, new),
            Self::Choice { path, old, new } => push_file(&mut line, b"choice", path, old, new),
            Self::Group { path, members, return_to } => {
                push_all(&mut line, [b"group", bytes(path), members.as_bytes(), bytes(return_to)]);
            }
            Self::Thaw { file, value } => push_all(&mut line, [b"thaw", bytes(file), value.as_bytes()]),
            Self::Continue { pid, starttime } => push_task(&mut line, b"continue", *pid, *starttime),
            Self::ContinueAll { members } => push_all(&mut line, [b"continue-all", bytes(members)]),
            Self::Continued => push(&mut line, b"continued"),
            Self::Return { pid, starttime, members } => {
                push_task(&mut line, b"return", *pid, *starttime);
                push(&mut line, bytes(members));
            }
            Self::Affinity { tid, starttime, cpus, ours } => {
                push_task(&mut line, b"affinity", *tid, *starttime);
                push(&mut line, cpus.to_string().as_bytes());
                push(&mut line, ours.to_string().as_bytes());
            }
            Self::Inherited { tasks, since, cpus, ours } => {
                let [since, cpus, ours] = [since.to_string(), cpus.to_string(), ours.to_string()];
                match tasks {
                    TaskSet::All => push(&mut line, b"inherited"),
                    TaskSet::Members(members) => push_all(&mut line, [b"inherited-in", bytes(members)]),
                    TaskSet::DescendantsOf { pid, starttime } => {
                        push_task(&mut line, b"inherited-of", *pid, *starttime);
                    }
                }
                push_all(&mut line, [since, cpus, ours].iter().map(String::as_bytes));
            }
            Self::Kill { pid, starttime } => push_task(&mut line, b"kill", *pid, *starttime),
        }
        line.push(b'\n');
        line
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn push_file(line: &mut Vec<u8>, verb: &[u8], path: &Path, old: &str, new: &[String]) {
    push_all(line, [verb, bytes(path), old.trim().as_bytes()]);
    push_all(line, new.iter().map(|value| value.trim().as_bytes()));
}

fn push_task(line: &mut Vec<u8>, verb: &[u8], pid: Pid, starttime: u64) {
    push_all(line, [verb, pid.to_string().as_bytes(), starttime.to_string().as_bytes()]);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) pid: Pid,
    /// In clock ticks since boot.
    pub(super) starttime: u64,
}

impl Task {
    pub(super) fn all(tasks: &[(Pid, u64)]) -> Vec<Self> {
        tasks.iter().map(|&(pid, starttime)| Self { pid, starttime }).collect()
    }

    pub(super) fn parse<'a>(fields: &mut impl Iterator<Item = Field<'a>>) -> Option<Self> {
        let pid = fields.next()?.number().filter(|&pid: &Pid| pid > 0)?;
        Some(Self { pid, starttime: fields.next()?.number()? })
    }
}

/// An [`Undo`] as found in the file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'a> {
    /// An [`Undo::File`] or [`Undo::Choice`].
    File {
        form: Form,
        path: Field<'a>,
        old: Field<'a>,
        new: Values<'a>,
    },
    Group {
        path: Field<'a>,
        members: Field<'a>,
        return_to: Field<'a>,
    },
    Thaw {
        file: Field<'a>,
        value: Field<'a>,
    },
    Continue(Task),
    ContinueAll {
        members: Field<'a>,
    },
    Continued,
    Return {
        task: Task,
        members: Field<'a>,
    },
    /// Older journals have no `ours`.
    Affinity {
        task: Task,
        cpus: Field<'a>,
        ours: Option<Field<'a>>,
    },
    Inherited {
        tasks: TaskSetField<'a>,
        since: u64,
        cpus: Field<'a>,
        ours: Field<'a>,
    },
    Kill(Task),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum TaskSetField<'a> {
    All,
    Members(Field<'a>),
    DescendantsOf(Task),
}

impl<'a> Step<'a> {
    /// Reads a line without its newline; `None` when it is no record.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = Fields::of(line)?;
        let step = match fields.next()?.escaped() {
            b"file" => Self::file(Form::Plain, &mut fields)?,
            b"choice" => Self::file(Form::Choice, &mut fields)?,
            b"group" => {
                Self::Group { path: fields.next()?, members: fields.next()?, return_to: fields.next()? }
            }
            b"thaw" => Self::Thaw { file: fields.next()?, value: fields.next()? },
            b"continue" => Self::Continue(Task::parse(&mut fields)?),
            b"continue-all" => Self::ContinueAll { members: fields.next()? },
            b"continued" => Self::Continued,
            b"return" => Self::Return { task: Task::parse(&mut fields)?, members: fields.next()? },
            b"affinity" => {
                let (task, cpus) = (Task::parse(&mut fields)?, fields.next()?);
                Self::Affinity { task, cpus, ours: fields.next().filter(|ours| !ours.is(b"")) }
            }
            b"inherited" => Self::inherited(TaskSetField::All, &mut fields)?,
            b"inherited-in" => Self::inherited(TaskSetField::Members(fields.next()?), &mut fields)?,
            b"inherited-of" => {
                Self::inherited(TaskSetField::DescendantsOf(Task::parse(&mut fields)?), &mut fields)?
            }
            b"kill" => Self::Kill(Task::parse(&mut fields)?),
            _ => return None,
        };
        fields.is_empty().then_some(step)
    }

    fn file(form: Form, fields: &mut Fields<'a>) -> Option<Self> {
        Some(Self::File { form, path: fields.next()?, old: fields.next()?, new: fields.rest() })
    }

    fn inherited(tasks: TaskSetField<'a>, fields: &mut Fields<'a>) -> Option<Self> {
        let since = fields.next()?.number()?;
        Some(Self::Inherited { tasks, since, cpus: fields.next()?, ours: fields.next()? })
    }
}

#[cfg(test)]
pub(super) mod tests;

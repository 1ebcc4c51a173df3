//! The first line of a session's file: whose session it is, and of what.

use rustix::io::Errno;
use serde::Serialize;

use super::field::{Field, Fields, push_all};
use super::places::Places;
use super::record::Task;
use super::task;
use crate::cpu_list::CpuList;
use crate::error::{Error, Result};
use crate::roots::Roots;
use crate::sys::Pid;

/// The first field of a journal, and the version of the format.
const MAGIC: [&[u8]; 2] = [b"emu-journal", b"1"];

/// An emulation at work on this host, of this process or another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct LiveSession {
    /// The process that runs it.
    pub pid: Pid,
    /// The CPUs it emulates; none where it tunes the machine.
    pub cpus: CpuList,
    /// The method's name.
    pub method: String,
    /// The zone's name.
    pub name: String,
}

impl LiveSession {
    /// Whether a session with these CPUs, none for the machine as a whole, conflicts with this one.
    pub(super) fn is_in_the_way_of(&self, cpus: &CpuList) -> bool {
        if cpus.is_empty() { self.is_tuning() } else { !self.cpus.intersection(cpus).is_empty() }
    }

    /// Whether the session tunes the machine instead of emulating.
    pub fn is_tuning(&self) -> bool {
        self.cpus.is_empty()
    }

    /// Method and CPUs in words: `fracas on CPUs 0-1`.
    pub fn what(&self) -> String {
        let Self { method, cpus, .. } = self;
        if self.is_tuning() { method.clone() } else { format!("{method} on {cpus:#}") }
    }
}

/// How many characters of a name are kept: lines have a length limit.
const NAME_MAX: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) task: Task,
    /// The boot in which it was written: no change of a session outlives the boot.
    pub(super) boot: String,
    pub(super) session: LiveSession,
}

impl Header {
    pub(super) fn new(
        roots: &Roots,
        places: &Places,
        cpus: &CpuList,
        method: &str,
        name: &str,
    ) -> Result<Self> {
        let pid = std::process::id() as Pid;
        let path = roots.proc.join(pid.to_string()).join("stat");
        let stat =
            task::stat(places.proc(), pid).and_then(|stat| stat.ok_or(Errno::NOENT)).map_err(|cause| {
                let error = Error::file("read", &path, cause.into());
                error.hint_on(&[libc::ENOENT], "emu needs the proc file system and Linux 5.9")
            })?;
        let name = name.chars().take(NAME_MAX).collect();
        let session = LiveSession { pid, cpus: cpus.clone(), method: method.into(), name };
        Ok(Self { task: Task { pid, starttime: stat.starttime }, boot: boot(roots), session })
    }

    pub(super) fn line(&self) -> Vec<u8> {
        let (pid, starttime) = (self.task.pid.to_string(), self.task.starttime.to_string());
        let cpus = self.session.cpus.to_string();
        let fields = [&pid, &starttime, &self.boot, &cpus, &self.session.method, &self.session.name];
        let mut line = Vec::new();
        push_all(&mut line, MAGIC.into_iter().chain(fields.map(String::as_bytes)));
        line.push(b'\n');
        line
    }

    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = Fields::of(line)?;
        for magic in MAGIC {
            fields.next().filter(|field| field.is(magic))?;
        }
        let task = Task::parse(&mut fields)?;
        let mut text =
            || fields.next().and_then(|field: Field<'_>| String::from_utf8(field.bytes().collect()).ok());
        let (boot, cpus, method, name) = (text()?, CpuList::from_kernel(&text()?)?, text()?, text()?);
        let session = LiveSession { pid: task.pid, cpus, method, name };
        fields.next().is_none().then_some(Self { task, boot, session })
    }

    pub(super) fn magic() -> Vec<u8> {
        let mut line = Vec::new();
        push_all(&mut line, MAGIC);
        line.push(b'\t');
        line
    }
}

/// The id of this boot; empty where the kernel does not tell.
pub(super) fn boot(roots: &Roots) -> String {
    crate::control_file::probe(&roots.proc.join("sys/kernel/random/boot_id")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_round_trip(
            pid in 1..Pid::MAX, starttime: u64, method in "[a-z-]{0,9}", name in "[\\t\\n\\\\a-zü]{0,9}",
            cpus in proptest::collection::btree_set(0..=crate::cpu_list::CPU_ID_MAX, 0..9),
        ) {
            let session = LiveSession { pid, cpus: cpus.into_iter().collect(), method, name };
            let header = Header { task: Task { pid, starttime }, boot: "x-y".into(), session };
            let line = header.line();
            prop_assert_eq!(Header::parse(&line[..line.len() - 1]), Some(header));
        }
    }
}

//! Keeping the tasks of the host off the CPUs of a node, by their affinity.
//!
//! A user's task that may run on the node's CPUs gets its affinity without them, and its children inherit that. A thread looks
//! again at intervals: a task may have set another affinity. All is recorded in the journal, and put back from there.
//!
//! One node of a user can have this at a time, also on CPUs that no other has. A second one would find affinities that
//! the first has made smaller, and record these. If the first then ends, or is killed, its journal meets affinities
//! that are not those that it has set, and cannot tell the second one's work from a choice of the task; if the second
//! ends last, it puts back what the first had left. Undone in this order, a task would be kept off CPUs for good, and
//! its children with it. Both journals would have to know of each other at every change, in the guardian, too.

mod stays;
mod taker;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::cpu_list::CpuList;
use crate::duty::{Command, DutyThread};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::process::pids;
use crate::roots::Roots;
use crate::sys::lock;
use crate::sys::time::{self, Nanos};
use crate::undo::{Journal, OnlyOne, live_sessions, restore};
use taker::Taker;

const LOOK: Nanos = 1_000_000_000;

/// The file in the state folder that is locked by the one that excludes.
const LOCK: &str = "exclusive";

/// What is kept off the CPUs of an exclusive node, and what stays there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Exclusive {
    /// How many threads of the host were taken off the CPUs, of those that live.
    pub taken: usize,
    /// Threads that stay, each with the reason.
    pub staying: Vec<String>,
    /// Threads of the kernel that are bound to the CPUs.
    pub kernel: Vec<String>,
    /// How many other threads of the kernel may run there.
    pub kernel_others: usize,
    /// Interrupts that are delivered there.
    pub interrupts: Vec<String>,
    /// Why tasks cannot be looked for.
    pub problem: Option<String>,
}

/// Tasks of the host are kept off some CPUs while this exists; the journal puts them back.
#[derive(Debug)]
pub(crate) struct Exclusion {
    /// Goes first: nothing is taken once this has gone.
    _thread: DutyThread<()>,
    state: Arc<Mutex<State>>,
    host: Host,
    cpus: CpuList,
    _only_one: OnlyOne,
}

#[derive(Debug)]
struct State {
    taker: Taker,
    problem: Option<String>,
}

pub(crate) fn check_exclusive(host: &Host, cpus: &CpuList) -> Result<()> {
    if host.online().difference(cpus).is_empty() {
        let message =
            format!("all that runs on this host would be kept off CPUs {cpus}, and it has no others");
        return Err(Error::unavailable(message).hint("leave the host a CPU at least"));
    }
    Ok(())
}

impl Exclusion {
    /// Takes all tasks off the CPUs but those in `groups`, folders of the node's own, and keeps them off. Fails where another
    /// node does so already, or a task is bound to these CPUs alone.
    pub(crate) fn begin(
        host: &Host,
        cpus: &CpuList,
        groups: Vec<PathBuf>,
        journal: &Journal,
    ) -> Result<Self> {
        let only_one = only_one(&host.roots)?;
        let mut taker = Taker::new(host, cpus, groups, journal);
        taker.take_all(&mut || pids(&host.roots.proc))?;
        let state = Arc::new(Mutex::new(State { taker, problem: None }));
        let (theirs, proc) = (Arc::clone(&state), host.roots.proc.clone());
        let thread = DutyThread::spawn(
            "emu-exclusive",
            (),
            || Ok(()),
            move |(), wait| {
                loop {
                    let (Command::Run(()), generation) = wait.command() else { return Ok(()) };
                    if wait.until(time::now() + LOOK, generation) {
                        let mut state = lock(&theirs);
                        let looked = pids(&proc).and_then(|pids| state.taker.take(&pids));
                        state.problem = looked.err().map(|error| error.in_words());
                    }
                }
            },
        )?;
        Ok(Self { _thread: thread, state, host: host.clone(), cpus: cpus.clone(), _only_one: only_one })
    }

    /// What joins is no task of the host any more: nobody looks meanwhile.
    pub(crate) fn leave_out<T>(&self, join: impl FnOnce() -> Result<T>) -> Result<T> {
        let _state = lock(&self.state);
        join()
    }

    pub(crate) fn report(&self) -> Exclusive {
        let (kernel, kernel_others) = stays::kernel_threads(&self.host.roots.proc, &self.cpus);
        let interrupts = stays::interrupts(&self.host.roots.proc, &self.cpus);
        let state = lock(&self.state);
        Exclusive {
            taken: state.taker.taken(),
            staying: state.taker.staying(),
            kernel,
            kernel_others,
            interrupts,
            problem: state.problem.clone(),
        }
    }
}

/// What an exclusive node that was killed has changed may have to be put back yet: by its guardian, or here.
fn only_one(roots: &Roots) -> Result<OnlyOne> {
    let one = OnlyOne::take(roots, LOCK, |holder| {
        let mut its = live_sessions(roots).unwrap_or_default();
        its.retain(|session| session.pid.to_string() == holder);
        let which = match &its[..] {
            [session] => format!("{}, {} of emu {holder}", session.name, session.what()),
            _ => format!("that of emu {holder}"),
        };
        Error::unavailable(format!("another node is exclusive already: {which}"))
            .hint("one can be at a time, on whichever CPUs: end that one, or make it with these CPUs, too")
    })?;
    restore(roots)?;
    Ok(one)
}

#[cfg(test)]
mod tests;

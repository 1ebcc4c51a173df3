//! `cpulimit`, told to watch children: it stops and continues a process by the CPU time that it sees it use.

use std::path::PathBuf;
use std::time::Duration;

use emu_core::{MethodId, Pid, Result};
use nix::sys::signal::{Signal, kill};

use super::{External, Limit, Program, require};
use crate::verify::{Emulated, with_descendants};

const ID: MethodId = MethodId::new("cpulimit");

pub(super) const EXTERNAL: External = External {
    id: ID,
    summary: "the tool of that name, which stops and continues a process and its children",
    make: |host, limit| {
        require(ID.as_str())?;
        Ok(Box::new(Cpulimit::new(host.roots.proc.clone(), &limit)))
    },
};

/// How often it corrects itself.
const CYCLE: Duration = Duration::from_millis(100);

struct Cpulimit {
    proc: PathBuf,
    /// Percent of one CPU, summed over CPUs.
    percent: u32,
    at_work: Option<(Program, Pid)>,
}

impl Cpulimit {
    fn new(proc: PathBuf, limit: &Limit) -> Self {
        let percent = (limit.share * limit.cpus.len() as f64 * 100.0).round().max(1.0) as u32;
        Self { proc, percent, at_work: None }
    }
}

impl Emulated for Cpulimit {
    fn name(&self) -> String {
        ID.to_string()
    }

    fn period(&self) -> Duration {
        CYCLE
    }

    fn settle(&self) -> Duration {
        CYCLE * 10
    }

    fn has_helpers(&self) -> bool {
        true
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        let options = ["--quiet", "--lazy", "--monitor-forks", "--limit"].map(str::to_owned).into_iter();
        let values = [self.percent.to_string(), "--pid".to_owned(), worker.to_string()];
        let program = Program::start(ID.as_str(), &options.chain(values).collect::<Vec<_>>())?;
        self.at_work = Some((program, worker));
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let Some((mut program, worker)) = self.at_work.take() else { return Ok(()) };
        let was_there = program.check(ID.as_str());
        drop(program);
        // What it had stopped when it was killed.
        for stopped in with_descendants(&self.proc, worker).into_iter().flatten() {
            let _ = kill(nix::unistd::Pid::from_raw(stopped.pid), Signal::SIGCONT);
        }
        was_there
    }
}

impl Drop for Cpulimit {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

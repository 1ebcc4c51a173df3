//! CPU weights against `stress-ng`, which keeps every CPU of the zone busy.

use std::thread;
use std::time::Duration;

use emu_core::{Host, MethodId, Pid, Result};

use super::group::{BURNERS, Group};
use super::{External, Limit, Program, STARTING, require};
use crate::verify::Emulated;

const ID: MethodId = MethodId::new("weights");

const BURNER: &str = "stress-ng";

/// The burners end after this time, in seconds, whatever becomes of who started them. No pair takes longer.
const BURNING_MAX_S: u32 = 300;

pub(super) const EXTERNAL: External = External {
    id: ID,
    summary: "CPU weights of a cgroup against stress-ng, which keeps all CPUs busy",
    make: |host, limit| {
        require(BURNER)?;
        Group::create(host, ID.as_str())?;
        Ok(Box::new(Weights { host: host.clone(), limit, at_work: None }))
    },
};

struct Weights {
    host: Host,
    limit: Limit,
    at_work: Option<(Program, Group, Group)>,
}

fn weigh(group: &Group, share: f64) -> Result<()> {
    // v1 takes 2 to 262 144, v2 1 to 10 000.
    let weight = (share * 10_000.0).round().max(2.0);
    group.write(if group.version == 2 { "cpu.weight" } else { "cpu.shares" }, &weight.to_string())
}

impl Emulated for Weights {
    fn name(&self) -> String {
        ID.to_string()
    }

    fn settle(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn has_helpers(&self) -> bool {
        true
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        let (work, burners) = (Group::create(&self.host, "work")?, Group::create(&self.host, BURNERS)?);
        weigh(&work, self.limit.share)?;
        weigh(&burners, 1.0 - self.limit.share)?;
        let cpus = &self.limit.cpus;
        let options = ["--quiet", "--cpu", &cpus.len().to_string(), "--taskset", &cpus.to_string()];
        let end = ["--timeout".to_owned(), BURNING_MAX_S.to_string()];
        let options: Vec<_> = options.map(str::to_owned).into_iter().chain(end).collect();
        let mut program = Program::start(BURNER, &options)?;
        thread::sleep(STARTING);
        program.check(BURNER)?;
        burners.take(&self.host, program.pid())?;
        work.take(&self.host, worker)?;
        self.at_work = Some((program, work, burners));
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let Some((mut program, work, burners)) = self.at_work.take() else { return Ok(()) };
        let was_there = program.check(BURNER);
        drop(program);
        was_there.and(burners.remove()).and(work.remove())
    }
}

impl Drop for Weights {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

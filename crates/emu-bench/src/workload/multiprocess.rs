//! A process with children that compute without a break, or wait.

use emu_core::{Error, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{Done, Job, Order, Running, Setting, Worker, Workload};

/// The parent hands on orders and sums up reports.
pub(super) struct Multiprocess;

impl Workload for Multiprocess {
    fn name(&self) -> &'static str {
        "multiprocess"
    }

    fn about(&self) -> &'static str {
        "a process with twice as many computing children as the zone has CPUs"
    }

    fn job(&self, setting: &Setting) -> Job {
        Job { active: setting.cpus.len() * 2, ..Job::new(self.name(), &setting.cpus) }
    }

    fn start(&self, job: &Job) -> Result<Box<dyn Running>> {
        allow_pipes(job.active + job.idle)?;
        let child = |number| {
            let cpus = job.cpus_of(number);
            Worker::start(&Job { cpus, ..Job::new("cpu-loop", &job.cpus) })
        };
        let active = (0..job.active).map(child).collect::<Result<_>>()?;
        let idle = (0..job.idle).map(child).collect::<Result<_>>()?;
        Ok(Box::new(Children { active, _idle: idle }))
    }
}

fn allow_pipes(children: usize) -> Result<()> {
    /// Beside the two pipes of each child: standard streams and what starting a process needs for a moment.
    const OTHERS: usize = 32;
    let needed = (children * 2 + OTHERS) as u64;
    let failed = |cause: nix::Error| Error::io(format!("cannot open {needed} files"), cause.into());
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    if soft >= needed {
        return Ok(());
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard).map_err(failed)
}

struct Children {
    active: Vec<Worker>,
    /// They wait for an order that never comes.
    _idle: Vec<Worker>,
}

impl Running for Children {
    fn through(&mut self, order: &Order) -> Result<Done> {
        for child in &mut self.active {
            child.send(order)?;
        }
        Done::of_all(self.active.iter_mut().map(|child| child.receive(order, None)))
    }
}

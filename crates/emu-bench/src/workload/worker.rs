//! The process that a workload runs in, as the harness holds it.

use std::time::Duration;

use emu_core::{Error, ErrorKind, Pid, Result};
use nix::sys::prctl;
use serde::{Deserialize, Serialize};

use super::clocks::{now_ns, process_cpu_ns};
use super::part::confine;
use super::{Done, Job, Order, Receiver, Running, workload};
use crate::worker::{self, Look, Task};

/// How long a worker may take to get ready, or to reply after its window has passed. Emulation slows that too.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct JobTask {
    running: Option<Box<dyn Running>>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Request {
    Prepare(Job),
    Through(Order),
}

impl Task for JobTask {
    const NAME: &'static str = "workload";
    type Request = Request;
    /// What was done of an order; of a job nothing yet.
    type Answer = Option<Done>;

    fn answer(&mut self, request: Request) -> Result<Option<Done>> {
        match request {
            Request::Prepare(job) => {
                // Sleeps are to end when they should; the default lets them last 50 µs longer.
                let _ = prctl::set_timerslack(1);
                confine(&job.cpus)?;
                self.running = Some(workload(&job.workload)?.start(&job)?);
                Ok(None)
            }
            Request::Through(order) => {
                let running = self.running.as_mut().ok_or_else(|| Error::usage("there is no job yet"))?;
                let cpu_before = process_cpu_ns();
                let mut done = running.through(&order)?;
                // Children have reported their own.
                done.spent_ns += process_cpu_ns() - cpu_before;
                Ok(Some(done))
            }
        }
    }
}

/// A worker process at a job. Dropping it ends it.
#[derive(Debug)]
pub struct Worker {
    process: worker::Worker<JobTask>,
    companion: Option<Receiver>,
}

impl Worker {
    /// Starts a fresh process of this executable, and returns when it is ready and waits for orders.
    pub fn start(job: &Job) -> Result<Self> {
        let mut job = job.clone();
        let companion = workload(&job.workload)?.companion(&mut job)?;
        let mut process = worker::Worker::start()?;
        process.ask(&Request::Prepare(job), PATIENCE, None)?;
        Ok(Self { process, companion })
    }

    /// The process, to be put into a zone.
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Works through a window and returns when its report is there, or when `look` fails.
    pub fn through(&mut self, order: &Order, look: Option<Look<'_>>) -> Result<Done> {
        self.send(order)?;
        self.receive(order, look)
    }

    pub(super) fn send(&mut self, order: &Order) -> Result<()> {
        if let Some(companion) = &self.companion {
            companion.open(order);
        }
        self.process.send(&Request::Through(*order))
    }

    pub(super) fn receive(&mut self, order: &Order, look: Option<Look<'_>>) -> Result<Done> {
        let left = Duration::from_nanos(order.end_ns().saturating_sub(now_ns()));
        let answer = self.process.receive(left + PATIENCE, look)?;
        let done = answer
            .ok_or_else(|| Error::new(ErrorKind::Failed, "the worker has not worked through a window"))?;
        Ok(match &self.companion {
            Some(companion) => companion.close(done),
            None => done,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> Job {
        let host = emu_core::Host::detect(&emu_core::Roots::system()).unwrap();
        Job::new("cpu-loop", &host.allowed)
    }

    /// What a worker answers, on a thread of its own, whose affinity may be changed.
    fn answers(requests: Vec<Request>) -> Vec<Result<Option<Done>>> {
        let work = move || {
            let mut task = JobTask::default();
            requests.into_iter().map(|request| task.answer(request)).collect()
        };
        std::thread::spawn(work).join().unwrap()
    }

    #[test]
    fn each_order_is_worked_through_once_the_job_is_ready() {
        let order = Order { begin_ns: now_ns(), length_ns: 1_000_000, first: 0, stamps: false };
        let through = || Request::Through(order);
        let answers = answers(vec![through(), Request::Prepare(job()), through(), through()]);
        let [Err(early), Ok(None), Ok(Some(first)), Ok(Some(_))] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert!(first.spent_ns > 0 && early.kind() == ErrorKind::Usage);
    }

    #[test]
    fn a_job_that_cannot_be_done_is_refused_at_once() {
        let unknown = Job { workload: "cpu-lop".into(), ..job() };
        let nowhere = Job { cpus: "1000".parse().unwrap(), ..job() };
        let answers = answers(vec![Request::Prepare(unknown), Request::Prepare(nowhere)]);
        assert!(answers.iter().all(Result::is_err), "{answers:?}");
    }
}

//! A method of another crate, engaged, measured and undone as emu's own are, whatever becomes of this program.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use emu_bench::verify::{self, Finding, SessionEmulated, Trial};
use emu_bench::worker::serve_if_asked;
use emu_core::{
    About, CpuStatus, Demand, Emulation, Error, Expected, Host, Method, MethodId, Pid, Plan, Prepared,
    Reason, Result, Roots, Session, Status, Targets, Tasks, Unavailable, Undo, lowest_share,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid as RawPid;

/// Stops the processes of a zone for a part of each period; children of theirs are left alone.
struct StopAndGo;

const ID: MethodId = MethodId::new("stop-and-go");

impl Method for StopAndGo {
    fn id(&self) -> MethodId {
        ID
    }

    fn about(&self) -> &'static About {
        const { &About::new("stops processes for a part of each period") }
    }

    fn check(&self, _: &Host, demand: &Demand) -> Result<Plan, Unavailable> {
        let refusal = Unavailable::new(Reason::UnequalSpeeds, "it has one speed for all", "ask for one");
        let share = demand.uniform_share().ok_or(refusal)?;
        let period = demand.period.unwrap_or(Duration::from_millis(20));
        let expected = Expected::new(0.05, period, period.mul_f64(1.0 - share));
        Ok(Plan::new(expected, move |host, zone, journal| {
            let Tasks::Processes(pids) = &zone.tasks else {
                return Err(Error::unavailable("it knows processes, not cgroups"));
            };
            pids.iter().try_for_each(|&pid| journal.record(&Undo::continuing(&host.roots, pid)?))?;
            Ok(Box::new(Stopping::start(pids.clone(), period, zone.demand.targets.clone())))
        }))
    }
}

/// The method at work: a thread that is sent the share, and ends with the sender.
struct Stopping {
    targets: Targets,
    period: Duration,
    shares: Sender<f64>,
    thread: JoinHandle<()>,
}

impl Stopping {
    fn start(pids: Vec<Pid>, period: Duration, targets: Targets) -> Self {
        let (shares, received) = mpsc::channel();
        let mut share = lowest_share(&targets);
        let signal = move |signal| pids.iter().for_each(|&pid| _ = kill(RawPid::from_raw(pid), signal));
        let thread = thread::spawn(move || {
            loop {
                if share < 1.0 {
                    signal(Signal::SIGSTOP);
                    thread::sleep(period.mul_f64(1.0 - share));
                    signal(Signal::SIGCONT);
                }
                match received.recv_timeout(period.mul_f64(share)) {
                    Err(RecvTimeoutError::Disconnected) => return,
                    received => share = received.unwrap_or(share),
                }
            }
        });
        Self { targets, period, shares, thread }
    }
}

impl Emulation for Stopping {
    fn retarget(&mut self, targets: &Targets) -> Result<()> {
        self.targets.clone_from(targets);
        self.shares.send(lowest_share(targets)).map_err(|_| Error::unavailable("the thread has ended"))
    }

    fn status(&self) -> Status {
        let mut status = Status::new(ID, self.period);
        status.cpus = self.targets.iter().map(|(&cpu, &asked)| CpuStatus::new(cpu, asked)).collect();
        status
    }

    fn release(self: Box<Self>) -> Result<()> {
        drop(self.shares);
        self.thread.join().map_err(|_| Error::unavailable("the thread has panicked"))
    }
}

/// Half the speed.
fn prepared() -> Result<Prepared> {
    let host = Host::detect(&Roots::system())?;
    let demand = Demand::measured(&host, &"50%".parse()?, None)?;
    Prepared::new(&StopAndGo, &host, &demand).map_err(|why| why.into_error(ID))
}

/// Slows a process down.
///
/// # Errors
/// It cannot be slowed here.
pub fn engage(pid: Pid) -> Result<Session> {
    Session::engage(&prepared()?, "own", Tasks::Processes(vec![pid]))
}

/// Measures how faithful it is.
///
/// # Errors
/// It cannot be engaged or measured.
pub fn measure() -> Result<Vec<Finding>> {
    let prepared = prepared()?;
    let demand = prepared.demand().clone();
    let mut emulated = SessionEmulated::new(prepared);
    let plan = verify::Plan { pairs: 6, ..verify::Plan::new(1) };
    let trial = Trial::of("cpu-loop", &demand, &plan.setting(&emulated, &demand.targets))?;
    Ok(verify::verify(&mut emulated, &trial, &plan, &mut |_| Ok(()))?.findings)
}

fn main() {
    if serve_if_asked(&[emu_bench::workload::TASK]).is_none() {
        println!("{:?}", measure());
    }
}

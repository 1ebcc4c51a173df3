//! Two programs that run already, each slowed down on a CPU of its own.
//!
//! `cargo run --release -p emu-cpu-core --example two_zones`, as root or in a delegated cgroup, with at least two CPUs.

use std::process::{Child, Command};
use std::thread::sleep;
use std::time::Duration;

use emu_core::{Demand, Error, Host, Pid, Result, Roots, Session, Status, Tasks, choose, restore};

fn main() -> Result<()> {
    for status in run()? {
        for cpu in &status.cpus {
            println!("CPU {}: {:.0} % asked, {:.1} % set", cpu.cpu, cpu.asked.share * 100.0, cpu.set * 100.0);
        }
    }
    Ok(())
}

/// Slows both down for most of a second; returns how their zones ended.
///
/// # Errors
/// There is one CPU only, or no method can do this here.
pub fn run() -> Result<Vec<Status>> {
    let roots = Roots::system();
    // What emus that were killed have left changes what the host can do.
    restore(&roots)?;
    let host = Host::detect(&roots)?;
    let mut zones = Vec::new();
    for (cpu, speed) in host.allowed.iter().zip(["30%", "70%"]) {
        let demand = Demand::measured(&host, &speed.parse()?, Some(&[cpu].into_iter().collect()))?;
        let program = Busy::start()?;
        let tasks = Tasks::Processes(vec![program.0.id() as Pid]);
        // Dropped before the program, should the next one fail.
        zones.push((Session::engage(&choose(&host, &demand)?, format!("program {cpu}"), tasks)?, program));
    }
    sleep(Duration::from_millis(700));
    let ended = zones.into_iter().map(|(session, _program)| {
        let (status, released) = session.release();
        released.map(|()| status)
    });
    ended.collect()
}

/// A program that ends with its owner.
struct Busy(Child);

impl Busy {
    fn start() -> Result<Self> {
        let program = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
        program.map(Self).map_err(|cause| Error::io("cannot start sh", cause))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

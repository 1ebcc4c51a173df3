//! Two nodes with a worker each; the slower one is made faster while its worker computes.
//!
//! `cargo run --release -p emu-cpu-core --example nodes`, as root or in a delegated cgroup, with at least two CPUs.

use std::thread::sleep;
use std::time::Duration;

use emu_core::{CpuId, Demand, Gated, Host, Node, Result, Roots, SlowCommand, Status, choose, restore};

fn main() -> Result<()> {
    for status in run()? {
        for cpu in &status.cpus {
            let delivered =
                cpu.delivered.map_or_else(|| "?".into(), |seen| format!("{:.1} %", seen.share * 100.0));
            println!("CPU {}: {:.0} % asked, {delivered} delivered", cpu.cpu, cpu.asked.share * 100.0);
        }
    }
    Ok(())
}

/// Lets both workers compute for two seconds; returns how their nodes ended.
///
/// # Errors
/// There is one CPU only, or no method can do this here.
pub fn run() -> Result<Vec<Status>> {
    let roots = Roots::system();
    // What emus that were killed have left changes what the host can do.
    restore(&roots)?;
    let host = Host::detect(&roots)?;
    let mut nodes = Vec::new();
    for (cpu, speed) in host.allowed.iter().zip(["25%", "80%"]) {
        nodes.push(start(&host, cpu, speed)?);
    }
    sleep(Duration::from_secs(1));
    if let Some((slow, _)) = nodes.first_mut() {
        slow.session().set_speed(&"50%".parse()?)?;
    }
    sleep(Duration::from_secs(1));
    let ended = nodes.into_iter().map(|(node, worker)| {
        node.kill()?;
        drop(worker);
        let (status, removed) = node.remove();
        removed.map(|()| status)
    });
    ended.collect()
}

/// A node on one CPU, and a worker that is on it before its first instruction.
fn start(host: &Host, cpu: CpuId, speed: &str) -> Result<(Node, Gated)> {
    let prepared =
        choose(host, &Demand::measured(host, &speed.parse()?, Some(&[cpu].into_iter().collect()))?)?;
    let node = Node::create(&prepared, format!("worker {cpu}"))?;
    let mut worker = SlowCommand::new("sh").args(["-c", "while :; do :; done"]).gate()?;
    node.adopt(worker.pid())?;
    worker.begin()?;
    Ok((node, worker))
}

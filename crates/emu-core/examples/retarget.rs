//! A thread changes the speed of a program step by step, while this one waits for the program.
//!
//! `cargo run --release -p emu-cpu-core --example retarget`, as root or in a delegated cgroup.

use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use emu_core::{Demand, Error, Host, Pid, Result, Roots, Session, Stretch, Tasks, choose, restore};

fn main() -> Result<()> {
    for step in run()? {
        let asked = step.cpus.iter().map(|cpu| format!("{:.0} %", cpu.asked.share * 100.0));
        let delivered =
            step.delivered.map_or_else(|| "?".into(), |seen| format!("{:.1} %", seen.share * 100.0));
        println!("{} asked, {delivered} delivered", asked.collect::<String>());
    }
    Ok(())
}

/// Lets a shell compute at 80, 50 and 20 %; returns what it was given at each speed but the last.
///
/// # Errors
/// No method can do this here, or the program cannot be run.
pub fn run() -> Result<Vec<Stretch>> {
    let roots = Roots::system();
    // What emus that were killed have left changes what the host can do.
    restore(&roots)?;
    let host = Host::detect(&roots)?;
    let one = host.allowed.iter().take(1).collect();
    let prepared = choose(&host, &Demand::measured(&host, &"80%".parse()?, Some(&one))?)?;
    let mut program = Command::new("timeout")
        .args(["--foreground", "1.2", "sh", "-c", "while :; do :; done"])
        .spawn()
        .map_err(|cause| Error::io("cannot start timeout", cause))?;
    let session = Session::engage(&prepared, "steps", Tasks::Processes(vec![program.id() as Pid]))?;
    let (running, end) = mpsc::channel();
    let steps = thread::spawn(move || follow(session, &end));
    program.wait().map_err(|cause| Error::io("cannot wait for the program", cause))?;
    drop(running);
    steps.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Goes through the speeds until the sender is gone, then ends the emulation.
fn follow(mut session: Session, end: &Receiver<()>) -> Result<Vec<Stretch>> {
    for speed in ["50%", "20%"] {
        if end.recv_timeout(Duration::from_millis(400)) == Err(RecvTimeoutError::Disconnected) {
            break;
        }
        session.set_speed(&speed.parse()?)?;
    }
    let _ = end.recv();
    let steps = session.take_stretches();
    session.release().1.map(|()| steps)
}

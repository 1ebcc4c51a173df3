//! Watches what a program is given while it runs, and whether anything escapes.
//!
//! `cargo run --release -p emu-cpu-core --example watch_status`, as root or in a delegated cgroup.

use std::thread::sleep;
use std::time::Duration;

use emu_core::{Demand, Host, Result, Roots, SlowCommand, Status, choose, restore};

fn main() -> Result<()> {
    for status in run()? {
        match status.delivered {
            Some(seen) => println!(
                "{:.1} % asked, {:.1} % delivered (95 %: {:.1} to {:.1}), {:?}",
                seen.asked * 100.0,
                seen.share * 100.0,
                seen.low * 100.0,
                seen.high * 100.0,
                status.health,
            ),
            // It sleeps, or has not run for long enough.
            None => println!("what is delivered cannot be told yet, {:?}", status.health),
        }
        status.messages().iter().for_each(|message| println!("  {message}"));
    }
    Ok(())
}

/// Looks four times at a shell that computes; returns what was seen.
///
/// # Errors
/// No method can do this here, or the program cannot be run.
pub fn run() -> Result<Vec<Status>> {
    let roots = Roots::system();
    // What emus that were killed have left changes what the host can do.
    restore(&roots)?;
    let host = Host::detect(&roots)?;
    let one = host.allowed.iter().take(1).collect();
    let prepared = choose(&host, &Demand::measured(&host, &"40%".parse()?, Some(&one))?)?;
    let mut child = SlowCommand::new("sh").args(["-c", "while :; do :; done"]).spawn(&prepared)?;
    let mut seen = Vec::new();
    for _ in 0..4 {
        sleep(Duration::from_millis(200));
        seen.push(child.session().status());
    }
    child.kill()?;
    child.wait()?.released.map(|()| seen)
}

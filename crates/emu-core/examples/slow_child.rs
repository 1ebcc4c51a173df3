//! A program that runs at 40 % from its first instruction, and whose output is read.
//!
//! `cargo run --release -p emu-cpu-core --example slow_child`, as root or in a delegated cgroup.

use emu_core::{Demand, Ended, Host, Result, Roots, SlowCommand, Stdio, choose, restore};

fn main() -> Result<()> {
    let ended = run()?;
    print!("{}", String::from_utf8_lossy(&ended.stdout));
    match ended.status.delivered {
        Some(delivered) => println!("It was given {:.1} % of the CPU.", delivered.share * 100.0),
        None => println!("What it was given could not be told."),
    }
    ended.released
}

/// Counts on one CPU by a shell, in a folder and with a variable of its own.
///
/// # Errors
/// No method can do this here, or the program cannot be run.
pub fn run() -> Result<Ended> {
    const COUNT: &str = "i=0; while [ $i -lt $LAST ]; do i=$((i + 1)); done; echo $i, in $PWD";
    let roots = Roots::system();
    // What emus that were killed have left changes what the host can do.
    restore(&roots)?;
    let host = Host::detect(&roots)?;
    let one = host.allowed.iter().take(1).collect();
    let prepared = choose(&host, &Demand::measured(&host, &"40%".parse()?, Some(&one))?)?;
    let mut command = SlowCommand::new("sh");
    command.args(["-c", COUNT]).env("LAST", "300000").current_dir("/").stdout(Stdio::Piped);
    command.spawn(&prepared)?.wait()
}

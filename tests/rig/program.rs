//! The static program that tests run in the guest.
//!
//! `count` writes how many units of work fit in a fixed time, five times over; `rate SETTLE_MS WINDOW_MS AWAY_US [turns]` how many
//! steps of work it gets done in a second; `load PRIORITY STEPS IDLE_MS` works and sleeps in turns, with a priority above 0 as a
//! real-time task; `busy CPU...` works on each of these CPUs for as long as it lives; `pair ROUNDS` writes the seconds that two
//! threads take which spin for each other after each round; `used WINDOW_US FOLDER_IN_PROC...` writes the share of a CPU that
//! each of these tasks uses, by the kernel's own account; `registers` writes the P-state registers of CPUs 0 to 3, read from the hardware ports past the kernel.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

unsafe extern "C" {
    /// `sched_setscheduler(2)`. Needs `CAP_SYS_NICE` for real-time policies.
    fn sched_setscheduler(pid: i32, policy: i32, priority: *const i32) -> i32;
    /// `sched_setaffinity(2)`.
    fn sched_setaffinity(pid: i32, size: usize, mask: *const u64) -> i32;
}

/// Works on each of these CPUs, of the first 64, by a thread bound to it.
fn busy(cpus: &[&str]) -> Result<(), Box<dyn Error>> {
    let masks = cpus.iter().map(|cpu| Ok(1_u64 << cpu.parse::<u32>()?)).collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    let work = |mask: u64| {
        // SAFETY: the mask is as long as it is said to be. A method may have bound the thread elsewhere already.
        unsafe { sched_setaffinity(0, size_of_val(&mask), &mask) };
        loop {
            black_box(mask);
        }
    };
    thread::scope(|scope| masks.iter().for_each(|mask| drop(scope.spawn(move || work(*mask)))));
    Ok(())
}

/// Units of 1000 additions done in 200 ms, and the time they took.
fn count() -> (u64, Duration) {
    let start = Instant::now();
    let mut units = 0;
    while start.elapsed() < Duration::from_millis(200) {
        for i in 0..1000_u64 {
            black_box(i + units);
        }
        units += 1;
    }
    (units, start.elapsed())
}

/// Steps of work done for each second of the window, after a time to settle.
///
/// The window begins right after the CPU was `away` for so long, if it is at all: where it ends then does not depend on by
/// how much an emulation's turns differ. With `turns` it ends so, too, and has whole turns whatever their length. The clock
/// is looked at every few microseconds.
fn rate(settle: Duration, window: Duration, away: Duration, turns: bool) -> f64 {
    const LOOK_EVERY: u64 = 200;
    // Works until `end`, or until it has been away; how many steps, and until when.
    let work = |end: Instant, longest: Duration| {
        let (mut steps, mut now) = (0, Instant::now());
        loop {
            for i in 0..LOOK_EVERY {
                black_box(i);
            }
            steps += LOOK_EVERY;
            let before = std::mem::replace(&mut now, Instant::now());
            if now >= end || now - before > longest {
                return (steps, now);
            }
        }
    };
    let (_, settled) = work(Instant::now() + settle, Duration::MAX);
    let (_, begin) = work(settled + settle, away);
    let (steps, passed) = work(begin + window, Duration::MAX);
    let (more, end) = if turns { work(passed + settle, away) } else { (0, passed) };
    (steps + more) as f64 / (end - begin).as_secs_f64()
}

/// Two threads work in rounds, and spin after each until the other one has done it, too.
fn pair(rounds: u64) -> Duration {
    const STEPS: u64 = 20_000;
    let done = [const { AtomicU64::new(0) }; 2];
    let work = |own: &AtomicU64, other: &AtomicU64| {
        for round in 1..=rounds {
            (0..STEPS).for_each(|i| {
                black_box(i);
            });
            own.store(round, Ordering::Release);
            while other.load(Ordering::Acquire) < round {
                std::hint::spin_loop();
            }
        }
    };
    let begin = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| work(&done[0], &done[1]));
        work(&done[1], &done[0]);
    });
    begin.elapsed()
}

/// Works so many steps, sleeps, and so on until it is killed.
fn load(priority: i32, steps: u64, idle: Duration) -> ExitCode {
    const SCHED_FIFO: i32 = 1;
    // SAFETY: `sched_param` is one integer, which outlives the call.
    if priority > 0 && unsafe { sched_setscheduler(0, SCHED_FIFO, &raw const priority) } != 0 {
        eprintln!("sched_setscheduler: {}", std::io::Error::last_os_error());
        return ExitCode::FAILURE;
    }
    loop {
        (0..steps).for_each(|i| {
            black_box(i);
        });
        sleep(idle);
    }
}

/// The shares of a CPU that the tasks of these folders use in the window.
///
/// Programs that a script starts to look at them would take a part of it themselves.
fn used(window: Duration, tasks: &[&str]) -> Result<Vec<f64>, Box<dyn Error>> {
    let look = || {
        let nanos_of = |task: &&str| {
            let text = fs::read_to_string(format!("{task}/schedstat"))?;
            Ok(text.split_whitespace().next().ok_or("an empty schedstat")?.parse::<f64>()?)
        };
        let nanos: Result<Vec<f64>, Box<dyn Error>> = tasks.iter().map(nanos_of).collect();
        nanos.map(|nanos| (Instant::now(), nanos))
    };
    let (begin, before) = look()?;
    sleep(window);
    let (end, after) = look()?;
    let nanos = (end - begin).as_nanos() as f64;
    Ok(before.iter().zip(after).map(|(before, after)| (after - before) / nanos).collect())
}

/// The P-state registers of CPUs 0 to 3, which are I/O ports: of x86-64 alone.
#[cfg(target_arch = "x86_64")]
fn registers() -> std::io::Result<[u8; 4]> {
    unsafe extern "C" {
        /// `iopl(2)`: with level 3, lets this process use I/O ports. Needs `CAP_SYS_RAWIO`.
        fn iopl(level: i32) -> i32;
    }
    // SAFETY: takes an integer and returns one; no memory is shared.
    if unsafe { iopl(3) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok([0x3ff_u16, 0x2ff, 0x3ef, 0x2ef].map(|port| {
        let value: u8;
        // SAFETY: this process holds I/O privilege; reading a serial port's scratch register has no side effect.
        unsafe { std::arch::asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) };
        value
    }))
}

#[cfg(not(target_arch = "x86_64"))]
fn registers() -> std::io::Result<[u8; 4]> {
    Err(std::io::ErrorKind::Unsupported.into())
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["count"] => {
            for _ in 0..5 {
                let (units, time) = count();
                println!("{units} units in {time:?}");
                // Idle time has to repeat as well as busy time.
                sleep(Duration::from_millis(30));
            }
        }
        ["rate", settle, window, away, ref turns @ ..] => {
            let (Ok(settle), Ok(window), Ok(away)) = (settle.parse(), window.parse(), away.parse()) else {
                return ExitCode::from(2);
            };
            let (settle, window) = (Duration::from_millis(settle), Duration::from_millis(window));
            println!("{:.1}", rate(settle, window, Duration::from_micros(away), turns == ["turns"]));
        }
        ["load", priority, steps, idle] => {
            let (Ok(priority), Ok(steps), Ok(idle)) = (priority.parse(), steps.parse(), idle.parse()) else {
                return ExitCode::from(2);
            };
            return load(priority, steps, Duration::from_millis(idle));
        }
        ["pair", rounds] => {
            let Ok(rounds) = rounds.parse() else { return ExitCode::from(2) };
            println!("{:.4}", pair(rounds).as_secs_f64());
        }
        ["busy", ref cpus @ ..] => {
            if let Err(error) = busy(cpus) {
                eprintln!("busy: {error}");
                return ExitCode::from(2);
            }
        }
        ["used", window, ref tasks @ ..] => {
            let Ok(window) = window.parse() else { return ExitCode::from(2) };
            match used(Duration::from_micros(window), tasks) {
                Ok(shares) => {
                    println!("{}", shares.iter().map(|share| format!("{share:.5} ")).collect::<String>())
                }
                Err(error) => {
                    eprintln!("used: {error}");
                    return ExitCode::FAILURE;
                }
            }
        }
        ["registers"] => match registers() {
            Ok(registers) => println!("{registers:?}"),
            Err(error) => {
                eprintln!("registers: {error}");
                return ExitCode::FAILURE;
            }
        },
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

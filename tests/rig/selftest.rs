//! The static program that the self test runs in the guest.
//!
//! `count` writes how many units of work fit in a fixed time, five times over; `registers` writes the P-state
//! registers of CPUs 0 to 3, read from the hardware ports past the kernel.

use std::arch::asm;
use std::hint::black_box;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

unsafe extern "C" {
    /// `iopl(2)`: with level 3, lets this process use I/O ports. Needs `CAP_SYS_RAWIO`.
    fn iopl(level: i32) -> i32;
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

/// One byte from an I/O port.
fn read_port(port: u16) -> u8 {
    let value: u8;
    // SAFETY: the caller holds I/O privilege; reading a serial port's scratch register has no side effect.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) };
    value
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("count") => {
            for _ in 0..5 {
                let (units, time) = count();
                println!("{units} units in {time:?}");
                // Idle time has to repeat as well as busy time.
                sleep(Duration::from_millis(30));
            }
        }
        Some("registers") => {
            // SAFETY: takes an integer and returns one; no memory is shared.
            if unsafe { iopl(3) } != 0 {
                eprintln!("iopl: {}", std::io::Error::last_os_error());
                return ExitCode::FAILURE;
            }
            let ports = [0x3ff, 0x2ff, 0x3ef, 0x2ef];
            println!("{:?}", ports.map(read_port));
        }
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

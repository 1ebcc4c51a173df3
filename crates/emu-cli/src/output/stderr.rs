//! Writing to stderr without waiting for its reader while something is in force.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::libc::PIPE_BUF;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// How long a reader of stderr is waited for that does not keep up. Meanwhile emu hears no signal, and ends no emulation.
const PATIENCE: Duration = Duration::from_millis(100);

/// What no reader has taken yet: said later, at the latest when nothing is in force any more.
static UNSAID: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Says what can be said within a moment.
pub(crate) fn say_in_time(text: &str) {
    let mut unsaid = UNSAID.lock().unwrap_or_else(PoisonError::into_inner);
    let patience = if unsaid.is_empty() { PATIENCE } else { Duration::ZERO };
    unsaid.extend_from_slice(text.as_bytes());
    write(&mut unsaid, Some(patience));
}

/// Says what is still unsaid, however long its reader takes.
pub(crate) fn say_the_rest() {
    write(&mut UNSAID.lock().unwrap_or_else(PoisonError::into_inner), None);
}

fn write(unsaid: &mut Vec<u8>, patience: Option<Duration>) {
    let mut stderr = io::stderr();
    let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
    // A pipe that has room takes as much at once.
    while let Some(part) = unsaid.chunks(PIPE_BUF).next() {
        let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
        if retry_on_intr(|| poll(&mut fds, patience.as_ref())) == Ok(0) {
            return;
        }
        match stderr.write(part) {
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            // Nobody can read it (a closed pipe, a full disk): that must not end the command.
            Ok(0) | Err(_) => unsaid.clear(),
            Ok(written) => drop(unsaid.drain(..written)),
        }
    }
}

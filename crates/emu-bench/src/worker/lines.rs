//! Lines that come through a pipe from a process that may be stopped in the middle of one.

use std::io::{ErrorKind as IoErrorKind, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use emu_core::{Error, ErrorKind, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// What is called now and then while a reply is waited for; its error ends the waiting.
pub type Look<'a> = &'a mut dyn FnMut() -> Result<()>;

/// How long a line is waited for between two looks: soon enough to end it, and too seldom to disturb.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Lines<R> {
    pipe: R,
    /// What has been read of the next line.
    begun: Vec<u8>,
}

impl<R: Read + AsFd> Lines<R> {
    pub(super) fn new(pipe: R) -> Self {
        Self { pipe, begun: Vec::new() }
    }

    /// Without its line feed; `None` when the other side is closed.
    pub(super) fn next(
        &mut self,
        patience: Duration,
        look: &mut Option<Look<'_>>,
    ) -> Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + patience;
        let mut seen = 0;
        loop {
            if let Some(end) = self.begun.iter().skip(seen).position(|byte| *byte == b'\n') {
                let rest = self.begun.split_off(seen + end + 1);
                let mut line = std::mem::replace(&mut self.begun, rest);
                line.pop();
                return Ok(Some(line));
            }
            seen = self.begun.len();
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = if look.is_some() { left.min(LOOK) } else { left };
            let mut waiting = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
            match poll(&mut waiting, PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)) {
                Ok(0) if left.is_zero() => {
                    let what = format!("the worker did not reply within {patience:?}");
                    return Err(Error::new(ErrorKind::Failed, what));
                }
                Ok(0) => {
                    look.as_mut().map_or(Ok(()), |look| look())?;
                    continue;
                }
                Ok(_) => {}
                Err(Errno::EINTR) => continue,
                Err(cause) => return Err(Error::io("cannot wait for the worker", cause.into())),
            }
            let mut some = [0; 1 << 13];
            match self.pipe.read(&mut some) {
                Ok(0) => return Ok(None),
                Ok(count) => self.begun.extend(some.iter().take(count)),
                Err(cause) if cause.kind() == IoErrorKind::Interrupted => {}
                Err(cause) => return Err(Error::io("cannot read the reply of the worker", cause)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_writer_that_stops_within_a_line_is_not_awaited_for_ever() {
        let (reading, mut writing) = std::io::pipe().unwrap();
        let mut lines = Lines::new(reading);
        let mut next = |ms| lines.next(Duration::from_millis(ms), &mut None);
        writing.write_all(b"one\ntwo\nthr").unwrap();
        assert_eq!(next(10_000).unwrap().unwrap(), b"one");
        assert_eq!(next(10_000).unwrap().unwrap(), b"two");
        let late = next(20).unwrap_err();
        assert!(late.to_string().contains("did not reply"), "{late}");
        writing.write_all(b"ee\n").unwrap();
        assert_eq!(next(10_000).unwrap().unwrap(), b"three");
        drop(writing);
        assert!(next(10_000).unwrap().is_none());
    }
}

//! How many of a zone's tasks sleep while they are free to run.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::holder::Hold;
use crate::sys::time::{self, Nanos};

/// How often the tasks are counted.
const COUNT_EVERY: Nanos = 1_000_000_000;

/// Weight of the newest look in the mean.
const WEIGHT: f64 = 0.125;

/// An estimate: all tasks of the zone less those that run anywhere on the host, smoothed. Which tasks run is not
/// known in time for many of them, but how many is.
#[derive(Debug)]
pub(crate) struct Asleep {
    /// `/proc/loadavg`.
    running: Option<File>,
    tasks: usize,
    next_count: Nanos,
    mean: Option<f64>,
}

impl Asleep {
    /// Nothing is known yet.
    pub(crate) fn new(proc: &Path) -> Self {
        Self { running: File::open(proc.join("loadavg")).ok(), tasks: 0, next_count: 0, mean: None }
    }

    /// Looks at the zone, while it is free to run, from a thread that runs.
    pub(crate) fn look(&mut self, hold: &mut impl Hold) {
        let now = time::now();
        if now >= self.next_count {
            self.tasks = hold.tasks();
            self.next_count = now + COUNT_EVERY;
        }
        let mut buffer = [0; 64];
        let length = self.running.as_ref().and_then(|file| file.read_at(&mut buffer, 0).ok());
        let Some(running) = length.and_then(|length| running(buffer.get(..length)?)) else { return };
        let asleep = self.tasks.saturating_sub(running.saturating_sub(1)) as f64;
        let mean = self.mean.get_or_insert(asleep);
        *mean += (asleep - *mean) * WEIGHT;
    }

    /// How many tasks the zone had when they were last counted.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks
    }

    /// How many of them sleep.
    pub(crate) fn count(&self) -> f64 {
        self.mean.unwrap_or(0.0)
    }
}

/// The tasks that run or wait for a CPU: the number before the slash of `/proc/loadavg` (`proc_loadavg(5)`).
fn running(text: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(text).ok()?;
    text.split_ascii_whitespace().nth(3)?.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Result;
    use crate::duty::holder::Held;

    struct Tasks(usize);

    impl Hold for Tasks {
        fn hold(&mut self, _: Nanos) -> Result<Held> {
            unreachable!()
        }

        fn let_go(&mut self) -> Result<Nanos> {
            unreachable!()
        }

        fn tasks(&mut self) -> usize {
            self.0
        }
    }

    #[test]
    fn tasks_that_do_not_run_sleep() {
        let dir = tempfile::tempdir().unwrap();
        let loadavg = dir.path().join("loadavg");
        std::fs::write(&loadavg, "8.12 7.91 8.79 5/133 20336\n").unwrap();
        let mut asleep = Asleep::new(dir.path());
        assert!(asleep.count().abs() < 1e-9);
        asleep.look(&mut Tasks(30));
        assert!((asleep.count() - 26.0).abs() < 1e-9, "one of the five is this thread");
        std::fs::write(&loadavg, "8.12 7.91 8.79 501/633 20336\n").unwrap();
        (0..100).for_each(|_| asleep.look(&mut Tasks(30)));
        assert!(asleep.count() < 0.1, "no fewer than none");
    }

    #[test]
    fn strange_text_says_nothing() {
        for text in [&b""[..], b"1 2 3", b"1 2 3 x/y 5", b"\xff", b"1 2 3 45 6"] {
            assert_eq!(running(text), None);
        }
    }
}

//! The task on which [`StopCost`](super::stop_cost::StopCost) measures what stops cost: a process that only reads the clock, so
//! that it sees each stretch without the CPU.

use std::io::{PipeReader, PipeWriter, Read};
use std::os::fd::AsFd;

use rustix::io::ioctl_fionread;
use rustix::process::nice;

use crate::cpu_list::CpuList;
use crate::error::{Error, Result};
use crate::sys::Pid;
use crate::sys::time::{self, Nanos};
use crate::sys::{affinity, fork};

/// How long each stop of the probe lasts, in nanoseconds: a CPU that was idle for milliseconds takes longer to wake up than one
/// that was idle for a moment.
pub(super) const STOP: Nanos = 10_000_000;

/// In nanoseconds. A shorter stretch without the CPU was no stop.
const GAP: Nanos = STOP / 2;

/// What an interrupt takes, in nanoseconds. Less may be a read of a slow clock, more is another task.
const INTERRUPT: std::ops::RangeInclusive<Nanos> = 1_000..=200_000;

/// The probe ends after this time, whatever becomes of its parent; in nanoseconds.
const LIFETIME: Nanos = 5_000_000_000;

/// Stands for an unknown time in the pipe.
const UNKNOWN: Nanos = Nanos::MIN;

/// A stretch without the CPU: the probe last had it at `before`, and again at `after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) before: Nanos,
    pub(super) after: Nanos,
    /// How much more interrupts took in the first tick after the gap before this one than in the second; `None` where the probe
    /// did not run for two ticks.
    pub(super) more: Option<Nanos>,
    /// The CPU time that the kernel had charged to the probe at `after`.
    pub(super) charged: Nanos,
}

/// How long the probe has to run between two gaps to measure [`Gap::more`].
pub(super) fn two_ticks() -> Nanos {
    2 * time::nanos(time::tick())
}

/// It ends with the thread that started it.
pub(super) struct Probe {
    child: fork::Child,
    told: PipeReader,
    gaps: Vec<Gap>,
}

impl Probe {
    /// Runs the probe on the first of the CPUs, and waits until it runs.
    pub(super) fn start(cpus: &CpuList) -> Result<Self> {
        let (told, tell) = std::io::pipe().map_err(|e| Error::io("cannot make a pipe", e))?;
        // Made here because the child must not allocate after the fork.
        let first: CpuList = cpus.first().into_iter().collect();
        #[expect(unsafe_code, reason = "a fork has a contract")]
        // SAFETY: `live` only computes and makes system calls, on memory from before the fork.
        let child = unsafe { fork::fork_bound([tell.as_fd()], || live(&tell, &first)) }
            .map_err(|e| Error::io("cannot start a process to measure stops with", e))?;
        drop(tell);
        let mut probe = Self { child, told, gaps: Vec::new() };
        probe.hear()?;
        Ok(probe)
    }

    pub(super) fn pid(&self) -> Pid {
        self.child.pid()
    }

    /// What it has seen by now: a gap counts when it has ended.
    pub(super) fn gaps(&mut self) -> Result<&[Gap]> {
        let told = ioctl_fionread(&self.told).map_err(|e| cannot_read(e.into()))?;
        for _ in 0..told / BYTES as u64 {
            let gap = self.hear()?;
            self.gaps.extend(gap);
        }
        Ok(&self.gaps)
    }

    /// Waits until it tells something.
    fn hear(&mut self) -> Result<Option<Gap>> {
        let mut bytes = [0; BYTES];
        self.told.read_exact(&mut bytes).map_err(cannot_read)?;
        Ok(Gap::parse(&bytes))
    }
}

fn cannot_read(why: std::io::Error) -> Error {
    Error::io("cannot read from the probe", why)
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.child.end();
    }
}

/// The length of a gap in the pipe: four numbers.
const BYTES: usize = 32;

impl Gap {
    fn tell(self, to: &PipeWriter) {
        let mut bytes = [0; BYTES];
        let numbers = [self.before, self.after, self.more.unwrap_or(UNKNOWN), self.charged];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        let _ = rustix::io::write(to, &bytes);
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut numbers = bytes.chunks_exact(8).map(|bytes| bytes.try_into().map(Nanos::from_ne_bytes));
        let mut next = || numbers.next()?.ok();
        let (before, after, more, charged) = (next()?, next()?, next()?, next()?);
        Some(Self { before, after, more: Some(more).filter(|&more| more != UNKNOWN), charged })
    }
}

/// The body of the child. Keeps the contract of [`fork`](fork::fork).
fn live(tell: &PipeWriter, cpu: &CpuList) -> i32 {
    // Ahead of other tasks where that is allowed, so that stops are measured and not their load.
    // Not in real time: the zone's tasks share their CPUs with tasks that they have to preempt.
    let _ = nice(-20);
    // One CPU only: a migration would look like a loss.
    let _ = affinity::set(0, cpu);
    Gap { before: 0, after: 0, more: None, charged: 0 }.tell(tell);
    let end = time::now() + LIFETIME;
    let two_ticks = two_ticks();
    // When the last gap ended, and what interrupts took in each of the two ticks after it.
    let mut stretch: Option<(Nanos, [Nanos; 2])> = None;
    let mut last = time::now();
    while last < end {
        let mut now = time::now();
        let gone = now - last;
        if gone >= GAP {
            let full = stretch.filter(|(since, _)| last - since >= two_ticks);
            let more = full.map(|(_, [first, second])| first - second);
            Gap { before: last, after: now, more, charged: time::thread_cpu() }.tell(tell);
            stretch = Some((now, [0; 2]));
            now = time::now();
        } else if INTERRUPT.contains(&gone)
            && let Some((since, ticks)) = &mut stretch
            && let Some(tick) = ticks.get_mut((2 * (last - *since) / two_ticks) as usize)
        {
            *tick += gone;
        }
        last = now;
    }
    0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sys::signal::Signal::SIGKILL;
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use rustix::process::{Pid as ProcessId, Signal, kill_process};

    use super::*;

    #[test]
    fn a_probe_is_killed_with_its_parent() {
        // The kernel sends the signal at the end of the thread that forked.
        let start = || Probe::start(&affinity::get(0).unwrap()).unwrap();
        let probe = std::thread::spawn(start).join().unwrap();
        let pid = nix::unistd::Pid::from_raw(probe.pid());
        // An exit by itself would be `Exited`.
        assert_eq!(waitpid(pid, Some(WaitPidFlag::__WALL)), Ok(WaitStatus::Signaled(pid, SIGKILL, false)));
    }

    #[test]
    fn a_probe_tells_when_it_was_stopped() {
        let mut probe = Probe::start(&affinity::get(0).unwrap()).unwrap();
        let pid = ProcessId::from_raw(probe.pid()).unwrap();
        let mut stops = Vec::new();
        for _ in 0..2 {
            std::thread::sleep(time::span(5 * two_ticks()));
            kill_process(pid, Signal::STOP).unwrap();
            let stopped = time::now();
            std::thread::sleep(Duration::from_millis(50));
            stops.push(stopped + (time::now() - stopped) / 2);
            kill_process(pid, Signal::CONT).unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
        let gaps = probe.gaps().unwrap();
        let seen: Vec<_> = stops
            .iter()
            .map(|&middle| gaps.iter().find(|gap| (gap.before..gap.after).contains(&middle)))
            .collect();
        let [Some(_), Some(second)] = seen[..] else { panic!("{stops:?} in {gaps:?}") };
        // Other tasks may have preempted the probe in between.
        assert!(second.more.is_some() || gaps.len() > 2, "{gaps:?}");
    }

    #[test]
    fn a_gap_passes_the_pipe_unchanged() {
        let (mut told, tell) = std::io::pipe().unwrap();
        let gaps = [Some(-7), None].map(|more| Gap { before: 5, after: 9, more, charged: 3 });
        for gap in gaps {
            gap.tell(&tell);
        }
        for gap in gaps {
            let mut bytes = [0; BYTES];
            told.read_exact(&mut bytes).unwrap();
            assert_eq!(Gap::parse(&bytes), Some(gap));
        }
        assert_eq!(Gap::parse(&[0; BYTES - 1]), None);
    }
}

//! The process that measures for `--verify`: emu's own binary, as `emu probe`. It is told when to, and answers with one
//! line for each measurement.
//!
//! An order is `CPUS SETTLE WINDOW`, times in nanoseconds. A thread for each CPU first runs for the time to settle, in
//! which a method may move it, then measures for the window. The answer is the JSON of what each thread was given, or
//! of the words of a failure. The end of stdin is the end of the probe, so that none outlives its emu.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use emu_core::clock::{Delivered, delivered};
use emu_core::{CpuId, CpuList, Error, ErrorKind, Host, Result};
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

use crate::exit::Failure;
use crate::output::nanos;
use crate::signals::Signals;

/// What one thread was given, and on which CPU it was at the end.
pub(super) type Seen = (CpuId, Delivered);

type Answer = Result<Vec<Seen>, String>;

/// The process, as its emu has it.
pub(super) struct Probe {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Whether a terminal has asked to stop meanwhile.
    pub(super) is_to_stop: bool,
}

impl Probe {
    /// Starts it.
    ///
    /// # Errors
    /// The system starts no process.
    pub(super) fn start(host: &Host) -> Result<Self> {
        let failed = |e| Error::io("cannot start the probe", e);
        let mut process = Command::new(host.roots.proc.join("self/exe"))
            .arg("probe")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(orders), Some(answers)) => {
                Ok(Self { process, orders, answers: BufReader::new(answers), is_to_stop: false })
            }
            _ => Err(failed(std::io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Its process ID.
    pub(super) fn pid(&self) -> i32 {
        self.process.id() as i32
    }

    /// What each CPU delivers to the probe over `window`.
    ///
    /// # Errors
    /// The probe fails, or a signal asks emu to end.
    pub(super) fn measure(
        &mut self,
        cpus: &CpuList,
        settle: Duration,
        window: Duration,
        signals: &Signals,
    ) -> Result<Vec<Seen>, Failure> {
        let failed = |e| Error::io("the probe has failed", e);
        writeln!(self.orders, "{}", order(cpus, settle, window)).map_err(failed)?;
        loop {
            let answered = signals.wait(&[self.answers.get_ref().as_fd()], Duration::from_secs(1))?;
            // Looked at in any case: Ctrl-C ends the probe, too.
            while let Some(received) = signals.next()? {
                if signals.is_ending(received) {
                    return Err(Failure::interrupted(received.signal));
                }
                self.is_to_stop |= received.signal == Signal::SIGTSTP;
            }
            if answered {
                break;
            }
        }
        // An answer is written as one line.
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(failed)?;
        Ok(answer(&line)?)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The order to measure `cpus` for `window`.
fn order(cpus: &CpuList, settle: Duration, window: Duration) -> String {
    format!("{cpus} {} {}", nanos(settle), nanos(window))
}

/// What the probe found.
///
/// # Errors
/// The probe has ended or says why it could not measure.
fn answer(line: &str) -> Result<Vec<Seen>> {
    let failed = |why: &str| Error::new(ErrorKind::Failed, format!("the probe has failed: {why}"));
    match serde_json::from_str::<Answer>(line) {
        Ok(answer) => answer.map_err(|why| failed(&why)),
        Err(_) => Err(failed("it has ended")),
    }
}

/// Answers orders until stdin ends, as `emu probe` does.
///
/// # Errors
/// Its emu does not listen any more.
pub(crate) fn serve() -> Result<()> {
    let failed = |e| Error::io("cannot talk to emu", e);
    // emu does not stop while it waits for an answer, so neither may the probe.
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTSTP);
    stop.thread_block().map_err(|e| failed(e.into()))?;
    for line in io::stdin().lock().lines() {
        let answer = obey(&line.map_err(failed)?);
        let text = serde_json::to_string(&answer).map_err(|e| failed(e.into()))?;
        writeln!(io::stdout().lock(), "{text}").map_err(failed)?;
    }
    Ok(())
}

fn obey(order: &str) -> Answer {
    let [cpus, settle, window] = order.split(' ').collect::<Vec<_>>()[..] else {
        return Err(format!("bad order `{order}`"));
    };
    let cpus: CpuList = cpus.parse().map_err(|e: Error| e.to_string())?;
    let time =
        |nanos: &str| nanos.parse().map(Duration::from_nanos).map_err(|_| format!("bad order `{order}`"));
    measure(&cpus, time(settle)?, time(window)?)
}

/// All CPUs at the same time, as a program with a thread on each would have them.
fn measure(cpus: &CpuList, settle: Duration, window: Duration) -> Answer {
    let together = Barrier::new(cpus.len());
    let on_cpu = |cpu| {
        let pinned = pin(cpu);
        delivered(settle);
        together.wait();
        let seen = delivered(window);
        pinned.map(|()| (sched_getcpu().unwrap_or(cpu), seen))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = cpus.iter().map(|cpu| scope.spawn(move || on_cpu(cpu))).collect();
        let join =
            |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|_| Err("it has panicked".into()));
        threads.into_iter().map(join).collect()
    })
}

/// Binds the calling thread to a CPU, unless the method has bound it to another one of the zone.
fn pin(cpu: CpuId) -> Result<(), String> {
    let mut set = CpuSet::new();
    match set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)) {
        Ok(()) | Err(Errno::EINVAL) => Ok(()),
        Err(cause) => Err(format!("cannot run on CPU {cpu}: {}", cause.desc())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_answered_for_each_cpu_or_with_the_reason() {
        let allowed = nix::sched::sched_getaffinity(Pid::from_raw(0)).unwrap();
        let cpu = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap()).unwrap();
        let window = Duration::from_millis(5);
        let told = obey(&order(&[cpu].into_iter().collect(), Duration::ZERO, window));
        let seen = answer(&serde_json::to_string(&told).unwrap()).unwrap();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].0, cpu);
        assert!(seen[0].1.wall >= window);
        for order in ["", "0 5", "0 x 5", "0 5 x", "x 5 5", "0 5 5 5"] {
            let words = serde_json::to_string(&obey(order)).unwrap();
            assert!(answer(&words).unwrap_err().to_string().starts_with("the probe has failed: "), "{order}");
        }
        assert!(answer("").is_err());
    }
}

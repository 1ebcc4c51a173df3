//! `emu probe`, hidden: measures the delivered clock when told to, one line for each measurement.
//!
//! An order is `CPUS NANOSECONDS`. The answer is the JSON of what each CPU delivered to a thread pinned to it, or
//! of the words of a failure. The end of stdin is the end of the probe, so that none outlives its emu.

use std::io::{self, BufRead, Write};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use emu_core::meter::{Delivered, delivered};
use emu_core::{CpuId, CpuList, Error, ErrorKind, Result};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{SigSet, Signal};

use crate::exit::{Exit, Failure};
use crate::output::record::nanos;

type Answer = Result<Vec<Delivered>, String>;

/// The order to measure `cpus` for `window`.
pub(crate) fn order(cpus: &CpuList, window: Duration) -> String {
    format!("{cpus} {}", nanos(window))
}

/// What the probe found, in the order of the CPUs.
///
/// # Errors
/// The probe has ended or says why it could not measure.
pub(crate) fn answer(line: &str) -> Result<Vec<Delivered>> {
    let failed = |why: &str| Error::new(ErrorKind::Failed, format!("the probe has failed: {why}"));
    match serde_json::from_str::<Answer>(line) {
        Ok(answer) => answer.map_err(|why| failed(&why)),
        Err(_) => Err(failed("it has ended")),
    }
}

/// Answers orders until stdin ends.
pub(crate) fn probe() -> Result<Exit, Failure> {
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
    Ok(Exit::Success)
}

fn obey(order: &str) -> Answer {
    let (cpus, nanos) = order.split_once(' ').ok_or_else(|| format!("bad order `{order}`"))?;
    let cpus: CpuList = cpus.parse().map_err(|e: Error| e.to_string())?;
    let nanos: u64 = nanos.parse().map_err(|_| format!("bad order `{order}`"))?;
    measure(&cpus, Duration::from_nanos(nanos)).map_err(|error| error.to_string())
}

/// All CPUs at the same time, as a program with a thread on each would have them.
fn measure(cpus: &CpuList, window: Duration) -> Result<Vec<Delivered>> {
    let together = Barrier::new(cpus.len());
    let on_cpu = |cpu| {
        let pinned = pin(cpu);
        together.wait();
        pinned.map(|()| delivered(window))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = cpus.iter().map(|cpu| scope.spawn(move || on_cpu(cpu))).collect();
        let panicked = || Error::new(ErrorKind::Failed, "a thread has panicked");
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
    })
}

fn pin(cpu: CpuId) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)
        .and_then(|()| sched_setaffinity(nix::unistd::Pid::from_raw(0), &set))
        .map_err(|e| Error::io(format!("cannot run on CPU {cpu}"), e.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_answered_for_each_cpu_or_with_the_reason() {
        let allowed = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
        let cpu = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu).unwrap()).unwrap();
        let window = Duration::from_millis(5);
        let told = obey(&order(&[cpu].into_iter().collect(), window));
        let seen = answer(&serde_json::to_string(&told).unwrap()).unwrap();
        assert_eq!(seen.len(), 1);
        assert!(seen[0].wall >= window);
        for order in ["", "0", "0 x", "x 5", "1000 5"] {
            let words = serde_json::to_string(&obey(order)).unwrap();
            assert!(answer(&words).unwrap_err().to_string().starts_with("the probe has failed: "), "{order}");
        }
        assert!(answer("").is_err());
    }
}

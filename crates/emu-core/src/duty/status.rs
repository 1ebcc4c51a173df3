//! The status of a method that runs on a control thread, from the thread's counters.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::duty_thread::Counters;
use crate::control_file;
use crate::cpu_list::CpuList;
use crate::method_id::MethodId;
use crate::speed::Targets;
use crate::status::{CpuStatus, Status};
use crate::sys::time;

pub(crate) fn ended(why: &str) -> String {
    format!("emu's control thread has ended, and the tasks run at full speed: {why}")
}

pub(crate) fn of(
    method: MethodId,
    period: Duration,
    counters: &Counters,
    targets: &Targets,
    cpus_folder: &Path,
) -> Status {
    let span = |counter: &AtomicI64| time::span(counter.load(Ordering::Relaxed));
    let (effective, duty) = (counters.effective(), counters.duty());
    let cpu_status = |(&cpu, &asked)| {
        // CPUs that cannot be taken offline have no such file.
        let online = control_file::probe::<u8>(&cpus_folder.join(format!("cpu{cpu}/online"))) != Some(0);
        CpuStatus { set: effective, duty, online, ..CpuStatus::new(cpu, asked) }
    };
    let cpus: Vec<_> = targets.iter().map(cpu_status).collect();
    let offline: CpuList = cpus.iter().filter(|cpu| !cpu.online).map(|cpu| cpu.cpu).collect();
    let mut status = Status {
        periods: counters.periods.load(Ordering::Relaxed),
        missed: counters.missed.load(Ordering::Relaxed),
        longest_stall: span(&counters.longest_stop),
        own_cpu: span(&counters.cpu),
        cpus,
        ..Status::new(method, period)
    };
    for cpu in offline.iter() {
        status.add_problem(format!(
            "CPU {cpu} is offline; the tasks run on the remaining CPUs, as slowly as before"
        ));
    }
    status
}

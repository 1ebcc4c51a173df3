//! This machine as emu finds it: a plain value that can be saved, replayed and used in tests.
//!
//! Reading it changes nothing. A file that is missing or unreadable leaves its field empty; only what makes emulation
//! impossible (no `/proc`, no CPU) is an error.

mod cgroups;
mod clocks;
mod controller;
mod cpu_times;
mod cpufreq;
mod cpus;
pub(crate) mod delegation;
mod hypervisor;
mod limits;
mod own_proc;
mod privileges;
mod task_time;
#[cfg(test)]
pub(crate) mod testing;

pub use cgroups::{CgroupLayout, Cgroups, Hierarchy};
pub(crate) use cgroups::{below, group_in};
pub use clocks::Clocks;
pub use controller::Controller;
pub use cpu_times::CpuTimes;
pub use cpufreq::{Cpufreq, Policy};
pub use cpus::Cpu;
pub use limits::{FairServer, RealTime};
pub use privileges::Privileges;
pub(crate) use task_time::AllTasks;
pub use task_time::TaskTime;

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cpu_list::{CpuId, CpuList};
use crate::error::{Error, Result};
use crate::roots::Roots;
use crate::sys::refused;
use crate::unavailable::{Reason, Unavailable};

/// This machine as emu finds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Host {
    /// Where it was read from.
    pub roots: Roots,
    /// `uname -r`; empty where it cannot be read.
    pub kernel: String,
    /// The processor's name from `/proc/cpuinfo`, or `unknown`.
    pub model: String,
    /// The id of the boot, from `/proc/sys/kernel/random/boot_id`. Measurements of another boot are
    /// not used. Empty where it cannot be read; then kept measurements are not used either.
    pub boot_id: String,
    /// The CPUs that are present, by number.
    pub cpus: Vec<Cpu>,
    /// The CPUs that this process may run on: by affinity and cpuset, without offline ones.
    pub allowed: CpuList,
    /// Control of the CPU frequency, where available.
    pub cpufreq: Option<Cpufreq>,
    /// The cgroup hierarchies and this process's group in them.
    pub cgroups: Cgroups,
    /// The limits for real-time tasks.
    pub real_time: RealTime,
    /// `RLIMIT_CPU`: the CPU time after which this process and each of its children is ended. `None` without a limit.
    #[serde(default)]
    pub cpu_time_limit: Option<Duration>,
    /// What this process may do.
    pub privileges: Privileges,
    /// System calls that emu needs and that were refused, as by a sandbox (`seccomp(2)`).
    #[serde(default)]
    pub refused: Vec<String>,
    /// The kernel's time base.
    pub clocks: Clocks,
    /// Where the kernel reports the CPU time of all tasks on each CPU, if it does.
    #[serde(default)]
    pub task_time: Option<TaskTime>,
    /// The hypervisor under which this runs, if one shows itself; `unknown` if it has no name.
    pub hypervisor: Option<String>,
}

impl Host {
    /// Reads the machine.
    ///
    /// # Errors
    /// There is no `/proc`, no CPU can be found, or file descriptors are short.
    pub fn detect(roots: &Roots) -> Result<Self> {
        let own = own_proc::find(roots)?;
        let status = text(&own.join("status"));
        let cpuinfo = text(&roots.proc.join("cpuinfo"));
        let kernel = line(&roots.proc.join("sys/kernel/osrelease"));
        let cpufreq = cpufreq::read(roots);
        let cpus = cpus::read(roots, &cpuinfo, cpufreq.as_ref());
        if cpus.is_empty() {
            let (sys, proc) = (roots.cpus(), roots.proc.join("cpuinfo"));
            let message = format!("cannot find any CPU in {} or {}", sys.display(), proc.display());
            return Err(Error::unavailable(message).hint("mount sysfs: mount -t sysfs sysfs /sys"));
        }
        let cgroups = cgroups::read(roots, version(&kernel));
        let clocks = clocks::read(roots);
        let online: CpuList = cpus.iter().filter(|cpu| cpu.online).map(|cpu| cpu.id).collect();
        let privileges = privileges::read(roots, &status);
        let own_limits = text(&roots.proc.join("self/limits"));
        let real_time = limits::read(roots, &own_limits, &cgroups, online.first());
        let may_be_real_time = privileges.sys_nice || real_time.rtprio_limit > 0;
        let is_recorded = roots.proc != Path::new("/proc");
        Ok(Self {
            roots: roots.clone(),
            model: cpus::model(&cpuinfo),
            boot_id: line(&roots.proc.join("sys/kernel/random/boot_id")),
            allowed: allowed(&status, &online),
            // What is refused to this process says nothing of a machine that was recorded.
            refused: if is_recorded { Vec::new() } else { refused::find(may_be_real_time) },
            real_time,
            cpu_time_limit: limits::cpu_time_limit(&own_limits),
            privileges,
            hypervisor: hypervisor::read(roots, &cpuinfo, &clocks),
            task_time: TaskTime::find(roots, &cgroups),
            kernel,
            cpus,
            cpufreq,
            cgroups,
            clocks,
        })
    }

    /// One CPU.
    pub fn cpu(&self, cpu: CpuId) -> Option<&Cpu> {
        self.cpus.iter().find(|known| known.id == cpu)
    }

    /// Whether none of these system calls is refused.
    pub(crate) fn check_calls(&self, needed: &[&str]) -> Result<(), Unavailable> {
        match self.refused.iter().find(|call| needed.contains(&call.as_str())) {
            None => Ok(()),
            Some(call) => Err(Unavailable::new(
                Reason::CallRefused,
                format!("the system call {call} is refused here"),
                if call == "sched_setscheduler" {
                    "a sandbox (seccomp), a user namespace, or a cgroup without a real-time budget (cpu.rt_runtime_us) refuses \
                     it: run emu outside"
                } else {
                    "a sandbox (seccomp) or an old kernel refuses it: run emu outside, or allow the call there"
                },
            )),
        }
    }

    /// Whether a process may keep a CPU busy for as long as a run lasts.
    pub(crate) fn check_cpu_time(&self) -> Result<(), Unavailable> {
        self.cpu_time_limit.map_or(Ok(()), |limit| {
            Err(Unavailable::new(
                Reason::CpuTimeLimit,
                format!("RLIMIT_CPU ends a process after {limit:?} of CPU time, and burners use it up"),
                "remove the limit (ulimit -t unlimited)",
            ))
        })
    }

    /// The CPUs that are online.
    pub fn online(&self) -> CpuList {
        self.cpus.iter().filter(|cpu| cpu.online).map(|cpu| cpu.id).collect()
    }

    /// The kernel's version, `(6, 18)` for `6.18.44`; `None` where it cannot be read.
    pub fn kernel_version(&self) -> Option<(u32, u32)> {
        version(&self.kernel)
    }

    /// The online CPUs that share a core (SMT) with a CPU of `cpus` without being one of them. Tasks there compete for the
    /// core's execution units and change its clock.
    pub fn siblings_outside(&self, cpus: &CpuList) -> CpuList {
        let siblings: CpuList =
            cpus.iter().filter_map(|id| self.cpu(id)).flat_map(|cpu| cpu.siblings.iter()).collect();
        siblings.difference(cpus).intersection(&self.online())
    }

    /// Checks that every CPU exists, is online, and may be used by this process.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::error::ErrorKind) naming the first unusable CPU, and why.
    pub fn check_cpus(&self, cpus: &CpuList) -> Result<()> {
        for id in cpus.iter() {
            let Some(cpu) = self.cpu(id) else {
                let known: CpuList = self.cpus.iter().map(|cpu| cpu.id).collect();
                return Err(Error::usage(format!("there is no CPU {id}; this host has {known}"))
                    .hint(format!("choose from CPUs {}", self.allowed)));
            };
            if !cpu.online {
                let switch = self.roots.cpus().join(format!("cpu{id}/online"));
                return Err(Error::usage(format!("CPU {id} is offline"))
                    .hint(format!("bring it online as root: echo 1 > {}", switch.display())));
            }
            if !self.allowed.contains(id) {
                let message = format!("CPU {id} is not allowed to this process (allowed: {})", self.allowed);
                return Err(Error::usage(message).hint(
                    "choose an allowed one, or widen the affinity (taskset) or the cpuset of the caller",
                ));
            }
        }
        Ok(())
    }
}

/// The kernel's mask may contain CPUs that do not exist; without a mask, every online CPU is taken.
fn allowed(status: &str, online: &CpuList) -> CpuList {
    mask(status).map_or_else(|| online.clone(), |mask| mask.intersection(online))
}

/// The CPUs that a task may run on, from its `/proc/<pid>/status`, online or not.
pub(crate) fn mask(status: &str) -> Option<CpuList> {
    field(status, "Cpus_allowed_list").and_then(CpuList::from_kernel)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Invalid UTF-8 is replaced; an unreadable file is empty.
pub(crate) fn text(path: &Path) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn line(path: &Path) -> String {
    text(path).trim().to_owned()
}

/// The value of the first line `key: value`, as in `/proc/<pid>/status` and `/proc/cpuinfo`.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests;

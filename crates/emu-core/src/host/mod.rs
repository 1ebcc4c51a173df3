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
        let real_time = limits::read(roots, &cgroups, online.first());
        Ok(Self {
            roots: roots.clone(),
            model: cpus::model(&cpuinfo),
            boot_id: line(&roots.proc.join("sys/kernel/random/boot_id")),
            allowed: allowed(&status, &online),
            refused: refused::find(privileges.sys_nice || real_time.rtprio_limit > 0),
            real_time,
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
                "a sandbox (seccomp), a user namespace or an old kernel refuses it: run emu outside, or allow the call there",
            )),
        }
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
mod tests {
    use super::testing::{VM_V1, host, host_of, tree, with, write};
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;

    fn cpu_list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    fn assert_round_trip(host: &Host) {
        let json = serde_json::to_string(host).unwrap();
        assert_eq!(&serde_json::from_str::<Host>(&json).unwrap(), host);
    }

    #[test]
    fn this_host_can_be_read() {
        let host = Host::detect(&Roots::system()).unwrap();
        assert_round_trip(&host);
        assert!(!host.kernel.is_empty() && host.kernel_version().is_some());
        assert_eq!(host.boot_id.len(), 36);
        // System calls answer the same questions.
        let uname = nix::sys::utsname::uname().unwrap();
        assert_eq!(uname.release().to_str(), Some(host.kernel.as_str()));
        assert_eq!(host.privileges.uid, nix::unistd::geteuid().as_raw());
        let has = |capability| caps::has_cap(None, caps::CapSet::Effective, capability).unwrap();
        assert_eq!(host.privileges.sys_nice, has(caps::Capability::CAP_SYS_NICE));
        assert_eq!(host.privileges.sys_admin, has(caps::Capability::CAP_SYS_ADMIN));
        assert_eq!(host.privileges.kill, has(caps::Capability::CAP_KILL));
        assert_eq!(host.privileges.dac_override, has(caps::Capability::CAP_DAC_OVERRIDE));
        let soft = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_RTPRIO).unwrap().0;
        assert_eq!(host.real_time.rtprio_limit, soft);
        let main = nix::unistd::getpid();
        let mask = nix::sched::sched_getaffinity(main).unwrap();
        let runs_on: CpuList =
            (0..nix::sched::CpuSet::count()).filter(|&cpu| mask.is_set(cpu).unwrap()).collect();
        assert_eq!(host.allowed, runs_on);
        host.check_cpus(&host.allowed).unwrap();
    }

    #[test]
    fn a_recorded_vm_is_read_whole() {
        let host = host();
        assert_eq!((host.kernel.as_str(), host.model.as_str()), ("6.18.44", "AMD EPYC"));
        assert_eq!(host.online(), cpu_list("0-1"));
        assert_eq!(host.allowed, cpu_list("0-1"));
        assert_eq!(host.cpufreq, None);
        assert_eq!(host.cgroups.layout, CgroupLayout::Hybrid);
        assert_eq!(host.cgroups.hierarchies.len(), 5);
        assert!(host.privileges.sys_nice && host.privileges.initial_userns);
        assert_eq!(host.hypervisor.as_deref(), Some("kvm"));
        assert!(host.clocks.fast);
        assert_round_trip(&host);
    }

    #[test]
    fn cpus_that_cannot_be_used_are_refused_with_the_reason() {
        let host = host_of(&with(
            VM_V1,
            &[
                ("sys/devices/system/cpu/present", "0-2\n"),
                ("proc/self/status", "Cpus_allowed_list:\t0,2-63\n"),
            ],
        ));
        assert_eq!(host.allowed, cpu_list("0"), "what is not online is not allowed either");
        host.check_cpus(&cpu_list("0")).unwrap();
        for (cpus, message) in [
            ("0,7", "there is no CPU 7; this host has 0-2"),
            ("2", "CPU 2 is offline"),
            ("0-1", "CPU 1 is not allowed to this process (allowed: 0)"),
        ] {
            let error = host.check_cpus(&cpu_list(cpus)).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.hint_text().is_some());
        }
        let hint = host.check_cpus(&cpu_list("2")).unwrap_err().hint_text().unwrap();
        assert!(hint.ends_with("sys/devices/system/cpu/cpu2/online"), "{hint}");
    }

    #[test]
    fn siblings_outside_are_other_threads_of_the_zones_cores() {
        let topology = "sys/devices/system/cpu";
        let lists = ["0,4", "1,5", "2,6", "3", "0,4", "1,5", "2,6"];
        let files: Vec<_> = lists
            .iter()
            .enumerate()
            .map(|(cpu, list)| (format!("{topology}/cpu{cpu}/topology/core_cpus_list"), *list))
            .collect();
        let mut files: Vec<_> = files.iter().map(|(path, list)| (path.as_str(), *list)).collect();
        files.extend([
            ("sys/devices/system/cpu/present", "0-7"),
            ("sys/devices/system/cpu/online", "0-6"),
            ("proc/self/status", ""),
        ]);
        let host = host_of(&files);
        assert_eq!(host.siblings_outside(&cpu_list("0-1")), cpu_list("4-5"));
        assert_eq!(host.siblings_outside(&cpu_list("0,4,2")), cpu_list("6"));
        assert_eq!(host.siblings_outside(&cpu_list("3,7,100")), CpuList::default());
    }

    #[test]
    fn without_proc_or_cpus_there_is_no_host() {
        let dir = tree(&[("sys/devices/system/cpu/present", "0-1\n")]);
        let error = Host::detect(&Roots::below(dir.path())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().starts_with("cannot read this host: there is no "), "{error}");

        let dir = tree(&[("proc/self/status", "Name:\temu\n"), ("sys/devices/system/cpu/present", "\n")]);
        let error = Host::detect(&Roots::below(dir.path())).unwrap_err();
        assert!(error.to_string().starts_with("cannot find any CPU in "), "{error}");
    }

    #[test]
    fn unreadable_files_leave_their_fields_empty() {
        // Reading a folder fails, for root too.
        let dir = tree(&[("proc/cpuinfo", "processor\t: 0\n")]);
        for (path, _) in VM_V1.iter().filter(|(path, _)| *path != "proc/cpuinfo") {
            std::fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        let host = Host::detect(&Roots::below(dir.path())).unwrap();
        assert_eq!(host.online(), cpu_list("0"));
        assert_eq!(host.cgroups.layout, CgroupLayout::None);
        assert!(!host.privileges.sys_nice);
        assert!(host.kernel.is_empty() && host.kernel_version().is_none());
    }

    #[test]
    fn kernel_versions_are_compared_by_number() {
        for (release, numbers) in [
            ("6.18.44-fc", Some((6, 18))),
            ("5.2-rc1", Some((5, 2))),
            ("4.19+", Some((4, 19))),
            ("6", None),
            ("junk", None),
            ("", None),
            ("99999999999.1", None),
        ] {
            assert_eq!(version(release), numbers, "{release}");
        }
    }

    /// Fragments of kernel files that pass the first check of each parser.
    const PIECES: &[&str] = &[
        "0",
        "1",
        "-1",
        "0-1",
        "3-0",
        "0-9999",
        "4294967295",
        "18446744073709551616",
        "max",
        "<unsupported>",
        " ",
        "\n",
        "\t",
        ",",
        ":",
        "/",
        "..",
        "\\",
        "\\040",
        "\0",
        "0::/\n",
        "1:cpu:/\n",
        "2:cpu,freezer:/x\n",
        "Uid:",
        "CapEff:\t",
        "processor\t: 1\n",
        "Cpus_allowed_list:\t",
        "Max realtime priority ",
        "unlimited",
        "6.1",
        "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "1 1 0:1 /.. /sys/fs/cgroup/cpu rw - cgroup c rw,cpu\n",
        " - cgroup ",
        "é",
    ];

    /// Files that only some hosts have. With those of [`VM_V1`], they are all that is read.
    const OTHER_FILES: &[&str] = &[
        "proc/device-tree/compatible",
        "proc/device-tree/hypervisor/compatible",
        "sys/class/dmi/id/product_name",
        "sys/class/dmi/id/sys_vendor",
        "sys/devices/system/cpu/amd_pstate/status",
        "sys/devices/system/cpu/cpu0/acpi_cppc/nominal_freq",
        "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
        "sys/devices/system/cpu/cpu1/online",
        "sys/devices/system/cpu/cpufreq/boost",
        "sys/devices/system/cpu/cpufreq/policy0/base_frequency",
        "sys/devices/system/cpu/cpufreq/policy0/bios_limit",
        "sys/devices/system/cpu/cpufreq/policy0/boost",
        "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq",
        "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_min_freq",
        "sys/devices/system/cpu/cpufreq/policy0/cpuinfo_transition_latency",
        "sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference",
        "sys/devices/system/cpu/cpufreq/policy0/freqdomain_cpus",
        "sys/devices/system/cpu/cpufreq/policy0/related_cpus",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_available_frequencies",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_available_governors",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_driver",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq",
        "sys/devices/system/cpu/intel_pstate/no_turbo",
        "sys/devices/system/cpu/intel_pstate/status",
        "sys/fs/cgroup/cpu/cpu.rt_period_us",
        "sys/fs/cgroup/unified/cgroup.freeze",
        "sys/fs/cgroup/unified/cgroup.subtree_control",
        "sys/fs/cgroup/unified/cgroup.type",
        "sys/hypervisor/type",
        "sys/kernel/debug/sched/fair_server/cpu0/period",
        "sys/kernel/debug/sched/fair_server/cpu0/runtime",
    ];

    /// The contents of a strange file; `None` leaves the file as recorded, or absent.
    fn contents() -> impl Strategy<Value = Option<Vec<u8>>> {
        let pieces = proptest::collection::vec(proptest::sample::select(PIECES), 0..12);
        prop_oneof![
            Just(None),
            proptest::collection::vec(any::<u8>(), 0..80).prop_map(Some),
            pieces.prop_map(|pieces| Some(pieces.concat().into_bytes())),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_contents_of_any_file_make_reading_panic(
            strange in proptest::collection::vec(contents(), VM_V1.len() + OTHER_FILES.len())
        ) {
            let dir = tree(VM_V1);
            let paths = VM_V1.iter().map(|(path, _)| path).chain(OTHER_FILES);
            for (path, contents) in paths.zip(strange) {
                if let Some(contents) = contents {
                    write(dir.path(), path, &contents);
                }
            }
            if let Ok(host) = Host::detect(&Roots::below(dir.path())) {
                assert_round_trip(&host);
                prop_assert!(host.check_cpus(&host.allowed).is_ok());
                prop_assert!(host.siblings_outside(&host.allowed).intersection(&host.allowed).is_empty());
                prop_assert!((0.0..=1.0).contains(&host.real_time.largest_share()));
            }
        }
    }
}

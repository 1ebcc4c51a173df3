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
    assert_eq!(host.allowed, crate::sys::affinity::get(main.as_raw()).unwrap());
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
        &[("sys/devices/system/cpu/present", "0-2\n"), ("proc/self/status", "Cpus_allowed_list:\t0,2-63\n")],
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

#[test]
fn a_call_that_is_refused_is_named() {
    let host = Host { refused: vec!["openat2".into()], ..host() };
    assert!(host.check_calls(&["timerfd_create"]).is_ok());
    let why = host.check_calls(&["timerfd_create", "openat2"]).unwrap_err();
    assert_eq!(why.reason, Reason::CallRefused);
    assert!(why.detail.contains("openat2"), "{why}");
}

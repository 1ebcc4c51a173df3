//! Recorded trees for each frequency driver, cgroup layout, and a guest without cpufreq.

mod drivers;
pub(super) mod trees;

use std::collections::BTreeSet;

use tempfile::TempDir;

use self::trees::{
    ACPI, AMD, AMD_PASSIVE, ARM, BARE, INTEL_ACTIVE, INTEL_ACTIVE_NO_HWP, INTEL_PASSIVE, VM_V1, tree, with,
    write,
};
use emu_core::{Host, Roots};

use super::*;

/// The files of [`BARE`] with others over them.
pub(super) fn bare(changes: &[(&str, &str)]) -> Vec<(String, String)> {
    owned(&with(BARE, changes))
}

/// A table of files that owns its texts.
pub(super) fn owned(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

/// [`BARE`] with files below the folder of CPUs.
fn driven(files: &[(&str, &str)]) -> Vec<(String, String)> {
    let files =
        files.iter().map(|(path, text)| (format!("sys/devices/system/cpu/{path}"), (*text).to_owned()));
    bare(&[]).into_iter().chain(files).collect()
}

/// A bare machine with acpi-cpufreq.
pub(super) fn acpi() -> Vec<(String, String)> {
    driven(ACPI)
}

/// A bare machine with `intel_pstate` in active mode.
pub(super) fn intel_active() -> Vec<(String, String)> {
    driven(INTEL_ACTIVE)
}

/// The machine of a table of files, idle and with a steady clock. Its procfs knows this process.
pub(super) fn machine(files: &[(String, String)]) -> (TempDir, Machine) {
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let dir = tree(&files);
    let stat = std::fs::read("/proc/self/stat").unwrap();
    write(dir.path(), &format!("proc/{}/stat", std::process::id()), &stat);
    let host = Host::detect(&Roots::below(dir.path())).unwrap();
    let cpus = host.allowed.clone();
    let load = Some(Load { busy: 0.0, stolen: 0.0 });
    (dir, Machine { host, cpus, load, clocks: Ok(vec![3.0e9, 3.001e9]) })
}

/// The machine once more, after it was changed.
pub(super) fn look_again(machine: &Machine) -> Machine {
    Machine { host: Host::detect(&machine.host.roots).unwrap(), ..machine.clone() }
}

/// What is found of one knob.
pub(super) fn found(machine: &Machine, name: &str) -> Finding {
    (knob(name).unwrap().look)(machine)
}

/// The state of one knob, and what is found of it.
pub(super) fn seen(files: &[(String, String)], name: &str) -> (State, String) {
    let (_dir, machine) = machine(files);
    let finding = found(&machine, name);
    (finding.state, finding.found)
}

/// What is found of one knob where these CPUs are to be quiet.
fn quiet(files: &[(String, String)], cpus: &str, name: &str) -> Finding {
    let (_dir, mut machine) = machine(files);
    machine.cpus = cpus.parse().unwrap();
    found(&machine, name)
}

/// What a tuning would write, by file below the tree.
fn writes(files: &[(String, String)], name: &str) -> Vec<String> {
    let (dir, machine) = machine(files);
    let changes = found(&machine, name).changes;
    changes
        .iter()
        .map(|change| change.to_string().replace(&format!("{}/", dir.path().display()), ""))
        .collect()
}

#[test]
fn every_knob_says_what_is_better_and_why() {
    let names: BTreeSet<_> = KNOBS.iter().map(|knob| knob.name).collect();
    assert_eq!(names.len(), KNOBS.len(), "names are unique");
    for knob in KNOBS {
        let Knob { name, better, why, source, .. } = knob;
        assert!([better, why, source].iter().all(|text| !text.is_empty()), "{name}");
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{name}");
        assert_eq!(super::knob(name).unwrap().name, knob.name);
    }
    let error = super::knob("turbot").err().unwrap();
    assert!(error.hint_text().unwrap().contains("turbo"), "{error:?}");
}

#[test]
fn only_what_a_tuning_can_change_has_changes() {
    let drivers = [ACPI, INTEL_ACTIVE, INTEL_ACTIVE_NO_HWP, INTEL_PASSIVE, AMD, AMD_PASSIVE, ARM].map(driven);
    for files in drivers.into_iter().chain([bare(&[]), owned(VM_V1)]) {
        let (_dir, machine) = machine(&files);
        for knob in examine(&machine, &[]).unwrap() {
            // What a started command alone is given says nothing of the machine.
            let is_of_machine = |change: &Change| !matches!(change, Change::TimerSlack { .. });
            let is_tunable = knob.finding.changes.iter().any(is_of_machine);
            assert_eq!(knob.finding.state == State::Tune, is_tunable, "{knob:?}");
            assert!(knob.finding.changes.is_empty() || knob.about.takes == Takes::Tuning, "{knob:?}");
            assert!(!knob.finding.found.is_empty(), "{knob:?}");
        }
    }
}

#[test]
fn a_guest_is_told_what_it_cannot_see() {
    let files = owned(VM_V1);
    for name in ["smt", "c-states", "throttling", "nohz-full", "irq-affinity", "thp", "aslr"] {
        assert_eq!(seen(&files, name).0, State::Unseen, "{name}");
    }
    assert_eq!(seen(&files, "hypervisor"), (State::Fact, "kvm".into()));
    assert_eq!(seen(&files, "clock").0, State::Ready, "it is measured instead");
    assert_eq!(seen(&files, "steal"), (State::Ready, "up to 0.0% of a CPU's time".into()));
    assert_eq!(seen(&bare(&[]), "steal"), (State::Ready, "no hypervisor".into()));
    assert_eq!(seen(&bare(&[]), "hypervisor").0, State::Ready);
}

#[test]
fn clock_and_load_are_judged_by_what_was_measured() {
    let (_dir, mut machine) = machine(&bare(&[]));
    machine.clocks = Ok(vec![3.0e9, 2.9e9]);
    let finding = found(&machine, "clock");
    assert_eq!(finding.state, State::Advice);
    assert_eq!(finding.found, "2.900 GHz to 3.000 GHz in 2 readings, 3.39% apart");
    machine.clocks = Err("CPU 0 was too busy".into());
    assert_eq!(found(&machine, "clock").state, State::Unseen);
    for (busy, state) in [(0.02, State::Ready), (0.3, State::Hand)] {
        machine.load = Some(Load { busy, stolen: 0.0 });
        assert_eq!(found(&machine, "load").state, state);
    }
    machine.host.hypervisor = Some("kvm".into());
    machine.load = Some(Load { busy: 0.0, stolen: 0.05 });
    assert_eq!(found(&machine, "steal").state, State::Hand);
    machine.load = None;
    assert_eq!(found(&machine, "load").state, State::Unseen);
}

#[test]
fn idle_states_are_limited_to_the_first_that_is_not_polling() {
    let expected = (State::Tune, "POLL, C1, C6; up to 133 µs to wake up".to_owned());
    assert_eq!(seen(&bare(&[]), "c-states"), expected);
    assert_eq!(writes(&bare(&[]), "c-states"), ["2 µs to dev/cpu_dma_latency, held open"]);
    let guest = bare(&[("proc/cpuinfo", "processor\t: 0\nflags\t\t: hypervisor\n")]);
    assert_eq!(writes(&guest, "c-states"), ["0 µs to dev/cpu_dma_latency, held open"]);
    let disabled = bare(&[("sys/devices/system/cpu/cpu0/cpuidle/state2/disable", "1\n")]);
    assert_eq!(seen(&disabled, "c-states"), (State::Ready, "POLL, C1, C6; up to 2 µs to wake up".into()));
    let held = bare(&[("dev/cpu_dma_latency", "\u{1}\0\0\0")]);
    assert_eq!(seen(&held, "c-states").0, State::Ready);
}

#[test]
fn idle_states_of_other_cpus_do_not_count() {
    let shallow = bare(&[
        ("sys/devices/system/cpu/cpu1/cpuidle/state0/name", "C1\n"),
        ("sys/devices/system/cpu/cpu1/cpuidle/state0/latency", "2\n"),
        ("sys/devices/system/cpu/cpu1/cpuidle/state0/disable", "0\n"),
    ]);
    let finding = quiet(&shallow, "1", "c-states");
    assert_eq!((finding.state, finding.found.as_str()), (State::Ready, "C1; up to 2 µs to wake up"));
    for cpus in ["0", "0-1"] {
        assert_eq!(quiet(&shallow, cpus, "c-states").state, State::Tune, "{cpus}");
    }
}

#[test]
fn cores_of_other_cpus_may_have_several_threads() {
    let topology = |cpu: u32, core: u32, siblings: &str| {
        let path = |file: &str| format!("sys/devices/system/cpu/cpu{cpu}/topology/{file}");
        [(path("core_id"), format!("{core}\n")), (path("core_cpus_list"), format!("{siblings}\n"))]
    };
    // CPUs 0 and 2 share a core, which the kernel tells as long as both are online.
    let hybrid = |online: &str, siblings: &str, active: &str| {
        let cpus = [
            ("sys/devices/system/cpu/online", online),
            ("sys/devices/system/cpu/present", "0-2\n"),
            ("sys/devices/system/cpu/smt/active", active),
        ];
        let cores = [topology(0, 0, siblings), topology(1, 1, "1"), topology(2, 0, siblings)];
        [bare(&cpus), cores.concat()].concat()
    };
    let both = hybrid("0-2\n", "0,2", "1\n");
    for cpus in ["0", "0,2", "0-1"] {
        assert_eq!(quiet(&both, cpus, "smt").state, State::Advice, "{cpus}");
    }
    assert_eq!(quiet(&both, "1", "smt").state, State::Ready);
    assert_eq!(quiet(&hybrid("0-1\n", "0", "0\n"), "0", "smt").state, State::Ready, "its sibling is offline");
}

#[test]
fn a_core_with_two_threads_and_heat_are_told() {
    let smt = bare(&[("sys/devices/system/cpu/smt/active", "1\n")]);
    assert_eq!(seen(&smt, "smt").0, State::Advice);
    assert_eq!(seen(&bare(&[]), "smt"), (State::Ready, "one thread on each core".into()));
    let off = bare(&[("sys/devices/system/cpu/smt/control", "off\n")]);
    assert_eq!(seen(&off, "smt"), (State::Ready, "off".into()));
    let hot = bare(&[
        ("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3\n"),
        ("sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "4\n"),
        ("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "10\n"),
        ("sys/devices/system/cpu/cpu1/thermal_throttle/package_throttle_count", "10\n"),
    ]);
    assert_eq!(seen(&hot, "throttling"), (State::Fact, "17 events since the boot".into()));
    let package = |cpu: u32| format!("sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id");
    let sockets = [0, 1].map(|cpu| (package(cpu), format!("{cpu}\n")));
    let (_dir, machine) = machine(&[hot, sockets.to_vec()].concat());
    assert_eq!(throttled(&machine.host), Some(27), "each package has a counter of its own");
    assert_eq!(seen(&bare(&[]), "throttling").0, State::Ready);
}

#[test]
fn boot_parameters_are_advice() {
    for name in ["isolcpus", "nohz-full"] {
        assert_eq!(seen(&bare(&[]), name).0, State::Advice, "{name}");
    }
    let booted =
        bare(&[("sys/devices/system/cpu/isolated", "1\n"), ("sys/devices/system/cpu/nohz_full", "1\n")]);
    let (_dir, mut machine) = machine(&booted);
    let mut both = |cpus: &str| {
        machine.cpus = cpus.parse().unwrap();
        ["isolcpus", "nohz-full"].map(|name| {
            let finding = found(&machine, name);
            (finding.state, finding.found)
        })
    };
    let ready = ["CPUs 1 are isolated", "CPUs 1 stop their tick"];
    assert_eq!(both("1"), ready.map(|found| (State::Ready, found.to_owned())));
    let others = ["CPUs 1 are isolated, 0 are not", "CPUs 1 stop their tick, 0 do not"];
    assert_eq!(both("0-1"), others.map(|found| (State::Advice, found.to_owned())));
    let strange = bare(&[("sys/devices/system/cpu/nohz_full", "all\n")]);
    assert_eq!(seen(&strange, "nohz-full").0, State::Unseen);
}

#[test]
fn interrupts_are_moved_off_the_quiet_cpus() {
    let (_dir, mut machine) = machine(&bare(&[]));
    assert_eq!(found(&machine, "irq-affinity").state, State::Advice, "no CPU is left to take them");
    machine.cpus = "1".parse().unwrap();
    let finding = found(&machine, "irq-affinity");
    assert_eq!((finding.state, finding.found.as_str()), (State::Tune, "2 of 2 may come to CPUs 1"));
    let values: Vec<_> = finding.changes.iter().map(ToString::to_string).collect();
    assert!(values.iter().all(|text| text.starts_with("`0` to ")) && values.len() == 2, "{values:?}");
    machine.cpus = "0".parse().unwrap();
    assert_eq!(found(&machine, "irq-affinity").changes.len(), 1, "9 is on CPU 1 already");
}

#[test]
fn memory_knobs_are_judged_by_what_is_in_force() {
    assert_eq!(seen(&bare(&[]), "swap"), (State::Tune, "2 MiB in use, swappiness 60".into()));
    let unused = "Filename\tType\tSize\tUsed\tPriority\n/a b file\t1\t0\t-2\n";
    let calm = bare(&[("proc/sys/vm/swappiness", "0\n"), ("proc/swaps", unused)]);
    assert_eq!(seen(&calm, "swap").0, State::Ready);
    assert_eq!(seen(&bare(&[("proc/sys/vm/swappiness", "0\n")]), "swap").0, State::Hand);
    assert_eq!(seen(&bare(&[("proc/swaps", "Filename\n")]), "swap"), (State::Ready, "none".into()));
    assert_eq!(writes(&bare(&[]), "thp"), ["`madvise` to sys/kernel/mm/transparent_hugepage/enabled"]);
    for (chosen, state) in [
        ("always [madvise] never", State::Ready),
        ("always madvise [never]", State::Ready),
        ("x", State::Unseen),
    ] {
        let files = bare(&[("sys/kernel/mm/transparent_hugepage/enabled", chosen)]);
        assert_eq!(seen(&files, "thp").0, state, "{chosen}");
    }
    for (level, state) in [("0", State::Ready), ("1", State::Tune), ("2", State::Tune)] {
        assert_eq!(seen(&bare(&[("proc/sys/kernel/randomize_va_space", level)]), "aslr").0, state);
    }
}

#[test]
fn time_is_judged_by_source_and_slack() {
    assert_eq!(seen(&bare(&[]), "clocksource"), (State::Ready, "tsc".into()));
    let folder = "sys/devices/system/clocksource/clocksource0";
    let current = format!("{folder}/current_clocksource");
    let available = format!("{folder}/available_clocksource");
    let slow = bare(&[(&current, "hpet\n")]);
    assert_eq!(writes(&slow, "clocksource"), [format!("`tsc` to {current}")]);
    let only = bare(&[(&current, "hpet\n"), (&available, "hpet acpi_pm\n")]);
    assert_eq!(seen(&only, "clocksource").0, State::Advice);
    assert_eq!(seen(&bare(&[]), "timer-slack"), (State::Advice, "50 µs".into()), "of this emu alone");
    assert_eq!(writes(&bare(&[]), "timer-slack"), ["timer slack of the command 1 ns"]);
    assert_eq!(seen(&bare(&[("proc/self/timerslack_ns", "1\n")]), "timer-slack").0, State::Ready);
    assert_eq!(seen(&bare(&[]), "rt-limit"), (State::Fact, "95% of each CPU".into()));
    assert_eq!(seen(&bare(&[("proc/sys/kernel/sched_rt_runtime_us", "-1\n")]), "rt-limit").1, "none");
}

#[test]
fn a_quota_on_us_is_found_in_every_layout() {
    assert_eq!(seen(&bare(&[]), "cgroup"), (State::Ready, "no quota".into()));
    let v2 = bare(&[
        ("sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/user.slice/cpu.stat", "nr_periods 9\nnr_throttled 7\nthrottled_usec 5\n"),
    ]);
    assert_eq!(seen(&v2, "cgroup"), (State::Hand, "1.5 CPUs, used up 7 times".into()));
    // Hybrid: the controller in a version-1 hierarchy beside the unified one.
    let quota = [
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
    ];
    assert_eq!(seen(&owned(&with(VM_V1, &quota)), "cgroup"), (State::Hand, "0.5 CPUs".into()));
    assert_eq!(seen(&owned(VM_V1), "cgroup").0, State::Ready);
    // Version 1 alone.
    let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
    let v1 = with(VM_V1, &[quota[0], quota[1], ("proc/self/mountinfo", mounts)]);
    assert_eq!(seen(&owned(&v1), "cgroup").0, State::Hand);
    let none = bare(&[("proc/self/mountinfo", "\n")]);
    assert_eq!(seen(&none, "cgroup").0, State::Unseen);
    let confined = bare(&[("proc/self/status", "Uid:\t0\t0\t0\t0\nCpus_allowed_list:\t1\n")]);
    assert_eq!(seen(&confined, "cgroup"), (State::Ready, "no quota; CPUs 1 of 0-1".into()));
}

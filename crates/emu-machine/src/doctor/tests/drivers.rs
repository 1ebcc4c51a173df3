//! What is found of the knobs of each frequency driver.

use super::trees::{ACPI, AMD, AMD_PASSIVE, ARM, INTEL_ACTIVE, INTEL_ACTIVE_NO_HWP, INTEL_PASSIVE, VM_V1};
use super::*;

#[test]
fn acpi_cpufreq_is_judged_by_governor_and_boost() {
    assert_eq!(seen(&acpi(), "driver"), (State::Fact, "acpi-cpufreq".into()));
    assert_eq!(seen(&acpi(), "governor"), (State::Tune, "ondemand on 0, schedutil on 1".into()));
    let governors = writes(&acpi(), "governor");
    assert_eq!(governors.len(), 2);
    assert_eq!(governors[0], "`performance` to sys/devices/system/cpu/cpufreq/policy0/scaling_governor");
    assert_eq!(writes(&acpi(), "turbo"), ["`0` to sys/devices/system/cpu/cpufreq/boost"]);
    assert_eq!(seen(&acpi(), "epp").0, State::Unseen);
}

#[test]
fn intel_pstate_active_is_judged_by_governor_and_preference() {
    let files = driven(INTEL_ACTIVE);
    assert_eq!(seen(&files, "driver"), (State::Fact, "intel_pstate, active mode".into()));
    assert_eq!(seen(&files, "governor"), (State::Tune, "performance on 1, powersave on 0".into()));
    assert_eq!(writes(&files, "governor").len(), 1);
    assert_eq!(seen(&files, "epp").1, "balance_performance on 0, performance on 1");
    assert_eq!(
        writes(&files, "epp"),
        ["`performance` to sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference"]
    );
    assert_eq!(writes(&files, "turbo"), ["`1` to sys/devices/system/cpu/intel_pstate/no_turbo"]);
}

#[test]
fn intel_pstate_active_without_hwp_is_judged_by_governor_alone() {
    let files = driven(INTEL_ACTIVE_NO_HWP);
    assert_eq!(seen(&files, "driver"), (State::Fact, "intel_pstate, active mode".into()));
    assert_eq!(seen(&files, "governor"), (State::Tune, "powersave".into()), "which follows the load");
    let paths = [0, 1].map(|cpu| format!("sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor"));
    assert_eq!(writes(&files, "governor"), paths.map(|path| format!("`performance` to {path}")));
    let why = "this driver, or this mode of it, takes no preference";
    assert_eq!(seen(&files, "epp"), (State::Unseen, why.into()));
    assert_eq!(seen(&files, "turbo"), (State::Tune, "on".into()));
    assert_eq!(writes(&files, "turbo"), ["`1` to sys/devices/system/cpu/intel_pstate/no_turbo"]);
}

#[test]
fn intel_pstate_passive_takes_the_common_governors() {
    let files = driven(INTEL_PASSIVE);
    assert_eq!(seen(&files, "driver"), (State::Fact, "intel_cpufreq, passive mode".into()));
    assert_eq!(seen(&files, "governor"), (State::Tune, "schedutil".into()));
    assert_eq!(seen(&files, "epp").0, State::Unseen);
    assert_eq!(seen(&files, "turbo"), (State::Ready, "off".into()));
}

#[test]
fn amd_pstate_has_a_boost_for_each_policy() {
    let files = driven(AMD);
    assert_eq!(seen(&files, "driver"), (State::Fact, "amd-pstate-epp, active mode".into()));
    assert_eq!(seen(&files, "turbo"), (State::Tune, "off on 1, on on 0".into()));
    assert_eq!(writes(&files, "turbo"), ["`0` to sys/devices/system/cpu/cpufreq/policy0/boost"]);
    assert_eq!(writes(&files, "epp").len(), 1);
}

#[test]
fn amd_pstate_passive_takes_the_common_governors() {
    let files = driven(AMD_PASSIVE);
    assert_eq!(seen(&files, "driver"), (State::Fact, "amd-pstate, passive mode".into()));
    assert_eq!(seen(&files, "governor"), (State::Tune, "powersave on 1, schedutil on 0".into()));
    assert_eq!(writes(&files, "governor").len(), 2);
    assert_eq!(seen(&files, "epp").0, State::Unseen);
    assert_eq!(seen(&files, "turbo"), (State::Tune, "on".into()));
    assert_eq!(writes(&files, "turbo"), ["`0` to sys/devices/system/cpu/cpufreq/boost"]);
}

#[test]
fn a_driver_of_arm_has_a_governor_and_no_turbo() {
    let files = driven(ARM);
    assert_eq!(seen(&files, "driver"), (State::Fact, "cpufreq-dt".into()));
    assert_eq!(seen(&files, "governor"), (State::Tune, "schedutil".into()));
    assert_eq!(
        writes(&files, "governor"),
        ["`performance` to sys/devices/system/cpu/cpufreq/policy0/scaling_governor"]
    );
    assert_eq!(seen(&files, "epp").0, State::Unseen);
    let why = "this driver has no switch for it; the firmware may have one";
    assert_eq!(seen(&files, "turbo"), (State::Unseen, why.into()));
}

#[test]
fn policies_of_other_cpus_do_not_count() {
    let other = driven(&[ACPI, &[("cpufreq/policy1/scaling_governor", "performance\n")]].concat());
    assert_eq!(quiet(&other, "0", "governor").found, "ondemand");
    assert_eq!(quiet(&other, "0-1", "governor").changes.len(), 1);
    let at_0 = [("governor", &other), ("epp", &intel_active()), ("turbo", &driven(AMD))];
    for (name, files) in at_0 {
        let finding = quiet(files, "0", name);
        assert_eq!((finding.state, finding.changes.len(), finding.hint), (State::Tune, 1, None), "{name}");
        let finding = quiet(files, "1", name);
        assert_eq!((finding.state, finding.changes.len()), (State::Ready, 0), "{name}");
    }
    assert_eq!(quiet(&acpi(), "1", "turbo").changes.len(), 1, "its switch is one for all");
    let none = driven(&[("cpufreq/policy0/related_cpus", "0\n"), ("cpufreq/policy0/scaling_driver", "x\n")]);
    assert_eq!(quiet(&none, "1", "governor").state, State::Unseen);
}

#[test]
fn a_change_that_reaches_other_cpus_says_so() {
    let preference = ("cpufreq/policy0/energy_performance_preference", "balance_power\n");
    let boost = ("cpufreq/policy0/boost", "1\n");
    let shared = driven(&[ARM, &[preference, boost]].concat());
    for name in ["governor", "epp", "turbo"] {
        let finding = quiet(&shared, "1", name);
        assert_eq!((finding.state, finding.changes.len()), (State::Tune, 1), "{name}");
        let hint = "CPUs 0 share a policy with CPUs 1, and change as well";
        assert_eq!(finding.hint.as_deref(), Some(hint), "{name}");
        assert_eq!(quiet(&shared, "0-1", name).hint, None, "{name}");
    }
    let idle = bare(&[]);
    assert_eq!(quiet(&idle, "0", "c-states").hint.as_deref(), Some("the limit holds for CPUs 1 as well"));
    assert_eq!(quiet(&idle, "0-1", "c-states").hint, None);
}

#[test]
fn a_frequency_that_is_held_by_hand_does_not_move() {
    let fixed = [
        ("cpufreq/policy0/scaling_governor", "userspace\n"),
        ("cpufreq/policy1/scaling_min_freq", "800000\n"),
        ("cpufreq/policy1/scaling_max_freq", "800000\n"),
    ];
    let files = driven(&[ACPI, &fixed].concat());
    let expected = "schedutil, held at 800.0 MHz on 1, userspace on 0";
    assert_eq!(seen(&files, "governor"), (State::Ready, expected.into()));
}

#[test]
fn without_a_performance_governor_it_is_to_be_loaded() {
    let files = driven(&[ACPI, &[("cpufreq/policy0/scaling_available_governors", "ondemand\n")]].concat());
    let (_dir, machine) = machine(&files);
    let finding = found(&machine, "governor");
    assert_eq!(finding.state, State::Hand);
    assert!(finding.hint.unwrap().contains("modprobe cpufreq_performance"));
}

#[test]
fn without_a_driver_or_in_a_guest_the_reason_is_told() {
    for name in ["driver", "epp", "governor", "turbo"] {
        let why = "the kernel has no frequency driver for this processor";
        assert_eq!(seen(&bare(&[]), name), (State::Unseen, why.into()));
        assert_eq!(seen(&owned(VM_V1), name), (State::Unseen, "kvm shows this guest no cpufreq".into()));
    }
}

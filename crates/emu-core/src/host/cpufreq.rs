//! What the host offers to control the CPU frequency, from `/sys/devices/system/cpu/cpufreq`.
//!
//! References: Documentation/admin-guide/pm/cpufreq.rst, `intel_pstate.rst`, `amd-pstate.rst`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::control_file::probe;
use crate::cpu_list::{CPU_ID_MAX, CpuId, CpuList};
use crate::roots::Roots;
use crate::speed::Hertz;

/// A policy: CPUs whose frequency is set together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Policy {
    /// Its folder, `.../cpufreq/policyN`.
    pub path: PathBuf,
    /// `related_cpus`: online and offline CPUs of the policy.
    pub cpus: CpuList,
    /// `freqdomain_cpus`: CPUs that share a clock in hardware, where the driver reports it.
    pub domain: Option<CpuList>,
    /// `scaling_driver`, e.g. `acpi-cpufreq`, `intel_pstate`, `amd-pstate-epp`.
    pub driver: String,
    /// `scaling_governor`; empty where the kernel does not report it.
    pub governor: String,
    /// `scaling_available_governors`.
    pub governors: Vec<String>,
    /// `scaling_available_frequencies`, ascending; empty where the driver has no table.
    pub frequencies: Vec<Hertz>,
    /// `cpuinfo_min_freq`.
    pub hardware_min: Option<Hertz>,
    /// `cpuinfo_max_freq`.
    pub hardware_max: Option<Hertz>,
    /// `scaling_min_freq`.
    pub min: Option<Hertz>,
    /// `scaling_max_freq`.
    pub max: Option<Hertz>,
    /// The highest frequency without turbo: `base_frequency`, else the nominal one of ACPI CPPC.
    pub base: Option<Hertz>,
    /// `bios_limit`: a cap set by the firmware.
    pub bios_limit: Option<Hertz>,
    /// `cpuinfo_transition_latency`; `None` for unknown (the kernel's `CPUFREQ_ETERNAL`).
    pub transition_latency: Option<Duration>,
    /// `boost` of the policy itself (newer kernels).
    pub boost: Option<bool>,
    /// `energy_performance_preference`.
    pub epp: Option<String>,
}

/// What the host offers to control the CPU frequency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Cpufreq {
    /// The policies by number.
    pub policies: Vec<Policy>,
    /// `cpufreq/boost`: whether turbo is allowed, for drivers with this switch.
    pub boost: Option<bool>,
    /// `intel_pstate/status`: `active`, `passive` or `off`.
    pub intel_pstate: Option<String>,
    /// `intel_pstate/no_turbo`.
    pub no_turbo: Option<bool>,
    /// `amd_pstate/status`: `active`, `passive`, `guided` or `disable`.
    pub amd_pstate: Option<String>,
}

impl Cpufreq {
    /// The policy that a CPU belongs to.
    pub fn policy_of(&self, cpu: CpuId) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.cpus.contains(cpu))
    }

    /// The CPUs whose clock moves when that of one of these is set: those of their policies, and those that the hardware
    /// coordinates with them.
    pub fn moved_with(&self, cpus: &CpuList) -> CpuList {
        let policies = cpus.iter().filter_map(|cpu| self.policy_of(cpu));
        let all = policies.flat_map(|policy| [&policy.cpus].into_iter().chain(&policy.domain));
        all.fold(cpus.clone(), |all, some| all.union(some))
    }
}

/// `None` where no CPU's frequency can be controlled.
pub(super) fn read(roots: &Roots) -> Option<Cpufreq> {
    let cpus = roots.cpus();
    let dir = cpus.join("cpufreq");
    let mut numbered: Vec<(CpuId, PathBuf)> = fs::read_dir(&dir)
        .ok()?
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.strip_prefix("policy")?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    numbered.sort();
    let policies: Vec<_> = numbered.into_iter().filter_map(|(_, path)| policy(roots, path)).collect();
    (!policies.is_empty()).then(|| Cpufreq {
        policies,
        boost: switch(&dir.join("boost")),
        intel_pstate: word(&cpus.join("intel_pstate/status")),
        no_turbo: switch(&cpus.join("intel_pstate/no_turbo")),
        amd_pstate: word(&cpus.join("amd_pstate/status")),
    })
}

/// Policies without CPUs or driver are left out, and so are those whose CPUs are all offline: the kernel answers `EBUSY` for
/// their files.
fn policy(roots: &Roots, path: PathBuf) -> Option<Policy> {
    let file = |name: &str| path.join(name);
    let frequency = |name: &str| probe::<u64>(&file(name)).and_then(khz);
    let cpus = cpus_of(&probe::<String>(&file("related_cpus"))?)?;
    let first = cpus.first()?;
    let driver = word(&file("scaling_driver"))?;
    let words = probe::<String>(&file("scaling_available_governors")).unwrap_or_default();
    Some(Policy {
        domain: probe::<String>(&file("freqdomain_cpus")).and_then(|text| cpus_of(&text)),
        governor: word(&file("scaling_governor")).unwrap_or_default(),
        governors: words.split_whitespace().map(str::to_owned).collect(),
        frequencies: frequencies(
            &probe::<String>(&file("scaling_available_frequencies")).unwrap_or_default(),
        ),
        hardware_min: frequency("cpuinfo_min_freq"),
        hardware_max: frequency("cpuinfo_max_freq"),
        min: frequency("scaling_min_freq"),
        max: frequency("scaling_max_freq"),
        base: frequency("base_frequency").or_else(|| cppc_nominal(roots, first)),
        bios_limit: frequency("bios_limit"),
        // CPUFREQ_ETERNAL is -1, printed as unsigned.
        transition_latency: probe::<u32>(&file("cpuinfo_transition_latency"))
            .filter(|&nanos| nanos != u32::MAX)
            .map(|nanos| Duration::from_nanos(nanos.into())),
        boost: switch(&file("boost")),
        epp: word(&file("energy_performance_preference")),
        cpus,
        driver,
        path,
    })
}

/// In `related_cpus` and similar files the CPUs are separated by spaces.
fn cpus_of(text: &str) -> Option<CpuList> {
    let cpus: Option<CpuList> =
        text.split_whitespace().map(|cpu| cpu.parse().ok().filter(|&cpu| cpu <= CPU_ID_MAX)).collect();
    cpus.filter(|cpus| !cpus.is_empty())
}

/// Sorted and without duplicates; the table may be in any order.
fn frequencies(text: &str) -> Vec<Hertz> {
    let table: BTreeSet<_> = text.split_whitespace().filter_map(|word| khz(word.parse().ok()?)).collect();
    table.into_iter().collect()
}

/// In the unit of cpufreq's files; 0 means unknown.
fn khz(khz: u64) -> Option<Hertz> {
    (khz > 0).then(|| Hertz::from_khz(khz))
}

fn word(path: &Path) -> Option<String> {
    probe::<String>(path).filter(|word| !word.is_empty())
}

fn switch(path: &Path) -> Option<bool> {
    match probe::<u8>(path)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// The highest sustained frequency of a CPU by ACPI CPPC, whose file is in MHz (Documentation/admin-guide/acpi/cppc_sysfs.rst).
pub(super) fn cppc_nominal(roots: &Roots, id: CpuId) -> Option<Hertz> {
    let mhz = probe::<u64>(&roots.cpus().join(format!("cpu{id}/acpi_cppc/nominal_freq")))?;
    // Firmware that does not know the frequency reports 0.
    (mhz > 0).then(|| Hertz::from_khz(mhz.saturating_mul(1_000)))
}

#[cfg(test)]
mod tests {
    use super::super::testing::tree;
    use super::*;

    /// A table of policies in the layout of Documentation/admin-guide/pm/cpufreq.rst, "Policy
    /// Interface in sysfs", with paths below the folder of CPUs.
    fn cpufreq(files: &[(&str, &str)]) -> Option<Cpufreq> {
        let paths: Vec<_> =
            files.iter().map(|(path, text)| (format!("sys/devices/system/cpu/{path}"), *text)).collect();
        let files: Vec<_> = paths.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let dir = tree(&files);
        read(&Roots::below(dir.path()))
    }

    fn mhz(mhz: u64) -> Hertz {
        Hertz(mhz * 1_000_000)
    }

    fn cpu_list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    #[test]
    fn acpi_cpufreq_has_a_table_and_hardware_domains() {
        // The P-states of tests/rig/pstates, which lists them as the ACPI specification, 8.4.5, has
        // it; freqdomain_cpus by Documentation/ABI/testing/sysfs-devices-system-cpu.
        let cpufreq = cpufreq(&[
            ("cpufreq/boost", "1\n"),
            ("cpufreq/policy0/related_cpus", "0\n"),
            ("cpufreq/policy0/affected_cpus", "0\n"),
            ("cpufreq/policy0/freqdomain_cpus", "0 1\n"),
            ("cpufreq/policy0/scaling_driver", "acpi-cpufreq\n"),
            ("cpufreq/policy0/scaling_governor", "ondemand\n"),
            ("cpufreq/policy0/scaling_available_governors", "conservative ondemand userspace performance \n"),
            (
                "cpufreq/policy0/scaling_available_frequencies",
                "2600000 2200000 1800000 1400000 1000000 800000 \n",
            ),
            ("cpufreq/policy0/scaling_setspeed", "<unsupported>\n"),
            ("cpufreq/policy0/scaling_min_freq", "800000\n"),
            ("cpufreq/policy0/scaling_max_freq", "2200000\n"),
            ("cpufreq/policy0/cpuinfo_min_freq", "800000\n"),
            ("cpufreq/policy0/cpuinfo_max_freq", "2600000\n"),
            ("cpufreq/policy0/cpuinfo_transition_latency", "10000\n"),
            ("cpufreq/policy0/bios_limit", "2200000\n"),
            ("cpufreq/policy1/related_cpus", "1\n"),
            ("cpufreq/policy1/scaling_driver", "acpi-cpufreq\n"),
        ])
        .unwrap();
        assert_eq!(cpufreq.boost, Some(true));
        assert_eq!(cpufreq.policies.len(), 2);
        let policy = cpufreq.policy_of(0).unwrap();
        assert_eq!(policy.frequencies, [800, 1000, 1400, 1800, 2200, 2600].map(mhz));
        assert_eq!(policy.domain, Some(cpu_list("0-1")));
        assert_eq!(policy.governor, "ondemand");
        assert_eq!(policy.governors, ["conservative", "ondemand", "userspace", "performance"]);
        assert_eq!((policy.min, policy.max), (Some(mhz(800)), Some(mhz(2200))));
        assert_eq!((policy.hardware_min, policy.hardware_max), (Some(mhz(800)), Some(mhz(2600))));
        assert_eq!(policy.bios_limit, Some(mhz(2200)));
        assert_eq!(policy.transition_latency, Some(Duration::from_micros(10)));
        assert_eq!((policy.base, policy.boost, policy.epp.as_deref()), (None, None, None));
    }

    #[test]
    fn intel_pstate_active_has_a_base_frequency_and_no_table() {
        // Documentation/admin-guide/pm/intel_pstate.rst: "User Space Interface in sysfs", "Energy
        // vs Performance Hints"; no boost file, one policy for each CPU. The frequencies are
        // examples.
        let cpufreq = cpufreq(&[
            ("intel_pstate/status", "active\n"),
            ("intel_pstate/no_turbo", "0\n"),
            ("cpufreq/policy0/related_cpus", "0\n"),
            ("cpufreq/policy0/scaling_driver", "intel_pstate\n"),
            ("cpufreq/policy0/scaling_governor", "powersave\n"),
            ("cpufreq/policy0/scaling_available_governors", "performance powersave\n"),
            ("cpufreq/policy0/cpuinfo_min_freq", "400000\n"),
            ("cpufreq/policy0/cpuinfo_max_freq", "4800000\n"),
            ("cpufreq/policy0/base_frequency", "2800000\n"),
            ("cpufreq/policy0/energy_performance_preference", "balance_performance\n"),
            ("cpufreq/policy0/cpuinfo_transition_latency", "4294967295\n"),
        ])
        .unwrap();
        assert_eq!(cpufreq.intel_pstate.as_deref(), Some("active"));
        assert_eq!((cpufreq.no_turbo, cpufreq.boost), (Some(false), None));
        let policy = &cpufreq.policies[0];
        assert_eq!(policy.governors, ["performance", "powersave"]);
        assert!(policy.frequencies.is_empty());
        assert_eq!(policy.base, Some(mhz(2800)));
        assert_eq!(policy.epp.as_deref(), Some("balance_performance"));
        assert_eq!(policy.transition_latency, None, "CPUFREQ_ETERNAL");
    }

    #[test]
    fn intel_pstate_passive_has_the_generic_governors() {
        // Documentation/admin-guide/pm/intel_pstate.rst, "Passive Mode".
        let cpufreq = cpufreq(&[
            ("intel_pstate/status", "passive\n"),
            ("intel_pstate/no_turbo", "1\n"),
            ("cpufreq/policy0/related_cpus", "0\n"),
            ("cpufreq/policy0/scaling_driver", "intel_cpufreq\n"),
            ("cpufreq/policy0/scaling_governor", "schedutil\n"),
            ("cpufreq/policy0/scaling_available_governors", "userspace performance schedutil\n"),
            ("cpufreq/policy0/cpuinfo_transition_latency", "20000\n"),
        ])
        .unwrap();
        assert_eq!(cpufreq.no_turbo, Some(true));
        let policy = &cpufreq.policies[0];
        assert_eq!(policy.driver, "intel_cpufreq");
        assert!(policy.governors.iter().any(|governor| governor == "userspace"));
        assert_eq!((policy.base, policy.epp.as_deref()), (None, None), "without HWP");
    }

    #[test]
    fn amd_pstate_active_is_known_by_status_and_driver_name() {
        // Documentation/admin-guide/pm/amd-pstate.rst: "Active Mode"; the frequencies of its
        // cpupower example.
        let cpufreq = cpufreq(&[
            ("amd_pstate/status", "active\n"),
            ("cpu0/acpi_cppc/nominal_freq", "3300\n"),
            ("cpufreq/boost", "1\n"),
            ("cpufreq/policy0/related_cpus", "0\n"),
            ("cpufreq/policy0/scaling_driver", "amd-pstate-epp\n"),
            ("cpufreq/policy0/scaling_governor", "powersave\n"),
            ("cpufreq/policy0/scaling_available_governors", "performance powersave\n"),
            ("cpufreq/policy0/cpuinfo_min_freq", "400000\n"),
            ("cpufreq/policy0/cpuinfo_max_freq", "4680000\n"),
            ("cpufreq/policy0/amd_pstate_lowest_nonlinear_freq", "1100000\n"),
            ("cpufreq/policy0/amd_pstate_max_freq", "4680000\n"),
            ("cpufreq/policy0/energy_performance_preference", "performance\n"),
            ("cpufreq/policy0/boost", "0\n"),
        ])
        .unwrap();
        assert_eq!(cpufreq.amd_pstate.as_deref(), Some("active"));
        assert_eq!(cpufreq.boost, Some(true));
        let policy = &cpufreq.policies[0];
        assert_eq!(policy.driver, "amd-pstate-epp");
        assert_eq!(policy.base, Some(mhz(3300)), "the nominal clock of ACPI CPPC");
        assert_eq!((policy.boost, policy.epp.as_deref()), (Some(false), Some("performance")));
    }

    #[test]
    fn amd_pstate_guided_has_the_generic_governors() {
        // Documentation/admin-guide/pm/amd-pstate.rst: "Guided Mode", and its cpupower example.
        let cpufreq = cpufreq(&[
            ("amd_pstate/status", "guided\n"),
            ("cpufreq/policy0/related_cpus", "0\n"),
            ("cpufreq/policy0/scaling_driver", "amd-pstate\n"),
            ("cpufreq/policy0/scaling_governor", "schedutil\n"),
            (
                "cpufreq/policy0/scaling_available_governors",
                "ondemand conservative powersave userspace performance schedutil\n",
            ),
            ("cpufreq/policy0/cpuinfo_transition_latency", "131000\n"),
        ])
        .unwrap();
        assert_eq!(cpufreq.amd_pstate.as_deref(), Some("guided"));
        let policy = &cpufreq.policies[0];
        assert_eq!((policy.driver.as_str(), policy.governors.len()), ("amd-pstate", 6));
        assert_eq!(policy.transition_latency, Some(Duration::from_micros(131)));
    }

    #[test]
    fn cppc_cpufreq_takes_its_base_from_acpi() {
        // Documentation/admin-guide/acpi/cppc_sysfs.rst; the frequencies are examples.
        let cpufreq = cpufreq(&[
            ("cpu4/acpi_cppc/nominal_freq", "2600\n"),
            ("cpufreq/policy4/related_cpus", "4 5\n"),
            ("cpufreq/policy4/scaling_driver", "cppc_cpufreq\n"),
            ("cpufreq/policy4/scaling_governor", "userspace\n"),
            ("cpufreq/policy4/cpuinfo_max_freq", "3000000\n"),
        ])
        .unwrap();
        let policy = cpufreq.policy_of(5).unwrap();
        assert_eq!(policy.cpus, cpu_list("4-5"));
        assert_eq!(policy.base, Some(mhz(2600)));
        assert!(cpufreq.policy_of(0).is_none());
    }

    #[test]
    fn clusters_of_big_and_little_cores_are_two_policies() {
        // Documentation/devicetree/bindings/cpu/cpu-capacity.txt, example 1: two big and four
        // little cores of at most 1100 and 850 MHz. The lower frequencies are examples.
        let cpufreq = cpufreq(&[
            ("cpufreq/policy2/related_cpus", "2 3 4 5\n"),
            ("cpufreq/policy2/scaling_driver", "cpufreq-dt\n"),
            ("cpufreq/policy2/scaling_available_frequencies", "450000 700000 850000 \n"),
            ("cpufreq/policy0/related_cpus", "0 1\n"),
            ("cpufreq/policy0/scaling_driver", "cpufreq-dt\n"),
            ("cpufreq/policy0/scaling_available_frequencies", "450000 800000 1100000 \n"),
        ])
        .unwrap();
        let cpus: Vec<_> = cpufreq.policies.iter().map(|policy| policy.cpus.to_string()).collect();
        assert_eq!(cpus, ["0-1", "2-5"]);
        assert_eq!(cpufreq.policy_of(0).unwrap().frequencies.last(), Some(&mhz(1100)));
        assert_eq!(cpufreq.policy_of(4).unwrap().frequencies.last(), Some(&mhz(850)));
    }

    #[test]
    fn a_vm_without_policies_has_no_cpufreq() {
        assert_eq!(cpufreq(&[]), None);
        // The folder exists on every kernel that is built with cpufreq.
        assert_eq!(cpufreq(&[("cpufreq/boost", "1\n")]), None);
    }

    #[test]
    fn policies_are_in_the_order_of_their_numbers() {
        let names = ["10", "2", "0"].map(|number| format!("cpufreq/policy{number}"));
        let files: Vec<_> = names
            .iter()
            .flat_map(|name| {
                [(format!("{name}/related_cpus"), "0\n"), (format!("{name}/scaling_driver"), "x\n")]
            })
            .collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let policies = cpufreq(&files).unwrap().policies;
        let order: Vec<_> =
            policies.iter().map(|policy| policy.path.file_name().unwrap().to_owned()).collect();
        assert_eq!(order, ["policy0", "policy2", "policy10"]);
    }

    #[test]
    fn a_policy_without_cpus_or_driver_is_left_out() {
        let strange = [("", "x"), ("junk", "x"), ("99999", "x"), ("0 1x", "x"), ("0", ""), ("0-1", "x")];
        for (cpus, driver) in strange {
            let files = [
                ("cpufreq/policy0/related_cpus", cpus),
                ("cpufreq/policy0/scaling_driver", driver),
                ("cpufreq/policyX/related_cpus", "0"),
            ];
            assert_eq!(cpufreq(&files), None, "{cpus} {driver}");
        }
    }

    #[test]
    fn strange_values_are_left_out() {
        let cpufreq = cpufreq(&[
            ("cpufreq/boost", "2\n"),
            ("cpufreq/policy0/related_cpus", "0\n"),
            ("cpufreq/policy0/scaling_driver", "x\n"),
            ("cpufreq/policy0/scaling_available_frequencies", "0 800000 junk 800000 -1\n"),
            ("cpufreq/policy0/cpuinfo_min_freq", "0\n"),
            ("cpufreq/policy0/cpuinfo_max_freq", "<unknown>\n"),
            ("cpufreq/policy0/cpuinfo_transition_latency", "-1\n"),
        ])
        .unwrap();
        let policy = &cpufreq.policies[0];
        assert_eq!(policy.frequencies, [mhz(800)]);
        assert_eq!((cpufreq.boost, policy.hardware_min, policy.hardware_max), (None, None, None));
        assert_eq!((policy.transition_latency, policy.governor.as_str()), (None, ""));
    }
}

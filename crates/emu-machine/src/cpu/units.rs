//! How many vectors of doubles a CPU multiplies and adds in one cycle.

use std::collections::BTreeSet;
use std::fs;

use emu_core::{CpuId, CpuList, Host, Roots};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The units of a CPU, and how they are known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Units {
    /// Vectors of the instruction set used that are multiplied and added in one cycle.
    pub count: u32,
    /// Whether the CPU's model tells; else the count follows from what was measured, and the share of the peak says
    /// only how near to a whole number that is.
    pub documented: bool,
    /// What is documented of the CPU's model where it cannot be: more was measured. A hypervisor may name a model that the
    /// CPU is not, and parts of one model differ.
    pub refuted: Option<u32>,
}

/// How much more than a number of units may be measured of them, as the clock moves between its readings: a share.
const SLACK: f64 = 0.02;

impl Units {
    pub(super) fn of(roots: &Roots, lanes: usize, measured: f64) -> Self {
        let text = fs::read_to_string(roots.proc.join("cpuinfo")).unwrap_or_default();
        match documented(&text, lanes) {
            Some(count) if measured <= f64::from(count) * (1.0 + SLACK) => {
                Self { count, documented: true, refuted: None }
            }
            refuted => Self { refuted, ..Self::measured(measured) },
        }
    }

    /// By what was measured: as few as can make so many vectors in one cycle.
    pub(super) fn measured(vectors: f64) -> Self {
        Self { count: ((vectors / (1.0 + SLACK)).ceil() as u32).max(1), documented: false, refuted: None }
    }
}

/// The small cores of a hybrid have the model number of the large ones, but units of their own. They show as a device
/// `cpu_atom`, which lists them (tools/perf/Documentation/intel-hybrid.txt), or by their highest clock (`cpuinfo_max_freq`).
pub(super) fn are_alike(host: &Host, cpus: &CpuList) -> bool {
    let highest = |cpu: CpuId| host.cpufreq.as_ref()?.policy_of(cpu)?.hardware_max;
    let clocks: BTreeSet<_> = cpus.iter().filter_map(highest).collect();
    let device = host.roots.sys.join("devices/cpu_atom");
    let listed = || fs::read_to_string(device.join("cpus")).ok()?.parse::<CpuList>().ok();
    let has_small = device.exists() && listed().is_none_or(|small| !small.intersection(cpus).is_empty());
    clocks.len() <= 1 && !has_small
}

const INTEL: &str = "GenuineIntel";
const AMD: &str = "AuthenticAMD";

/// What `/proc/cpuinfo` tells of the first CPU under this name.
pub(crate) fn fact<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find_map(|(key, fact)| (key.trim() == name).then(|| fact.trim()))
}

/// By the Intel 64 and IA-32 Architectures Optimization Reference Manual; AMD's Software Optimization Guides of families 17h
/// and 19h; A. Fog, *The microarchitecture of Intel, AMD and VIA CPUs*.
#[expect(clippy::match_same_arms, reason = "each kind of CPU has a line")]
fn documented(cpuinfo: &str, lanes: usize) -> Option<u32> {
    let vendor = fact(cpuinfo, "vendor_id")?;
    let family: u32 = fact(cpuinfo, "cpu family")?.parse().ok()?;
    let model: u32 = fact(cpuinfo, "model")?.parse().ok()?;
    // Of 512 bits there are none, or the model does not tell, where this is `None`.
    let (of_256, of_512) = match (vendor, family, model) {
        // Haswell, Broadwell, Skylake to Comet Lake, Alder and Raptor Lake.
        (INTEL, 6, 60 | 61 | 63 | 69..=71 | 78 | 79 | 86 | 94 | 142 | 151 | 154 | 158) => (2, None),
        (INTEL, 6, 165 | 166 | 183 | 186 | 191) => (2, None),
        // Skylake and Cascade Lake servers: some have one unit of 512 bits, some have two.
        (INTEL, 6, 85) => (2, None),
        // Ice Lake, Sapphire Rapids, Granite Rapids and Emerald Rapids servers.
        (INTEL, 6, 106 | 108 | 143 | 173 | 174 | 207) => (2, Some(2)),
        // Ice Lake, Tiger Lake and Rocket Lake clients: both units are joined for 512 bits.
        (INTEL, 6, 125 | 126 | 140 | 141 | 167) => (2, Some(1)),
        // Zen and Zen+ have units of 128 bits.
        (AMD, 0x17, 0x00..=0x2f) => (1, None),
        // Zen 2.
        (AMD, 0x17, 0x30..=0xff) => (2, None),
        // Zen 3.
        (AMD, 0x19, 0x00..=0x0f | 0x20..=0x5f) => (2, None),
        // Zen 4 takes two cycles for 512 bits.
        (AMD, 0x19, 0x10..=0x1f | 0x60..=0x7f | 0xa0..=0xaf) => (2, Some(1)),
        _ => return None,
    };
    match lanes {
        4 => Some(of_256),
        8 => of_512,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpuinfo(vendor: &str, family: u32, model: u32) -> String {
        format!(
            "processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: X 3\n\n"
        )
    }

    #[test]
    fn models_have_the_units_that_are_documented() {
        for (vendor, family, model, lanes, units) in [
            ("GenuineIntel", 6, 207, 8, Some(2)),
            ("GenuineIntel", 6, 60, 4, Some(2)),
            ("GenuineIntel", 6, 140, 8, Some(1)),
            ("GenuineIntel", 6, 85, 8, None),
            ("GenuineIntel", 6, 85, 4, Some(2)),
            ("AuthenticAMD", 0x19, 0x11, 8, Some(1)),
            ("AuthenticAMD", 0x17, 1, 4, Some(1)),
            ("AuthenticAMD", 0x1a, 2, 8, None),
            ("GenuineIntel", 6, 207, 1, None),
            ("Other", 6, 207, 8, None),
        ] {
            assert_eq!(
                documented(&cpuinfo(vendor, family, model), lanes),
                units,
                "{vendor} {family} {model}"
            );
        }
        assert_eq!(documented("", 8), None);
        assert_eq!(documented("processor : 0\nCPU part : 0xd0c\n", 2), None);
    }

    /// A host of four CPUs with these files besides, in a folder that is to be kept.
    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        let cpus = [
            ("proc/self/status", ""),
            ("sys/devices/system/cpu/present", "0-3"),
            ("sys/devices/system/cpu/online", "0-3"),
        ];
        for (path, text) in cpus.iter().chain(files) {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let host = Host::detect(&Roots::below(dir.path())).unwrap();
        (dir, host)
    }

    fn alike(host: &Host, cpus: &str) -> bool {
        are_alike(host, &cpus.parse().unwrap())
    }

    #[test]
    fn cpus_of_which_nothing_is_told_are_alike() {
        assert!(alike(&host(&[]).1, "0-3"));
    }

    #[test]
    fn cpus_with_other_highest_clocks_are_not_alike() {
        let (_dir, host) = host(&[
            ("sys/devices/system/cpu/cpufreq/policy0/related_cpus", "0 1"),
            ("sys/devices/system/cpu/cpufreq/policy0/scaling_driver", "intel_pstate"),
            ("sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq", "5100000"),
            ("sys/devices/system/cpu/cpufreq/policy2/related_cpus", "2 3"),
            ("sys/devices/system/cpu/cpufreq/policy2/scaling_driver", "intel_pstate"),
            ("sys/devices/system/cpu/cpufreq/policy2/cpuinfo_max_freq", "3900000"),
        ]);
        assert!(alike(&host, "0-1") && alike(&host, "2,3"));
        assert!(!alike(&host, "0-3") && !alike(&host, "1-2"));
    }

    #[test]
    fn small_cores_are_not_what_the_model_names() {
        let (_dir, large_and_small) = host(&[("sys/devices/cpu_atom/cpus", "2-3\n")]);
        assert!(alike(&large_and_small, "0-1"));
        assert!(!alike(&large_and_small, "0-3") && !alike(&large_and_small, "2-3"));
        let (_dir, untold) = host(&[("sys/devices/cpu_atom/type", "10\n")]);
        assert!(!alike(&untold, "0-1"), "nobody tells which they are");
    }

    #[test]
    fn what_is_not_documented_follows_from_what_was_measured() {
        let nowhere = tempfile::tempdir().unwrap();
        let units = |measured| Units::of(&Roots::below(nowhere.path()), 8, measured);
        assert_eq!(units(1.93), Units { count: 2, documented: false, refuted: None });
        for (measured, count) in [(0.1, 1), (1.01, 1), (1.3, 2), (2.02, 2), (2.03, 2), (2.1, 3)] {
            assert_eq!(units(measured).count, count, "{measured}");
            assert!(measured / f64::from(count) <= 1.02);
        }
    }

    #[test]
    fn a_model_that_makes_more_than_it_could_is_not_believed() {
        let (_dir, host) = host(&[("proc/cpuinfo", &cpuinfo("AuthenticAMD", 0x19, 0x11))]);
        let units = |measured| Units::of(&host.roots, 8, measured);
        assert_eq!(units(0.97), Units { count: 1, documented: true, refuted: None });
        assert_eq!(units(1.82), Units { count: 2, documented: false, refuted: Some(1) });
    }
}

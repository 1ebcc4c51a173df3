//! What a speed cannot change of a machine: its caches, memory and instructions.

use std::fs;

use emu_bench::memory::{Cache, caches, of_host};
use emu_bench::numbers::{rounded_size, size};
use emu_core::Host;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cpu::fact;

/// Extensions for which libraries have code of their own, in the words of `/proc/cpuinfo`.
const EXTENSIONS: &[&str] = &[
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "avx512f",
    "avx512_vnni",
    "amx_tile",
    "aes",
    "vaes",
    "sha_ni",
    "asimd",
    "asimddp",
    "sve",
    "sve2",
    "sha2",
    "v",
];

/// Memory of two machines that differs by less is alike: firmware keeps a part of it.
const ALIKE: f64 = 0.1;

/// What a machine is built of, as far as the kernel tells.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Build {
    /// The caches for data of its first CPU.
    pub caches: Vec<Cache>,
    /// All its memory in bytes; null where it is not told.
    pub memory_bytes: Option<u64>,
    /// The extensions of its instructions for which libraries have code of their own.
    pub extensions: Vec<String>,
}

impl Build {
    /// That of a host.
    pub fn of(host: &Host) -> Self {
        let cpuinfo = fs::read_to_string(host.roots.proc.join("cpuinfo")).unwrap_or_default();
        let flags = fact(&cpuinfo, "flags").or_else(|| fact(&cpuinfo, "Features")).unwrap_or_default();
        let known = EXTENSIONS.iter().filter(|known| flags.split_whitespace().any(|flag| flag == **known));
        Self {
            caches: host.allowed.first().map(|cpu| caches(&host.roots, cpu)).unwrap_or_default(),
            memory_bytes: of_host(&host.roots, "MemTotal"),
            extensions: known.map(|known| (*known).to_owned()).collect(),
        }
    }

    /// In words what this machine has otherwise than `here`; what one of them does not tell is left out.
    pub fn differences(&self, here: &Self) -> Vec<String> {
        let sizes = |build: &Self| {
            let sizes: Vec<_> = build.caches.iter().map(|cache| size(cache.bytes)).collect();
            sizes.join(", ")
        };
        let mut differences = Vec::new();
        let tell = !self.caches.is_empty() && !here.caches.is_empty();
        if tell && sizes(self) != sizes(here) {
            differences.push(format!("caches of {} there, {} here", sizes(self), sizes(here)));
        }
        if let (Some(there), Some(here)) = (self.memory_bytes, here.memory_bytes)
            && (there as f64 / here as f64 - 1.0).abs() > ALIKE
        {
            differences.push(format!("{} of memory there, {} here", rounded_size(there), rounded_size(here)));
        }
        let only = |one: &Self, other: &Self| {
            let only = one.extensions.iter().filter(|name| !other.extensions.contains(name));
            only.cloned().collect::<Vec<_>>().join(", ")
        };
        if !self.extensions.is_empty() && !here.extensions.is_empty() {
            for (which, only) in [("only here", only(here, self)), ("only there", only(self, here))] {
                differences.extend((!only.is_empty()).then(|| format!("instructions {which}: {only}")));
            }
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_told_in_words_and_what_is_unknown_is_not() {
        let cache = |level, bytes| Cache { level, bytes, shared: "0".into() };
        let build = |last: u64, memory: u64, extensions: &[&str]| Build {
            caches: vec![cache(1, 32 << 10), cache(2, last)],
            memory_bytes: Some(memory),
            extensions: extensions.iter().map(|name| (*name).to_owned()).collect(),
        };
        let small = build(1 << 20, 4 << 30, &["asimd"]);
        let large = build(8 << 20, 16 << 30, &["avx2", "fma"]);
        assert_eq!(
            small.differences(&large),
            [
                "caches of 32 KiB, 1 MiB there, 32 KiB, 8 MiB here",
                "4 GiB of memory there, 16 GiB here",
                "instructions only here: avx2, fma",
                "instructions only there: asimd",
            ]
        );
        for other in [small.clone(), Build::default(), build(1 << 20, (4 << 30) + (100 << 20), &["asimd"])] {
            assert_eq!(small.differences(&other), Vec::<String>::new());
        }
    }

    #[test]
    fn this_host_tells_something_and_differs_from_itself_in_nothing() {
        let host = Host::detect(&emu_core::Roots::system()).unwrap();
        let build = Build::of(&host);
        assert!(build.memory_bytes.is_some());
        assert!(build.differences(&build).is_empty());
    }
}

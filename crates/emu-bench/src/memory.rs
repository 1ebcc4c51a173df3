//! What the host says of its caches and of the memory that may be used.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::path::Path;

use rustix::param::page_size;

use emu_core::{Controller, CpuId, CpuList, Error, Host, Result, Roots};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::numbers::parsed_size;

/// How many times the sum of last-level caches each array of STREAM must be at least.
const CACHES: u64 = 4;

/// Bytes of each array where the caches are not known.
const UNKNOWN: u64 = 256 << 20;

/// Bytes of each array for a first look, whatever the caches.
const QUICK: u64 = 128 << 20;

/// The shortest array that makes sense.
const SHORTEST: u64 = 1 << 20;

/// How long the arrays of STREAM are to be, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamSize {
    /// Bytes of each of the three arrays.
    pub array_bytes: u64,
    /// Sum of the last-level caches of the CPUs used, in bytes; `None` where the host does not tell.
    pub cache_bytes: Option<u64>,
    /// Memory that may be used, in bytes; `None` where the host does not tell.
    pub available_bytes: Option<u64>,
}

impl StreamSize {
    /// The size for these CPUs: four times the sum of their last-level caches, or as much as memory allows; an error where
    /// that is less than makes sense.
    pub fn of(host: &Host, cpus: &CpuList) -> Result<Self> {
        let size = Self {
            array_bytes: 0,
            cache_bytes: last_level_caches(&host.roots, cpus),
            available_bytes: available(host),
        };
        let wanted = size.cache_bytes.map_or(UNKNOWN, |caches| caches * CACHES);
        let limit = size.limit();
        if limit < SHORTEST {
            let (all, shortest) = (size.available_bytes.unwrap_or(0) >> 10, SHORTEST >> 10);
            return Err(Error::unavailable(format!(
                "no memory for the shortest arrays: of {all} KiB that are available emu takes half, and three of {shortest} KiB \
                 do not fit"
            ))
            .hint("free memory, or raise the limit: ulimit -v, ulimit -d, or that of the cgroup"));
        }
        Ok(Self { array_bytes: wanted.min(limit), ..size })
    }

    fn limit(&self) -> u64 {
        may_take(self.available_bytes) / 3
    }

    /// No longer than for a first look, if this is one.
    #[must_use]
    pub fn quick(self, is_quick: bool) -> Self {
        let most = if is_quick { QUICK } else { u64::MAX };
        Self { array_bytes: self.array_bytes.min(most), ..self }
    }

    /// Arrays of this length for these CPUs; an error where three do not fit the memory that may be used.
    pub fn given(host: &Host, cpus: &CpuList, array_bytes: u64) -> Result<Self> {
        let cache_bytes = last_level_caches(&host.roots, cpus);
        let size = Self { array_bytes, cache_bytes, available_bytes: available(host) };
        let limit = size.limit();
        if array_bytes > limit {
            let (one, all) = (array_bytes >> 20, size.available_bytes.unwrap_or(0) >> 20);
            return Err(Error::unavailable(format!(
                "three arrays of {one} MiB do not fit: of {all} MiB of memory that are available emu takes half"
            ))
            .hint(format!("take at most --size {}MiB", limit >> 20)));
        }
        if array_bytes < SHORTEST {
            return Err(Error::usage(format!("arrays of {array_bytes} bytes are too short to be measured"))
                .hint("take at least --size 1MiB"));
        }
        Ok(size)
    }

    /// Whether rates of other arrays may be compared with those of these: of the same length, or by STREAM's rule as well.
    pub fn is_alike(&self, array_bytes: u64) -> bool {
        self.array_bytes == array_bytes || (self.obeys_rule() && Self { array_bytes, ..*self }.obeys_rule())
    }

    /// Whether the arrays are as long as STREAM's rule demands; what is measured is memory only then.
    pub fn obeys_rule(&self) -> bool {
        self.cache_bytes.is_some_and(|caches| self.array_bytes >= caches * CACHES)
    }
}

/// The sum of the last-level caches that the CPUs use, each counted once, in bytes; `None` where the host does not
/// tell of any (Documentation/ABI/testing/sysfs-devices-system-cpu, `cache/index*`).
pub fn last_level_caches(roots: &Roots, cpus: &CpuList) -> Option<u64> {
    let last = cpus.iter().filter_map(|cpu| caches(roots, cpu).pop());
    let caches: BTreeSet<_> = last.map(|cache| (cache.shared, cache.bytes)).collect();
    let sum = caches.iter().map(|(_, bytes)| bytes).sum();
    (!caches.is_empty()).then_some(sum)
}

/// A cache for data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cache {
    /// 1 is the nearest to the CPU.
    pub level: u32,
    /// Its size in bytes.
    pub bytes: u64,
    /// The CPUs that share it, as the kernel writes them.
    pub shared: String,
}

/// The caches for data that a CPU uses, from the nearest on; none where the host does not tell.
pub fn caches(roots: &Roots, cpu: CpuId) -> Vec<Cache> {
    let folder = roots.cpus().join(format!("cpu{cpu}/cache"));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let cache = |entry: DirEntry| {
        let fact = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
        let shared = fact("shared_cpu_list").unwrap_or_else(|| cpu.to_string()).trim().to_owned();
        let level = fact("level")?.trim().parse().ok()?;
        let is_for_data = fact("type")?.trim() != "Instruction";
        is_for_data.then_some(Cache { level, bytes: parsed_size(&fact("size")?)?, shared })
    };
    let mut caches: Vec<_> = entries.filter_map(cache).collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

/// Memory that this process may still use without swapping, in bytes: the least of what the host has available
/// (`MemAvailable` of `proc_meminfo(5)`), what the limits of our cgroup and those above it leave, and what the limits of
/// a process (`getrlimit(2)`) leave beside a thread on each CPU that may be used.
pub fn available(host: &Host) -> Option<u64> {
    let groups = host.cgroups.with(Controller::Memory).into_iter().flat_map(|hierarchy| {
        let (limits, used): (&[&str], _) = match hierarchy.version {
            2 => (&["memory.max", "memory.high"], "memory.current"),
            _ => (&["memory.limit_in_bytes"], "memory.usage_in_bytes"),
        };
        hierarchy.lineage().filter_map(move |group| left(group, limits, used))
    });
    let threads = host.allowed.len() as u64;
    groups.chain(of_host(&host.roots, "MemAvailable")).chain(of_process(&host.roots, threads)).min()
}

/// What a measurement may take of so many bytes that are [available]: half, as others want some as well. All where that is
/// not known.
pub fn may_take(available: Option<u64>) -> u64 {
    available.map_or(u64::MAX, |bytes| bytes / 2)
}

/// The stack of a thread of Rust's standard library.
const STACK: u64 = 2 << 20;

/// What the C library reserves for the allocations of a thread; a thread may take it before its arrays.
const ARENA: u64 = if cfg!(target_env = "gnu") { 64 << 20 } else { 0 };

/// A limit of memory: its name in `/proc/self/limits`, the column of `/proc/self/statm` that counts what it is of, and
/// what a thread takes of it.
const LIMITS: [(&str, usize, u64); 2] =
    [("Max address space", 0, STACK + ARENA), ("Max data size", 5, STACK)];

/// What the limits of this process leave beside so many threads; nothing without a limit.
fn of_process(roots: &Roots, threads: u64) -> impl Iterator<Item = u64> {
    let file = |name: &str| fs::read_to_string(roots.proc.join("self").join(name)).unwrap_or_default();
    let (limits, mapped) = (file("limits"), file("statm"));
    LIMITS.into_iter().filter_map(move |(name, column, of_thread)| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        let limit = line.split_ascii_whitespace().next()?.parse::<u64>().ok()?;
        let pages = mapped.split_ascii_whitespace().nth(column)?.parse::<u64>().ok()?;
        Some(limit.saturating_sub(pages.saturating_mul(page_size() as u64) + threads * of_thread))
    })
}

/// What the limits of a group leave. Pages of files that it uses as well are given up when memory is wanted
/// (Documentation/admin-guide/cgroup-v2.rst, "memory.stat"; in version 1, `total_` has those of the groups below, too).
fn left(group: &Path, limits: &[&str], used: &str) -> Option<u64> {
    let text = |name: &str| fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| text(name)?.trim().parse::<u64>().ok();
    let stat = text("memory.stat").unwrap_or_default();
    let counted =
        |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let of_files = ["inactive_file ", "active_file "]
        .map(|name| counted(&format!("total_{name}")).or_else(|| counted(name)).unwrap_or(0));
    let taken = number(used).unwrap_or(0).saturating_sub(of_files.iter().sum());
    Some(limits.iter().filter_map(|name| number(name)).min()?.saturating_sub(taken))
}

/// A figure of the host's memory in bytes, by its name in `proc_meminfo(5)`; `None` where it is not told.
pub fn of_host(roots: &Roots, name: &str) -> Option<u64> {
    let text = fs::read_to_string(roots.proc.join("meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    /// A host with two sockets of two CPUs, each with a cache of its own, and 1 GB available.
    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: String, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for cpu in 0..4 {
            let shared = if cpu < 2 { "0-1" } else { "2-3" };
            let facts = [
                ("Data", "1", "32K", cpu.to_string()),
                ("Instruction", "1", "64M", cpu.to_string()),
                ("Unified", "2", "1024K", cpu.to_string()),
                ("Unified", "3", "16M", shared.to_owned()),
            ];
            for (index, (kind, level, size, shared)) in facts.into_iter().enumerate() {
                let folder = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
                write(format!("{folder}/type"), &format!("{kind}\n"));
                write(format!("{folder}/level"), &format!("{level}\n"));
                write(format!("{folder}/size"), &format!("{size}\n"));
                write(format!("{folder}/shared_cpu_list"), &format!("{shared}\n"));
            }
        }
        write("proc/meminfo".into(), "MemTotal:  2097152 kB\nMemAvailable:  1048576 kB\n");
        dir
    }

    fn host(dir: &tempfile::TempDir) -> Host {
        let mut host = Host::detect(&Roots::system()).unwrap();
        host.roots = Roots::below(dir.path());
        host.cgroups.hierarchies.clear();
        host
    }

    #[test]
    fn every_last_level_cache_counts_once() {
        let dir = tree();
        let roots = Roots::below(dir.path());
        for (cpus, caches) in [("0", 16), ("0-1", 16), ("1-2", 32), ("0-3", 32)] {
            assert_eq!(last_level_caches(&roots, &cpus.parse().unwrap()), Some(caches * MB), "{cpus}");
        }
        assert_eq!(last_level_caches(&roots, &"9".parse().unwrap()), None);
    }

    #[test]
    fn caches_for_data_are_listed_from_the_nearest_on() {
        let dir = tree();
        let caches = caches(&Roots::below(dir.path()), 3);
        let sizes: Vec<_> =
            caches.iter().map(|cache| (cache.level, cache.bytes, cache.shared.as_str())).collect();
        assert_eq!(sizes, [(1, 32 << 10, "3"), (2, MB, "3"), (3, 16 * MB, "2-3")]);
    }

    #[test]
    fn arrays_are_four_times_the_caches_or_what_memory_allows() {
        let dir = tree();
        let mut host = host(&dir);
        let size = StreamSize::of(&host, &"0-3".parse().unwrap()).unwrap();
        assert_eq!((size.array_bytes, size.available_bytes), (128 * MB, Some(1024 * MB)));
        let long = StreamSize { array_bytes: 1024 * MB, ..size };
        assert_eq!([true, false].map(|quick| long.quick(quick).array_bytes), [128 * MB, 1024 * MB]);
        assert!(size.obeys_rule() && size.is_alike(200 * MB) && !size.is_alike(100 * MB));

        let limited = |limit: &str, used: &str| {
            let group = dir.path().join("group");
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join("memory.max"), limit).unwrap();
            fs::write(group.join("memory.current"), used).unwrap();
            left(&group, &["memory.max", "memory.high"], "memory.current")
        };
        assert_eq!(limited("max\n", "5\n"), None);
        assert_eq!(limited("1000\n", "400\n"), Some(600));
        assert_eq!(limited("1000\n", "4000\n"), Some(0));
        let write = |name: &str, text: &str| fs::write(dir.path().join("group").join(name), text).unwrap();
        write("memory.stat", "inactive_file 90\nactive_file 10\nslab 7\n");
        assert_eq!((limited("1000\n", "400\n"), limited("1000\n", "50\n")), (Some(700), Some(1000)));
        write("memory.stat", "inactive_file 1\ntotal_inactive_file 250\ntotal_active_file 50\n");
        write("memory.high", "900\n");
        assert_eq!((limited("1000\n", "400\n"), limited("max\n", "400\n")), (Some(800), Some(800)));

        fs::write(dir.path().join("proc/meminfo"), "MemAvailable: 98304 kB\n").unwrap();
        let size = StreamSize::of(&host, &"0-3".parse().unwrap()).unwrap();
        assert_eq!(size.array_bytes, 16 * MB);
        assert!(!size.obeys_rule() && size.is_alike(16 * MB) && !size.is_alike(200 * MB));

        host.roots.sys = dir.path().join("nothing");
        assert!(!StreamSize::of(&host, &"0".parse().unwrap()).unwrap().obeys_rule(), "unknown caches");
        fs::write(dir.path().join("proc/meminfo"), "MemAvailable: 6143 kB\n").unwrap();
        let refused = StreamSize::of(&host, &"0".parse().unwrap()).unwrap_err();
        assert!(refused.to_string().contains("no memory for the shortest arrays: of 6143 KiB"), "{refused}");
    }

    #[test]
    fn limits_of_a_process_leave_less_than_the_host_has() {
        let dir = tree();
        let mut host = host(&dir);
        host.allowed = "0-1".parse().unwrap();
        fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        let pages = MB / page_size() as u64;
        let left = |address_space: &str, data: &str| {
            let text = format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max data size             {data:<21}unlimited            bytes     \n\
                 Max address space         {address_space:<21}unlimited            bytes     \n"
            );
            fs::write(dir.path().join("proc/self/limits"), text).unwrap();
            let mapped = format!("{} 9 9 9 0 {} 0\n", 20 * pages, 7 * pages);
            fs::write(dir.path().join("proc/self/statm"), mapped).unwrap();
            available(&host).unwrap()
        };
        let (limit, threads) = (300 * MB, 2 * (STACK + ARENA));
        assert_eq!(left("unlimited", "unlimited"), 1024 * MB);
        assert_eq!(left(&limit.to_string(), "unlimited"), 280 * MB - threads);
        assert_eq!(left("unlimited", &limit.to_string()), 293 * MB - 2 * STACK);
        assert_eq!(left(&(10 * MB).to_string(), "unlimited"), 0);
    }

    #[test]
    fn arrays_that_do_not_fit_are_refused() {
        let dir = tree();
        let host = host(&dir);
        let given = |bytes| StreamSize::given(&host, &"0".parse().unwrap(), bytes);
        assert_eq!(given(100 * MB).unwrap().array_bytes, 100 * MB);
        let error = given(171 * MB).unwrap_err();
        assert_eq!(error.kind(), emu_core::ErrorKind::Unavailable);
        assert!(error.hint_text().unwrap().contains("170MiB"), "{error:?}");
        assert_eq!(given(1000).unwrap_err().kind(), emu_core::ErrorKind::Usage);
    }

    #[test]
    fn sizes_are_read_as_sysfs_writes_them() {
        for (text, bytes) in [
            ("32K", Some(32 << 10)),
            ("266240K", Some(260 << 20)),
            ("2M", Some(2 << 20)),
            ("7", Some(7)),
            ("", None),
            ("K", None),
            ("1X", None),
        ] {
            assert_eq!(parsed_size(text), bytes, "{text}");
        }
    }
}

//! Where zones that name no CPUs of their own are placed, so that none slows another down.

use std::collections::{BTreeMap, BTreeSet};

use crate::cpu_list::{CpuId, CpuList};
use crate::error::{Error, Result};
use crate::host::Host;

/// More CPUs in an error would be no help.
const NAMED: usize = 4;

/// What two zones must not have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apart {
    /// A core: its threads share what computes.
    Cores,
    /// A core or a frequency domain: its CPUs have one clock.
    Clocks,
}

/// A zone that has a name, for errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// As errors call it: `node a`.
    pub name: String,
    /// Its CPUs.
    pub cpus: CpuList,
}

/// Places zones of these names and numbers of CPUs beside those that are there, and returns them in the order given.
///
/// No two zones get CPUs of one core, or of one frequency domain, as `apart` says. A zone has one CPU of each of its cores
/// where all zones can, else all threads of a core, and lies in one package where it fits. The same demand on the same host has
/// the same places.
///
/// # Errors
/// Usage, for a zone without a CPU. Unavailable, where a zone has found no place, the largest ones first: which CPUs cannot be
/// had, and why.
pub fn place(
    host: &Host,
    there: &[Placed],
    wanted: &[(String, usize)],
    apart: Apart,
) -> Result<Vec<CpuList>> {
    if let Some((name, _)) = wanted.iter().find(|(_, count)| *count == 0) {
        return Err(Error::usage(format!("{name} is to have no CPU")).hint("a zone needs at least one CPU"));
    }
    let units = units(host, apart);
    let spread = place_by(host, &units, there, wanted, &[one_each, every_thread]);
    let packed = || place_by(host, &units, there, wanted, &[every_thread]);
    spread.or_else(|why| packed().map_err(|_| why))
}

/// Which CPUs of a unit a zone may have.
type Threads = fn(&Unit) -> &CpuList;

fn one_each(unit: &Unit) -> &CpuList {
    &unit.one_each
}

fn every_thread(unit: &Unit) -> &CpuList {
    &unit.usable
}

fn place_by(
    host: &Host,
    units: &[Unit],
    there: &[Placed],
    wanted: &[(String, usize)],
    ways: &[Threads],
) -> Result<Vec<CpuList>> {
    let mut placed = there.to_vec();
    let mut chosen: BTreeMap<usize, CpuList> = BTreeMap::new();
    let mut order: Vec<_> = wanted.iter().enumerate().collect();
    // A large zone finds a place only while there is room.
    order.sort_by_key(|(_, (_, count))| std::cmp::Reverse(*count));
    for (number, (name, count)) in order {
        let is_free = |unit: &&Unit| placed.iter().all(|other| other.cpus.intersection(&unit.all).is_empty());
        let free: Vec<_> = units.iter().filter(is_free).collect();
        let cpus = ways.iter().find_map(|way| choose(&free, *count, *way));
        let cpus = cpus.ok_or_else(|| refusal(host, units, &placed, (name, *count)))?;
        placed.push(Placed { name: name.clone(), cpus: cpus.clone() });
        chosen.insert(number, cpus);
    }
    Ok(chosen.into_values().collect())
}

/// CPUs that belong to one zone at most.
#[derive(Debug)]
struct Unit {
    /// Also CPUs that may not be used: another's zone may have them.
    all: CpuList,
    usable: CpuList,
    /// One usable CPU for each core.
    one_each: CpuList,
    package: Option<u32>,
}

fn units(host: &Host, apart: Apart) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for id in host.allowed.iter() {
        if units.iter().any(|unit| unit.all.contains(id)) {
            continue;
        }
        let mut all: CpuList = [id].into_iter().collect();
        // A domain has several cores, and the threads of a core might be in several domains.
        loop {
            let more = all.iter().fold(all.clone(), |more, cpu| more.union(&beside(host, cpu, apart)));
            if more == all {
                break;
            }
            all = more;
        }
        let usable = all.intersection(&host.allowed);
        let first = |id: CpuId| host.cpu(id).and_then(|cpu| cpu.siblings.intersection(&usable).first());
        let one_each = usable.iter().filter(|id| first(*id).is_none_or(|first| first == *id)).collect();
        units.push(Unit { all, usable, one_each, package: host.cpu(id).and_then(|cpu| cpu.package) });
    }
    units
}

/// The CPUs that a zone with this one keeps from others, itself included.
fn beside(host: &Host, id: CpuId, apart: Apart) -> CpuList {
    let siblings = host.cpu(id).map(|cpu| cpu.siblings.clone()).unwrap_or_default();
    let this: CpuList = [id].into_iter().collect();
    match &host.cpufreq {
        Some(cpufreq) if apart == Apart::Clocks => siblings.union(&cpufreq.moved_with(&this)),
        _ => siblings.union(&this),
    }
}

/// So many CPUs of as few free units as can be, in the package that they fill best, else in several.
fn choose(free: &[&Unit], count: usize, way: Threads) -> Option<CpuList> {
    let of = |package: Option<u32>| free.iter().copied().filter(move |unit| unit.package == package);
    let room = |package: &Option<u32>| of(*package).map(|unit| way(unit).len()).sum::<usize>();
    let packages: BTreeSet<_> = free.iter().map(|unit| unit.package).collect();
    let fits = packages.iter().filter(|package| room(package) >= count).min_by_key(|package| room(package));
    let mut units: Vec<_> = match fits {
        Some(package) => of(*package).collect(),
        None => free.to_vec(),
    };
    units.sort_by_key(|unit| std::cmp::Reverse(way(unit).len()));
    let mut cpus = CpuList::default();
    while cpus.len() < count && !units.is_empty() {
        let left = count - cpus.len();
        // The smallest unit that has what is left, else the largest, which comes first.
        let enough = units.iter().enumerate().filter(|(_, unit)| way(unit).len() >= left);
        let at = enough.min_by_key(|(_, unit)| way(unit).len()).map_or(0, |(at, _)| at);
        cpus = cpus.union(&way(units.remove(at)).iter().take(left).collect());
    }
    (cpus.len() == count).then_some(cpus)
}

fn refusal(host: &Host, units: &[Unit], placed: &[Placed], (name, count): (&str, usize)) -> Error {
    let why = |id: CpuId| {
        let owner = |cpu: CpuId| placed.iter().find(|zone| zone.cpus.contains(cpu));
        if let Some(owner) = owner(id) {
            return Some((false, format!("CPU {id} is that of {}", owner.name)));
        }
        let unit = units.iter().find(|unit| unit.all.contains(id))?;
        let (other, owner) = unit.all.iter().find_map(|other| Some((other, owner(other)?)))?;
        let by_clock = !host.cpu(id).is_some_and(|cpu| cpu.siblings.contains(other));
        let shared = if by_clock { "clock" } else { "core" };
        Some((by_clock, format!("CPU {id} shares its {shared} with CPU {other} of {}", owner.name)))
    };
    let (by_clock, mut reasons): (Vec<_>, Vec<_>) = host.allowed.iter().filter_map(why).unzip();
    let more = reasons.len().saturating_sub(NAMED);
    reasons.truncate(NAMED);
    if more > 0 {
        reasons.push(format!("and so on for {more} more"));
    }
    if reasons.is_empty() {
        reasons.push(format!("{} may be used here", host.allowed.len()));
    }
    let because = reasons.join(", ");
    let cpus = if count == 1 { "a CPU".to_owned() } else { format!("{count} CPUs") };
    let hint = if by_clock.contains(&true) {
        "take fewer or smaller ones, or name a method that sets no clock, such as cpu-hogs"
    } else {
        "take fewer or smaller ones, or name CPUs that may share a core"
    };
    Error::unavailable(format!("there is no place for {name}, which needs {cpus}: {because}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::cpufreq::simulated;
    use crate::host::Cpufreq;
    use crate::host::testing::{VM_V1, tree};
    use crate::roots::Roots;

    /// A host of two sockets with 32 cores of two threads each: CPUs 0 to 31 and their siblings 64 to 95 in the first.
    fn two_sockets() -> Host {
        let mut files: Vec<(String, String)> =
            VM_V1.iter().map(|(path, text)| ((*path).into(), (*text).into())).collect();
        let mut add = |path: String, text: String| files.push((path, text));
        add(
            "proc/self/status".into(),
            "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-127\n".into(),
        );
        for file in ["online", "present"] {
            add(format!("sys/devices/system/cpu/{file}"), "0-127\n".into());
        }
        for cpu in 0..128 {
            let (core, topology) = (cpu % 64, format!("sys/devices/system/cpu/cpu{cpu}/topology"));
            add(format!("{topology}/core_cpus_list"), format!("{core},{}\n", core + 64));
            add(format!("{topology}/core_id"), format!("{}\n", core % 32));
            add(format!("{topology}/physical_package_id"), format!("{}\n", core / 32));
        }
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        Host::detect(&Roots::below(tree(&files).path())).unwrap()
    }

    fn wanted(counts: &[usize]) -> Vec<(String, usize)> {
        counts.iter().enumerate().map(|(number, count)| (format!("node n{number}"), *count)).collect()
    }

    fn placed(host: &Host, counts: &[usize]) -> Vec<String> {
        let places = place(host, &[], &wanted(counts), Apart::Cores).unwrap();
        places.iter().map(CpuList::to_string).collect()
    }

    #[test]
    fn sixty_four_nodes_have_a_core_each_and_one_more_is_refused() {
        let host = two_sockets();
        let begin = Instant::now();
        let places = placed(&host, &[1; 64]);
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
        assert_eq!(places, (0..64).map(|cpu| cpu.to_string()).collect::<Vec<_>>());
        let error = place(&host, &[], &wanted(&[1; 65]), Apart::Cores).unwrap_err().to_string();
        assert!(
            error.contains("no place for node n64") && error.contains("CPU 0 is that of node n0"),
            "{error}"
        );
        let beside: CpuList = "0-61,64-127".parse().unwrap();
        let there = [Placed { name: "node old".into(), cpus: beside }];
        let error = place(&host, &there, &wanted(&[1]), Apart::Cores).unwrap_err().to_string();
        assert!(error.contains("node old"), "{error}");
    }

    #[test]
    fn nodes_lie_in_one_package_on_cores_of_their_own() {
        let host = two_sockets();
        assert_eq!(placed(&host, &[4, 30, 32]), ["62-63,126-127", "32-61", "0-31"]);
        // More than a package has cores: still one for each CPU.
        assert_eq!(placed(&host, &[40]), ["0-39"]);
        // More than the host has cores: threads of the same one are of the same node.
        assert_eq!(placed(&host, &[65]), ["0-32,64-95"]);
        assert_eq!(placed(&host, &[128]), ["0-127"]);
        // Where not all can have cores of their own, threads of a core are of one zone.
        assert_eq!(placed(&host, &[64, 2]), ["0-31,64-95", "32,96"]);
        assert!(place(&host, &[], &wanted(&[129]), Apart::Cores).is_err());
        assert!(place(&host, &[], &wanted(&[0]), Apart::Cores).is_err());
    }

    #[test]
    fn cpus_of_one_clock_are_of_one_node() {
        let mut host = two_sockets();
        let policies = (0..16).map(|number| {
            let first = number * 4;
            let cpus: CpuList = (first..first + 4).chain(first + 64..first + 68).collect();
            simulated::policy(number, &cpus.to_string(), &[2000])
        });
        host.cpufreq = Some(Cpufreq {
            policies: policies.collect(),
            boost: None,
            intel_pstate: None,
            no_turbo: None,
            amd_pstate: None,
        });
        let places = place(&host, &[], &wanted(&[1, 1]), Apart::Clocks).unwrap();
        assert_eq!(places.iter().map(CpuList::to_string).collect::<Vec<_>>(), ["0", "4"]);
        // As few domains as can be, and a core for each CPU.
        let places = place(&host, &[], &wanted(&[2, 4, 5]), Apart::Clocks).unwrap();
        assert_eq!(places.iter().map(CpuList::to_string).collect::<Vec<_>>(), ["12-13", "8-11", "0-4"]);
        let there = [Placed { name: "node a".into(), cpus: (0..64).step_by(4).collect() }];
        let error = place(&host, &there, &wanted(&[1]), Apart::Clocks).unwrap_err().to_string();
        assert!(error.contains("CPU 1 shares its clock with CPU 0 of node a"), "{error}");
        assert_eq!(place(&host, &there, &wanted(&[1]), Apart::Cores).unwrap()[0].to_string(), "1");
    }
}

//! Plans for a file of nodes on a large host.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use emu_core::{CpuId, Roots};

use super::super::testing::{write, write_host};
use super::*;

/// A host of two sockets with 32 cores of two threads each: CPUs 0 to 31 and their siblings 64 to 95 in the first. With `domains`,
/// four cores each have one clock. Its files are already deleted.
fn two_sockets(domains: bool) -> Host {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| write(dir.path(), path, text);
    write_host(dir.path(), "0-127");
    for cpu in 0..128 {
        let (core, folder) = (cpu % 64, format!("sys/devices/system/cpu/cpu{cpu}/topology"));
        write(&format!("{folder}/core_cpus_list"), &format!("{core},{}\n", core + 64));
        write(&format!("{folder}/core_id"), &format!("{}\n", core % 32));
        write(&format!("{folder}/physical_package_id"), &format!("{}\n", core / 32));
    }
    for first in (0..64).step_by(4).filter(|_| domains) {
        let folder = format!("sys/devices/system/cpu/cpufreq/policy{first}");
        let cpus: Vec<_> = [first, first + 64].iter().flat_map(|&cpu| cpu..cpu + 4).collect();
        let cpus: Vec<_> = cpus.iter().map(ToString::to_string).collect();
        for (name, text) in [
            ("related_cpus", &*cpus.join(" ")),
            ("affected_cpus", &*cpus.join(" ")),
            ("scaling_driver", "acpi-cpufreq"),
            ("scaling_governor", "userspace"),
            ("scaling_available_governors", "userspace performance"),
            ("scaling_available_frequencies", "2000000 1000000"),
            ("cpuinfo_min_freq", "1000000"),
            ("cpuinfo_max_freq", "2000000"),
            ("scaling_min_freq", "1000000"),
            ("scaling_max_freq", "2000000"),
            ("scaling_setspeed", "2000000"),
        ] {
            write(&format!("{folder}/{name}"), text);
        }
    }
    Host::detect(&Roots::below(dir.path())).unwrap()
}

/// The CPUs of the nodes that would be made on an empty host, or why none can be; each plan takes less than a second.
fn planned(host: &Host, text: &str) -> Result<Vec<CpuList>, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let (specs, signals) = (file::read(file.path()).unwrap(), Signals::block().unwrap());
    let begin = Instant::now();
    let planned = plan(host, &specs, Vec::new(), &signals);
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    let cpus = |step: Step| match step {
        Step::Create { name, spec } => spec.args(&name).unwrap().zone.demand.cpus.unwrap(),
        other => panic!("{other}"),
    };
    let (steps, _) = planned.map_err(|why| why.error.unwrap().to_string())?;
    Ok(steps.into_iter().map(cpus).collect())
}

/// Fails where two have a CPU in common that `beside` returns for one of each.
fn assert_apart(nodes: &[CpuList], beside: impl Fn(CpuId) -> CpuList) {
    let mut taken = BTreeSet::new();
    for node in nodes {
        let all: BTreeSet<_> = node.iter().flat_map(|cpu| beside(cpu).iter().collect::<Vec<_>>()).collect();
        assert!(all.is_disjoint(&taken), "{node} in {nodes:?}");
        taken.extend(all);
    }
}

#[test]
fn sixty_four_nodes_on_128_cpus_are_planned_in_a_second() {
    let host = two_sockets(false);
    let file = |count: usize| {
        format!(
            "[class.slow]\nspeed = \"30%\"\nmethod = \"cpu-freeze\"\n[node.w]\nclass = \"slow\"\ncount = {count}\n"
        )
    };
    let core = |cpu| host.cpu(cpu).unwrap().siblings.clone();
    let nodes = planned(&host, &file(64)).unwrap();
    assert_eq!((nodes.len(), nodes.iter().map(CpuList::len).max()), (64, Some(1)));
    assert_apart(&nodes, core);
    let why = planned(&host, &file(65)).unwrap_err();
    assert!(why.contains("no place for node w") && why.contains("CPU 0 is that of node w1"), "{why}");
    // Nodes of two CPUs that name them, and others beside them.
    let pair = |first| {
        let cpus = format!("{first},{}", first + 64);
        format!("[node.n{first}]\ncpus = \"{cpus}\"\nspeed = \"40%\"\nmethod = \"cpu-freeze\"\n")
    };
    let named = (0..32).map(pair).collect::<Vec<_>>().concat();
    let nodes = planned(&host, &format!("{named}{}cores = 1\n", file(32))).unwrap();
    assert_eq!(nodes.iter().map(CpuList::len).sum::<usize>(), 96);
    assert_apart(&nodes, core);
    for (more, told) in [
        ("cpus = \"31\"", "CPU 31 of node x: node n31 has them, too"),
        ("cpus = \"128\"", "128"),
        ("cores = 65", "no place for node x, which needs 65 CPUs"),
        (
            "exclusive = true\n[node.y]\nspeed = \"40%\"\nexclusive = true",
            "nodes x and y of the file are both exclusive",
        ),
    ] {
        let text = format!("{named}[node.x]\nspeed = \"40%\"\nmethod = \"cpu-freeze\"\n{more}\n");
        let why = planned(&host, &text).unwrap_err();
        assert!(why.contains(told), "{more}: {why}");
    }
}

#[test]
fn nodes_whose_clock_is_set_lie_in_domains_of_their_own() {
    let host = two_sockets(true);
    let file = |count: usize, method: &str| {
        let widen = method == "cpu-freq";
        format!(
            "[node.w]\nspeed = \"50%\"\nmethod = \"{method}\"\nwiden = {widen}\ncores = 4\ncount = {count}\n"
        )
    };
    let clock = |cpu| host.cpufreq.as_ref().unwrap().policy_of(cpu).unwrap().cpus.clone();
    let nodes = planned(&host, &file(16, "cpu-freq")).unwrap();
    assert_eq!(nodes.len(), 16);
    assert_apart(&nodes, clock);
    let why = planned(&host, &file(17, "cpu-freq")).unwrap_err();
    assert!(why.contains("no place for node w") && why.contains("CPU 0 is that of node"), "{why}");
    let one = "[node.a]\nspeed = \"50%\"\nmethod = \"cpu-freq\"\nwiden = true\ncpus = \"0\"\n";
    let sixteen = file(16, "cpu-freq").replace("cores = 4", "cores = 1");
    let why = planned(&host, &format!("{one}{sixteen}")).unwrap_err();
    assert!(why.contains("CPU 1 shares its clock with CPU 0 of node a"), "{why}");
    // A method that sets no clock needs cores only.
    assert_eq!(planned(&host, &file(16, "cpu-freeze")).unwrap().len(), 16);
}

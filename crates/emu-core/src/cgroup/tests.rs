//! Groups on the real kernel, and placement on recorded trees.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::freezer::Freezer;
use super::place::{self, Site};
use super::testing::*;
use super::{Folder, TaskGroup};
use crate::control_file;
use crate::cpu_list::CpuList;
use crate::error::ErrorKind;
use crate::hint::Hint;
use crate::host::testing;
use crate::host::{Controller, Hierarchy, Host};
use crate::process::{Stat, threads};
use crate::roots::Roots;
use crate::sys::Pid;
use crate::sys::{affinity, time};
use crate::unavailable::Reason;
use crate::undo::Journal;
use crate::zone::Tasks;

mod gather;

#[test]
fn freezing_stops_a_busy_program_and_thawing_resumes_it() {
    for_each_version(Controller::Freezer, |host| {
        let program = Program::shell("while :; do :; done");
        let journal = journal(host);
        let zone = zone(&host.online(), processes(&[program.pid()]));
        let group = TaskGroup::create(host, &zone, &[Controller::Freezer], &journal).unwrap();
        let mut freezer = Freezer::open(group.folder(Controller::Freezer).unwrap(), &journal).unwrap();
        let used = || cpu_time(program.pid());
        let frozen = freezer.freeze(time::now() + 5_000_000_000).unwrap();
        assert!(frozen.asked <= frozen.told && frozen.seen.is_some_and(|seen| frozen.told <= seen));
        let before = used();
        std::thread::sleep(Duration::from_millis(50));
        // A task counts as frozen shortly before it leaves its CPU.
        assert!(used() - before < 5_000_000, "{} ns used while frozen", used() - before);
        freezer.thaw().unwrap();
        wait_until(|| used() > before + 1_000_000);
        // Dropped while frozen, as by a control thread that ends in any way.
        freezer.freeze(time::now() + 5_000_000_000).unwrap();
        drop(freezer);
        let before = used();
        wait_until(|| used() > before + 1_000_000);
        journal.undo_all().unwrap();
    });
}

#[test]
fn a_frozen_group_is_thawed_by_the_journal_alone() {
    for_each_version(Controller::Freezer, |host| {
        let program = Program::shell("while :; do :; done");
        let journal = journal(host);
        let zone = zone(&host.online(), processes(&[program.pid()]));
        let group = TaskGroup::create(host, &zone, &[Controller::Freezer], &journal).unwrap();
        let mut freezer = Freezer::open(group.folder(Controller::Freezer).unwrap(), &journal).unwrap();
        freezer.freeze(time::now() + 5_000_000_000).unwrap();
        // As if the process had been killed.
        std::mem::forget(freezer);
        journal.undo_all().unwrap();
        let used = || cpu_time(program.pid());
        let before = used();
        wait_until(|| used() > before + 1_000_000);
    });
}

#[test]
fn a_group_that_is_made_anew_is_frozen_again() {
    for_each_version(Controller::Freezer, |host| {
        let hierarchy = super::hierarchies::hierarchy_for(host, Controller::Freezer).unwrap();
        let path = hierarchy.own.join(format!("emu-test-{}-anew-{}", std::process::id(), hierarchy.version));
        fs::create_dir(&path).unwrap();
        let journal = journal(host);
        let folder = Folder { version: hierarchy.version, path: path.clone() };
        let mut freezer = Freezer::open(&folder, &journal).unwrap();
        let mut freeze = || freezer.freeze(time::now() + 5_000_000_000).unwrap().seen.is_some();
        assert!(freeze());
        fs::remove_dir(&path).unwrap();
        assert!(freeze(), "an empty group");
        fs::create_dir(&path).unwrap();
        let program = Program::shell("while :; do :; done");
        control_file::write(&path.join("cgroup.procs"), &program.pid().to_string()).unwrap();
        let used = || cpu_time(program.pid());
        assert!(freeze());
        let before = used();
        std::thread::sleep(Duration::from_millis(50));
        assert!(used() - before < 5_000_000, "{} ns used while frozen", used() - before);
        freezer.thaw().unwrap();
        wait_until(|| used() > before + 1_000_000);
        drop((freezer, program));
        journal.undo_all().unwrap();
        wait_until(|| fs::remove_dir(&path).is_ok());
    });
}

#[test]
fn a_group_that_another_program_has_frozen_is_refused() {
    for_each_version(Controller::Freezer, |host| {
        let program = Program::shell("exec sleep 30");
        let journal = journal(host);
        let zone = zone(&host.online(), processes(&[program.pid()]));
        let group = TaskGroup::create(host, &zone, &[Controller::Freezer], &journal).unwrap();
        let folder = group.folder(Controller::Freezer).unwrap();
        let mut other = Freezer::open(folder, &journal).unwrap();
        other.freeze(time::now() + 5_000_000_000).unwrap();
        let error = Freezer::open(folder, &journal).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("somebody else"), "{error}");
        other.thaw().unwrap();
        journal.undo_all().unwrap();
    });
}

#[test]
fn a_group_that_another_program_freezes_is_not_thawed() {
    for_each_version(Controller::Freezer, |host| {
        let program = Program::shell("exec sleep 30");
        let journal = journal(host);
        let zone = zone(&host.online(), processes(&[program.pid()]));
        let group = TaskGroup::create(host, &zone, &[Controller::Freezer], &journal).unwrap();
        let folder = group.folder(Controller::Freezer).unwrap();
        let mut freezer = Freezer::open(folder, &journal).unwrap();
        let [frozen, thawed] = if folder.version == 2 { ["1", "0"] } else { ["FROZEN", "THAWED"] };
        let control = freezer.path().to_owned();
        // As other programs do: the file is closed again.
        let write = |word: &str| fs::write(&control, word).unwrap();
        let is_frozen = || control_file::read(&control).unwrap() != thawed;
        let soon = || time::now() + 5_000_000_000;

        for _ in 0..3 {
            assert!(!freezer.is_frozen_by_others());
            freezer.freeze(soon()).unwrap();
            freezer.thaw().unwrap();
            assert!(!freezer.is_theirs() && !is_frozen(), "no other program has frozen it");
        }
        // Between two stops.
        write(frozen);
        assert!(freezer.is_frozen_by_others() && freezer.is_frozen_by_others());
        write(thawed);
        assert!(freezer.is_frozen_by_others(), "the thawing program may not have closed the file yet");
        assert!(!freezer.is_frozen_by_others());
        // During a stop, in which the file reads the same before and after.
        freezer.freeze(soon()).unwrap();
        write(frozen);
        freezer.thaw().unwrap();
        assert!(freezer.is_theirs() && is_frozen() && freezer.is_frozen_by_others());
        write(thawed);
        assert!(freezer.is_frozen_by_others() && !freezer.is_frozen_by_others());
        // Thawed by another program during a stop.
        freezer.freeze(soon()).unwrap();
        write(thawed);
        freezer.thaw().unwrap();
        assert!(!freezer.is_theirs() && !is_frozen());
        // Dropped while another program has frozen the group.
        freezer.freeze(soon()).unwrap();
        write(frozen);
        drop(freezer);
        assert!(is_frozen());
        // The group is emu's, and goes with the freeze of its tasks.
        journal.undo_all().unwrap();
        assert!(!control.exists());
        let state = || Stat::read(&host.roots.proc, program.pid()).map(|stat| stat.state);
        crate::testing::eventually("it sleeps again", || state() == Some(b'S'));
    });
}

#[test]
fn an_existing_group_is_used_in_place() {
    for_each_version(Controller::Freezer, |host| {
        let hierarchy = super::hierarchies::hierarchy_for(host, Controller::Freezer).unwrap();
        let name = format!("emu-test-{}-{}", std::process::id(), hierarchy.version);
        let (folder, nested) = (hierarchy.own.join(&name), hierarchy.own.join(&name).join("nested"));
        fs::create_dir_all(&nested).unwrap();
        let (outer, inner) = (Program::shell("exec sleep 30"), Program::shell("exec sleep 30"));
        control_file::write(&folder.join("cgroup.procs"), &outer.pid().to_string()).unwrap();
        control_file::write(&nested.join("cgroup.procs"), &inner.pid().to_string()).unwrap();
        let journal = journal(host);
        let path = Path::new("/").join(folder.strip_prefix(&hierarchy.mount).unwrap());
        let adopt = |path: &Path| {
            let zone = zone(&host.online(), Tasks::Cgroup(path.to_owned()));
            TaskGroup::create(host, &zone, &[Controller::Freezer], &journal)
        };
        let group = adopt(&path).unwrap();
        assert_eq!(group.folder(Controller::Freezer).unwrap().path, folder);
        assert_eq!(group.pids().unwrap(), [outer.pid(), inner.pid()]);
        for bad in ["/nonexistent/group", "/../../../tmp", "/./../..", "../x"] {
            let error = adopt(Path::new(bad)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{bad}");
        }
        let error = adopt(Path::new("/")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage, "the root group has init and emu in it: {error}");
        journal.undo_all().unwrap();
        assert!(folder.exists());
        drop((outer, inner));
        wait_until(|| fs::remove_dir(&nested).is_ok());
        wait_until(|| fs::remove_dir(&folder).is_ok());
    });
}

#[test]
fn emu_itself_and_its_ancestors_are_not_taken() {
    for_each_version(Controller::Freezer, |host| {
        let journal = journal(host);
        for pid in [1, std::process::id() as Pid, nix::unistd::getppid().as_raw()] {
            let zone = zone(&host.online(), processes(&[pid]));
            let error = TaskGroup::create(host, &zone, &[Controller::Freezer], &journal).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
        }
        journal.undo_all().unwrap();
    });
}

/// One CPU, where there are more; otherwise prints that the test is skipped.
fn one_of(host: &Host) -> Option<CpuList> {
    if host.online().len() < 2 || host.allowed.len() < 2 {
        skip("confining needs two CPUs");
        return None;
    }
    Some(host.allowed.first().into_iter().collect())
}

#[test]
fn a_zone_of_some_cpus_confines_its_tasks_by_a_cpuset() {
    for_each_version(Controller::Cpuset, |host| {
        let Some(one) = one_of(host) else { return };
        let program = Program::shell("sleep 30 & wait");
        let pids = program.wait_for(2);
        let journal = journal(host);
        let group = TaskGroup::create(
            host,
            &zone(&one, processes(&[program.pid()])),
            &[Controller::Cpuset],
            &journal,
        )
        .unwrap();
        assert!(group.notes().list().is_empty(), "{:?}", group.notes());
        for &pid in &pids {
            assert_eq!(affinity::get(pid).unwrap(), one);
            // The program cannot leave the cpuset.
            assert!(affinity::set(pid, &host.allowed.difference(&one)).is_err());
        }
        journal.undo_all().unwrap();
        for pid in pids {
            assert_eq!(affinity::get(pid).unwrap(), host.allowed);
        }
    });
}

#[test]
fn without_a_cpuset_tasks_are_bound_by_their_affinity() {
    for_each_version(Controller::Freezer, |host| {
        let Some(one) = one_of(host) else { return };
        let mut host = host.clone();
        host.cgroups.hierarchies.iter_mut().for_each(|h| h.controllers.retain(|c| *c != Controller::Cpuset));
        let program = Program::shell("sleep 30 & wait");
        let pids = program.wait_for(2);
        let journal = journal(&host);
        let wanted = [Controller::Freezer, Controller::Cpuset];
        let group =
            TaskGroup::create(&host, &zone(&one, processes(&[program.pid()])), &wanted, &journal).unwrap();
        assert!(group.notes().list()[0].contains("affinity"), "{:?}", group.notes());
        assert_eq!(group.folder(Controller::Cpuset), None);
        for &tid in &pids.iter().flat_map(|&pid| threads(Path::new(PROC), pid)).collect::<Vec<_>>() {
            assert_eq!(affinity::get(tid).unwrap(), one);
        }
        journal.undo_all().unwrap();
        for pid in pids {
            assert_eq!(affinity::get(pid).unwrap(), host.allowed);
        }
    });
}

#[test]
fn missing_controllers_are_named() {
    let mut host = testing::host();
    assert!(TaskGroup::check(&host, &[Controller::Freezer, Controller::Cpu, Controller::Cpuset]).is_ok());
    host.cgroups.hierarchies.iter_mut().for_each(|hierarchy| hierarchy.writable = false);
    let why = TaskGroup::check(&host, &[Controller::Freezer]).unwrap_err();
    assert_eq!(why.reason, Reason::NoPrivilege);
    assert_eq!(why.hint, Hint::OwnGroup(vec![]));
    // These two are optional.
    assert!(TaskGroup::check(&host, &[Controller::Cpuset, Controller::Cpuacct]).is_ok());
    host.cgroups.hierarchies.clear();
    let why = TaskGroup::check(&host, &[Controller::Cpu]).unwrap_err();
    assert_eq!(why.reason, Reason::NoController);
    assert!(why.detail.contains("`cpu`"), "{}", why.detail);
}

/// A version 2 hierarchy of plain files, and a journal that may write there.
fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Hierarchy, Journal) {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots { proc: PROC.into(), ..Roots::below(dir.path()) };
    let mount = roots.sys.join("fs/cgroup");
    for (path, text) in files {
        testing::write(&mount, path, text.as_bytes());
    }
    let journal = Journal::open(&roots, &"0".parse().unwrap(), "test", "test").unwrap();
    let hierarchy = Hierarchy {
        version: 2,
        own: mount.join("user/shell"),
        shown: "/".into(),
        controllers: vec![Controller::Cpu, Controller::Cpuacct, Controller::Freezer],
        granted: vec![Controller::Cpu, Controller::Cpuacct, Controller::Freezer],
        writable: true,
        mount,
    };
    (dir, hierarchy, journal)
}

#[test]
fn controllers_are_enabled_at_the_nearest_group_that_can() {
    const FILES: &[(&str, &str)] = &[
        ("cgroup.procs", "1\n2\n"),
        ("cgroup.controllers", "cpuset cpu memory\n"),
        ("cgroup.subtree_control", "cpu memory\n"),
        ("user/cgroup.procs", ""),
        ("user/cgroup.type", "domain\n"),
        ("user/cgroup.controllers", "cpu memory\n"),
        ("user/cgroup.subtree_control", "memory\n"),
        ("user/shell/cgroup.procs", "77\n"),
        ("user/shell/cgroup.type", "domain\n"),
        ("user/shell/cgroup.controllers", "memory\n"),
        ("user/shell/cgroup.subtree_control", ""),
    ];
    let find = |files: &[(&str, &str)], needed: &[Controller], may_empty| {
        let (dir, hierarchy, journal) = tree(files);
        let site = place::find(&hierarchy, &hierarchy.own, needed, may_empty, &journal);
        let below = |path: PathBuf| path.strip_prefix(&hierarchy.mount).unwrap().to_owned();
        let site = site.map(|Site { parent, return_to }| (below(parent), below(return_to)));
        let written = |path: &str| fs::read_to_string(hierarchy.mount.join(path)).unwrap();
        let written = (written("cgroup.subtree_control"), written("user/cgroup.subtree_control"));
        // Undoing reports plain files, which do not change as the kernel's do.
        let _ = journal.undo_all();
        drop(dir);
        (site, written)
    };
    let came_from = PathBuf::from("user/shell/cgroup.procs");
    let untouched = ("cpu memory\n".to_owned(), "memory\n".to_owned());
    // Nothing needs enabling: below the tasks' own group.
    let (site, written) = find(FILES, &[], true);
    assert_eq!((site.unwrap(), written), (("user/shell".into(), came_from.clone()), untouched.clone()));
    // The nearest that enables it already is the root.
    let (site, written) = find(FILES, &[Controller::Cpu], true);
    assert_eq!((site.unwrap(), written), (("".into(), came_from.clone()), untouched.clone()));
    // The root may have processes and enable more.
    let (site, written) = find(FILES, &[Controller::Cpuset], true);
    assert!(written.0.starts_with("+cpuset"), "{written:?}");
    assert_eq!(site.unwrap(), ("".into(), came_from.clone()));
    // `user` has no processes.
    let not_at_root = testing::with(FILES, &[("cgroup.subtree_control", "memory\n")]);
    let (site, written) = find(&not_at_root, &[Controller::Cpu], true);
    assert!(written.1.starts_with("+cpu"), "{written:?}");
    assert_eq!(site.unwrap(), ("user".into(), came_from));
    // No group has it.
    let nowhere = testing::with(FILES, &[("cgroup.controllers", "memory\n")]);
    let error = find(&nowhere, &[Controller::Cpuset], true).0.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotPermitted);
    assert_eq!(error.typed_hint(), Some(&Hint::OwnGroup(vec!["cpuset"])));
}

#[test]
fn processes_of_other_namespaces_and_emu_itself_are_not_moved() {
    let (_dir, hierarchy, journal) = tree(&[
        ("cgroup.procs", ""),
        ("cgroup.controllers", "memory"),
        ("cgroup.subtree_control", "memory"),
        ("user/shell/cgroup.procs", "0\n0\n"),
        ("user/shell/cgroup.type", "domain"),
        ("user/shell/cgroup.controllers", "cpu memory"),
        ("user/shell/cgroup.subtree_control", ""),
    ]);
    let error = place::find(&hierarchy, &hierarchy.own, &[Controller::Cpu], true, &journal).unwrap_err();
    assert!(error.to_string().contains("PID namespace"), "{error}");
    let _ = journal.undo_all();
}

#[test]
fn a_group_with_other_tasks_in_another_hierarchy_is_noticed() {
    let group = |one: &str, other: &str| {
        let dir = testing::tree(&[
            ("v1/x/cgroup.procs", one),
            ("v2/x/y/cgroup.procs", other),
            ("v2/x/cgroup.procs", ""),
        ]);
        let mut host = testing::host();
        host.cgroups.hierarchies = ["v1", "v2"]
            .map(|name| Hierarchy {
                version: 2,
                mount: dir.path().join(name),
                own: dir.path().join(name),
                shown: "/".into(),
                controllers: Vec::new(),
                granted: Vec::new(),
                writable: true,
            })
            .into();
        super::hierarchies::is_same_everywhere(&host, Path::new("/x")).unwrap()
    };
    assert!(group("7\n9\n", "9\n7\n"));
    assert!(!group("7\n9\n", "9\n"));
    assert!(!group("7\n", ""));
}

//! Gathering the processes of a program in a group, returning them, and bringing moved ones back.

use super::*;
use crate::cgroup::cpuset_repair::CpusetRepair;
use crate::cgroup::hierarchies::hierarchy_for;

#[test]
fn a_program_with_its_children_is_gathered_and_given_back() {
    for_each_version(Controller::Freezer, |host| {
        let program = Program::shell("sleep 30 & sh -c 'sleep 30 & wait' & wait");
        let before = program.wait_for(4);
        let came_from = home(host, program.pid(), Controller::Freezer);
        let journal = journal(host);
        let wanted = [Controller::Freezer, Controller::Cpuset];
        let group =
            TaskGroup::create(host, &zone(&host.online(), processes(&[program.pid()])), &wanted, &journal)
                .unwrap();
        let folder = group.folder(Controller::Freezer).unwrap().clone();
        assert_eq!(folder.path.parent(), Some(came_from.as_path()));
        let mut held = group.pids().unwrap();
        held.sort_unstable();
        assert_eq!(held, before);
        assert!(group.notes().list().is_empty());
        assert_eq!(group.folder(Controller::Cpuset), None, "the zone has all CPUs");
        journal.undo_all().unwrap();
        assert!(!folder.path.exists());
        for pid in before {
            assert_eq!(home(host, pid, Controller::Freezer), came_from);
        }
    });
}

#[test]
fn a_fork_storm_is_gathered_whole() {
    for_each_version(Controller::Freezer, |host| {
        let program = Program::shell("while :; do (sleep 0.05 & sleep 0.02) & sleep 0.005; done");
        std::thread::sleep(Duration::from_millis(100));
        let journal = journal(host);
        let zone = zone(&host.online(), processes(&[program.pid()]));
        let group = TaskGroup::create(host, &zone, &[Controller::Freezer], &journal).unwrap();
        let folder = group.folder(Controller::Freezer).unwrap().clone();
        let mut freezer = Freezer::open(&folder, &journal).unwrap();
        wait_until(|| freezer.freeze(time::now() + 100_000_000).unwrap().seen.is_some());
        // The group is frozen, so the list does not change.
        let mut descendants = program.descendants();
        descendants.look().unwrap();
        let held = group.pids().unwrap();
        let outside: Vec<_> = descendants
            .members()
            .iter()
            .filter(|(pid, stat)| !stat.has_ended() && !held.contains(pid))
            .collect();
        assert_eq!(outside, [], "of {}", held.len());
        drop(freezer);
        drop(program);
        journal.undo_all().unwrap();
    });
}

#[test]
fn processes_moved_out_of_a_group_come_back_with_their_children() {
    for_each_version(Controller::Freezer, |host| {
        let dir = tempfile::tempdir().unwrap();
        // Its second child starts when this pipe is written to.
        let go = dir.path().join("go");
        nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let program = Program::shell(&format!("sleep 30 & read line <{}; sleep 30 & wait", go.display()));
        program.wait_for(2);
        let journal = journal(host);
        let zone = zone(&host.online(), processes(&[program.pid()]));
        let group = TaskGroup::create(host, &zone, &[Controller::Freezer], &journal).unwrap();
        let folder = group.folder(Controller::Freezer).unwrap().clone();
        let above = folder.path.parent().unwrap();
        let elsewhere = above.join(format!("emu-test-{}-elsewhere", std::process::id()));
        fs::create_dir(&elsewhere).unwrap();
        let moved =
            |pid: Pid, to: &Path| control_file::write(&to.join("cgroup.procs"), &pid.to_string()).unwrap();
        let hierarchy = hierarchy_for(host, Controller::Freezer).unwrap();
        let mut evicted = CpusetRepair::new(Path::new(PROC), hierarchy, &folder.path);
        evicted.remember().unwrap();
        evicted.bring_back().unwrap();
        let away = Program::shell("exec sleep 30");
        // As the kernel moves the tasks of a cpuset without CPUs.
        for pid in group.pids().unwrap() {
            moved(pid, above);
        }
        evicted.follow().unwrap();
        fs::write(&go, "\n").unwrap();
        wait_until(|| {
            evicted.follow().unwrap();
            program.descendants().members().len() == 3
        });
        let mut all: Vec<_> = program.descendants().members().keys().copied().collect();
        let owners = all.pop().unwrap();
        moved(owners, &elsewhere);
        evicted.bring_back().unwrap();
        let mut back = group.pids().unwrap();
        back.sort_unstable();
        assert_eq!(back, all);
        assert_eq!(home(host, owners, Controller::Freezer), elsewhere);
        assert_ne!(home(host, away.pid(), Controller::Freezer), folder.path);
        drop(program);
        journal.undo_all().unwrap();
        wait_until(|| fs::remove_dir(&elsewhere).is_ok());
    });
}

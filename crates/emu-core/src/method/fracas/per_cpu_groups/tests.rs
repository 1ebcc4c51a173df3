use super::*;
use crate::cpufreq::simulated;
use crate::host::testing::{tree, write};

#[test]
fn a_cpu_that_goes_offline_does_not_look_like_a_binding() {
    let all = affinity::get(0).unwrap();
    let [one, other] = all.iter().take(2).collect::<Vec<_>>()[..] else {
        crate::testing::skip(&format!("it takes two CPUs, and this process has {all}"));
        return;
    };
    // On a thread of its own, so that no other test runs with a narrowed affinity.
    std::thread::spawn(move || {
        let tid = nix::unistd::gettid().as_raw();
        let status = format!("{tid}/status");
        let root = tree(&[(status.as_str(), "")]);
        let mut groups = CpuGroups::below(root.path(), &[one, other].into_iter().collect());
        groups.procfs = root.path().to_owned();
        let binding = |allowed: String| {
            write(root.path(), &status, format!("Name:\tx\nCpus_allowed_list:\t{allowed}\n").as_bytes());
            groups.binding(tid)
        };
        assert_eq!(binding(format!("{one},{other}")), None);
        let bound: CpuList = [one].into_iter().collect();
        affinity::set(tid, &bound).unwrap();
        assert_eq!(binding(format!("{one},{other}")), None, "the call alone says so");
        assert_eq!(binding(one.to_string()), Some(bound));
    })
    .join()
    .unwrap();
}

#[test]
fn a_group_with_groups_below_it_is_refused_by_name() {
    let root = tree(&[("tasks", ""), ("child/tasks", "")]);
    let error = refuse_nested(root.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("child"), "{error}");
    assert!(refuse_nested(&root.path().join("child")).is_ok());
}

#[test]
fn only_controllers_that_are_not_enabled_yet_are_enabled() {
    let dir = tempfile::tempdir().unwrap();
    let (roots, journal) = simulated::journal(dir.path());
    let control = roots.sys.join("cgroup.subtree_control");
    fs::write(&control, "cpu memory").unwrap();
    fs::write(roots.sys.join("cgroup.controllers"), "cpuset cpu memory").unwrap();
    let enable = |controllers: &[Controller]| {
        enable_threaded(&roots.sys, controllers.iter().copied(), &journal).unwrap();
        (fs::read_to_string(&control).unwrap(), fs::read_to_string(journal.path()).unwrap().lines().count())
    };
    assert_eq!(enable(&[Controller::Cpu]), ("cpu memory".into(), 1));
    let (written, lines) = enable(&[Controller::Cpu, Controller::Cpuset]);
    assert!(written.starts_with("+cpuset") && lines == 2, "{written}, {lines}");
}

#[test]
fn lists_of_threads_are_read_whatever_else_is_in_them() {
    let root = tree(&[("tasks", "12\n0\n345\n\nx\n0\n")]);
    assert_eq!(threads_of(&root.path().join("tasks")).unwrap(), [12, 345]);
}

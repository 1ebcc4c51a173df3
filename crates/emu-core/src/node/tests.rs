use std::fs;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::prepared::choose;
use crate::process::living_thread;
use crate::roots::Roots;
use crate::speed::Target;
use crate::sys::fork::fork_leaderless;
use crate::zone::Demand;

fn host(state: &Path) -> Host {
    Host::detect(&Roots { state: state.to_owned(), ..Roots::system() }).unwrap()
}

fn demand(host: &Host) -> Demand {
    let target = |cpu| (cpu, Target { share: 0.9, clock: None });
    Demand::new(host.allowed.first().into_iter().map(target).collect())
}

#[test]
fn a_process_that_is_refused_in_part_is_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    let prepared = match choose(&host, &demand(&host)) {
        Ok(prepared) => prepared,
        Err(why) => return crate::testing::skip(&why.in_words()),
    };
    let mut node = Node::create(&prepared, "node one").unwrap();
    // One more hierarchy, of files that emu does not write to.
    let group = |hierarchy: &_| place::own_group(&host.roots.proc, node.holder.pid(), hierarchy);
    let (mut refusing, group) =
        host.cgroups.hierarchies.iter().find_map(|one| Some((one.clone(), group(one)?))).unwrap();
    let copy = dir.path().join(group.strip_prefix(&refusing.mount).unwrap());
    fs::create_dir_all(&copy).unwrap();
    fs::write(copy.join(PROCS), "").unwrap();
    refusing.mount = dir.path().to_owned();
    node.host.cgroups.hierarchies.push(refusing);

    let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = sleeper.id() as Pid;
    let groups = || fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let before = groups();
    node.adopt(pid).unwrap_err();
    assert_eq!((groups(), node.members()), (before.clone(), Vec::new()));
    node.host.cgroups.hierarchies.pop();
    node.adopt(pid).unwrap();
    assert_eq!(node.members(), [pid]);
    node.remove().1.unwrap();
    assert_eq!(groups(), before);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn what_could_not_be_stopped_is_no_member() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    let made = Prepared::named(ids::CPU_LIM, &host, &demand(&host))
        .and_then(|prepared| Node::create(&prepared, "node two"));
    let mut node = match made {
        Ok(node) => node,
        Err(why) => return crate::testing::skip(&why.in_words()),
    };
    let leaderless = fork_leaderless().unwrap();
    let state = || Stat::read(Path::new("/proc"), leaderless.pid()).map(|stat| stat.state);
    crate::testing::wait_until(|| state() == Some(b'Z'));
    let refused = node.adopt(leaderless.pid()).unwrap_err();
    assert!(refused.to_string().contains("without its first thread"), "{refused}");
    leaderless.end();
    assert!(node.leave(&[leaderless.pid()]).unwrap_err().to_string().contains("is not on the node"));
    node.remove().1.unwrap();
}

#[test]
fn one_without_its_first_thread_joins_and_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    // One more hierarchy, in which tests may be in a group of their own.
    let options = NodeOptions { memory: Some(1 << 28), ..NodeOptions::default() };
    let made = Prepared::named(ids::CPU_FREEZE, &host, &demand(&host))
        .and_then(|prepared| Node::create_with(&prepared, "node three", options));
    let mut node = match made {
        Ok(node) => node,
        Err(why) => return crate::testing::skip(&why.in_words()),
    };
    let leaderless = fork_leaderless().unwrap();
    let (proc, pid) = (Path::new("/proc"), leaderless.pid());
    crate::testing::wait_until(|| living_thread(proc, pid) != pid);
    let groups = || fs::read_to_string(format!("/proc/{}/cgroup", living_thread(proc, pid))).unwrap();
    let before = groups();
    for _ in 0..2 {
        node.adopt(pid).unwrap();
        assert_eq!(node.members(), [pid]);
        node.leave(&[pid]).unwrap();
        assert_eq!((groups(), node.members()), (before.clone(), Vec::new()));
    }
    node.adopt(pid).unwrap();
    node.remove().1.unwrap();
    assert_eq!(groups(), before);
    leaderless.end();
}

//! The processes that descend from others.

use std::collections::BTreeMap;

use emu_core::{Error, Pid, Result};
use procfs::process::{Process, all_processes};

/// All living processes that descend from one of these; a child whose parent has ended is another one's.
pub(crate) fn descendants(of: &[Pid]) -> Result<Vec<Process>> {
    let all = all_processes().map_err(|e| Error::unavailable(format!("cannot list processes: {e}")))?;
    let parent = |process: &Process| process.stat().ok().map(|stat| stat.ppid);
    let all: Vec<_> = all.flatten().filter_map(|one| Some((parent(&one)?, one))).collect();
    let parents: BTreeMap<Pid, Pid> = all.iter().map(|(parent, process)| (process.pid, *parent)).collect();
    let descends = |parent: Pid| {
        std::iter::successors(Some(parent), |pid| parents.get(pid).copied())
            // Numbers that were read at different moments may form a ring.
            .take(parents.len())
            .any(|ancestor| of.contains(&ancestor))
    };
    Ok(all.into_iter().filter(|(parent, _)| descends(*parent)).map(|(_, process)| process).collect())
}

/// Whether a process has not ended: one whose first thread has may live on in others.
pub(crate) fn lives(pid: Pid) -> bool {
    let stat = Process::new(pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X') || stat.num_threads > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn children_of_children_descend_and_others_do_not() {
        let script = "sleep 60 & echo $!; wait";
        let mut shell =
            Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        let out = shell.stdout.take().expect("a pipe");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        let sleep: Pid = line.trim().parse().unwrap();
        let pids = |of: Pid| descendants(&[of]).unwrap().iter().map(|one| one.pid).collect::<Vec<_>>();
        assert_eq!(pids(shell.id() as Pid), [sleep]);
        let all = pids(std::process::id() as Pid);
        assert!(all.contains(&sleep) && all.contains(&(shell.id() as Pid)), "{all:?}");
        assert_eq!(pids(sleep), Vec::<Pid>::new());
        for pid in [sleep, shell.id() as Pid] {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
                .unwrap();
        }
        shell.wait().unwrap();
    }
}

//! Processes by name.

use procfs::process::{Process, all_processes_with_root};

use crate::error::{Error, Result};
use crate::nearest::nearest_hint;
use crate::process::KERNEL_THREAD;
use crate::roots::Roots;
use crate::sys::Pid;

/// The kernel keeps so much of the name of a program.
const COMM_MAX: usize = 15;

/// The processes of this name, but those in `except`: by the kernel's name of the process, or by the file of its first
/// argument. They are the caller's own, of root all.
///
/// # Errors
/// Usage, where none is; `/proc` cannot be read.
pub fn processes(roots: &Roots, name: &str, except: &[Pid]) -> Result<Vec<Pid>> {
    let mut others = own_processes(roots)?;
    others.retain(|(pid, _)| !except.contains(pid));
    let is_meant = |(_, names): &&(Pid, Vec<String>)| names.iter().any(|known| known == name);
    let found: Vec<_> = others.iter().filter(is_meant).map(|(pid, _)| *pid).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let error = Error::usage(format!("no process of yours is called `{name}`"));
    let known = others.iter().flat_map(|(_, names)| names).map(String::as_str);
    Err(error.hint(nearest_hint(name, known, "`ps -e` shows those that run")))
}

/// The processes of the caller, of root all, with their names.
///
/// # Errors
/// `/proc` cannot be read.
pub fn own_processes(roots: &Roots) -> Result<Vec<(Pid, Vec<String>)>> {
    let user = nix::unistd::geteuid();
    let all = all_processes_with_root(&roots.proc)
        .map_err(|e| Error::unavailable(format!("cannot list processes: {e}")))?;
    let is_own = |process: &Process| user.is_root() || process.uid().is_ok_and(|uid| uid == user.as_raw());
    Ok(all.flatten().filter(is_own).map(|process| (process.pid, names(&process))).collect())
}

/// The names of a process that lives; a thread of the kernel has none. One whose first thread has ended has no arguments.
fn names(process: &Process) -> Vec<String> {
    let Ok(stat) = process.stat() else { return Vec::new() };
    let arguments = process.cmdline().unwrap_or_default();
    let Some(first) = arguments.first() else {
        let is_kernel = u64::from(stat.flags) & KERNEL_THREAD != 0;
        let lives = !is_kernel && (stat.state != 'Z' || stat.num_threads > 1);
        return lives.then_some(stat.comm).into_iter().collect();
    };
    // A login shell has a `-` before its name.
    let file = first.rsplit('/').next().unwrap_or(first).trim_start_matches('-').to_owned();
    // The kernel's name may be a shorter form of the file's.
    if stat.comm.len() == COMM_MAX && file.starts_with(&stat.comm) {
        vec![file]
    } else {
        vec![stat.comm, file]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::testing::signal;
    use crate::sys::fork::fork_leaderless;
    use crate::testing::wait_until;

    #[test]
    fn a_process_without_its_first_thread_has_a_name() {
        let leaderless = fork_leaderless().unwrap();
        let names = || names(&Process::new(leaderless.pid()).unwrap());
        let stat = || Process::new(leaderless.pid()).unwrap().stat().unwrap();
        wait_until(|| stat().state == 'Z');
        assert_eq!(names(), [stat().comm]);
        signal(leaderless.pid(), libc::SIGKILL);
        wait_until(|| names().is_empty());
        leaderless.end();
    }

    #[test]
    fn this_process_is_found_unless_excepted() {
        let own = std::process::id() as Pid;
        let names = names(&Process::myself().unwrap());
        let name = names.last().unwrap();
        assert!(processes(&Roots::system(), name, &[]).unwrap().contains(&own), "{names:?}");
        assert!(!processes(&Roots::system(), name, &[own]).is_ok_and(|found| found.contains(&own)));
        let error = processes(&Roots::system(), "there-is-no-such-program", &[]).unwrap_err();
        assert!(error.hint_text().is_some());
    }
}

//! Other tools that slow programs down, to be compared with. Each limits the tasks by one figure, so the CPUs of a zone must
//! have one speed.

mod cpulimit;
mod group;
mod quota;
mod weights;

pub use group::sweep;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use emu_core::{CpuList, Demand, Error, Host, MethodId, Pid, Result};
use nix::sys::signal::{Signal, killpg};

use crate::verify::Emulated;

/// A tool that can be compared with the methods.
#[derive(Debug)]
pub struct External {
    /// What `--methods`, tables and records call it.
    pub id: MethodId,
    /// What it does, in one line.
    pub summary: &'static str,
    make: fn(&Host, Limit) -> Result<Box<dyn Emulated>>,
}

/// All of them, in the order in which they are listed.
pub static EXTERNALS: [External; 3] = [cpulimit::EXTERNAL, quota::EXTERNAL, weights::EXTERNAL];

/// The tool of that name.
pub fn external(id: MethodId) -> Option<&'static External> {
    EXTERNALS.iter().find(|one| one.id == id)
}

struct Limit {
    share: f64,
    cpus: CpuList,
}

impl External {
    /// The tool, to be engaged for each sample. Changes nothing that lasts.
    pub fn emulated(&self, host: &Host, demand: &Demand) -> Result<Box<dyn Emulated>> {
        let share = demand.lowest_share();
        if demand.targets.values().any(|target| target.share > share) {
            return Err(Error::unavailable(format!(
                "{} has one limit for all CPUs, not one for each",
                self.id
            )));
        }
        (self.make)(host, Limit { share, cpus: demand.targets.keys().copied().collect() })
    }
}

fn require(program: &str) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        return Ok(());
    }
    Err(Error::unavailable(format!("{program} is not installed"))
        .hint(format!("install the package {program}")))
}

/// Killed with the thread that started it: `setpriv` of util-linux asks the kernel for that.
struct Program(Child);

impl Program {
    fn start(name: &str, arguments: &[String]) -> Result<Self> {
        use std::os::unix::process::CommandExt;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", name])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        child.map(Self).map_err(|cause| Error::io(format!("cannot start {name} by setpriv"), cause))
    }

    fn pid(&self) -> Pid {
        self.0.id() as Pid
    }

    /// Fails where it has ended by itself: then it limits nothing.
    fn check(&mut self, name: &str) -> Result<()> {
        match self.0.try_wait() {
            Ok(Some(status)) => Err(Error::unavailable(format!("{name} has ended: {status}"))),
            _ => Ok(()),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = killpg(nix::unistd::Pid::from_raw(self.pid()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// Time for a tool to start its processes or to find those that it limits.
const STARTING: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::testing::demand;
    use emu_core::{ErrorKind, Roots};
    use std::path::Path;

    #[test]
    fn tools_with_one_limit_refuse_unequal_speeds() {
        let host = Host::detect(&Roots::system()).unwrap();
        for one in &EXTERNALS {
            let refused = one.emulated(&host, &demand(&[0.4, 0.8])).err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::Unavailable);
            assert!(refused.to_string().starts_with(one.id.as_str()), "{refused}");
        }
    }

    #[test]
    fn a_program_that_is_not_installed_is_named() {
        let missing = require("no-such-limiter").unwrap_err();
        assert!(missing.to_string().contains("no-such-limiter"), "{missing}");
    }

    #[test]
    fn a_program_is_ended_when_dropped() {
        let mut program = Program::start("sleep", &["60".into()]).unwrap();
        program.check("sleep").unwrap();
        let pid = program.pid();
        drop(program);
        assert!(!Path::new("/proc").join(pid.to_string()).exists());
        let mut ended = Program::start("false", &[]).unwrap();
        let _ = ended.0.wait();
        assert!(ended.check("false").unwrap_err().to_string().contains("has ended"));
    }
}

//! Other ways to slow programs down, as their users have them.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use emu_bench::verify::Emulated;
use emu_core::{Controller, CpuList, Error, ErrorKind, Host, Pid, Result};
use nix::sys::signal::{Signal, kill, killpg};

use super::common::spawn;

/// What begins the names of groups that this bench makes.
const GROUP: &str = "emu-peer-";

/// The group of stress-ng.
const BURNERS: &str = "burners";

/// stress-ng ends after this time, in seconds, whatever becomes of this bench. No pair takes longer.
const STRESS_MAX_S: u32 = 300;

/// The period of the plain quota: the kernel's default.
const QUOTA_PERIOD_US: u64 = 100_000;

/// Debian's `cpulimit`, told to watch children.
pub(crate) struct Cpulimit {
    proc: PathBuf,
    /// Percent of one CPU, summed over CPUs.
    limit: u32,
    at_work: Option<(Child, Pid)>,
}

impl Cpulimit {
    pub(crate) fn new(host: &Host, share: f64, cpus: &CpuList) -> Result<Self> {
        require("cpulimit")?;
        let limit = (share * cpus.len() as f64 * 100.0).round() as u32;
        Ok(Self { proc: host.roots.proc.clone(), limit, at_work: None })
    }
}

impl Emulated for Cpulimit {
    fn name(&self) -> String {
        "cpulimit".into()
    }

    fn period(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn settle(&self) -> Duration {
        Duration::from_millis(1000)
    }

    fn has_helpers(&self) -> bool {
        true
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        let mut command = Command::new("cpulimit");
        command
            .args(["--quiet", "--lazy", "--monitor-forks", "--limit", &self.limit.to_string()])
            .args(["--pid", &worker.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let child = spawn(&mut command).map_err(|cause| Error::io("cannot start cpulimit", cause))?;
        self.at_work = Some((child, worker));
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        if let Some((mut child, worker)) = self.at_work.take() {
            end(&mut child);
            // What it had stopped at that moment.
            for pid in tree(&self.proc, worker) {
                let _ = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGCONT);
            }
        }
        Ok(())
    }
}

impl Drop for Cpulimit {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

/// One quota for the sum of the CPUs, as containers set it.
pub(crate) struct Quota {
    host: Host,
    /// CPU time in a period, of all CPUs.
    sum_us: u64,
    group: Option<Group>,
}

impl Quota {
    pub(crate) fn new(host: &Host, share: f64, cpus: &CpuList) -> Result<Self> {
        Group::create(host, "quota")?;
        let sum_us = (share * cpus.len() as f64 * QUOTA_PERIOD_US as f64).round() as u64;
        Ok(Self { host: host.clone(), sum_us, group: None })
    }
}

impl Emulated for Quota {
    fn name(&self) -> String {
        "quota".into()
    }

    fn period(&self) -> Duration {
        Duration::from_micros(QUOTA_PERIOD_US)
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        let group = Group::create(&self.host, "quota")?;
        if group.version == 2 {
            group.write("cpu.max", &format!("{} {QUOTA_PERIOD_US}", self.sum_us))?;
        } else {
            group.write("cpu.cfs_period_us", &QUOTA_PERIOD_US.to_string())?;
            group.write("cpu.cfs_quota_us", &self.sum_us.to_string())?;
        }
        group.take(&self.host, worker)?;
        self.group = Some(group);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        self.group.take().map_or(Ok(()), Group::remove)
    }
}

/// Weights against `stress-ng`, which keeps every CPU of the zone busy.
pub(crate) struct Shares {
    host: Host,
    share: f64,
    cpus: CpuList,
    at_work: Option<(Child, Group, Group)>,
}

impl Shares {
    pub(crate) fn new(host: &Host, share: f64, cpus: &CpuList) -> Result<Self> {
        require("stress-ng")?;
        Group::create(host, "shares")?;
        Ok(Self { host: host.clone(), share, cpus: cpus.clone(), at_work: None })
    }

    /// Two groups whose weights are to each other as the work and what is taken from it.
    fn weigh(group: &Group, share: f64) -> Result<()> {
        // v1 takes 2 to 262 144, v2 1 to 10 000.
        let weight = (share * 10_000.0).round().max(2.0);
        group.write(if group.version == 2 { "cpu.weight" } else { "cpu.shares" }, &weight.to_string())
    }
}

impl Emulated for Shares {
    fn name(&self) -> String {
        "shares".into()
    }

    fn period(&self) -> Duration {
        Duration::ZERO
    }

    fn settle(&self) -> Duration {
        Duration::from_millis(1000)
    }

    fn has_helpers(&self) -> bool {
        true
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        let (work, burners) = (Group::create(&self.host, "work")?, Group::create(&self.host, BURNERS)?);
        Self::weigh(&work, self.share)?;
        Self::weigh(&burners, 1.0 - self.share)?;
        let mut command = Command::new("stress-ng");
        command
            .args(["--quiet", "--cpu", &self.cpus.len().to_string(), "--taskset", &self.cpus.to_string()])
            .args(["--timeout", &STRESS_MAX_S.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let child = spawn(&mut command).map_err(|cause| Error::io("cannot start stress-ng", cause))?;
        let pid = child.id() as Pid;
        self.at_work = Some((child, work, burners));
        // Its workers take a moment to appear.
        std::thread::sleep(Duration::from_millis(200));
        if let Some((_, work, burners)) = &self.at_work {
            burners.take(&self.host, pid)?;
            work.take(&self.host, worker)?;
        }
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let Some((mut child, work, burners)) = self.at_work.take() else { return Ok(()) };
        end(&mut child);
        burners.remove().and(work.remove())
    }
}

impl Drop for Shares {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

/// Removes what a bench that was killed has left: groups whose names tell processes that are gone, with the burners in
/// them.
pub(crate) fn sweep(host: &Host) {
    let Some(hierarchy) = host.cgroups.with(Controller::Cpu) else { return };
    for entry in fs::read_dir(&hierarchy.own).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((kind, pid)) = name.strip_prefix(GROUP).and_then(|rest| rest.rsplit_once('-')) else {
            continue;
        };
        let is_gone = pid.parse::<u32>().is_ok_and(|pid| !host.roots.proc.join(pid.to_string()).exists());
        if !is_gone {
            continue;
        }
        let group = Group { version: hierarchy.version, folder: entry.path(), home: hierarchy.own.clone() };
        if kind == BURNERS {
            for pid in fs::read_to_string(group.folder.join("cgroup.procs")).unwrap_or_default().lines() {
                let _ = pid.parse().map(|pid| kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL));
            }
        }
        drop(group);
    }
}

/// A group of the cpu controller, made and removed by this bench.
struct Group {
    version: u8,
    folder: PathBuf,
    home: PathBuf,
}

impl Group {
    fn create(host: &Host, name: &str) -> Result<Self> {
        let hierarchy =
            host.cgroups.with(Controller::Cpu).ok_or_else(|| Error::unavailable("no cpu controller"))?;
        let home = hierarchy.own.clone();
        let folder = home.join(format!("{GROUP}{name}-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|cause| Error::file("make", &folder, cause))?;
        let group = Self { version: hierarchy.version, folder, home };
        let probe = group.folder.join(if group.version == 2 { "cpu.max" } else { "cpu.cfs_quota_us" });
        if probe.exists() { Ok(group) } else { Err(Error::unavailable("no cpu controller in a new group")) }
    }

    fn write(&self, file: &str, value: &str) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, value).map_err(|cause| Error::file(&format!("write {value} to"), &path, cause))
    }

    /// Moves a process and its children in.
    fn take(&self, host: &Host, pid: Pid) -> Result<()> {
        tree(&host.roots.proc, pid).iter().try_for_each(|pid| self.write("cgroup.procs", &pid.to_string()))
    }

    fn remove(self) -> Result<()> {
        self.clear()
    }

    /// Moves its processes back and removes it; ended ones may stay for a moment.
    fn clear(&self) -> Result<()> {
        let mut last = Ok(());
        for _ in 0..100 {
            for pid in fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default().lines() {
                let _ = fs::write(self.home.join("cgroup.procs"), pid);
            }
            match fs::remove_dir(&self.folder) {
                Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
                    last = Err(Error::file("remove", &self.folder, cause));
                    std::thread::sleep(Duration::from_millis(10));
                }
                _ => return Ok(()),
            }
        }
        last
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.clear();
    }
}

/// Ends a program of ours with all that it has started; each has its own process group.
fn end(child: &mut Child) {
    let group = nix::unistd::Pid::from_raw(child.id() as i32);
    let _ = killpg(group, Signal::SIGTERM);
    for _ in 0..100 {
        if matches!(child.try_wait(), Ok(Some(_))) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = killpg(group, Signal::SIGKILL);
    let _ = child.wait();
}

/// A process and its descendants, from `/proc/<pid>/task/<tid>/children`.
fn tree(proc: &Path, pid: Pid) -> Vec<Pid> {
    let mut pids = vec![pid];
    let mut next = 0;
    while let Some(pid) = pids.get(next).copied() {
        next += 1;
        let threads = fs::read_dir(proc.join(pid.to_string()).join("task")).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            pids.extend(children.split_ascii_whitespace().filter_map(|pid| pid.parse::<Pid>().ok()));
        }
    }
    pids
}

/// Whether a program is installed.
fn require(program: &str) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unavailable, format!("{program} is not installed")))
}

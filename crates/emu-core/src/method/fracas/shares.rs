//! The shares variant of Fracas, as published: one group of tasks against busy processes, by weight.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{
    STALL_TICKS, check_weights, cpu_folder, offline_note, online, outer_limit, owner, same_cpus, shares_note,
};
use crate::duty::holder::notes_on;
use crate::duty::{Command, Controller as Thread};
use crate::group::{Bandwidth, Rival, TaskGroup, Weights};
use crate::sys::time::{self, Nanos};
use crate::{
    Controller, CpuId, CpuStatus, Emulation, Host, Journal, MethodId, Result, Status, Target, Targets, Zone,
};

/// A group that competes with busy processes.
pub(super) struct Shares {
    targets: Targets,
    /// The version of the cpu controller's hierarchy.
    version: u8,
    zone: Bandwidth,
    rivals: Arc<Mutex<Vec<Rival>>>,
    /// The rivals are its children, and die with it.
    thread: Thread<()>,
    notes: Vec<String>,
    /// `/sys/devices/system/cpu`.
    host_cpus: PathBuf,
}

impl Shares {
    pub(super) fn engage(host: &Host, zone: &Zone, journal: &Journal) -> Result<Self> {
        let targets = &zone.demand.targets;
        let group = TaskGroup::create(host, zone, &[Controller::Cpu, Controller::Cpuset], journal)?;
        let folder = cpu_folder(&group)?.clone();
        let mut notes = [notes_on(targets), group.notes().list()].concat();
        if targets.len() > 1 {
            notes.push(shares_note(targets.len(), zone.demand.lowest_share()));
        }
        notes.extend(outer_limit(host, &folder, targets).and_then(|(_, note)| note));
        let (version, bandwidth) = (folder.version, Bandwidth::open(&folder, None, owner(zone, journal))?);
        let rivals = Arc::new(Mutex::new(Vec::new()));
        let (theirs, procfs, journal) = (Arc::clone(&rivals), host.roots.proc.clone(), journal.clone());
        let cpus = zone.demand.cpus();
        let start = move || {
            for cpu in cpus.iter() {
                let rival = Rival::start(cpu, &folder, &procfs, &journal)?;
                lock(&theirs).push(rival);
            }
            Ok(())
        };
        let thread = Thread::spawn("emu-rivals", (), start, |(), wait| {
            loop {
                let (Command::Run(()), generation) = wait.command() else { return Ok(()) };
                wait.until(Nanos::MAX, generation);
            }
        })?;
        let (targets, host_cpus) = (targets.clone(), host.roots.cpus());
        let this = Self { targets, version, zone: bandwidth, rivals, thread, notes, host_cpus };
        this.set_weights(&this.targets)?;
        Ok(this)
    }

    fn set_weights(&self, targets: &Targets) -> Result<()> {
        let weights = Weights::of(targets, self.version);
        for rival in lock(&self.rivals).iter() {
            if let Some(&weight) = weights.rivals.get(&rival.cpu()) {
                rival.set_weight(weight)?;
            }
        }
        self.zone.set_weight(weights.zone)
    }
}

/// The list is valid at any moment.
fn lock(rivals: &Mutex<Vec<Rival>>) -> MutexGuard<'_, Vec<Rival>> {
    rivals.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Emulation for Shares {
    fn retarget(&mut self, targets: &Targets) -> Result<()> {
        same_cpus(&self.targets, targets)?;
        check_weights(targets, self.version).map_err(|why| why.into_error(MethodId::Fracas))?;
        if let Err(error) = self.set_weights(targets) {
            // What the kernel had accepted before it accepts again.
            let _ = self.set_weights(&self.targets);
            return Err(error);
        }
        self.targets.clone_from(targets);
        Ok(())
    }

    fn status(&self) -> Status {
        let online = online(&self.host_cpus);
        let weights = Weights::of(&self.targets, self.version);
        let status = |(&cpu, &asked): (&CpuId, &Target)| {
            let online = online.as_ref().is_none_or(|online| online.contains(cpu));
            let share = weights.share(cpu);
            CpuStatus { cpu, asked, effective: share, duty: share, clock: None, online }
        };
        let rivals = lock(&self.rivals);
        let mut notes = self.notes.clone();
        notes.extend(rivals.iter().filter(|rival| !rival.is_alive()).map(|rival| {
            format!("the burner of CPU {} has died: the CPU is not slowed any more", rival.cpu())
        }));
        notes.extend(offline_note(&self.targets, online.as_ref()));
        Status {
            method: MethodId::Fracas,
            period: Duration::ZERO,
            periods: 0,
            missed: 0,
            longest_stall: time::tick() * STALL_TICKS,
            own_cpu: Duration::ZERO,
            burned: rivals.iter().filter_map(Rival::burned).sum(),
            others: None,
            cpus: self.targets.iter().map(status).collect(),
            notes,
        }
    }

    fn release(mut self: Box<Self>) -> Result<()> {
        lock(&self.rivals).clear();
        self.thread.stop()
    }
}

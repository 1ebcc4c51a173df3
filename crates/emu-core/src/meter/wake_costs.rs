//! The wake-up costs of a set of CPUs, measured once in a boot and kept.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;

use serde::{Deserialize, Serialize};

use super::wake_cost::{self, WakeCost};
use crate::{CpuId, CpuList, Error, ErrorKind, Host, Result};

/// Name of the file in the state folder.
const FILE: &str = "wake-costs.json";

/// Wake-up costs by CPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WakeCosts {
    /// The boot in which they were measured; another boot may bring another kernel or hypervisor.
    boot_id: String,
    cpus: BTreeMap<CpuId, WakeCost>,
}

impl WakeCosts {
    /// The costs on `cpus`: from the state folder where they were measured in this boot, else measured now.
    ///
    /// # Errors
    /// They have to be measured and cannot; see [`wake_cost::measure`].
    pub(crate) fn of(host: &Host, cpus: &CpuList) -> Result<Self> {
        let mut known = Self::load(host);
        let missing: CpuList = cpus.iter().filter(|cpu| !known.cpus.contains_key(cpu)).collect();
        if !missing.is_empty() {
            known.cpus.extend(wake_cost::measure(&missing)?);
            known.save(host);
        }
        Ok(known)
    }

    /// The cost on one of the CPUs.
    ///
    /// # Errors
    /// The CPU was not among those asked for.
    pub(crate) fn get(&self, cpu: CpuId) -> Result<WakeCost> {
        self.cpus.get(&cpu).copied().ok_or_else(|| {
            Error::new(ErrorKind::Failed, format!("the wake-up cost of CPU {cpu} is not known"))
        })
    }

    /// What is kept for this boot; a file that is missing or makes no sense counts as nothing kept.
    fn load(host: &Host) -> Self {
        fs::read_to_string(host.roots.state.join(FILE))
            .ok()
            .and_then(|text| serde_json::from_str::<Self>(&text).ok())
            // A host that does not tell its boot cannot have anything kept for it.
            .filter(|kept| !host.boot_id.is_empty() && kept.boot_id == host.boot_id)
            .filter(|kept| kept.cpus.values().all(is_plausible))
            .unwrap_or_else(|| Self { boot_id: host.boot_id.clone(), cpus: BTreeMap::new() })
    }

    /// Keeps the costs for the next emu. Where that fails they are measured again, which costs time only.
    fn save(&self, host: &Host) {
        let Ok(text) = serde_json::to_string(self) else { return };
        let Ok(mut file) = tempfile_in(host) else { return };
        let path = host.roots.state.join(FILE);
        if file.1.write_all(text.as_bytes()).is_err() || fs::rename(&file.0, path).is_err() {
            let _ = fs::remove_file(&file.0);
        }
    }
}

/// A file of our own that replaces the kept one in a single step.
fn tempfile_in(host: &Host) -> std::io::Result<(std::path::PathBuf, fs::File)> {
    let path = host.roots.state.join(format!("{FILE}.{}", std::process::id()));
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
    Ok((path, file))
}

fn is_plausible(cost: &WakeCost) -> bool {
    (0.0..1e6).contains(&cost.visible) && (0.0..1e6).contains(&cost.hidden)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing;

    fn host_in(dir: &std::path::Path) -> Host {
        let mut host = testing::host();
        host.roots.state = dir.to_owned();
        host
    }

    fn costs(host: &Host) -> WakeCosts {
        let cost = WakeCost { visible: 14_000.5, hidden: 9_000.25 };
        WakeCosts { boot_id: host.boot_id.clone(), cpus: [(0, cost)].into() }
    }

    #[test]
    fn kept_costs_come_back_in_the_same_boot_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut host = host_in(dir.path());
        costs(&host).save(&host);
        assert_eq!(WakeCosts::load(&host), costs(&host));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        host.boot_id = "another".into();
        assert!(WakeCosts::load(&host).cpus.is_empty());
    }

    #[test]
    fn a_senseless_file_counts_as_nothing_kept() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_in(dir.path());
        let negative =
            format!(r#"{{"boot_id":"{}","cpus":{{"0":{{"visible":-1,"hidden":0}}}}}}"#, host.boot_id);
        for text in ["", "{", "[]", &negative] {
            fs::write(dir.path().join(FILE), text).unwrap();
            assert!(WakeCosts::load(&host).cpus.is_empty(), "{text}");
        }
    }
}

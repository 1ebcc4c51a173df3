//! A policy of a kernel that refuses what the real one refuses, for tests.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::control::Knobs;
use crate::error::{Error, Result};
use crate::host::Policy;
use crate::roots::Roots;
use crate::speed::Hertz;
use crate::undo::Journal;

/// The frequency table is in MHz.
pub(crate) fn policy(number: usize, cpus: &str, mhz: &[u64]) -> Policy {
    let table: Vec<_> = mhz.iter().map(|mhz| Hertz(mhz * 1_000_000)).collect();
    Policy {
        path: format!("/sys/devices/system/cpu/cpufreq/policy{number}").into(),
        cpus: cpus.parse().unwrap(),
        domain: None,
        driver: "acpi-cpufreq".into(),
        governor: "schedutil".into(),
        governors: vec!["userspace".into(), "schedutil".into()],
        hardware_min: table.first().copied(),
        hardware_max: table.last().copied(),
        min: table.first().copied(),
        max: table.last().copied(),
        frequencies: table,
        base: None,
        bios_limit: None,
        transition_latency: Some(std::time::Duration::from_micros(10)),
        boost: None,
        epp: None,
    }
}

/// Roots with the real `/proc` and an otherwise empty tree below `dir`, and a journal there.
pub(crate) fn journal(dir: &Path) -> (Roots, Journal) {
    let roots = Roots { proc: "/proc".into(), ..Roots::below(dir) };
    fs::create_dir_all(&roots.sys).unwrap();
    let journal = Journal::open(&roots, &"0".parse().unwrap(), "cpu-freq", "test").unwrap();
    (roots, journal)
}

/// The files may only be written as drivers/cpufreq/cpufreq.c allows it: `scaling_setspeed` only under `userspace`, and
/// `<unsupported>` else; min > max is refused.
#[derive(Debug, Clone)]
pub(crate) struct Simulated {
    folder: PathBuf,
    /// Writes of this value fail with this error number.
    pub(crate) refused: Option<(&'static str, i32)>,
    /// What is stored instead of every frequency.
    pub(crate) stored: Option<&'static str>,
}

impl Simulated {
    pub(crate) fn new(folder: &Path, governor: &str) -> Self {
        fs::create_dir_all(folder).unwrap();
        let simulated = Self { folder: folder.to_owned(), refused: None, stored: None };
        simulated.put("scaling_min_freq", "800000");
        simulated.put("scaling_max_freq", "2600000");
        simulated.put("scaling_setspeed", "2600000");
        simulated.put("scaling_governor", governor);
        simulated
    }

    pub(crate) fn get(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap().trim().to_owned()
    }

    fn put(&self, name: &str, value: &str) {
        fs::write(self.path(name), value).unwrap();
    }

    fn is_allowed(&self, name: &str, value: &str) -> bool {
        let number = value.parse::<u64>().ok();
        let limit = |file: &str| self.get(file).parse::<u64>().unwrap();
        match (name, number) {
            ("scaling_governor", _) => ["userspace", "schedutil", "performance"].contains(&value),
            ("scaling_setspeed", Some(_)) => self.get("scaling_governor") == "userspace",
            ("scaling_min_freq", Some(khz)) => khz <= limit("scaling_max_freq"),
            ("scaling_max_freq", Some(khz)) => khz >= limit("scaling_min_freq"),
            _ => false,
        }
    }
}

impl Knobs for Simulated {
    fn read(&self, name: &str) -> Result<String> {
        let is_unsupported = name == "scaling_setspeed" && self.get("scaling_governor") != "userspace";
        Ok(if is_unsupported { "<unsupported>".into() } else { self.get(name) })
    }

    fn write(&self, name: &str, value: &str) -> Result<()> {
        let code = match self.refused {
            Some((refused, code)) if refused == value => Some(code),
            _ => (!self.is_allowed(name, value)).then_some(libc::EINVAL),
        };
        if let Some(code) = code {
            let message = format!("cannot write `{value}` to {}", self.path(name).display());
            return Err(Error::io(message, io::Error::from_raw_os_error(code)));
        }
        let is_frequency = value.parse::<u64>().is_ok();
        self.put(name, self.stored.filter(|_| is_frequency).unwrap_or(value));
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

//! A policy of a kernel that refuses what the real one refuses, for tests.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::control::Knobs;
use crate::{Error, Hertz, Policy, Result};

/// A policy with a frequency table in MHz and the `userspace` governor among its governors.
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

/// The files of a simulated policy. Rules as in drivers/cpufreq/cpufreq.c: `scaling_setspeed` only under
/// `userspace`, and `<unsupported>` else; limits are clamped to the hardware's and min > max is refused.
#[derive(Clone)]
pub(crate) struct Simulated {
    files: Arc<Mutex<BTreeMap<String, String>>>,
    folder: PathBuf,
}

impl Simulated {
    /// Its paths lie below `sys`, as the journal wants it.
    pub(crate) fn new(sys: &Path, governor: &str) -> Self {
        let files = [
            ("scaling_governor", governor),
            ("scaling_min_freq", "800000"),
            ("scaling_max_freq", "2600000"),
            ("scaling_cur_freq", "2600000"),
            ("speed", "2600000"),
        ];
        let files = files.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let folder = sys.join("devices/system/cpu/cpufreq/policy0");
        Self { files: Arc::new(Mutex::new(files)), folder }
    }

    pub(crate) fn get(&self, name: &str) -> String {
        self.files.lock().unwrap().get(name).cloned().unwrap_or_default()
    }
}

impl Knobs for Simulated {
    fn read(&self, name: &str) -> Result<String> {
        if name == "scaling_setspeed" {
            let user = self.get("scaling_governor") == "userspace";
            return Ok(if user { self.get("speed") } else { "<unsupported>".into() });
        }
        Ok(self.get(name))
    }

    fn write(&self, name: &str, value: &str) -> Result<()> {
        let refuse = |code| {
            let message = format!("cannot write `{value}` to {}", self.path(name).display());
            Err(Error::io(message, io::Error::from_raw_os_error(code)))
        };
        let number = value.parse::<u64>().ok();
        let limit = |file: &str| self.get(file).parse::<u64>().unwrap_or(0);
        match (name, number) {
            ("scaling_governor", _) if ["userspace", "schedutil", "performance"].contains(&value) => {}
            ("scaling_setspeed", Some(khz)) if self.get("scaling_governor") == "userspace" => {
                let khz = khz.clamp(limit("scaling_min_freq"), limit("scaling_max_freq"));
                let mut files = self.files.lock().unwrap();
                files.insert("speed".into(), khz.to_string());
                files.insert("scaling_cur_freq".into(), khz.to_string());
                return Ok(());
            }
            ("scaling_min_freq", Some(khz)) if khz <= limit("scaling_max_freq") => {}
            ("scaling_max_freq", Some(khz)) if khz >= limit("scaling_min_freq") => {}
            _ => return refuse(libc::EINVAL),
        }
        self.files.lock().unwrap().insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

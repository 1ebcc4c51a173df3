//! The tunables of a governor, which the kernel throws away when the last policy leaves it.

use std::fs;
use std::path::PathBuf;

use crate::control_file;
use crate::error::Result;
use crate::host::Policy;
use crate::undo::{Journal, Undo};

/// The files of a governor with their values: those of the policy, and those that all policies share
/// (Documentation/admin-guide/pm/cpufreq.rst, "Generic Scaling Governors").
#[derive(Debug)]
pub(super) struct Tunables(Vec<(PathBuf, String)>);

impl Tunables {
    /// Empty for governors without tunables.
    pub(super) fn of(policy: &Policy, governor: &str) -> Self {
        let shared = policy.path.parent().map(|folder| folder.join(governor));
        let folders = shared.into_iter().chain([policy.path.join(governor)]);
        let files = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        Self(files.filter_map(|file| Some((file.path(), control_file::read(&file.path()).ok()?))).collect())
    }

    pub(super) fn are_gone(&self) -> bool {
        self.0.iter().any(|(path, _)| !path.exists())
    }

    /// Records those that have another value now, which is the default: to be called when the governor has just come back. The
    /// governor's own record must follow, so that it is undone first.
    pub(super) fn record(&self, journal: &Journal) -> Result<()> {
        for (path, old) in &self.0 {
            let new = control_file::read(path)?;
            if new != *old {
                journal.record(&Undo::File { path: path.clone(), old: old.clone(), new: vec![new] })?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulated;
    use super::*;

    #[test]
    fn tunables_that_come_back_with_other_values_are_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let (roots, journal) = simulated::journal(dir.path());
        let cpufreq = roots.cpus().join("cpufreq");
        let write = |file: &str, value: &str| {
            let path = cpufreq.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        };
        write("ondemand/up_threshold", "70\n");
        write("ondemand/sampling_rate", "10000\n");
        write("policy0/ondemand/powersave_bias", "5\n");
        let mut policy = simulated::policy(0, "0", &[800]);
        policy.path = cpufreq.join("policy0");
        let tunables = Tunables::of(&policy, "ondemand");
        assert!(!tunables.are_gone());
        fs::remove_dir_all(cpufreq.join("ondemand")).unwrap();
        assert!(tunables.are_gone());
        write("ondemand/up_threshold", "95\n");
        write("ondemand/sampling_rate", "10000\n");
        tunables.record(&journal).unwrap();
        journal.undo_all().unwrap();
        let read = |file: &str| fs::read_to_string(cpufreq.join(file)).unwrap();
        assert_eq!(read("ondemand/up_threshold").trim(), "70");
        assert_eq!(read("ondemand/sampling_rate").trim(), "10000");
        assert_eq!(read("policy0/ondemand/powersave_bias").trim(), "5");
        assert!(!Tunables::of(&policy, "performance").are_gone());
    }
}

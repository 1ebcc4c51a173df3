//! Setting the frequency of one policy, with everything recorded before it is changed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::{Error, ErrorKind, Hertz, Journal, Policy, Result, Undo, control_file};

/// The kernel files of a policy; tests put a simulated kernel in their place.
pub(crate) trait Knobs: Send {
    /// Reads a file of the policy.
    fn read(&self, name: &str) -> Result<String>;
    /// Writes a file of the policy.
    fn write(&self, name: &str, value: &str) -> Result<()>;
    /// The path of a file, for the journal and for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// The files in sysfs.
pub(crate) struct Sysfs(PathBuf);

impl Knobs for Sysfs {
    fn read(&self, name: &str) -> Result<String> {
        control_file::read(&self.path(name))
    }

    fn write(&self, name: &str, value: &str) -> Result<()> {
        control_file::write(&self.path(name), value)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

const GOVERNOR: &str = "scaling_governor";
const SETSPEED: &str = "scaling_setspeed";
const MIN: &str = "scaling_min_freq";
const MAX: &str = "scaling_max_freq";
const CURRENT: &str = "scaling_cur_freq";

/// How a frequency is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// `scaling_setspeed` under the `userspace` governor.
    Setspeed,
    /// `scaling_min_freq` = `scaling_max_freq`, for drivers without that governor.
    Clamp,
}

/// A policy taken over for setting its frequency. The journal gives it back.
pub(crate) struct Control {
    knobs: Box<dyn Knobs>,
    how: How,
    journal: Journal,
    /// The files as found.
    found: Vec<(&'static str, String)>,
    /// Values that the journal knows as ours, by file.
    known: BTreeSet<(&'static str, String)>,
}

impl Control {
    /// Takes over a policy: selects the `userspace` governor where there is one.
    ///
    /// # Errors
    /// A file cannot be read or written, e.g. because a CPU of the policy is offline (`EBUSY`).
    pub(crate) fn take(policy: &Policy, journal: &Journal) -> Result<Self> {
        Self::take_from(Box::new(Sysfs(policy.path.clone())), policy, journal)
    }

    pub(crate) fn take_from(knobs: Box<dyn Knobs>, policy: &Policy, journal: &Journal) -> Result<Self> {
        let how = if policy.governors.iter().any(|governor| governor == "userspace") {
            How::Setspeed
        } else {
            How::Clamp
        };
        let mut control =
            Self { knobs, how, journal: journal.clone(), found: vec![], known: BTreeSet::new() };
        let files: &[&'static str] = match how {
            How::Setspeed => &[MIN, MAX, GOVERNOR, SETSPEED],
            How::Clamp => &[MIN, MAX],
        };
        for file in files {
            let value = control.knobs.read(file)?;
            control.found.push((file, value));
        }
        if how == How::Setspeed && control.found(GOVERNOR) != Some("userspace") {
            // The speed set belongs to the governor and goes with it.
            control.found.retain(|(file, _)| *file != SETSPEED);
            control.change(GOVERNOR, "userspace")?;
        }
        Ok(control)
    }

    /// Announces the frequencies that will be set, so that setting them needs no further record.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub(crate) fn announce(&mut self, levels: &[Hertz]) -> Result<()> {
        let files: &[&'static str] = match self.how {
            How::Setspeed => &[SETSPEED],
            How::Clamp => &[MIN, MAX],
        };
        for file in files {
            self.record(file, levels.iter().map(|level| khz(*level)).collect())?;
        }
        Ok(())
    }

    /// Sets the frequency; [`announce`](Self::announce) comes first.
    ///
    /// # Errors
    /// The kernel refuses the value.
    pub(crate) fn set(&mut self, level: Hertz) -> Result<()> {
        let value = khz(level);
        match self.how {
            How::Setspeed => self.knobs.write(SETSPEED, &value),
            How::Clamp => {
                // min ≤ max must hold at every write.
                let max = self.knobs.read(MAX)?.parse::<u64>().unwrap_or(0);
                let order = if level.0 / 1000 > max { [MAX, MIN] } else { [MIN, MAX] };
                for file in order {
                    self.knobs.write(file, &value)?;
                }
                Ok(())
            }
        }
    }

    /// Widens the policy's limits so that `level` can be set.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn make_room(&mut self, level: Hertz) -> Result<()> {
        if self.how == How::Clamp {
            return Ok(());
        }
        let (wanted, value) = (level.0 / 1000, khz(level));
        if self.knobs.read(MAX)?.parse::<u64>().is_ok_and(|max| max < wanted) {
            self.change(MAX, &value)?;
        }
        if self.knobs.read(MIN)?.parse::<u64>().is_ok_and(|min| min > wanted) {
            self.change(MIN, &value)?;
        }
        Ok(())
    }

    /// Whether the policy is still ours: nobody has changed the governor or the limits since.
    ///
    /// # Errors
    /// A file cannot be read (a CPU went offline), or somebody has changed it.
    pub(crate) fn check(&self, expected: &[Hertz]) -> Result<()> {
        if self.how == How::Setspeed {
            let governor = self.knobs.read(GOVERNOR)?;
            if governor != "userspace" {
                return Err(self.meddled(GOVERNOR, &governor));
            }
        }
        let current = self.current()?;
        if expected.contains(&current) || self.how == How::Clamp {
            return Ok(());
        }
        Err(self.meddled(CURRENT, &khz(current)))
    }

    /// The frequency that the kernel says is set: `scaling_cur_freq`; on clamped policies the limit, as the
    /// current one is a measurement there.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn current(&self) -> Result<Hertz> {
        let file = if self.how == How::Setspeed { CURRENT } else { MAX };
        let text = self.knobs.read(file)?;
        let khz = text.parse().map_err(|_| {
            Error::new(
                ErrorKind::Failed,
                format!("unexpected `{text}` in {}", self.knobs.path(file).display()),
            )
        })?;
        Ok(Hertz::from_khz(khz))
    }

    fn meddled(&self, file: &str, value: &str) -> Error {
        Error::new(
            ErrorKind::Failed,
            format!("{} is `{value}`, which emu did not set", self.knobs.path(file).display()),
        )
        .hint("a power daemon or another tool changes the frequency too; stop it, or check for a firmware limit")
    }

    fn found(&self, file: &str) -> Option<&str> {
        self.found.iter().find(|(name, _)| *name == file).map(|(_, value)| value.as_str())
    }

    /// Records one value for a file and writes it.
    fn change(&mut self, file: &'static str, value: &str) -> Result<()> {
        self.record(file, vec![value.to_owned()])?;
        self.knobs.write(file, value)
    }

    fn record(&mut self, file: &'static str, values: Vec<String>) -> Result<()> {
        let Some(old) = self.found(file).map(str::to_owned) else { return Ok(()) };
        let new: Vec<_> =
            values.into_iter().filter(|value| self.known.insert((file, value.clone()))).collect();
        if new.is_empty() {
            return Ok(());
        }
        self.journal.record(&Undo::File { path: self.knobs.path(file), old, new })
    }
}

fn khz(level: Hertz) -> String {
    (level.0 / 1000).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::simulated::{Simulated, policy};
    use super::*;
    use crate::{CpuList, Roots};

    fn journal(dir: &std::path::Path) -> Journal {
        for folder in ["sys", "proc", "run"] {
            std::fs::create_dir_all(dir.join(folder)).unwrap();
        }
        // The journal looks up who holds it in the real procfs.
        let roots = Roots { proc: "/proc".into(), ..Roots::below(dir) };
        let cpus: CpuList = "0".parse().unwrap();
        Journal::open(&roots, &cpus, "cpu-freq", "test").unwrap()
    }

    fn take(kernel: &Simulated, governors: &[&str], journal: &Journal) -> Result<Control> {
        let mut policy = policy(0, "0", &[800, 1000, 1400, 1800, 2200, 2600]);
        policy.governors = governors.iter().map(|&governor| governor.to_owned()).collect();
        Control::take_from(Box::new(kernel.clone()), &policy, journal)
    }

    #[test]
    fn setspeed_is_used_where_the_userspace_governor_is() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Simulated::new(&dir.path().join("sys"), "schedutil");
        let mut control = take(&kernel, &["schedutil", "userspace"], &journal(dir.path())).unwrap();
        let level = Hertz(1_400_000_000);
        control.announce(&[level]).unwrap();
        control.set(level).unwrap();
        assert_eq!(kernel.get("scaling_governor"), "userspace");
        assert_eq!(control.current().unwrap(), level);
        assert!(control.check(&[level]).is_ok());
    }

    #[test]
    fn limits_are_moved_in_the_order_that_the_kernel_accepts() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Simulated::new(&dir.path().join("sys"), "performance");
        let mut control = take(&kernel, &["performance"], &journal(dir.path())).unwrap();
        // Down, up, and down again: each order of the two writes is refused by the kernel in one direction.
        for mhz in [1000, 2200, 800] {
            let level = Hertz(mhz * 1_000_000);
            control.announce(&[level]).unwrap();
            control.set(level).unwrap();
            assert_eq!(kernel.get("scaling_min_freq"), khz(level));
            assert_eq!(kernel.get("scaling_max_freq"), khz(level));
        }
    }

    #[test]
    fn a_limit_in_the_way_is_widened() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Simulated::new(&dir.path().join("sys"), "schedutil");
        kernel.write("scaling_max_freq", "1000000").unwrap();
        let mut control = take(&kernel, &["userspace", "schedutil"], &journal(dir.path())).unwrap();
        let level = Hertz(2_200_000_000);
        control.make_room(level).unwrap();
        control.announce(&[level]).unwrap();
        control.set(level).unwrap();
        assert_eq!(control.current().unwrap(), level);
    }

    #[test]
    fn a_governor_that_somebody_else_selects_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = Simulated::new(&dir.path().join("sys"), "userspace");
        let mut control = take(&kernel, &["userspace", "schedutil"], &journal(dir.path())).unwrap();
        let level = Hertz(1_000_000_000);
        control.announce(&[level]).unwrap();
        control.set(level).unwrap();
        kernel.write("scaling_governor", "schedutil").unwrap();
        let error = control.check(&[level]).unwrap_err();
        assert!(error.to_string().contains("scaling_governor is `schedutil`"), "{error}");
        let refused = control.set(level).unwrap_err();
        assert!(refused.to_string().contains("cannot write `1000000`"), "{refused}");
    }
}

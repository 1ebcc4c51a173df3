//! Setting the frequency of one policy, with everything recorded before it is changed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::tunables::Tunables;
use crate::control_file;
use crate::error::{Error, ErrorKind, Result};
use crate::host::Policy;
use crate::speed::Hertz;
use crate::sys::time;
use crate::undo::Recent;
use crate::undo::{Journal, Undo};

/// Tests put a simulated kernel in the place of `Sysfs`.
pub(crate) trait Knobs: Send + Sync {
    fn read(&self, name: &str) -> Result<String>;
    fn write(&self, name: &str, value: &str) -> Result<()>;
    /// For the journal and for messages.
    fn path(&self, name: &str) -> PathBuf;
}

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

const LOOKS: u32 = 20;
const LOOK_EVERY: Duration = Duration::from_millis(1);

const USERSPACE: &str = "userspace";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// `scaling_setspeed` under the `userspace` governor.
    Setspeed,
    /// `scaling_min_freq` = `scaling_max_freq`, for drivers without that governor.
    Clamp,
}

/// The journal gives the policy back.
pub(crate) struct Control {
    knobs: Arc<dyn Knobs>,
    how: How,
    journal: Journal,
    /// The files as found.
    found: BTreeMap<&'static str, String>,
    /// Values that the journal knows as ours, by file.
    known: BTreeMap<&'static str, Recent>,
}

#[derive(Clone)]
pub(crate) struct Setter {
    knobs: Arc<dyn Knobs>,
    how: How,
}

/// Selects a governor for a policy and leaves it at that. The journal gives back the one found, with its tunables.
///
/// # Errors
/// A file cannot be read, or the kernel refuses the governor.
pub fn select_governor(policy: &Policy, governor: &str, journal: &Journal) -> Result<()> {
    let knobs = Arc::new(Sysfs(policy.path.clone()));
    let found = [(GOVERNOR, knobs.read(GOVERNOR)?)].into();
    let (how, journal) = (How::Setspeed, journal.clone());
    Control { knobs, how, journal, found, known: BTreeMap::new() }.select_governor(policy, governor)
}

impl Control {
    /// Selects the `userspace` governor where there is one. A file cannot be read or written (`EBUSY`) while all CPUs of the
    /// policy are offline.
    pub(crate) fn take(policy: &Policy, journal: &Journal) -> Result<Self> {
        Self::take_from(Arc::new(Sysfs(policy.path.clone())), policy, journal)
    }

    pub(crate) fn take_from(knobs: Arc<dyn Knobs>, policy: &Policy, journal: &Journal) -> Result<Self> {
        let how = if policy.governors.iter().any(|governor| governor == USERSPACE) {
            How::Setspeed
        } else {
            How::Clamp
        };
        let mut control =
            Self { knobs, how, journal: journal.clone(), found: BTreeMap::new(), known: BTreeMap::new() };
        let files: &[&'static str] = match how {
            How::Setspeed => &[MIN, MAX, GOVERNOR, SETSPEED],
            How::Clamp => &[MIN, MAX],
        };
        for file in files {
            let value = control.knobs.read(file)?;
            control.found.insert(file, value);
        }
        if how == How::Setspeed {
            control.select_governor(policy, USERSPACE)?;
        }
        Ok(control)
    }

    fn select_governor(&mut self, policy: &Policy, governor: &str) -> Result<()> {
        let Some(old) = self.found.get(GOVERNOR).filter(|found| *found != governor).cloned() else {
            return Ok(());
        };
        // The speed set belongs to the governor and goes with it.
        self.found.remove(SETSPEED);
        let tunables = Tunables::of(policy, &old);
        self.change(GOVERNOR, governor)?;
        if tunables.are_gone() {
            // The kernel has dropped the old governor's tunables. It is selected again briefly to read the defaults that undo
            // will find. At undo the governor must be back before its tunables, so it is recorded again after them (newest
            // first).
            self.knobs.write(GOVERNOR, &old)?;
            tunables.record(&self.journal)?;
            self.known.remove(GOVERNOR);
            self.change(GOVERNOR, governor)?;
        }
        Ok(())
    }

    /// Makes way for frequencies that will be set: records them, and widens the policy's limits to them.
    pub(crate) fn prepare(&mut self, levels: &[Hertz]) -> Result<()> {
        let values = || levels.iter().map(|level| khz(*level));
        if self.how == How::Clamp {
            // What is recorded last is undone first. The kernel would not take a largest frequency below the smallest one.
            let found = self.found.get(MAX).and_then(|found| found.parse().ok()).map(Hertz::from_khz);
            let is_raised = found.is_some() && levels.iter().max() > found.as_ref();
            let order = if is_raised { [MAX, MIN] } else { [MIN, MAX] };
            return order.into_iter().try_for_each(|limit| self.record(limit, values()));
        }
        for level in levels {
            if self.limit(MAX)? < *level {
                self.change(MAX, &khz(*level))?;
            }
            if self.limit(MIN)? > *level {
                self.change(MIN, &khz(*level))?;
            }
        }
        // After the limits, and so undone before them: a limit that comes back first would move the speed to itself, which then
        // would not look like ours any more.
        self.record(SETSPEED, values())
    }

    /// The frequency has been [prepared](Self::prepare).
    pub(crate) fn set(&self, level: Hertz) -> Result<()> {
        self.setter().set(level)
    }

    pub(crate) fn setter(&self) -> Setter {
        Setter { knobs: Arc::clone(&self.knobs), how: self.how }
    }

    /// Whether the policy is still ours and can have all of `levels`, one of which is set. What has just been written may show
    /// a moment later: the kernel puts limits into force by a worker. Fails where a file cannot be read (`EBUSY`: the CPUs are
    /// offline), or somebody has changed the governor, a limit or the speed; so does the kernel where the firmware or the
    /// temperature demands it.
    pub(crate) fn check(&self, levels: &[Hertz]) -> Result<()> {
        for _ in 0..LOOKS {
            if self.look(levels).is_ok() {
                return Ok(());
            }
            time::sleep(LOOK_EVERY);
        }
        self.look(levels)
    }

    /// As [`check`](Self::check), right after a level was set. What is there instead, the kernel has made of it: it is emu's to
    /// undo.
    pub(crate) fn confirm(&mut self, levels: &[Hertz]) -> Result<()> {
        let confirmed = self.check(levels);
        if confirmed.is_err() {
            for file in [MIN, MAX, SETSPEED] {
                if self.known.contains_key(file) {
                    let now = self.knobs.read(file)?;
                    self.record(file, [now])?;
                }
            }
        }
        confirmed
    }

    fn look(&self, levels: &[Hertz]) -> Result<()> {
        if self.how == How::Setspeed {
            let governor = self.knobs.read(GOVERNOR)?;
            if governor != USERSPACE {
                return Err(self.meddled(GOVERNOR, &governor));
            }
            for (file, in_the_way) in [(MAX, Hertz::lt as fn(&Hertz, &Hertz) -> bool), (MIN, Hertz::gt)] {
                let limit = self.limit(file)?;
                if levels.iter().any(|level| in_the_way(&limit, level)) {
                    return Err(self.meddled(file, &khz(limit)));
                }
            }
        }
        let file = self.speed_file();
        let speed = self.limit(file)?;
        if levels.contains(&speed) { Ok(()) } else { Err(self.meddled(file, &khz(speed))) }
    }

    /// The frequency that is set. `scaling_cur_freq` would not do: on x86 it is a measurement of the last milliseconds where
    /// the hardware offers one.
    pub(crate) fn current(&self) -> Result<Hertz> {
        self.limit(self.speed_file())
    }

    fn speed_file(&self) -> &'static str {
        match self.how {
            How::Setspeed => SETSPEED,
            How::Clamp => MAX,
        }
    }

    fn limit(&self, file: &str) -> Result<Hertz> {
        read_frequency(&*self.knobs, file)
    }

    fn meddled(&self, file: &str, value: &str) -> Error {
        Error::new(
            ErrorKind::Failed,
            format!("{} is `{value}`, which emu did not set", self.knobs.path(file).display()),
        )
        .hint("a power daemon or another tool changes the frequency too; stop it, or check for a limit by firmware or heat")
    }

    fn change(&mut self, file: &'static str, value: &str) -> Result<()> {
        self.record(file, [value.to_owned()])?;
        self.knobs.write(file, value)
    }

    /// Has the journal know values of a file as ours. Each record of a file names those before it, too: another thread may
    /// still be setting them.
    fn record(&mut self, file: &'static str, values: impl IntoIterator<Item = String>) -> Result<()> {
        let Some(old) = self.found.get(file) else { return Ok(()) };
        let known = self.known.entry(file).or_default();
        let values: Vec<_> = values.into_iter().collect();
        let are_known = values.iter().all(|value| known.has(value));
        known.add(values.iter().map(String::as_str));
        if are_known {
            return Ok(());
        }
        let new = known.values().to_vec();
        self.journal.record(&Undo::File { path: self.knobs.path(file), old: old.clone(), new })
    }
}

impl Setter {
    pub(crate) fn set(&self, level: Hertz) -> Result<()> {
        let value = khz(level);
        match self.how {
            How::Setspeed => self.knobs.write(SETSPEED, &value),
            How::Clamp => {
                // min ≤ max must hold at every write.
                let order = if level > read_frequency(&*self.knobs, MAX)? { [MAX, MIN] } else { [MIN, MAX] };
                order.iter().try_for_each(|file| self.knobs.write(file, &value))
            }
        }
    }
}

fn read_frequency(knobs: &dyn Knobs, file: &str) -> Result<Hertz> {
    let text = knobs.read(file)?;
    text.parse().map(Hertz::from_khz).map_err(|_| control_file::unexpected(&text, &knobs.path(file)))
}

fn khz(level: Hertz) -> String {
    (level.0 / 1000).to_string()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tempfile::{TempDir, tempdir};

    use super::super::simulated::{self, Simulated};
    use super::*;
    use crate::error::ErrorKind;

    const BOTH: [&str; 2] = ["schedutil", "userspace"];

    fn mhz(mhz: u64) -> Hertz {
        Hertz(mhz * 1_000_000)
    }

    /// A policy under a governor, and a journal.
    fn kernel(governor: &str) -> (TempDir, Simulated, Journal) {
        let dir = tempdir().unwrap();
        let (roots, journal) = simulated::journal(dir.path());
        let kernel = Simulated::new(&roots.cpus().join("cpufreq/policy0"), governor);
        (dir, kernel, journal)
    }

    fn take(kernel: &Simulated, governors: &[&str], journal: &Journal) -> Result<Control> {
        let mut policy = simulated::policy(0, "0", &[800, 1000, 1400, 1800, 2200, 2600]);
        policy.path = kernel.path("").parent().unwrap_or(Path::new("/")).to_owned();
        policy.governors = governors.iter().map(|&governor| governor.to_owned()).collect();
        Control::take_from(Arc::new(kernel.clone()), &policy, journal)
    }

    fn set(control: &mut Control, level: Hertz) -> Result<()> {
        control.prepare(&[level])?;
        control.set(level)
    }

    #[test]
    fn setspeed_is_used_where_the_userspace_governor_is() {
        let (_dir, kernel, journal) = kernel("schedutil");
        let mut control = take(&kernel, &BOTH, &journal).unwrap();
        set(&mut control, mhz(1400)).unwrap();
        assert_eq!(kernel.get("scaling_governor"), "userspace");
        assert_eq!(control.current().unwrap(), mhz(1400));
        assert!(control.check(&[mhz(1400)]).is_ok());
    }

    #[test]
    fn limits_are_moved_in_the_order_that_the_kernel_accepts() {
        let (_dir, kernel, journal) = kernel("performance");
        let mut control = take(&kernel, &["performance"], &journal).unwrap();
        // Down, up, and down again: each order of the two writes is refused by the kernel in one direction.
        for level in [1000, 2200, 800].map(mhz) {
            set(&mut control, level).unwrap();
            assert_eq!(kernel.get("scaling_min_freq"), khz(level));
            assert_eq!(kernel.get("scaling_max_freq"), khz(level));
            assert!(control.check(&[level]).is_ok());
        }
    }

    #[test]
    fn a_limit_in_the_way_is_widened() {
        let (_dir, kernel, journal) = kernel("schedutil");
        kernel.write("scaling_max_freq", "1000000").unwrap();
        let mut control = take(&kernel, &BOTH, &journal).unwrap();
        set(&mut control, mhz(2200)).unwrap();
        assert_eq!(control.current().unwrap(), mhz(2200));
    }

    #[test]
    fn the_speed_is_undone_before_the_limits_that_would_move_it() {
        let (_dir, kernel, journal) = kernel("userspace");
        kernel.write("scaling_min_freq", "1400000").unwrap();
        let mut control = take(&kernel, &BOTH, &journal).unwrap();
        // Undone newest first.
        let newest = || {
            let text = std::fs::read_to_string(journal.path()).unwrap();
            text.lines().rfind(|line| line.contains("scaling_")).unwrap().contains(SETSPEED)
        };
        for level in [1000, 800].map(mhz) {
            set(&mut control, level).unwrap();
            assert!(newest());
        }
    }

    #[test]
    fn a_governor_that_somebody_else_selects_is_noticed() {
        let (_dir, kernel, journal) = kernel("userspace");
        let mut control = take(&kernel, &BOTH, &journal).unwrap();
        set(&mut control, mhz(1000)).unwrap();
        kernel.write("scaling_governor", "schedutil").unwrap();
        let error = control.check(&[mhz(1000)]).unwrap_err();
        assert!(error.to_string().contains("scaling_governor is `schedutil`"), "{error}");
        let refused = control.set(mhz(1000)).unwrap_err();
        assert!(refused.to_string().contains("cannot write `1000000`"), "{refused}");
    }

    #[test]
    fn a_limit_that_comes_later_is_noticed() {
        let (_dir, kernel, journal) = kernel("schedutil");
        let mut control = take(&kernel, &BOTH, &journal).unwrap();
        set(&mut control, mhz(2200)).unwrap();
        kernel.write("scaling_max_freq", "1400000").unwrap();
        let error = control.check(&[mhz(2200)]).unwrap_err();
        assert!(error.to_string().contains("scaling_max_freq is `1400000`"), "{error}");
    }

    #[test]
    fn what_the_driver_made_of_a_frequency_is_undone() {
        for governors in [&["performance"][..], &BOTH] {
            let (_dir, mut kernel, journal) = kernel("performance");
            kernel.stored = Some("1399000");
            let mut control = take(&kernel, governors, &journal).unwrap();
            set(&mut control, mhz(1400)).unwrap();
            assert!(control.confirm(&[mhz(1400)]).unwrap_err().to_string().contains("`1399000`"));
            journal.undo_all().unwrap();
            let now = [MIN, MAX, GOVERNOR].map(|file| kernel.get(file));
            assert_eq!(
                (now, journal.notes()),
                (["800000", "2600000", "performance"].map(String::from), vec![])
            );
        }
    }

    #[test]
    fn every_record_of_a_file_names_the_values_before_it_too() {
        let (_dir, kernel, journal) = kernel("userspace");
        let mut control = take(&kernel, &["userspace"], &journal).unwrap();
        control.prepare(&[mhz(1000)]).unwrap();
        control.prepare(&[mhz(1400)]).unwrap();
        let text = std::fs::read_to_string(journal.path()).unwrap();
        let newest = text.lines().rfind(|line| line.contains(SETSPEED)).unwrap();
        assert!(newest.contains("1000000") && newest.contains("1400000"), "{newest}");
    }

    #[test]
    fn whatever_is_refused_half_way_all_policies_are_as_before() {
        let files = [GOVERNOR, MIN, MAX];
        for (refused, code, kind) in [
            ("userspace", libc::EINVAL, ErrorKind::Failed),
            ("userspace", libc::EACCES, ErrorKind::NotPermitted),
            ("2200000", libc::EBUSY, ErrorKind::Failed),
        ] {
            let (_dir, first, journal) = kernel("schedutil");
            let mut second =
                Simulated::new(&first.path("").parent().unwrap().with_file_name("policy1"), "performance");
            for policy in [&first, &second] {
                policy.write(MAX, "1400000").unwrap();
            }
            let before = [&first, &second].map(|policy| files.map(|file| policy.get(file)));
            second.refused = Some((refused, code));
            let outcome = [&first, &second]
                .into_iter()
                .try_for_each(|policy| set(&mut take(policy, &BOTH, &journal)?, mhz(2200)));
            let error = outcome.unwrap_err();
            assert_eq!((error.kind(), error.raw_os_error()), (kind, Some(code)));
            let named = format!("cannot write `{refused}` to {}", second.path("scaling_").display());
            assert!(error.to_string().starts_with(&named), "{error}");
            journal.undo_all().unwrap();
            assert_eq!([&first, &second].map(|policy| files.map(|file| policy.get(file))), before);
        }
    }
}

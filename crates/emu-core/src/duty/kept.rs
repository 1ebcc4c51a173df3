//! Measurements of what an emulation costs, which the state folder keeps for this boot.
//!
//! They take time, so each emulation takes one batch at most, while its tasks wait to begin, and the median of the last few
//! counts. Another boot may bring another kernel or hypervisor. An hour brings another clock or load, which has changed the
//! cost of a wake-up by a fifth (0.1 % of a speed): what is kept is used however old it is, and is renewed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::input_file;
use crate::sys::time::user_ticks;
use crate::zone::Zone;

/// Batches of which the median counts.
const BATCHES: usize = 7;

/// Where there are as many, another one is taken after ten minutes, in clock ticks.
const FRESH_FOR: u64 = 60_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept<K: Ord, V> {
    boot_id: String,
    batches: BTreeMap<K, Batches<V>>,
}

/// The newest value is at the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Batches<V> {
    values: Vec<V>,
    /// In clock ticks since boot.
    at: u64,
}

impl<K, V> Kept<K, V>
where
    K: Ord + Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    /// A file that is missing or has an implausible value counts as empty.
    pub(crate) fn load(host: &Host, file: &str, is_plausible: impl Fn(&V) -> bool) -> Self {
        input_file::read(&host.roots.state.join(file), input_file::SIZE_MAX)
            .ok()
            .and_then(|text| serde_json::from_str::<Self>(&text).ok())
            // Without a boot id, the values of another boot could not be told apart.
            .filter(|kept| !host.boot_id.is_empty() && kept.boot_id == host.boot_id)
            .filter(|kept| kept.batches.values().flat_map(|batches| &batches.values).all(is_plausible))
            .unwrap_or_else(|| Self { boot_id: host.boot_id.clone(), batches: BTreeMap::new() })
    }

    pub(crate) fn values(&self, key: &K) -> &[V] {
        self.batches.get(key).map_or(&[], |batches| &batches.values)
    }

    pub(crate) fn median(&self, key: &K, figure: impl Fn(&V) -> f64) -> Option<f64> {
        let mut figures: Vec<_> = self.values(key).iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        let middle = |place: usize| figures.get(place).copied();
        Some(f64::midpoint(middle(figures.len().checked_sub(1)? / 2)?, middle(figures.len() / 2)?))
    }

    /// Whether another batch is worth its time: there are few, or the newest is old.
    pub(crate) fn wants(&self, key: &K) -> bool {
        let is_known = |batches: &Batches<V>| {
            let is_fresh = user_ticks().checked_sub(batches.at).is_some_and(|age| age < FRESH_FOR);
            batches.values.len() >= BATCHES && is_fresh
        };
        !self.batches.get(key).is_some_and(is_known)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        let batches = self.batches.entry(key).or_insert(Batches { values: Vec::new(), at: 0 });
        let more = (batches.values.len() + 1).saturating_sub(BATCHES);
        batches.values.drain(..more);
        batches.values.push(value);
        batches.at = user_ticks();
    }

    /// If this fails, the next emu measures again.
    pub(crate) fn save(&self, host: &Host, file: &str) {
        let Ok(text) = serde_json::to_string(self) else { return };
        let path = host.roots.state.join(file);
        let new = host.roots.state.join(format!("{file}.{}", std::process::id()));
        if fs::write(&new, text).and_then(|()| fs::rename(&new, path)).is_err() {
            let _ = fs::remove_file(new);
        }
    }
}

const SUFFIX: &[u8] = b"-costs.json";

/// Has the next emulations measure anew. A file that cannot be removed stays in use.
pub(crate) fn forget(state: &Path) {
    for file in fs::read_dir(state).into_iter().flatten().flatten() {
        if file.file_name().as_encoded_bytes().ends_with(SUFFIX) {
            let _ = fs::remove_file(file.path());
        }
    }
}

pub(crate) fn why_unknown(zone: &Zone) -> &'static str {
    if zone.is_new { "could not be measured on these busy CPUs" } else { "has not been measured since boot" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    const FILE: &str = "test-costs.json";

    fn host_in(dir: &std::path::Path) -> Host {
        let mut host = testing::host();
        host.roots.state = dir.to_owned();
        host
    }

    fn load(host: &Host) -> Kept<String, f64> {
        Kept::load(host, FILE, |&cost| cost >= 0.0)
    }

    #[test]
    fn values_come_back_in_the_same_boot_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut host = host_in(dir.path());
        let mut kept = load(&host);
        let key = "signals on 0 of 0-1".to_owned();
        assert_eq!((kept.median(&key, |cost| *cost), kept.wants(&key)), (None, true));
        kept.insert(key, 51_000.5);
        kept.save(&host, FILE);
        assert_eq!(load(&host), kept);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        host.boot_id = "another".into();
        assert!(load(&host).batches.is_empty());
    }

    #[test]
    fn the_median_of_the_last_batches_counts_and_is_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let mut kept = load(&host_in(dir.path()));
        let key = "x".to_owned();
        for (value, median) in [
            (9.0, 9.0),
            (1.0, 5.0),
            (2.0, 2.0),
            (3.0, 2.5),
            (4.0, 3.0),
            (5.0, 3.5),
            (6.0, 4.0),
            (7.0, 4.0),
            (8.0, 5.0),
        ] {
            kept.insert(key.clone(), value);
            assert_eq!(kept.median(&key, |cost| *cost), Some(median));
        }
        assert!(!kept.wants(&key));
        let batches = kept.batches.get_mut(&key).unwrap();
        // Shortly after boot, no moment is old enough; a moment to come is of no clock of this boot.
        for at in [user_ticks().checked_sub(FRESH_FOR), Some(user_ticks() + FRESH_FOR)].into_iter().flatten()
        {
            batches.at = at;
            assert!(
                Kept { boot_id: String::new(), batches: [(key.clone(), batches.clone())].into() }.wants(&key)
            );
        }
    }

    #[test]
    fn what_is_forgotten_is_measured_anew_and_journals_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (host, mut kept) = (host_in(dir.path()), load(&host_in(dir.path())));
        kept.insert("x".to_owned(), 480_000.0);
        kept.save(&host, FILE);
        fs::write(dir.path().join("1-2-x.journal"), "").unwrap();
        forget(dir.path());
        assert!(load(&host).wants(&"x".to_owned()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_senseless_file_counts_as_empty() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_in(dir.path());
        let negative = format!(
            r#"{{"boot_id":"{}","batches":{{"x":{{"values":[-1],"at":{}}}}}}}"#,
            host.boot_id,
            user_ticks()
        );
        for text in ["", "{", "[]", &negative] {
            fs::write(dir.path().join(FILE), text).unwrap();
            assert!(load(&host).batches.is_empty(), "{text}");
        }
        fs::remove_file(dir.path().join(FILE)).unwrap();
        mkfifo(&dir.path().join(FILE), Mode::S_IRWXU).unwrap();
        assert!(load(&host).batches.is_empty(), "a FIFO that nobody writes to");
    }
}

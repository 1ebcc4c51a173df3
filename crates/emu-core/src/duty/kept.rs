//! Measurements that the state folder keeps for ten minutes of the same boot.
//!
//! They cost time to repeat and are not valid for long: another boot may bring another kernel or
//! hypervisor, and an hour brings another clock or load, which has changed the cost of a wake-up by
//! 20 %.

use std::collections::BTreeMap;
use std::fs;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::sys::time::user_ticks;

/// How long a value is kept, in clock ticks: ten minutes.
const KEPT_FOR: u64 = 60_000;

/// Values of one kind by key, as written to a file of the state folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept<K: Ord, V> {
    boot_id: String,
    values: BTreeMap<K, Entry<V>>,
}

/// A value and the time of its measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry<V> {
    value: V,
    /// In clock ticks since boot.
    at: u64,
}

impl<K, V> Kept<K, V>
where
    K: Ord + Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    /// Reads the values of the last minutes of this boot from `file`. A file that is missing or has
    /// an implausible value counts as empty.
    pub(crate) fn load(host: &Host, file: &str, is_plausible: impl Fn(&V) -> bool) -> Self {
        let now = user_ticks();
        let mut kept = fs::read_to_string(host.roots.state.join(file))
            .ok()
            .and_then(|text| serde_json::from_str::<Self>(&text).ok())
            // Without a boot id, the values of another boot could not be told apart.
            .filter(|kept| !host.boot_id.is_empty() && kept.boot_id == host.boot_id)
            .filter(|kept| kept.values.values().all(|measured| is_plausible(&measured.value)))
            .unwrap_or_else(|| Self { boot_id: host.boot_id.clone(), values: BTreeMap::new() });
        kept.values.retain(|_, measured| now.checked_sub(measured.at).is_some_and(|age| age < KEPT_FOR));
        kept
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(|measured| &measured.value)
    }

    /// Adds a value that was measured just now.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.values.insert(key, Entry { value, at: user_ticks() });
    }

    /// Writes the values for the next emu. If that fails, the next emu measures again.
    pub(crate) fn save(&self, host: &Host, file: &str) {
        let Ok(text) = serde_json::to_string(self) else { return };
        let path = host.roots.state.join(file);
        let new = host.roots.state.join(format!("{file}.{}", std::process::id()));
        if fs::write(&new, text).and_then(|()| fs::rename(&new, path)).is_err() {
            let _ = fs::remove_file(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::testing;

    const FILE: &str = "costs.json";

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
        assert!(kept.values.is_empty());
        kept.insert("signals on 0 of 0-1".into(), 51_000.5);
        kept.save(&host, FILE);
        assert_eq!(load(&host), kept);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        host.boot_id = "another".into();
        assert!(load(&host).values.is_empty());
    }

    #[test]
    fn values_older_than_the_limit_or_from_the_future_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_in(dir.path());
        let now = user_ticks();
        let mut kept = load(&host);
        // Shortly after boot, no moment is old enough.
        let moments =
            [("new", Some(now)), ("old", now.checked_sub(KEPT_FOR)), ("later", Some(now + KEPT_FOR))];
        for (name, at) in moments {
            let Some(at) = at else { continue };
            kept.values.insert(name.into(), Entry { value: 1.0, at });
        }
        kept.save(&host, FILE);
        let kept = load(&host);
        assert_eq!(kept.values.keys().collect::<Vec<_>>(), ["new"]);
        assert_eq!(kept.get(&"new".to_owned()), Some(&1.0));
    }

    #[test]
    fn a_senseless_file_counts_as_empty() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_in(dir.path());
        let negative = format!(
            r#"{{"boot_id":"{}","values":{{"x":{{"value":-1,"at":{}}}}}}}"#,
            host.boot_id,
            user_ticks()
        );
        for text in ["", "{", "[]", &negative] {
            fs::write(dir.path().join(FILE), text).unwrap();
            assert!(load(&host).values.is_empty(), "{text}");
        }
    }
}

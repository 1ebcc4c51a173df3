//! Measurements that are kept for some minutes of a boot: another boot may bring another kernel or hypervisor, and another
//! hour another clock or other load, which has moved the cost of a wake-up by a fifth.

use std::collections::BTreeMap;
use std::fs;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::sys::time::user_ticks;

/// How long a value is kept, in clock ticks: ten minutes.
const KEPT_FOR: u64 = 60_000;

/// Values of one kind by key, as a file of the state folder keeps them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept<K: Ord, V> {
    boot_id: String,
    values: BTreeMap<K, Measured<V>>,
}

/// A value, and when it was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Measured<V> {
    value: V,
    /// In clock ticks since boot.
    at: u64,
}

impl<K, V> Kept<K, V>
where
    K: Ord + Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    /// What `file` keeps of the last minutes of this boot; one that is missing, or has a value that is not plausible, keeps nothing.
    pub(crate) fn load(host: &Host, file: &str, is_plausible: impl Fn(&V) -> bool) -> Self {
        let now = user_ticks();
        let mut kept = fs::read_to_string(host.roots.state.join(file))
            .ok()
            .and_then(|text| serde_json::from_str::<Self>(&text).ok())
            // A host that does not tell its boot cannot have anything kept for it.
            .filter(|kept| !host.boot_id.is_empty() && kept.boot_id == host.boot_id)
            .filter(|kept| kept.values.values().all(|measured| is_plausible(&measured.value)))
            .unwrap_or_else(|| Self { boot_id: host.boot_id.clone(), values: BTreeMap::new() });
        kept.values.retain(|_, measured| now.checked_sub(measured.at).is_some_and(|age| age < KEPT_FOR));
        kept
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.values.get(key).map(|measured| &measured.value)
    }

    /// Takes in a value that was measured just now.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.values.insert(key, Measured { value, at: user_ticks() });
    }

    /// Keeps the values for the next emu. Where that fails they are measured again, which costs time only.
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
    fn what_is_kept_comes_back_in_the_same_boot_only() {
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
    fn what_was_measured_long_ago_or_later_than_now_is_measured_anew() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_in(dir.path());
        let now = user_ticks();
        let mut kept = load(&host);
        // A machine that was just started has no moment that is long ago.
        let moments =
            [("new", Some(now)), ("old", now.checked_sub(KEPT_FOR)), ("later", Some(now + KEPT_FOR))];
        for (name, at) in moments {
            let Some(at) = at else { continue };
            kept.values.insert(name.into(), Measured { value: 1.0, at });
        }
        kept.save(&host, FILE);
        let kept = load(&host);
        assert_eq!(kept.values.keys().collect::<Vec<_>>(), ["new"]);
        assert_eq!(kept.get(&"new".to_owned()), Some(&1.0));
    }

    #[test]
    fn a_senseless_file_counts_as_nothing_kept() {
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

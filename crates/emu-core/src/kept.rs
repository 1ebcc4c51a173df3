//! Measurements that are kept for the rest of a boot; another boot may bring another kernel or hypervisor.

use std::collections::BTreeMap;
use std::fs;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Host;

/// Values of one kind by key, as a file of the state folder keeps them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept<K: Ord, V> {
    boot_id: String,
    pub(crate) values: BTreeMap<K, V>,
}

impl<K, V> Kept<K, V>
where
    K: Ord + Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    /// What `file` keeps for this boot; one that is missing, or has a value that is not plausible, keeps nothing.
    pub(crate) fn load(host: &Host, file: &str, is_plausible: impl Fn(&V) -> bool) -> Self {
        fs::read_to_string(host.roots.state.join(file))
            .ok()
            .and_then(|text| serde_json::from_str::<Self>(&text).ok())
            // A host that does not tell its boot cannot have anything kept for it.
            .filter(|kept| !host.boot_id.is_empty() && kept.boot_id == host.boot_id)
            .filter(|kept| kept.values.values().all(is_plausible))
            .unwrap_or_else(|| Self { boot_id: host.boot_id.clone(), values: BTreeMap::new() })
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
        kept.values.insert("signals on 0 of 0-1".into(), 51_000.5);
        kept.save(&host, FILE);
        assert_eq!(load(&host), kept);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        host.boot_id = "another".into();
        assert!(load(&host).values.is_empty());
    }

    #[test]
    fn a_senseless_file_counts_as_nothing_kept() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_in(dir.path());
        let negative = format!(r#"{{"boot_id":"{}","values":{{"x":-1}}}}"#, host.boot_id);
        for text in ["", "{", "[]", &negative] {
            fs::write(dir.path().join(FILE), text).unwrap();
            assert!(load(&host).values.is_empty(), "{text}");
        }
    }
}

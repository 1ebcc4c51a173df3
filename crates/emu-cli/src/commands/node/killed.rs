//! Which nodes were killed: each has a file in the state folder, which its emu takes away when it ends as it should.

use std::fs;
use std::path::PathBuf;

use emu_core::{Error, Pid, Result, Roots, input_file, live_sessions};

use super::PREFIX as NODE;

const PREFIX: &str = "node-";

#[derive(Debug)]
pub(super) struct Mark(PathBuf);

impl Mark {
    pub(super) fn set(roots: &Roots, name: &str) -> Result<Self> {
        let path = file(roots, name);
        let own = std::process::id().to_string();
        // Whole or not at all: a state folder may be full.
        let new = roots.state.join(format!("{own}-{PREFIX}{name}"));
        if let Err(e) = fs::write(&new, own).and_then(|()| fs::rename(&new, &path)) {
            let _ = fs::remove_file(new);
            return Err(Error::file("write", &path, e));
        }
        Ok(Self(path))
    }

    pub(super) fn clear(self) {
        // Whoever has removed it wants no more.
        let _ = fs::remove_file(self.0);
    }
}

/// A node whose emu ended in another way than it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Killed {
    pub(super) name: String,
    /// The process of its emu; `None` where the file does not tell.
    pub(super) emu: Option<Pid>,
}

impl Killed {
    pub(super) fn in_words(&self) -> String {
        let emu = self.emu.map(|pid| format!(", process {pid},")).unwrap_or_default();
        format!("its emu{emu} has died; what ran on it is no longer slowed")
    }
}

/// The nodes that were killed, by name; none where it cannot be told which ones live.
pub(super) fn killed(roots: &Roots) -> Vec<Killed> {
    let files = fs::read_dir(&roots.state).into_iter().flatten().flatten();
    let killed = files.filter_map(|file| {
        let name = file.file_name().to_str()?.strip_prefix(PREFIX)?.to_owned();
        let text = input_file::read(&file.path(), input_file::SIZE_MAX);
        let emu = text.ok().and_then(|text| text.parse().ok());
        Some(Killed { name, emu })
    });
    let mut killed: Vec<_> = killed.collect();
    killed.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    // Read after the files: a node that is being made is there before its file is, one that ends is not after it is not.
    let Ok(live) = live_sessions(roots) else { return Vec::new() };
    let lives = |one: &Killed| live.iter().any(|node| node.name.strip_prefix(NODE) == Some(&one.name));
    killed.retain(|one| !lives(one) && file(roots, &one.name).exists());
    killed
}

/// Forgets one that was [`killed`].
pub(super) fn forget(roots: &Roots, name: &str) {
    // Another one may have forgotten it, too.
    let _ = fs::remove_file(file(roots, name));
}

fn file(roots: &Roots, name: &str) -> PathBuf {
    roots.state.join(format!("{PREFIX}{name}"))
}

#[cfg(test)]
mod tests {
    use emu_core::{CpuList, Journal};

    use super::*;

    #[test]
    fn a_mark_that_cannot_be_written_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::below(dir.path());
        // A folder in its place cannot be replaced by a file.
        let mark = roots.state.join("node-a");
        fs::create_dir_all(mark.join("full")).unwrap();
        assert!(Mark::set(&roots, "a").is_err());
        let left: Vec<_> = fs::read_dir(&roots.state).unwrap().map(|file| file.unwrap().path()).collect();
        assert_eq!(left, [mark]);
    }

    #[test]
    fn a_killed_node_is_known_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { state: dir.path().join("state"), ..Roots::system() };
        let name = format!("{NODE}lives");
        let journal = Journal::open(&roots, &CpuList::default(), "test", &name).unwrap();
        let [ended, lives, dead] = ["ended", "lives", "dead"].map(|name| Mark::set(&roots, name).unwrap());
        ended.clear();
        drop((lives, dead));
        let emu = Some(std::process::id() as Pid);
        assert_eq!(killed(&roots), [Killed { name: "dead".into(), emu }]);
        forget(&roots, "dead");
        assert!(killed(&roots).is_empty());
        journal.undo_all().unwrap();
        assert_eq!(killed(&roots), [Killed { name: "lives".into(), emu }]);
        assert!(killed(&Roots::below(&dir.path().join("nowhere"))).is_empty());
    }
}

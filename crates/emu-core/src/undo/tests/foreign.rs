//! Journals that were written by other users or by no emu.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use proptest::prelude::*;

use super::super::Journal;
use super::super::header::boot;
use super::super::restore::{RestoreReport, live_sessions, restore};
use super::{control, cpus, is_root, journals, open, playground, text};
use crate::roots::Roots;

/// A journal of a process that is dead, with this body.
fn dead(roots: &Roots, name: &str, body: &str) -> PathBuf {
    fs::create_dir_all(&roots.state).unwrap();
    fs::set_permissions(&roots.state, fs::Permissions::from_mode(0o700)).unwrap();
    let path = roots.state.join(name);
    let boot = boot(roots);
    fs::write(&path, format!("emu-journal\t1\t4000001\t1\t{boot}\t0\tcpu-hogs\tnode1\n{body}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn a_dead_session_is_restored_at_the_next_open() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "2");
    dead(&roots, "x.journal", &format!("file\t{}\t1\t2\ntruncat", path.display()));
    let journal = open(&roots, "0").unwrap();
    assert_eq!(text(&path), "1");
    let notes = journal.notes();
    assert!(notes.len() == 1 && notes[0].contains("4000001") && notes[0].contains("node1"), "{notes:?}");
    assert_eq!(journals(&roots), [journal.path()]);
}

#[test]
fn a_long_name_is_cut_so_that_others_can_read_the_journal() {
    let (_dir, roots) = playground();
    let _journal = Journal::open(&roots, &cpus("0"), "test", &"ä".repeat(100_000)).unwrap();
    let live = live_sessions(&roots).unwrap();
    assert_eq!(live.iter().map(|session| session.name.chars().count()).collect::<Vec<_>>(), [200]);
}

#[test]
fn a_journal_of_another_boot_is_void() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "2");
    let journal = dead(&roots, "x.journal", &format!("file\t{}\t1\t2\n", path.display()));
    if boot(&roots).is_empty() {
        println!("skipped: this kernel does not tell its boot");
        return;
    }
    fs::write(&journal, text(&journal).replace(&boot(&roots), "another-boot")).unwrap();
    assert_eq!(restore(&roots).unwrap(), RestoreReport::default());
    assert_eq!(text(&path), "2");
    assert!(!journal.exists());
}

#[test]
fn a_session_that_had_not_begun_or_had_ended_is_removed() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "2");
    let ended = format!("file\t{}\t1\t2\ndone\n", path.display());
    for (name, keep) in [("a.journal", 0), ("b.journal", 5), ("c.journal", 30), ("d.journal", usize::MAX)] {
        let journal = dead(&roots, name, &ended);
        let whole = text(&journal);
        fs::write(&journal, &whole[..keep.min(whole.len())]).unwrap();
        assert_eq!(restore(&roots).unwrap(), RestoreReport::default(), "{name}");
        assert!(!journal.exists(), "{name}");
    }
    assert_eq!(text(&path), "2");
}

#[test]
fn a_journal_that_is_not_ours_is_reported_and_left() {
    let (dir, roots) = playground();
    let path = control(&roots, "a", "2");
    let body = format!("file\t{}\t1\t2\n", path.display());
    let elsewhere = dead(&roots, "elsewhere", &body);
    let open_to_all = dead(&roots, "open.journal", &body);
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o666)).unwrap();
    let newer = dead(&roots, "newer.journal", &body);
    fs::write(&newer, text(&newer).replacen("\t1\t", "\t2\t", 1)).unwrap();
    let nonsense = dead(&roots, "nonsense.journal", "");
    fs::write(&nonsense, "no line at all").unwrap();
    symlink(&elsewhere, roots.state.join("link.journal")).unwrap();
    fs::create_dir(roots.state.join("folder.journal")).unwrap();
    Command::new("mkfifo").arg("-m600").arg(roots.state.join("fifo.journal")).status().unwrap();
    let mut bad = 6;
    if is_root("giving a file to another user") {
        let foreign = dead(&roots, "foreign.journal", &body);
        std::os::unix::fs::chown(foreign, Some(12_345), None).unwrap();
        bad += 1;
    }
    let files = journals(&roots).len();
    let report = restore(&roots).unwrap();
    assert_eq!((report.problems.len(), report.restored.len()), (bad, 0), "{report:#?}");
    assert_eq!(text(&path), "2");
    assert_eq!(journals(&roots).len(), files);
    // Such journals are noted and do not prevent a session.
    let journal = open(&roots, "0").unwrap();
    assert_eq!(journal.notes().len(), bad);
    drop((journal, dir));
}

#[test]
fn a_hostile_record_is_reported_and_the_others_are_undone() {
    let (dir, roots) = playground();
    let outside = dir.path().join("outside");
    fs::write(&outside, "2").unwrap();
    let path = control(&roots, "a", "2");
    let (sys, path_text) = (roots.sys.display(), path.display());
    let journal = dead(
        &roots,
        "x.journal",
        &format!("file\t{path_text}\t1\t2\nfile\t{sys}/../outside\t1\t2\nrubbish\n"),
    );
    let report = restore(&roots).unwrap();
    assert_eq!((report.problems.len(), report.restored.len()), (3, 0), "{report:#?}");
    assert_eq!((text(&path).as_str(), text(&outside).as_str()), ("1", "2"));
    assert!(journal.exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_as_a_journal_panic_or_count_as_a_live_session(
        bytes in proptest::collection::vec(prop_oneof![Just(b'\t'), Just(b'\n'), any::<u8>()], 0..200),
        with_header in any::<bool>(),
    ) {
        let (_dir, roots) = playground();
        let journal = dead(&roots, "x.journal", "");
        let mut content = if with_header { fs::read(&journal).unwrap() } else { Vec::new() };
        content.extend(bytes);
        fs::write(&journal, &content).unwrap();
        let report = restore(&roots).unwrap();
        prop_assert!(report.live.is_empty());
        prop_assert!(journal.exists() != report.problems.is_empty());
    }
}

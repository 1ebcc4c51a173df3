//! The sessions of one process.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use proptest::prelude::*;

use super::super::Journal;
use super::super::lines::LINE_MAX;
use super::super::record::Undo;
use super::super::restore::{RestoreReport, live_sessions, restore};
use super::{control, cpus, is_root, journals, open, playground, run_lines, text};
use crate::control_file;
use crate::cpu_list::CpuList;
use crate::error::ErrorKind;
use crate::hint::Hint;
use crate::roots::Roots;

#[test]
fn what_was_written_is_undone_once_and_the_journal_is_gone() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "1\n");
    let journal = open(&roots, "0").unwrap();
    assert_eq!(journal.write_file(&path, "2\n").unwrap(), "2");
    assert!(text(&journal.path()).starts_with("emu-journal\t1\t"));
    journal.undo_all().unwrap();
    assert_eq!(text(&path), "1");
    assert_eq!(journals(&roots), Vec::<PathBuf>::new());
    fs::write(&path, "2").unwrap();
    journal.undo_all().unwrap();
    drop(journal);
    assert_eq!(text(&path), "2");
}

#[test]
fn a_choice_is_written_and_undone_as_a_word() {
    let (_dir, roots) = playground();
    let path = control(&roots, "enabled", "always [madvise] never\n");
    let journal = open(&roots, "0").unwrap();
    assert_eq!(journal.write_choice(&path, "madvise").unwrap(), "madvise");
    assert_eq!(text(&path), "always [madvise] never\n", "what is in force already is not written");
    assert_eq!(journal.write_choice(&path, "never").unwrap(), "never");
    fs::write(&path, "always madvise [never]\n").unwrap();
    journal.undo_all().unwrap();
    assert_eq!(text(&path), "madvise");
}

#[test]
fn one_session_at_a_time_tunes_the_machine() {
    let (_dir, roots) = playground();
    let emulation = open(&roots, "0").unwrap();
    let tuning = |name| Journal::open(&roots, &CpuList::default(), "doctor", name);
    let first = tuning("make").unwrap();
    let error = tuning("other").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("is tuned already: by emu ") && error.to_string().contains("make"));
    drop(first);
    drop(emulation);
    tuning("other").unwrap();
}

#[test]
fn dropping_the_last_clone_undoes() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "1");
    let journal = open(&roots, "0").unwrap();
    let clone = journal.clone();
    thread::spawn(move || clone.write_file(&roots.sys.join("a"), "2").unwrap()).join().unwrap();
    assert_eq!(text(&path), "2");
    drop(journal);
    assert_eq!(text(&path), "1");
}

#[test]
fn a_panic_with_the_journal_in_hand_undoes() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "1");
    let journal = open(&roots, "0").unwrap();
    let clone = journal.clone();
    let panicked = thread::spawn(move || {
        let open = clone.open_journal();
        assert!(open.length == 0, "poisons the mutex");
    });
    assert!(panicked.join().is_err());
    journal.write_file(&path, "2").unwrap();
    drop(journal);
    assert_eq!(text(&path), "1");
}

#[test]
fn after_the_end_nothing_more_can_be_recorded() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "1");
    let journal = open(&roots, "0").unwrap();
    journal.undo_all().unwrap();
    assert_eq!(journal.write_file(&path, "2").unwrap_err().kind(), ErrorKind::Failed);
    assert!(journal.record(&Undo::Kill { pid: 1, starttime: 1 }).is_err());
    assert_eq!(text(&path), "1");
}

#[test]
fn the_copy_of_a_journal_in_a_forked_child_does_nothing() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "1");
    let journal = open(&roots, "0").unwrap();
    journal.write_file(&path, "2").unwrap();
    // As a child sees it: the journal of another process.
    journal.open_journal().owner += 1;
    journal.undo_all().unwrap();
    assert!(journal.record(&Undo::Kill { pid: 1, starttime: 1 }).is_err());
    assert_eq!((text(&path).as_str(), journals(&roots).len()), ("2", 1));
    journal.open_journal().owner -= 1;
    journal.undo_all().unwrap();
    assert_eq!((text(&path).as_str(), journals(&roots).len()), ("1", 0));
}

#[test]
fn a_value_that_is_there_already_needs_no_record() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "1\n");
    let journal = open(&roots, "0").unwrap();
    let before = text(&journal.path());
    assert_eq!(journal.write_file(&path, "1").unwrap(), "1");
    assert_eq!(text(&journal.path()), before);
}

#[test]
fn alternating_between_values_does_not_make_the_journal_grow() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "1");
    let journal = open(&roots, "0").unwrap();
    let mut lengths = Vec::new();
    for _ in 0..5 {
        for value in ["2", "3", "1"] {
            journal.write_file(&path, value).unwrap();
        }
        lengths.push(text(&journal.path()).len());
    }
    assert!(lengths.iter().all(|length| *length == lengths[0]), "{lengths:?}");
    journal.write_file(&path, "2").unwrap();
    journal.undo_all().unwrap();
    assert_eq!(text(&path), "1");
    assert_eq!(journal.notes(), Vec::<String>::new());
}

#[test]
fn any_number_of_values_fits_into_a_journal_of_bounded_size() {
    // In memory, where syncing costs nothing.
    let memory = Path::new("/dev/shm");
    let dir = tempfile::tempdir_in(if memory.is_dir() { memory } else { Path::new("/tmp") }).unwrap();
    let roots = Roots { proc: "/proc".into(), ..Roots::below(dir.path()) };
    fs::create_dir_all(&roots.sys).unwrap();
    let [path, other] = ["a", "b"].map(|name| control(&roots, name, "max 100000"));
    let journal = open(&roots, "0").unwrap();
    journal.write_file(&other, "2").unwrap();
    let mut most = 0;
    for n in 0..100_000 {
        journal.write_file(&path, &format!("{n} 100000")).unwrap();
        if n % 1000 == 0 {
            most = most.max(fs::metadata(journal.path()).unwrap().blocks() * 512);
        }
    }
    assert!(most < 4 << 20, "{most} bytes");
    // As a guardian reads it, and as another emu does.
    let second = Journal::open(&roots, &cpus("1"), "fracas", "node2").unwrap();
    assert!(second.is_shared(&other) && second.is_shared(&path));
    drop(second);
    journal.undo_all().unwrap();
    assert_eq!([text(&path), text(&other)], ["max 100000", "max 100000"]);
    assert_eq!(journal.notes(), Vec::<String>::new());
}

#[test]
fn a_file_that_another_program_has_changed_is_named_once() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "1");
    let journal = open(&roots, "0").unwrap();
    for n in 2..50 {
        journal.write_file(&path, &n.to_string()).unwrap();
    }
    fs::write(&path, "99").unwrap();
    journal.undo_all().unwrap();
    assert_eq!(journal.notes().len(), 1, "{:?}", journal.notes());
}

#[test]
fn records_of_one_file_know_each_others_values() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "1");
    let journal = open(&roots, "0").unwrap();
    for value in ["2", "3"] {
        let undo = Undo::File { path: path.clone(), old: "1\n".into(), new: vec![format!("{value}\n")] };
        journal.record(&undo).unwrap();
    }
    journal.write_file(&path, "4").unwrap();
    fs::write(&path, "2").unwrap();
    journal.undo_all().unwrap();
    assert_eq!(text(&path), "1");
    assert_eq!(journal.notes(), Vec::<String>::new());
}

#[test]
fn a_value_changed_by_another_program_is_left_and_noted() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "1");
    let journal = open(&roots, "0").unwrap();
    journal.write_file(&path, "2").unwrap();
    fs::write(&path, "9").unwrap();
    journal.undo_all().unwrap();
    assert_eq!(text(&path), "9");
    let notes = journal.notes();
    assert!(notes.len() == 1 && notes[0].contains("somebody else"), "{notes:?}");
    assert_eq!(journals(&roots), Vec::<PathBuf>::new());
}

#[test]
fn what_the_kernel_makes_of_a_value_counts_as_ours() {
    if !is_root("changing a setting of the kernel") {
        return;
    }
    // The kernel shows `0x9` as `9`. Nothing here uses the setting for fragments.
    let (_dir, roots) = playground();
    let path = Path::new("/proc/sys/net/ipv4/ipfrag_max_dist");
    let Ok(before) = control_file::read(path) else {
        println!("skipped: {} is not there", path.display());
        return;
    };
    let journal = open(&roots, "0").unwrap();
    assert_eq!(journal.write_file(path, "0x9").unwrap(), "9");
    journal.undo_all().unwrap();
    assert_eq!(control_file::read(path).unwrap(), before);
    assert_eq!(journal.notes(), Vec::<String>::new());
}

#[test]
fn a_record_that_could_not_be_carried_out_is_refused() {
    let (dir, roots) = playground();
    let outside = dir.path().join("outside");
    fs::write(&outside, "1").unwrap();
    let journal = open(&roots, "0").unwrap();
    let before = text(&journal.path());
    assert!(journal.write_file(&outside, "2").is_err());
    assert_eq!(text(&outside), "1");
    let up = roots.sys.join("../outside");
    for undo in [
        Undo::File { path: up, old: "1".into(), new: vec!["2".into()] },
        Undo::File { path: roots.sys.join("a"), old: "1".repeat(5000), new: vec![] },
        Undo::File { path: roots.sys.join("a"), old: "1".into(), new: vec!["2".repeat(LINE_MAX)] },
        Undo::Thaw { file: roots.sys.join("a"), value: "0".into() },
        Undo::Affinity { tid: 1, starttime: 1, cpus: [8192].into_iter().collect(), ours: CpuList::default() },
        Undo::Kill { pid: -1, starttime: 1 },
    ] {
        let error = journal.record(&undo).unwrap_err();
        assert!(error.to_string().starts_with("cannot record `"), "{error}");
    }
    assert_eq!(text(&journal.path()), before);
}

#[test]
fn what_cannot_be_undone_is_an_error_and_kept_for_restore() {
    let (_dir, roots) = playground();
    let (first, second) = (control(&roots, "a", "1"), control(&roots, "b", "1"));
    let journal = open(&roots, "0").unwrap();
    journal.write_file(&first, "2").unwrap();
    journal.write_file(&second, "2").unwrap();
    fs::remove_file(&second).unwrap();
    fs::create_dir(&second).unwrap();
    let error = journal.undo_all().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RestoreIncomplete);
    assert!(error.to_string().contains(second.to_str().unwrap()), "{error}");
    assert_eq!(error.typed_hint(), Some(&Hint::Restore));
    assert_eq!(text(&first), "1");
    assert_eq!(journal.undo_all().unwrap_err().to_string(), error.to_string());
    // This process still lives but has given up, so any emu may restore.
    let report = restore(&roots).unwrap();
    assert!(report.restored.is_empty() && report.live.is_empty() && report.problems.len() > 1, "{report:?}");
    fs::remove_dir(&second).unwrap();
    fs::write(&second, "2").unwrap();
    let report = restore(&roots).unwrap();
    assert_eq!((report.restored.len(), report.problems.len()), (1, 0), "{report:?}");
    assert_eq!(text(&second), "1");
    assert_eq!(restore(&roots).unwrap(), RestoreReport::default());
}

#[test]
fn a_second_session_on_a_cpu_is_refused_and_names_the_first() {
    let (_dir, roots) = playground();
    let first = open(&roots, "0-1").unwrap();
    let error = Journal::open(&roots, &cpus("1-2"), "fracas", "node2").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let pid = std::process::id().to_string();
    for part in ["CPUs 1 ", "node1", "cpu-hogs", "0-1", pid.as_str()] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(error.typed_hint(), Some(&Hint::OtherCpus.or("end that emulation first")));
    let second = Journal::open(&roots, &cpus("2"), "fracas", "node2").unwrap();
    let names =
        |roots| -> Vec<_> { live_sessions(roots).unwrap().into_iter().map(|session| session.name).collect() };
    assert_eq!(names(&roots), ["node2", "node1"]);
    drop(first);
    assert_eq!(names(&roots), ["node2"]);
    drop(second);
    assert_eq!(names(&roots), Vec::<String>::new());
    open(&roots, "1-2").unwrap();
}

#[test]
fn a_state_folder_that_is_not_ours_alone_is_refused() {
    let (dir, roots) = playground();
    let state = |mode| {
        fs::create_dir_all(&roots.state).unwrap();
        fs::set_permissions(&roots.state, fs::Permissions::from_mode(mode)).unwrap();
    };
    state(0o777);
    assert!(open(&roots, "0").unwrap_err().to_string().contains("may be written by other users"));
    assert!(restore(&roots).is_err() && live_sessions(&roots).is_err());
    state(0o700);
    if is_root("giving a folder to another user") {
        std::os::unix::fs::chown(&roots.state, Some(12_345), None).unwrap();
        assert!(open(&roots, "0").unwrap_err().to_string().contains("belongs to another user"));
    }
    fs::remove_dir(&roots.state).unwrap();
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &roots.state).unwrap();
    assert!(open(&roots, "0").unwrap_err().to_string().contains("cannot open the state folder"));
    assert!(restore(&roots).is_err());
    fs::remove_file(&roots.state).unwrap();
    fs::write(&roots.state, "").unwrap();
    assert!(open(&roots, "0").unwrap_err().hint_text().is_some());
    assert_eq!(fs::read_dir(elsewhere).unwrap().count(), 0);
}

#[test]
fn without_procfs_nothing_begins() {
    let (dir, roots) = playground();
    let roots = Roots { proc: dir.path().join("none"), ..roots };
    let error = open(&roots, "0").unwrap_err();
    assert!(error.to_string().contains("none") && error.hint_text().is_some(), "{error}");
    assert!(!roots.state.exists());
    // An empty folder in its place is not enough.
    fs::create_dir(&roots.proc).unwrap();
    assert!(open(&roots, "0").unwrap_err().to_string().contains("/stat"));
}

#[test]
fn a_session_costs_little() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "1");
    let own_cpu = || -> Duration { clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into() };
    let mut spans: Vec<_> = (0..40)
        .map(|_| {
            let (started, cpu) = (Instant::now(), own_cpu());
            let journal = open(&roots, "0").unwrap();
            let opened = started.elapsed();
            journal.write_file(&path, "2").unwrap();
            journal.undo_all().unwrap();
            (started.elapsed(), opened, own_cpu().checked_sub(cpu).unwrap())
        })
        .collect();
    spans.sort();
    let (whole, opened, _) = spans[20];
    let cpu = spans.iter().map(|(.., cpu)| *cpu).min().unwrap();
    println!("of 40: open {opened:?}, with write_file and undo_all {whole:?}, own CPU at least {cpu:?}");
    // Elapsed time, and the CPU time that a busy machine adds, would measure the machine.
    assert!(cpu < Duration::from_millis(10), "{cpu:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_was_written_undoing_it_twice_is_the_same_as_once(
        writes in proptest::collection::vec((0usize..3, "[abc]"), 0..12),
        foreign in proptest::option::of((0usize..3, "[abcd]")),
    ) {
        let (_dir, roots) = playground();
        let paths: Vec<_> = (0..3).map(|n| control(&roots, &format!("{n}\t\n"), "a")).collect();
        let journal = open(&roots, "0").unwrap();
        let mut ours = [vec!["a".to_owned()], vec!["a".to_owned()], vec!["a".to_owned()]];
        for (n, value) in &writes {
            prop_assert_eq!(&journal.write_file(&paths[*n], value).unwrap(), value);
            ours[*n].push(value.clone());
        }
        if let Some((n, value)) = &foreign {
            fs::write(&paths[*n], value).unwrap();
        }
        let expected: Vec<_> = (0..3)
            .map(|n| match &foreign {
                Some((m, value)) if *m == n && !ours[n].contains(value) => value.clone(),
                _ => "a".to_owned(),
            })
            .collect();
        let records = fs::read(journal.path()).unwrap();
        journal.undo_all().unwrap();
        let now = || paths.iter().map(|path| text(path)).collect::<Vec<_>>();
        prop_assert_eq!(now(), expected.clone());
        let body = records.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        run_lines(&roots, &records[body..]);
        prop_assert_eq!(now(), expected);
    }

    #[test]
    fn a_journal_cut_anywhere_undoes_what_had_been_done_by_then(
        writes in proptest::collection::vec("[abc]", 1..6), cut in any::<proptest::sample::Index>(),
    ) {
        let (_dir, roots) = playground();
        let path = control(&roots, "a", "a");
        let journal = open(&roots, "0").unwrap();
        // What the file may hold at each length of the journal: a record comes before its change.
        let mut held: Vec<(usize, String)> = Vec::new();
        for value in &writes {
            let before = text(&path);
            let from = fs::read(journal.path()).unwrap().len();
            journal.write_file(&path, value).unwrap();
            let records = fs::read(journal.path()).unwrap();
            let begun = records[from..].iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            held.extend((from..from + begun).map(|length| (length, before.clone())));
            held.extend((from + begun..=records.len()).map(|length| (length, value.clone())));
        }
        let records = fs::read(journal.path()).unwrap();
        journal.undo_all().unwrap();
        let (length, value) = cut.get(&held);
        fs::write(&path, value).unwrap();
        let body = records.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        run_lines(&roots, &records[body..*length]);
        prop_assert_eq!(text(&path), "a");
    }
}

//! Each kind of record carried out, on a folder of ordinary files and on processes of the test.

use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;

use super::super::field::push_all;
use super::super::lines::LINE_MAX;
use super::super::lines::WINDOW;
use super::super::places::{Places, VALUE_MAX};
use super::super::record::Task;
use super::super::record::tests::{any_path, any_undo};
use super::super::record::{TaskSet, Undo};
use super::super::replay::undo;
use super::{Outcome, Sleeper, playground, run, run_lines, undone};
use crate::cpu_list::CpuList;
use crate::sys::affinity;
use crate::sys::fork::allocations;

fn file(path: &Path, old: &str, new: &[&str]) -> Undo {
    Undo::File { path: path.into(), old: old.into(), new: new.iter().map(ToString::to_string).collect() }
}

#[test]
fn a_file_gets_its_old_value_back() {
    let (_dir, roots) = playground();
    let path = roots.sys.join("a\tb\n\\ü");
    fs::write(&path, "50000 100000\n").unwrap();
    assert_eq!(run(&roots, &[file(&path, "max 100000", &["50000", "50000 100000"])]), (undone(1), vec![]));
    assert_eq!(fs::read_to_string(&path).unwrap(), "max 100000");
}

#[test]
fn of_a_file_of_choices_the_one_in_brackets_counts() {
    let (_dir, roots) = playground();
    let path = roots.sys.join("enabled");
    let choice = |old: &str, new: &[&str]| Undo::Choice {
        path: path.clone(),
        old: old.into(),
        new: new.iter().map(ToString::to_string).collect(),
    };
    for (text, left, messages) in [
        ("always madvise [never]\n", "madvise", 0),
        ("always [madvise] never\n", "always [madvise] never\n", 0),
        ("[always] madvise never\n", "[always] madvise never\n", 1),
    ] {
        fs::write(&path, text).unwrap();
        let (outcome, said) = run(&roots, &[choice("madvise", &["never"])]);
        assert_eq!((outcome, said.len()), (undone(1), messages), "{text}");
        assert_eq!(fs::read_to_string(&path).unwrap(), left, "{text}");
    }
    fs::write(&path, "[always] madvise never\n").unwrap();
    assert_eq!(run(&roots, &[choice("madvise", &[])]), (undone(1), vec![]), "a write under way");
    assert_eq!(fs::read_to_string(&path).unwrap(), "madvise");
}

#[test]
fn a_value_changed_by_somebody_else_is_left_and_reported() {
    let (_dir, roots) = playground();
    let path = roots.sys.join("a");
    fs::write(&path, "7\n").unwrap();
    let (outcome, messages) = run(&roots, &[file(&path, "1", &["2", "3"])]);
    assert_eq!(outcome, undone(1));
    assert_eq!(fs::read_to_string(&path).unwrap(), "7\n");
    let [message] = messages.as_slice() else { panic!("{messages:?}") };
    assert!(message.contains("left") && message.contains("`7`") && message.contains("`1`"), "{message}");
}

#[test]
fn a_write_under_way_is_undone_only_when_nothing_followed_it() {
    let (_dir, roots) = playground();
    let path = roots.sys.join("a");
    fs::write(&path, "odd").unwrap();
    let (begun, ended) = (file(&path, "1", &[]), file(&path, "1", &["2"]));
    let (outcome, messages) = run(&roots, &[begun.clone(), ended]);
    assert_eq!((outcome, messages.len()), (undone(2), 1));
    assert_eq!(fs::read_to_string(&path).unwrap(), "odd");
    assert_eq!(run(&roots, &[begun]), (undone(1), vec![]));
    assert_eq!(fs::read_to_string(&path).unwrap(), "1");
}

#[test]
fn only_controllers_that_the_session_enabled_are_disabled() {
    let (_dir, roots) = playground();
    let path = roots.sys.join("cgroup.subtree_control");
    for (old, new, now, written) in [
        ("", &["cpu cpuset"][..], "cpu cpuset\n", "-cpu -cpuset"),
        ("cpu", &["cpu io", "+io"], "cpu io memory pids\n", "-io"),
        ("cpu", &["cpu io"], "cpu memory\n", "cpu memory\n"),
        ("cpu", &["cpu io"], "cpu\n", "cpu\n"),
        ("cpu", &["cpu io"], "\n", "\n"),
    ] {
        fs::write(&path, now).unwrap();
        assert_eq!(run(&roots, &[file(&path, old, new)]), (undone(1), vec![]), "{old} {new:?} {now}");
        assert_eq!(fs::read_to_string(&path).unwrap(), written);
    }
}

#[test]
fn records_are_undone_newest_first() {
    let (_dir, roots) = playground();
    let path = roots.sys.join("a");
    fs::write(&path, "3").unwrap();
    let records = [file(&path, "1", &["2"]), file(&path, "2", &["3"])];
    assert_eq!(run(&roots, &records), (undone(2), vec![]));
    assert_eq!(fs::read_to_string(&path).unwrap(), "1");
}

#[test]
fn a_truncated_last_line_is_ignored() {
    let (_dir, roots) = playground();
    let path = roots.sys.join("a");
    fs::write(&path, "2").unwrap();
    let line = file(&path, "1", &["2"]).line();
    for length in 0..line.len() {
        assert_eq!(run_lines(&roots, &line[..length]), (Outcome::default(), vec![]));
        assert_eq!(fs::read_to_string(&path).unwrap(), "2");
    }
    assert_eq!(run_lines(&roots, &line), (undone(1), vec![]));
}

#[test]
fn a_file_that_cannot_be_restored_is_a_failure_that_names_it() {
    let (_dir, roots) = playground();
    let folder = roots.sys.join("folder");
    fs::create_dir(&folder).unwrap();
    let gone = roots.sys.join("gone");
    let (outcome, messages) = run(&roots, &[file(&folder, "1", &["2"]), file(&gone, "1", &["2"])]);
    assert_eq!((outcome.undone, outcome.failed), (1, 1));
    assert_eq!(messages, [format!("cannot read {}: os error {}", folder.display(), libc::EISDIR)]);
}

#[test]
fn a_stopped_process_runs_again_and_a_reused_number_is_left() {
    let (_dir, roots) = playground();
    let sleeper = Sleeper::start();
    let Task { pid, starttime } = sleeper.task();
    sleeper.stop();
    sleeper.reaches('T');
    let others = [
        Undo::Continue { pid, starttime: starttime + 1 },
        Undo::Kill { pid, starttime: starttime - 1 },
        Undo::Affinity {
            tid: pid,
            starttime: 1,
            cpus: [1000].into_iter().collect(),
            ours: CpuList::default(),
        },
    ];
    assert_eq!(run(&roots, &others), (undone(3), vec![]));
    assert_eq!(sleeper.state(), 'T');
    assert_eq!(run(&roots, &[Undo::Continue { pid, starttime }]), (undone(1), vec![]));
    sleeper.reaches('S');
    assert_eq!(run(&roots, &[Undo::Kill { pid, starttime }]), (undone(1), vec![]));
    assert_eq!(sleeper.state(), 'Z');
}

#[test]
fn affinity_is_restored() {
    let (_dir, roots) = playground();
    let sleeper = Sleeper::start();
    let Task { pid: tid, starttime } = sleeper.task();
    let all = affinity::get(tid).unwrap();
    let one: CpuList = all.first().into_iter().collect();
    affinity::set(tid, &one).unwrap();
    // Kernels for many CPUs have masks of more than 1024.
    let cpus: CpuList = all.iter().chain([5000]).collect();
    let by_us = Undo::Affinity { tid, starttime, cpus, ours: one.clone() };
    assert_eq!(run(&roots, &[by_us]), (undone(1), vec![]));
    assert_eq!(affinity::get(tid).unwrap(), all);
    // As older journals have it.
    affinity::set(tid, &one).unwrap();
    let line = format!("affinity\t{tid}\t{starttime}\t{all}\n");
    assert_eq!(run_lines(&roots, line.as_bytes()), (undone(1), vec![]));
    assert_eq!(affinity::get(tid).unwrap(), all);
}

#[test]
fn hostile_records_are_refused_and_touch_nothing() {
    let (dir, roots) = playground();
    let outside = dir.path().join("outside");
    fs::write(&outside, "2").unwrap();
    symlink(&outside, roots.sys.join("link")).unwrap();
    symlink(dir.path(), roots.sys.join("folder")).unwrap();
    fs::create_dir(roots.sys.join("group")).unwrap();
    fs::write(roots.sys.join("value"), "2").unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    let sys = roots.sys.display();
    let outside_text = outside.display();
    let lines = [
        format!("file\t{outside_text}\t1\t2"),
        format!("file\t{sys}/../outside\t1\t2"),
        format!("file\t{sys}/link\t1\t2"),
        format!("file\t{sys}/folder/outside\t1\t2"),
        "file\tvalue\t1\t2".to_owned(),
        format!("file\t{sys}/value\t{}\t2", "1".repeat(VALUE_MAX + 1)),
        format!("group\t{}/empty\tcgroup.procs\t{sys}/cgroup.procs", dir.path().display()),
        format!("group\t{sys}/folder/empty\tcgroup.procs\t{sys}/cgroup.procs"),
        format!("group\t{sys}/group\tvalue\t{sys}/cgroup.procs"),
        format!("group\t{sys}/group\tcgroup.procs\t{sys}/value"),
        format!("thaw\t{sys}/value\t0"),
        format!("thaw\t{sys}/cgroup.freeze\t1"),
        format!("continue-all\t{sys}/value"),
        format!("return\t1\t1\t{sys}/value"),
        "affinity\t1\t1\t0-9999".to_owned(),
        "affinity\t1\t1\t0\t9999".to_owned(),
        format!("inherited-in\t{sys}/value\t1\t0\t0"),
        "inherited-of\t1\t1\t1\t0\tx".to_owned(),
        "\u{1b}[2J".to_owned(),
    ];
    for line in lines {
        let (outcome, messages) = run_lines(&roots, format!("{line}\n").as_bytes());
        assert_eq!((outcome.undone, outcome.failed), (0, 1), "{line}");
        assert!(!messages.is_empty() && !messages[0].contains('\u{1b}'), "{messages:?}");
    }
    assert_eq!(fs::read_to_string(outside).unwrap(), "2");
    assert_eq!(fs::read_to_string(roots.sys.join("value")).unwrap(), "2");
    assert!(dir.path().join("empty").exists() && roots.sys.join("group").exists());
}

#[test]
fn a_line_longer_than_any_record_is_a_failure_not_a_loop() {
    let (_dir, roots) = playground();
    let lines = format!("kill\t4000001\t1\n{}\nkill\t4000001\t1\n", "x".repeat(2 * LINE_MAX));
    let (outcome, messages) = run_lines(&roots, lines.as_bytes());
    assert_eq!((outcome.undone, outcome.failed, messages.len()), (1, 1, 1));
}

#[test]
fn no_record_of_any_kind_makes_the_executor_allocate() {
    let (_dir, roots) = playground();
    let path = |name: &str, text: &str| {
        let path = roots.sys.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    };
    let (sleeper, victim) = (Sleeper::start(), Sleeper::start());
    let Task { pid, starttime } = sleeper.task();
    sleeper.stop();
    sleeper.reaches('T');
    let listed = path("listed/cgroup.procs", &format!("{pid}\n4000000\n0\n"));
    let taker = path("taker/cgroup.procs", "");
    let cpus: CpuList = "0-1023".parse().unwrap();
    let records = [
        // Read last, when no record is left for it to cancel.
        Undo::Continued,
        file(&path("restored", "2"), "1", &["2"]),
        file(&path("foreign", "3"), "1", &["2"]),
        file(&path("cgroup.subtree_control", "cpu io"), "io", &["cpu io"]),
        file(&roots.sys.join("gone"), "1", &["2"]),
        file(&roots.sys, "1", &["2"]),
        file(&roots.sys.join("listed"), "1", &["2"]),
        // No kernel removes this group, so every attempt is made.
        Undo::Group {
            path: roots.sys.join("listed"),
            members: "cgroup.procs".into(),
            return_to: taker.clone(),
        },
        Undo::Group { path: roots.sys.join("gone"), members: "tasks".into(), return_to: taker.clone() },
        Undo::Thaw { file: path("cgroup.freeze", "1"), value: "0".into() },
        Undo::Thaw { file: path("freezer.state", "FROZEN"), value: "THAWED".into() },
        Undo::Continue { pid, starttime },
        Undo::ContinueAll { members: listed },
        Undo::Return { pid, starttime, members: taker },
        Undo::Inherited {
            tasks: TaskSet::DescendantsOf { pid, starttime },
            since: 0,
            cpus: cpus.clone(),
            ours: [1000].into_iter().collect(),
        },
        Undo::Affinity { tid: pid, starttime, cpus: cpus.clone(), ours: cpus },
        Undo::Kill { pid: victim.task().pid, starttime: victim.task().starttime },
    ];
    let mut journal = tempfile::tempfile().unwrap();
    journal.write_all(b"header\n").unwrap();
    for record in &records {
        journal.write_all(&record.line()).unwrap();
    }
    journal.write_all(b"nonsense \xff\n").unwrap();
    let places = Places::open(&roots).unwrap();
    let mut window = vec![0; WINDOW];
    let mut messages = std::io::Cursor::new([0; 4096]);
    let (outcome, allocations) = allocations::during(|| {
        undo(journal.as_fd(), &places, None, &mut window, &mut |_, message| {
            writeln!(messages, "{message}").unwrap();
        })
    });
    let text = String::from_utf8_lossy(messages.get_ref()).into_owned();
    assert_eq!(allocations, 0);
    // Refused or stuck: the nonsense, the root itself, the folder in place of a file, the immovable
    // group.
    assert_eq!((outcome.undone, outcome.failed), (14, 4), "{text}");
    sleeper.reaches('S');
    assert_eq!(victim.state(), 'Z');
    assert_eq!(fs::read_to_string(roots.sys.join("restored")).unwrap(), "1");
    assert_eq!(fs::read_to_string(roots.sys.join("freezer.state")).unwrap(), "THAWED");
    // Each listed number again and again, but never 0.
    let joined = fs::read_to_string(roots.sys.join("taker/cgroup.procs")).unwrap();
    assert_eq!(joined.replace(&format!("{pid}4000000"), ""), "");
}

/// Records with paths below sysfs, above it, beside it, and through a link.
fn hostile_undo(sys: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..60);
    let place = prop_oneof![
        "/sys/(a|value|link|folder)(/(a|outside|\\.\\.))?",
        "/(\\.\\.|outside|sys/\\.\\./outside)"
    ];
    prop_oneof![
        any_undo().prop_map(|undo| undo.line()),
        (bytes, any::<bool>()).prop_map(|(mut bytes, newline)| {
            if newline {
                bytes.push(b'\n');
            }
            bytes
        }),
        (any_path(), "[a-z]{4,8}").prop_map(|(path, verb)| {
            let mut line = verb.into_bytes();
            push_all(&mut line, [path.as_os_str().as_encoded_bytes()]);
            line.push(b'\n');
            line
        }),
        (place, prop_oneof!["file", "thaw"], "[012]", "[012]").prop_map(move |(path, verb, old, new)| {
            format!("{verb}\t{sys}{path}\t{old}\t{new}\n").into_bytes()
        }),
    ]
}

proptest! {
    #[test]
    fn any_bytes_as_a_journal_neither_panic_nor_reach_outside(
        lines in proptest::collection::vec(hostile_undo("{ROOT}"), 0..12)
    ) {
        let (dir, roots) = playground();
        let outside = dir.path().join("outside");
        fs::write(&outside, "2").unwrap();
        symlink(&outside, roots.sys.join("link")).unwrap();
        symlink(dir.path(), roots.sys.join("folder")).unwrap();
        fs::write(roots.sys.join("value"), "2").unwrap();
        let root = dir.path().as_os_str().as_encoded_bytes();
        let mut text = Vec::new();
        for line in lines {
            // The folder is known only when the test runs.
            match line.windows(6).position(|part| part == b"{ROOT}") {
                Some(at) => text.extend([&line[..at], root, &line[at + 6..]].concat()),
                None => text.extend(line),
            }
        }
        run_lines(&roots, &text);
        prop_assert_eq!(fs::read_to_string(&outside).unwrap(), "2");
        prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}

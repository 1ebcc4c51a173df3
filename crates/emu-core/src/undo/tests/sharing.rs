//! Sessions that overlap in time and share files of the machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::super::record::Undo;
use super::super::{Journal, restore};
use super::{Sleeper, control, cpus, eventually, open, playground, test_name, text};
use crate::roots::Roots;

fn second(roots: &Roots) -> Journal {
    Journal::open(roots, &cpus("1"), "cpu-hogs", "node2").unwrap()
}

/// Ends both sessions, the first one first or last, and checks the file after each.
fn end_both([first, second]: [Journal; 2], first_first: bool, mut held: impl FnMut(&str)) {
    let (one, other) = if first_first { (first, second) } else { (second, first) };
    one.undo_all().unwrap();
    held("after one");
    other.undo_all().unwrap();
    held("after both");
    assert_eq!([one.notes(), other.notes()].concat(), Vec::<String>::new());
}

#[test]
fn a_limit_that_two_have_lifted_is_restored_by_the_last() {
    for first_first in [true, false] {
        let (_dir, roots) = playground();
        let path = control(&roots, "sched_rt_runtime_us", "950000\n");
        let journals = [open(&roots, "0").unwrap(), second(&roots)];
        for (journal, shared) in journals.iter().zip([false, true]) {
            assert_eq!(journal.is_shared(&path), shared);
            assert_eq!(journal.write_file(&path, "-1").unwrap(), "-1");
        }
        end_both(journals, first_first, |when| {
            let expected = if when == "after one" { "-1" } else { "950000" };
            assert_eq!(text(&path), expected, "{when}, {first_first}");
        });
    }
}

#[test]
fn each_of_two_values_of_a_file_stays_as_long_as_its_session() {
    for (first_first, between) in [(true, "3"), (false, "2")] {
        let (_dir, roots) = playground();
        let path = control(&roots, "a", "1\n");
        let journals = [open(&roots, "0").unwrap(), second(&roots)];
        for (journal, value) in journals.iter().zip(["2", "3"]) {
            journal.write_file(&path, value).unwrap();
        }
        end_both(journals, first_first, |when| {
            assert_eq!(text(&path), if when == "after one" { between } else { "1" }, "{when}");
        });
    }
}

#[test]
fn the_value_that_the_first_of_two_found_is_restored_by_both() {
    for first_first in [true, false] {
        let (_dir, roots) = playground();
        let path = control(&roots, "scaling_governor", "powersave\n");
        let journals = [open(&roots, "0").unwrap(), second(&roots)];
        for (journal, found, value) in
            [(&journals[0], "powersave", "performance"), (&journals[1], "performance", "userspace")]
        {
            let undo =
                |new: &str| Undo::File { path: path.clone(), old: found.into(), new: vec![new.into()] };
            journal.record(&undo(value)).unwrap();
            journal.record(&undo("schedutil")).unwrap();
            fs::write(&path, value).unwrap();
        }
        end_both(journals, first_first, |when| {
            if when == "after both" {
                assert_eq!(text(&path), "powersave", "{first_first}");
            }
        });
    }
}

#[test]
fn a_value_set_by_another_program_is_left_and_named_by_the_last() {
    let (_dir, roots) = playground();
    let path = control(&roots, "a", "1\n");
    let (first, second) = (open(&roots, "0").unwrap(), second(&roots));
    for journal in [&first, &second] {
        journal.write_file(&path, "2").unwrap();
    }
    fs::write(&path, "9").unwrap();
    first.undo_all().unwrap();
    second.undo_all().unwrap();
    assert_eq!(text(&path), "9");
    assert_eq!(second.notes().len(), 1, "{:?}", second.notes());
}

/// As the kernel does: names are added and removed.
fn switch(path: &Path, asked: &str) {
    let mut names: Vec<String> = text(path).split_whitespace().map(str::to_owned).collect();
    for change in asked.split_whitespace() {
        let name = &change[1..];
        names.retain(|known| known != name);
        if change.starts_with('+') {
            names.push(name.to_owned());
        }
    }
    fs::write(path, names.join(" ")).unwrap();
}

#[test]
fn a_controller_is_disabled_by_the_last_session_that_uses_it() {
    let path_in = |roots: &Roots| roots.sys.join("cgroup.subtree_control");
    for first_first in [true, false] {
        let (_dir, roots) = playground();
        let path = control(&roots, "cgroup.subtree_control", "memory");
        let journals = [open(&roots, "0").unwrap(), second(&roots)];
        journals[0].claim(&path, &["cpuset"]).unwrap();
        switch(&path, "+cpuset");
        // One that is enabled, one that is not.
        journals[1].claim(&path, &["cpuset", "cpu"]).unwrap();
        switch(&path, "+cpu");
        let mut seen = Vec::new();
        end_both(journals, first_first, |_| {
            let now = text(&path_in(&roots));
            // The kernel removes such a name from a real list.
            if now.starts_with('-') {
                fs::write(&path, if first_first { "memory cpuset cpu" } else { "memory cpuset" }).unwrap();
            }
            seen.push(now);
        });
        let expected: [&str; 2] =
            if first_first { ["memory cpuset cpu", "-cpuset -cpu"] } else { ["-cpu", "-cpuset"] };
        assert_eq!(seen, expected, "{first_first}");
    }
}

#[test]
fn a_controller_enabled_by_no_session_is_not_recorded() {
    let (_dir, roots) = playground();
    let path = control(&roots, "cgroup.subtree_control", "cpu cpuset");
    let journal = open(&roots, "0").unwrap();
    let before = text(&journal.path());
    journal.claim(&path, &["cpu", "cpuset"]).unwrap();
    assert_eq!(text(&journal.path()), before);
}

/// Another emu, which lifts the limit and waits to be killed.
fn other_emu(test: &str) -> (tempfile::TempDir, Roots, Sleeper) {
    if let Some(root) = std::env::var_os("EMU_TEST_ROOT") {
        let roots = Roots { proc: "/proc".into(), ..Roots::below(Path::new(&root)) };
        let journal = second(&roots);
        journal.write_file(&roots.sys.join("a"), "-1").unwrap();
        fs::write(Path::new(&root).join("ready"), "").unwrap();
        loop {
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
    }
    let (dir, roots) = playground();
    control(&roots, "a", "950000\n");
    let start = |roots: &Roots| {
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &test_name(module_path!(), test)])
            .env("EMU_TEST_ROOT", dir.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn();
        let process = Sleeper(process.unwrap());
        eventually("the other emu gets ready", || roots.sys.parent().unwrap().join("ready").exists());
        process
    };
    let process = start(&roots);
    (dir, roots, process)
}

#[test]
fn the_guardian_leaves_to_others_what_they_rely_on() {
    let test = "the_guardian_leaves_to_others_what_they_rely_on";
    let (_dir, roots, mut other) = other_emu(test);
    let path = roots.sys.join("a");
    let journal = open(&roots, "0").unwrap();
    journal.write_file(&path, "-1").unwrap();
    other.0.kill().unwrap();
    other.0.wait().unwrap();
    eventually("the guardian is done", || super::journals(&roots) == [journal.path()]);
    assert_eq!(text(&path), "-1");
    journal.undo_all().unwrap();
    assert_eq!(text(&path), "950000");
}

#[test]
fn nothing_is_left_to_an_emu_that_was_killed() {
    let (_dir, roots, mut other) = other_emu("nothing_is_left_to_an_emu_that_was_killed");
    let path = roots.sys.join("a");
    let journal = open(&roots, "0").unwrap();
    journal.write_file(&path, "-1").unwrap();
    // As if its guardian had been killed, too, before it read the journal.
    let left = super::journals(&roots).into_iter().find(|left| *left != journal.path()).unwrap();
    let records = fs::read(&left).unwrap();
    other.0.kill().unwrap();
    other.0.wait().unwrap();
    eventually("the guardian is done", || !left.exists());
    fs::write(&left, records).unwrap();
    journal.undo_all().unwrap();
    assert_eq!(text(&path), "950000");
    // A value that is no longer emu's is not changed later.
    restore(&roots).unwrap();
    assert_eq!(text(&path), "950000");
}

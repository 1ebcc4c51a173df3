//! `emu measure`: what it refuses, what it writes, and that it leaves no file however it ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use crate::common::{
    self, EMU, alone, as_written, assert_refused, emu, eventually, finish, inside, is_root, run, samples,
    start, unwrapped, words,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A folder on the disk of the build: `/tmp` may be in memory.
fn on_disk() -> tempfile::TempDir {
    let folder = Path::new(EMU).parent().expect("a folder");
    tempfile::tempdir_in(folder).expect("a folder on the disk")
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Runs `emu measure` with these words and reads the JSON that it writes.
fn json(line: &str) -> Value {
    let ended = run(&mut emu(words(line)), "");
    assert_eq!(ended.code(), Some(0), "{line}: {}", ended.stderr);
    let kind = line.split(' ').nth(1).expect("what is measured");
    let schema = if line.contains("--for") { "measure-series".to_owned() } else { format!("measure-{kind}") };
    as_written(&schema, &ended.stdout)
}

#[test]
fn bad_input_is_refused_with_a_hint() {
    let _alone = alone();
    let dir = on_disk();
    let path = dir.path().display();
    for (line, code) in [
        (format!("measure disk --dir {path}/missing"), 2),
        ("measure disk --dir /dev/null".into(), 2),
        (format!("measure disk --dir {path} --size 1000000GiB"), 3),
        (format!("measure disk --dir {path} --size 17179869183GiB"), 3),
        (format!("measure disk --dir {path} --size 1KiB"), 2),
        (format!("measure disk --dir {path} --blocks 1000"), 2),
        (format!("measure disk --dir {path} --blocks 128MiB"), 2),
        (format!("measure disk --dir {path} --size 1MiB --blocks 1MiB --threads 1"), 2),
        (format!("measure disk --quick --dir {path} --out {path}"), 2),
        ("measure memory --size 1000000GiB".into(), 3),
        ("measure memory --size 1".into(), 2),
        ("measure memory --size 1MiB --blocks 2MiB".into(), 2),
        ("measure memory --size 1MiB --threads 256 --blocks 64KiB".into(), 2),
        (format!("measure disk --dir {path} --for 1s"), 2),
        (format!("measure disk --dir {path} --for 10s --threads 1,2"), 2),
        (format!("measure disk --dir {path} --for 10s --blocks 4KiB,1MiB"), 2),
        (format!("measure disk --dir {path} --for 10s --size 1MiB"), 2),
        (format!("measure disk --dir {path} --for 10s --column durable"), 2),
        (format!("measure disk --dir {path}/missing --for 10s"), 2),
        (format!("measure disk --dir {path} --for 10s --size 1000000GiB"), 3),
        ("measure memory --for 1s".into(), 2),
        ("measure memory --for 1s --every 1ms".into(), 2),
        ("measure memory --for 10s --threads 1,2".into(), 2),
        ("measure memory --for 10s --blocks 1,4KiB".into(), 2),
        ("measure memory --for 10s --size 1MiB --blocks 2MiB".into(), 2),
        ("measure cpu --for 1s".into(), 2),
        ("measure cpu --for 1s --every 1ms".into(), 2),
        ("measure cpu --for 10s --threads 1,2".into(), 2),
        ("measure cpu --threads 257".into(), 2),
    ] {
        assert_refused(&run(&mut emu(words(&line)), ""), code, &line);
        assert_eq!(names(dir.path()), [""; 0], "{line}");
    }
}

#[test]
fn a_disk_that_cannot_be_written_or_is_full_is_told_at_once() {
    let _alone = alone();
    let line = words("measure disk --quick --dir");
    if is_root() {
        for (options, code, words) in [("ro", 4, "cannot make a file"), ("size=1m", 3, "no room")] {
            let setup = format!("mount -t tmpfs -o {options} none /mnt");
            let ended = run(inside(&setup, EMU).args(&line).arg("/mnt"), "");
            assert_refused(&ended, code, options);
            assert!(unwrapped(&ended.stderr).contains(words), "{}", ended.stderr);
        }
    } else {
        let dir = on_disk();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o500)).unwrap();
        assert_refused(&run(emu(&line).arg(dir.path()), ""), 4, "a folder without write permission");
    }
}

#[test]
fn a_file_system_in_memory_says_what_cannot_be_had() {
    let _alone = alone();
    if !is_root() {
        common::skip("mounting needs root");
        return;
    }
    let memory = "mount -t tmpfs -o size=16m none /mnt";
    let overlay = format!(
        "{memory} && mkdir /mnt/lower /mnt/upper /mnt/work /mnt/all && \
         mount -t overlay -o lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work none /mnt/all"
    );
    let mut setups = vec![(memory, "/mnt")];
    if fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.contains("\toverlay\n")) {
        setups.push((overlay.as_str(), "/mnt/all"));
    } else {
        common::leave_out("there are no overlays here");
    }
    for (setup, folder) in setups {
        let line =
            format!("measure disk --quick --size 1MiB --blocks 4KiB --threads 1 --json --dir {folder}");
        let ended = run(inside(setup, EMU).args(words(&line)), "");
        assert_eq!(ended.code(), Some(0), "{folder}: {}", ended.stderr);
        let document = as_written("measure-disk", &ended.stdout);
        for cell in document["result"]["cells"].as_array().unwrap() {
            let available = cell["outcome"].get("measured").is_some();
            assert_eq!(available, cell["column"] == "cached", "{folder}: {cell}");
        }
    }
    let series = "measure disk --for 200ms --every 20ms --size 1MiB --blocks 4KiB --dir /mnt";
    for (options, code) in [("", 3), ("--operation write --column durable", 3), ("--column cached", 0)] {
        let line = format!("{series} {options}");
        let ended = run(inside("mount -t tmpfs -o size=16m none /mnt", EMU).args(words(&line)), "");
        if code == 0 {
            assert_eq!(ended.code(), Some(0), "{line}: {}", ended.stderr);
        } else {
            assert_refused(&ended, code, &line);
        }
    }
}

#[test]
fn a_disk_is_measured_into_a_record_without_a_trace() {
    let _alone = alone();
    let (dir, record) = (on_disk(), on_disk());
    let out = record.path().join("record");
    let (path, out_path) = (dir.path().display(), out.display());
    let options = "--quick --size 4MiB --blocks 1,4KiB --threads 1 --seed 7";
    let document = json(&format!("measure disk {options} --json --dir {path} --out {out_path}"));
    assert_eq!(names(dir.path()), [""; 0]);
    assert_eq!(
        document["about"]["command"],
        "emu measure disk --quick --size 4194304 --blocks 1,4096 --threads 1 --seed 7"
    );
    let cells = document["result"]["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2 * 2 * 2 * 4);
    assert_eq!(
        names(&out),
        [
            "measure-disk-sequential.svg",
            "measure-disk.csv",
            "measure-disk.json",
            "measure-disk.svg",
            "record.json",
            "samples.jsonl"
        ]
    );
    let measured = cells.iter().filter(|cell| cell["outcome"].get("measured").is_some()).count();
    assert_eq!(samples(&out).len(), measured);
    for name in names(&out) {
        let text = fs::read_to_string(out.join(&name)).unwrap();
        assert!(!text.contains(&path.to_string()), "{name} tells of a path");
    }
}

#[test]
fn a_measurement_that_is_ended_or_killed_leaves_no_file() {
    let _alone = alone();
    let series = "measure disk --for 1m --every 20ms --column cached --size 16MiB --dir";
    for (signal, line) in [
        (Signal::SIGINT, "measure disk --size 16MiB --dir"),
        (Signal::SIGTERM, "measure disk --size 16MiB --dir"),
        (Signal::SIGKILL, "measure disk --size 16MiB --dir"),
        (Signal::SIGINT, series),
        (Signal::SIGKILL, series),
    ] {
        let dir = on_disk();
        let mut command = emu(words(line));
        let child = start(command.arg(dir.path()));
        // Its descriptors tell that the file is there, though the folder does not.
        let descriptors = format!("/proc/{}/fd", child.id());
        let inside = dir.path().to_string_lossy().into_owned();
        eventually("the file is made", || {
            fs::read_dir(&descriptors).is_ok_and(|all| {
                all.flatten().any(|entry| {
                    fs::read_link(entry.path())
                        .is_ok_and(|target| target.to_string_lossy().starts_with(&inside))
                })
            })
        });
        assert_eq!(names(dir.path()), [""; 0], "{signal}: the file has a name");
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let ended = finish(child);
        assert_eq!(ended.status.signal(), Some(signal as i32), "{}", ended.stderr);
        assert_eq!(names(dir.path()), [""; 0], "{signal}");
    }
}

/// The command that a measurement tells of, without the start of the random numbers.
fn command(document: &Value) -> Option<&str> {
    document.pointer("/about/command")?.as_str()?.split(" --seed").next()
}

#[test]
fn a_disk_is_measured_for_a_while_without_a_trace() {
    let _alone = alone();
    let dir = on_disk();
    let path = dir.path().display();
    let line = format!("measure disk --for 200ms --every 20ms --size 4MiB --blocks 4KiB --dir {path}");
    let series = json(&format!("{line} --column cached --threads 2 --json"));
    assert_eq!(names(dir.path()), [""; 0]);
    assert_eq!(series["result"]["rates"].as_array().unwrap().len(), 10);
    assert_eq!(series["result"]["unit"], "B");
    let work = "--size 4194304 --blocks 4096 --threads 2 --operation read --column cached";
    let must = format!("emu measure disk {work} --for 200ms --every 20ms");
    assert_eq!(command(&series), Some(must.as_str()));
    // Past the page cache, or not at all.
    for operation in ["read", "write"] {
        let line = format!("{line} --operation {operation}");
        let ended = run(&mut emu(words(&line)), "");
        if ended.code() == Some(0) {
            let what = format!("4096 B random {operation}, 1 threads, direct");
            assert!(ended.stdout.contains(&what), "{}", ended.stdout);
        } else {
            assert_refused(&ended, 3, &line);
        }
        assert_eq!(names(dir.path()), [""; 0], "{line}");
    }
}

#[test]
fn memory_is_measured_at_once_and_for_a_while() {
    let _alone = alone();
    let document = json("measure memory --quick --size 1MiB --blocks 1,4KiB --threads 1 --json");
    let result = &document["result"];
    assert_eq!(result["size"]["array_bytes"], 1 << 20);
    assert_eq!(result["copies"].as_array().unwrap().len(), 4);
    assert_eq!(result["stream"].as_array().unwrap().len(), 1);
    assert_eq!(result["latencies"].as_array().unwrap().len(), 5);
    let series = json("measure memory --for 200ms --every 20ms --size 1MiB --threads 2 --json");
    assert_eq!(series["result"]["rates"].as_array().unwrap().len(), 10);
    assert_eq!(series["result"]["what"], "copy of 512 KiB blocks, arrays of 1 MiB, 2 threads");
    let work = "--size 1048576 --blocks 524288 --threads 2";
    let must = format!("emu measure memory {work} --for 200ms --every 20ms");
    assert_eq!(command(&series), Some(must.as_str()));
}

#[test]
fn cpus_and_memory_are_told_in_percent_of_a_reference() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a folder");
    for (line, schema, shares) in [
        ("measure cpu --quick --threads 1", "measure-cpu", 22),
        ("measure memory --quick --size 1MiB --blocks 1,4KiB --threads 1", "measure-memory", 4 + 4 + 5),
    ] {
        let record = dir.path().join(schema);
        let first = run(emu(words(line)).arg("--out").arg(&record), "");
        assert_eq!(first.code(), Some(0), "{line}: {}", first.stderr);
        samples(&record);
        let again = run(emu(words(line)).arg("--json").arg("--reference").arg(&record), "");
        assert_eq!(again.code(), Some(0), "{line}: {}", again.stderr);
        let json = as_written(schema, &again.stdout);
        assert_eq!(json["result"]["reference"]["shares"].as_array().unwrap().len(), shares, "{line}");
        assert_eq!(json["result"]["reference"]["without_counterpart"], serde_json::json!([]));
    }
    let other = run(emu(words("measure cpu --quick --reference")).arg(dir.path().join("measure-memory")), "");
    assert_refused(&other, 2, "a record of another measurement");
}

#[test]
fn cpus_are_measured_at_once_and_for_a_while() {
    let _alone = alone();
    let document = json("measure cpu --quick --threads 1 --json");
    assert_eq!(document["result"]["waits"].as_array().unwrap().len(), 11);
    let dir = tempfile::tempdir().expect("a folder");
    let record = dir.path().join("record");
    let line = "measure cpu --for 500ms --every 50ms --numbers integer --threads 1 --json --out";
    let series = json(&format!("{line} {}", record.display()));
    assert_eq!(series["result"]["rates"].as_array().unwrap().len(), 10);
    assert!(!samples(&record).is_empty());
    assert_eq!(
        command(&series),
        Some("emu measure cpu --threads 1 --numbers integer --for 500ms --every 50ms")
    );
}

#[test]
fn tables_are_no_wider_than_a_terminal() {
    let _alone = alone();
    let dir = on_disk();
    let path = dir.path().display();
    for line in [
        // Not every size: a disk that is slow in each paced phase would take a minute.
        format!("measure disk --quick --size 4MiB --blocks 1B,1MiB --threads 1 --dir {path}"),
        "measure memory --quick --size 4MiB".to_owned(),
        "measure cpu --for 200ms --every 10ms".to_owned(),
        "measure memory --for 200ms --every 10ms --size 4MiB".to_owned(),
        format!("measure disk --for 200ms --every 10ms --size 4MiB --column cached --dir {path}"),
    ] {
        let ended = run(&mut emu(words(&line)), "");
        assert_eq!(ended.code(), Some(0), "{line}: {}", ended.stderr);
        assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
        assert!(ended.stdout.trim_end().ends_with('.'), "a conclusion: {}", ended.stdout);
    }
}

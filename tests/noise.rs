//! `emu noise` from end to end: what it prints, its record, bad input, and an end by a signal.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::thread;

use crate::common::{
    alone, as_written, assert_measured, assert_refused, emu, eventually, finish, run, samples, start, words,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn a_quick_look_makes_tables_a_conclusion_and_a_lasting_record() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("record");
    let ended = run(emu(words("noise --quick --seed 7 --out")).arg(&folder), "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    for kind in ["cpu-bound", "sleep-1ms", "sleep-10ms", "no-op", "udp-ping-pong"] {
        assert!(ended.stdout.contains(kind), "{}", ended.stdout);
    }
    assert!(ended.stdout.contains("On this machine "), "{}", ended.stdout);
    let json = assert_measured(&ended, &folder, "noise", &["noise-gaps.svg", "noise-ranges.svg"]);
    assert_eq!(json["about"]["command"], "emu noise --quick --seed 7");
    assert_eq!(json["result"]["not_available"], serde_json::json!([]));
    for kind in json["result"]["kinds"].as_array().unwrap() {
        let blocks = kind["blocks"].as_array().unwrap();
        assert_eq!(blocks.len(), 5);
        assert!(blocks.iter().all(|block| block.as_array().unwrap().len() == 5), "{kind}");
    }
    let cpus = json["result"]["cpus"].as_array().unwrap().len();
    assert_eq!(samples(&folder).len(), 5 * 5 + cpus);

    let before = fs::read_to_string(folder.join("record.json")).unwrap();
    let again = run(emu(words("noise --quick --out")).arg(&folder), "");
    assert_refused(&again, 2, "a record that exists");
    assert_eq!(fs::read_to_string(folder.join("record.json")).unwrap(), before);
    // It is no record of emu bench, and is told so.
    assert_refused(&run(emu(["report"]).arg(&folder), ""), 2, "emu report");
}

#[test]
fn the_same_work_goes_through_a_server_that_may_die() {
    let _alone = alone();
    let ended = run(&mut emu(words("noise --quick --json --server loopback")), "");
    let json = as_written("noise", &ended.stdout);
    let kinds = json["result"]["kinds"].as_array().unwrap();
    for kind in ["cpu-bound", "sleep-1ms", "sleep-10ms", "no-op"] {
        let of =
            |name: &str| kinds.iter().find(|of| of["kind"] == *name).unwrap()["median_ns"].as_f64().unwrap();
        assert!(of(&format!("{kind}-server")) > of(kind), "{kind}: {json}");
    }
    assert!(json["result"]["server"].as_str().unwrap().starts_with("127.0.0.1:"), "{json}");

    // It answers the first question, and dies at the next connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut client, mut buffer) = (listener.accept().unwrap().0, [0; 8]);
        client.read_exact(&mut buffer).unwrap();
        client.write_all(&buffer).unwrap();
    });
    let ended = run(&mut emu(words(&format!("noise --quick --server {address}"))), "");
    server.join().unwrap();
    assert_refused(&ended, 3, &format!("cannot connect to server {address}"));
    let nowhere = run(&mut emu(words("noise --quick --server no-such-host.invalid:7")), "");
    assert_refused(&nowhere, 3, "no-such-host.invalid:7");
}

#[test]
fn json_is_all_that_goes_to_stdout() {
    let _alone = alone();
    let ended = run(&mut emu(words("noise --quick --json --threshold 20us")), "");
    let json = as_written("noise", &ended.stdout);
    assert_eq!(json["schema"], 1);
    for cpu in json["result"]["cpus"].as_array().unwrap() {
        assert_eq!(cpu["threshold_ns"], 20_000.0);
    }
    assert_eq!(ended.stderr, "");
}

#[test]
fn bad_input_is_refused_before_anything_is_measured() {
    let _alone = alone();
    for line in [
        "noise --threshold 0s",
        "noise --threshold -1us",
        "noise --threshold 5",
        "noise --seed x",
        "noise --server 127.0.0.1",
        "noise --server loop:back",
        "noise --quick --node 1000",
        "noise --node -1",
        "noise --out /proc/no-such-folder",
        "noise --out /dev/null/x",
        "noise --out /proc",
        "noise-runs {}",
        "noise-runs {\"kind\":\"no-such-kind\",\"runs\":1,\"operations\":1,\"length_ns\":1}",
    ] {
        let ended = run(&mut emu(words(line)), "");
        assert_eq!((ended.code(), ended.stdout.as_str()), (Some(2), ""), "{line}: {}", ended.stderr);
        assert!(ended.stderr.starts_with("error: "), "{line}: {}", ended.stderr);
    }
}

#[test]
fn a_signal_ends_it_and_what_was_measured_is_kept() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("record");
    let child = start(emu(words("noise --quick --out")).arg(&folder));
    let samples = folder.join("samples.jsonl");
    eventually("a sample is taken", || fs::read_to_string(&samples).is_ok_and(|text| !text.is_empty()));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let ended = finish(child);
    assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "{}", ended.stderr);
    assert!(ended.stderr.contains("what was measured is kept in "), "{}", ended.stderr);
    let text = fs::read_to_string(&samples).unwrap();
    assert!(text.ends_with('\n') && text.lines().all(|line| line.starts_with("{\"row\":")), "{text}");
    assert!(folder.join("record.json").exists() && !folder.join("noise.csv").exists());
}

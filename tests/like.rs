//! `emu profile` and `--like`: as fast as another machine.

use std::fs;

use crate::common::{
    alone, as_written, assert_nothing_left, assert_refused, can_emulate, emu, in_some_attempt, run,
    unwrapped, words,
};
use crate::node::{apply, emu_node};

#[test]
fn a_machine_that_was_half_as_fast_is_met() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [slow, kept] = ["slow.json", "run.json"].map(|name| dir.path().join(name));
    in_some_attempt(|| {
        // A slower machine: this one, slowed.
        let line = format!(
            "run --speed 45% --cpus 0 -q -- {} profile {} --quick --quiet",
            env!("CARGO_BIN_EXE_emu"),
            slow.display()
        );
        let ended = run(&mut emu(words(&line)), "");
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
        let line = format!("run --like {} --cpus 0 --json {} -- true", slow.display(), kept.display());
        let ended = run(&mut emu(words(&line)), "");
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
        assert_nothing_left(ended.pid);
        let kept = as_written("run", &fs::read_to_string(&kept).unwrap());
        assert_eq!(kept["asked"]["cpus"][0]["share"], kept["like"]["share"]);
        let [share, error] = ["share", "error"].map(|key| kept["like"][key].as_f64().unwrap());
        // The machine may be busier now than it was then, or less so.
        let is_met = (0.3..0.65).contains(&share) && error.abs() < 0.15;
        if is_met { Ok(()) } else { Err(kept["like"].to_string()) }
    });

    // What it has no score for, more CPUs than it has, and one that is faster than this machine.
    let run_like = format!("run --like {}", slow.display());
    let of_command = format!("{run_like} --cpus 0 --metric command:true -- true");
    assert_refused(&run(&mut emu(words(&of_command)), ""), 2, "no score");
    assert_refused(&run(&mut emu(words(&format!("{run_like} --cpus 0-1 -- true"))), ""), 3, "CPUs");
    let mut fast = as_written("profile", &fs::read_to_string(&slow).unwrap());
    fast["scores"]["loop"]["mean"] = 1e12.into();
    fs::write(&slow, fast.to_string()).unwrap();
    assert_refused(&run(&mut emu(words(&format!("{run_like} --cpus 0 -- true"))), ""), 3, "slower");
}

#[test]
fn a_setting_that_was_mapped_is_a_quota_of_the_cpus() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [map, kept] = ["map.json", "run.json"].map(|name| dir.path().join(name));
    let write = |quota: f64| {
        let text = format!(
            "{{\"schema\": 1, \"setting\": 1769, \"setting_sd\": 20, \"gflops\": 25, \"quota\": {quota}, \"quota_sd\": 0.02,
            \"speed\": 0.1, \"speed_sd\": 0.01, \"both_linear\": true, \"doubts\": []}}"
        );
        as_written("calibrate-map", &text);
        fs::write(&map, text).unwrap();
    };
    write(0.4);
    let line = |options: &str| words(&format!("run --like {} --cpus 0 {options} -- true", map.display()));
    let ended = run(&mut emu(line(&format!("--json {}", kept.display()))), "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(unwrapped(&ended.stderr).contains("at its setting 1769 by linpack"), "{}", ended.stderr);
    let kept = as_written("run", &fs::read_to_string(&kept).unwrap());
    assert_eq!((&kept["asked"]["cpus"][0]["share"], &kept["like"]["setting"]), (&0.4.into(), &1769.0.into()));
    assert_refused(&run(&mut emu(line("--metric int")), ""), 2, "mapped by linpack");

    // A file of nodes has it, too, and finds it again.
    let file = format!("[node.cloud]\nlike = \"{}\"\ncpus = \"0\"\n", map.display());
    assert_eq!(apply(&file, "-q").code(), Some(0));
    for text in [file, emu_node("dump").stdout] {
        let same = apply(&text, "--dry-run");
        assert_eq!(&*same.stdout, "Nothing is to be changed.\n", "{text}{}", same.stderr);
    }
    assert_eq!(emu_node("remove cloud").code(), Some(0));
    write(1.4);
    assert_refused(&run(&mut emu(line("")), ""), 3, "equals 1.40 CPUs");
}

#[test]
fn what_is_no_profile_is_refused() {
    // The last one measures on a CPU of its own.
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.json");
    for (text, told) in
        [("", "no profile"), ("{\"schema\": 9}", "version 9"), ("{\"schema\": 1}", "no profile")]
    {
        fs::write(&file, text).unwrap();
        let line = format!("run --like {} -- true", file.display());
        assert_refused(&run(&mut emu(words(&line)), ""), 2, told);
    }
    assert_refused(&run(&mut emu(words("run --like /nowhere -- true")), ""), 2, "/nowhere");
    assert_refused(&run(&mut emu(words("run --speed 40% --metric int -- true")), ""), 2, "for a profile");
    assert_refused(&run(&mut emu(words("profile /nowhere/x")), ""), 2, "said before it is measured");
    let failing = format!("profile {} --quick --command false", file.display());
    let ended = run(&mut emu(words(&failing)), "");
    assert_eq!(ended.code(), Some(125), "{}", ended.stderr);
    assert!(ended.stderr.contains("`false` has failed"), "{}", ended.stderr);
}

//! `emu bench` is killed at random moments and continued: nothing is left behind, no sample is lost or doubled.
//!
//! `EMU_CRASH_ROUNDS` sets how often; the seed is printed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common::{
    self, alone, as_written, assert_nothing_left, assert_refused, emu, eventually, finish, groups_of,
    in_some_attempt, is_root, run, skip, some_method, start, until_it_takes, unwrapped, words,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ROUNDS: u64 = 6;

/// Pairs of each cell.
const PAIRS: usize = 4;

#[test]
fn a_method_is_verified_by_itself() {
    let _alone = alone();
    let Some(method) = some_method() else {
        skip("no method works here for this user");
        return;
    };
    let line = format!("verify --quick -w cpu-loop -c 0 -m {method} --until-decided 1ms");
    in_some_attempt(|| {
        let ended = run(&mut emu(words(&format!("{line} --json"))), "");
        assert_nothing_left(ended.pid);
        // Other work may leave it open, and leaves no figure where it disturbed all pairs.
        if ![Some(0), Some(9)].contains(&ended.code()) {
            return Err(format!("{:?}: {}", ended.code(), ended.stderr));
        }
        let found = &as_written("verify", &ended.stdout)["sections"][0]["outcomes"][0]["findings"][0];
        let share = found["ratio"]["estimate"].as_f64().expect("a ratio");
        if (share - 0.5).abs() < 0.1 { Ok(()) } else { Err(format!("{method}: {share}")) }
    });
    let ended = run(&mut emu(words(&format!("{line} --tolerance 0.01%"))), "");
    assert_ne!(ended.code(), Some(0), "no method is so exact: {}", ended.stdout);
    assert!(ended.stdout.contains("±0.01%"), "{}", ended.stdout);
}

#[test]
fn a_signal_ends_a_measurement_in_the_middle_of_a_window() {
    let _alone = alone();
    let Some(method) = some_method() else {
        skip("no method works here for this user");
        return;
    };
    // Three periods of a second, and as long before the window.
    let child =
        start(&mut emu(words(&format!("verify -s 50% --period 1s -w cpu-loop -c 0 -m {method} --pairs 2"))));
    until_it_takes(child.id(), Signal::SIGTERM);
    std::thread::sleep(Duration::from_secs(2));
    let begin = Instant::now();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let ended = finish(child);
    assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "{}", ended.stderr);
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    assert_nothing_left(ended.pid);
}

#[test]
fn a_killed_run_is_completed_without_a_sample_lost_or_doubled() {
    let _alone = alone();
    let rounds = std::env::var("EMU_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| u64::from(now.subsec_nanos()));
    println!("seed {seed}, {rounds} kills");
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("record");
    let methods = some_method().map_or("none".to_owned(), |method| format!("{method},none"));
    let first = format!(
        "bench --methods {methods} --workloads cpu-loop,sleep-compute --cores 1 --speeds 50% --reps {PAIRS} --out"
    );
    let mut before = Vec::new();
    for round in 0..rounds {
        let mut command = if folder.join("samples.jsonl").exists() {
            emu(["bench", "--resume"])
        } else {
            assert!(!folder.exists(), "a record that cannot be continued was left");
            emu(words(&first))
        };
        command.arg(&folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("emu to start");
        // The first kill comes when there is something to lose.
        if round == 0 {
            eventually("a sample is taken", || !lines(&folder).is_empty());
        }
        let moment = (seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round * 7919) >> 33) % 1_500;
        std::thread::sleep(Duration::from_millis(moment));
        let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
        child.wait().expect("emu to end");
        eventually("the guardian has undone all", || groups_of(child.id()).is_empty());
        let now = lines(&folder);
        assert_eq!(now[..before.len()], before[..], "round {round}: a sample is lost");
        before = now;
    }
    // As if it had been killed in the middle of a write.
    let samples = folder.join("samples.jsonl");
    let text = fs::read_to_string(&samples).unwrap();
    fs::write(&samples, format!("{text}{{\"row\":\"pair\",\"sam")).unwrap();
    let ended = run(emu(["bench", "--resume"]).arg(&folder), "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let all = lines(&folder);
    assert_eq!(all[..before.len()], before[..], "a sample is lost");
    let about = as_written("record", &fs::read_to_string(folder.join("record.json")).unwrap());
    let mut kept = BTreeSet::new();
    for line in common::samples(&folder) {
        if line["row"] == "pair" && line["sample"]["pair"]["kept"] == true {
            let of = |name: &str| line["sample"][name].as_u64().unwrap();
            assert!(kept.insert((of("cell"), of("repetition"))), "a sample is doubled");
        }
    }
    let cells = about["experiment"]["cells"].as_array().unwrap();
    let planned: u64 = cells.iter().map(|cell| cell["repetitions"].as_u64().unwrap()).sum();
    assert_eq!(kept.len() as u64, planned);
    // A complete record is not continued, only shown again.
    let again = run(emu(["bench", "--resume"]).arg(&folder), "");
    assert_eq!((again.code(), lines(&folder).len()), (Some(0), all.len()), "{}", again.stderr);
}

#[test]
fn a_tool_is_measured_beside_a_method_and_quoted() {
    let _alone = alone();
    if !is_root() {
        return skip("a quota needs root");
    }
    let Some(method) = some_method() else { return skip("no method works here") };
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("record");
    let line =
        format!("bench --methods {method},quota --workloads cpu-loop --cores 1 --speeds 50% --reps 6 --out");
    let measured = run(emu(words(&line)).arg(&folder), "");
    assert_eq!(measured.code(), Some(0), "{}", measured.stderr);
    assert!(measured.stdout.contains("Beside other tools:"), "{}", measured.stdout);
    assert!(!measured.stdout.contains("use quota"), "only methods are advised: {}", measured.stdout);
    assert_eq!(groups_of(measured.pid), Vec::<std::path::PathBuf>::new());

    let table = run(emu(["report", "--table", "beside"]).arg(&folder), "");
    assert!(table.stdout.starts_with(&format!("| work | speed | {method} | quota |\n")), "{}", table.stdout);

    let document = dir.path().join("page.md");
    let mark = format!("<!-- emu report {} --table errors -->", folder.display());
    fs::write(&document, format!("# A page\n{mark}\n<!-- end of the table -->\nrest\n")).unwrap();
    let splice = |option: Option<&str>| run(emu(["report", "--splice"]).arg(&document).args(option), "");
    assert_eq!(splice(Some("--check")).code(), Some(5));
    assert_eq!(splice(None).code(), Some(0));
    let text = fs::read_to_string(&document).unwrap();
    assert!(text.contains(&format!("| {method}")) && text.ends_with("rest\n"), "{text}");
    let checked = splice(Some("--check"));
    assert_eq!(checked.code(), Some(0), "{}", checked.stderr);
    assert_eq!(fs::read_to_string(&document).unwrap(), text);

    let page = dir.path().join("bare.md");
    fs::write(&page, "# A page\n").unwrap();
    let checked = run(emu(["report", "--check", "--splice"]).args([&document, &page]), "");
    assert_refused(&checked, 2, "a document that marks no table");
    assert!(unwrapped(&checked.stderr).contains("bare.md"), "{}", checked.stderr);
}

#[test]
fn a_signal_ends_planning_and_leaves_no_record() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("record");
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let child = start(emu(words("bench --out")).arg(&folder));
        // Planning begins then, and takes seconds.
        until_it_takes(child.id(), signal);
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let ended = finish(child);
        assert_eq!(ended.status.signal(), Some(signal as i32), "{}", ended.stderr);
        assert!(ended.stderr.contains("interrupted before anything was measured"), "{}", ended.stderr);
        assert!(!folder.exists() && groups_of(ended.pid).is_empty());
    }
}

/// The whole lines of the samples.
fn lines(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("samples.jsonl")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| text.get(..=end).unwrap_or_default());
    whole.lines().map(str::to_owned).collect()
}

#[test]
fn a_report_needs_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    // On a busy machine nothing may be decided; this one was not.
    let kept =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/results/fidelity.intel-xeon.2026-11-28");
    for file in ["record.json", "samples.jsonl.gz"] {
        fs::copy(kept.join(file), folder.join(file)).expect("a record");
    }
    let reported = run(emu(["report"]).arg(folder), "");
    assert_eq!(reported.code(), Some(0), "{}", reported.stderr);
    assert!(
        reported.stdout.lines().all(|line| line.chars().count() <= 80 || line.starts_with("Report: ")),
        "{}",
        reported.stdout
    );
    let page = fs::read_to_string(folder.join("report/report.html")).expect("the page");
    let (svg_names, page) = ("http://www.w3.org/2000/svg", page.replace("http://www.w3.org/2000/svg", ""));
    for outside in ["http://", "https://", "<script", "<link", "<img", "@import", "url("] {
        assert!(!page.contains(outside), "the page needs {outside} beside {svg_names}");
    }
    let errors = fs::read_to_string(folder.join("report/errors.svg")).expect("the figure of errors");
    assert!(page.contains("error of the speed") && errors.contains("\npasses\n"), "{errors}");
    for name in ["report/cells.csv", "report/lines.csv"] {
        let csv = fs::read_to_string(folder.join(name)).expect("the CSV");
        let columns: BTreeSet<_> = csv.lines().map(commas_between_cells).collect();
        assert_eq!(columns.len(), 1, "every line of {name} has the same columns");
    }
}

/// How many commas of a line divide cells: those within quotes belong to a sentence.
fn commas_between_cells(line: &str) -> usize {
    line.split('"').step_by(2).map(|outside| outside.matches(',').count()).sum()
}

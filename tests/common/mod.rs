//! Starts the binary as a user would, one test at a time: zones of several emus would share the CPUs.
//!
//! As root every emu gets a mount namespace with a state folder that only the tests use, so that emus outside of
//! the tests neither refuse nor are refused.

mod process;

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

pub(crate) use process::{blocks, child_called, comm, is_alive, is_real_time, marked, state};

/// Several times what any step of a test takes, on a machine whose CPUs and disk are shared.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The same for a whole command, such as a measurement of many steps.
const PATIENCE_FOR_A_COMMAND: Duration = Duration::from_secs(400);

/// The binary under test.
pub(crate) const EMU: &str = env!("CARGO_BIN_EXE_emu");

/// To be held by every test that emulates.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Says on stderr what a test does not try here, as it makes no sense on such a host.
pub(crate) fn leave_out(why: &str) {
    eprintln!("left out of {}: {why}", this_test());
}

/// Says on stderr why a test did not run; with `EMU_NO_SKIP` in the environment it fails instead.
pub(crate) fn skip(why: &str) {
    let test = this_test();
    assert!(std::env::var_os("EMU_NO_SKIP").is_none(), "{test} must not be skipped here: {why}");
    eprintln!("skipped {test}: {why}");
}

/// The test that the calling thread runs: the harness names its threads so.
fn this_test() -> String {
    thread::current().name().unwrap_or("a part of a test").to_owned()
}

/// A shell has its background jobs ignore the keyboard's signals, and `nohup` a hang-up; so would what the tests start from
/// such a job.
const INTERRUPTIBLE: &str = "--default-signal=HUP,INT,QUIT";

/// The folder in which the tests' emus keep their state, kept from test to test, as emu keeps there what it has measured
/// of the host.
pub(crate) fn state_folder() -> PathBuf {
    std::env::temp_dir().join(format!("emu-tests-{}", nix::unistd::geteuid()))
}

/// The journals that the emu of that process ID has there.
pub(crate) fn journals_of(emu: u32) -> Vec<String> {
    let folder = if is_root() { state_folder() } else { state_folder().join("emu") };
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&format!("{emu}-"))).collect()
}

/// A program in a mount namespace with the tests' state folder, after `setup` (shell) has prepared it; as an
/// ordinary user just the program with that state folder.
///
/// The process becomes the program: its process ID is the one of the command.
pub(crate) fn inside<S: AsRef<OsStr>>(setup: &str, program: S) -> Command {
    let state = state_folder();
    fs::create_dir_all(&state).expect("a folder for the state");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).expect("the folder to be ours");
    if !is_root() {
        let mut command = Command::new("env");
        command.arg(INTERRUPTIBLE).arg(program).env("XDG_RUNTIME_DIR", state);
        return command;
    }
    let mut command = Command::new("unshare");
    let script = format!(
        "mount -t tmpfs -o mode=755 none /run && mkdir -m 700 /run/emu && mount --bind {} /run/emu && \
         {{ {setup}\n}} && exec env {INTERRUPTIBLE} \"$@\"",
        state.display()
    );
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]).arg(program);
    command
}

/// `emu` with these arguments.
pub(crate) fn emu<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = inside(":", EMU);
    command.args(arguments);
    command
}

/// `emu` as an ordinary user of root's making, from a copy that such a user may run, with more words for `setpriv`. The copy
/// is there as long as the folder.
pub(crate) fn as_nobody(words: &[&str]) -> (tempfile::TempDir, Command) {
    let folder = tempfile::tempdir().expect("a folder for the copy");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("the folder to be ours");
    let copy = folder.path().join("emu");
    fs::copy(EMU, &copy).expect("a copy of emu");
    let mut command = inside(":", "setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).args(words).arg(copy);
    (folder, command)
}

/// The cgroups of a process, and where it may run.
pub(crate) fn place_of(pid: u32) -> (String, String) {
    let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let cpus = read("status").lines().find(|line| line.starts_with("Cpus_allowed_list")).map(str::to_owned);
    (read("cgroup"), cpus.unwrap_or_default())
}

/// Words of a command line; `␣` is a space within a word.
pub(crate) fn words(line: &str) -> Vec<String> {
    line.split(' ').filter(|word| !word.is_empty()).map(|word| word.replace('␣', " ")).collect()
}

/// How a command ended and what it wrote.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) pid: u32,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

/// Runs a command to its end with this input.
pub(crate) fn run(command: &mut Command, input: &str) -> Ended {
    let mut child = start(command);
    let mut stdin = child.stdin.take().expect("a pipe to the command");
    thread::scope(|scope| {
        // Beside reading what it writes. A command that does not want all of it closes the pipe.
        scope.spawn(move || {
            let _ = stdin.write_all(input.as_bytes());
        });
        finish(child)
    })
}

/// Starts a command with pipes to all three.
pub(crate) fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the command to start")
}

/// Waits for a command, and collects what it wrote.
pub(crate) fn finish(mut child: Child) -> Ended {
    fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let (stdout, stderr) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("to wait for the command") {
            break status;
        }
        if begin.elapsed() > PATIENCE_FOR_A_COMMAND {
            let line = fs::read_to_string(format!("/proc/{}/cmdline", child.id())).unwrap_or_default();
            let _ = child.kill();
            panic!("the command has not ended: {}", line.replace('\0', " "));
        }
        thread::sleep(Duration::from_millis(2));
    };
    let (stdout, stderr) = (stdout.join().expect("the output"), stderr.join().expect("the messages"));
    Ended { pid: child.id(), status, stdout, stderr }
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Measures until it is as it should be: three times at least, and for two minutes, as others take their share of a shared
/// machine for a while, and what is broken is broken every time.
pub(crate) fn in_some_attempt(mut measure: impl FnMut() -> Result<(), String>) {
    let begin = Instant::now();
    let mut seen = Vec::new();
    while let Err(what) = measure() {
        seen.push(what);
        assert!(seen.len() < 3 || begin.elapsed() < PATIENCE, "in no attempt: {seen:#?}");
        thread::sleep(Duration::from_secs(1));
    }
}

/// Whether a share of a CPU may be this one on a machine that has other things to do: they take time from a task, and give it
/// none. What is delivered to the percent is seen in the guests of the rig.
pub(crate) fn is_near(share: f64, wanted: f64) -> bool {
    (wanted * 0.35..wanted + 0.1).contains(&share)
}

/// A task uses this share of a CPU over 0.7 s at some time, or what others leave of it.
pub(crate) fn assert_share(task: i32, wanted: f64, what: &str) {
    in_some_attempt(|| {
        let [share, _] = shares_of(task);
        if is_near(share, wanted) { Ok(()) } else { Err(format!("{what}: {share}, not {wanted}")) }
    });
}

/// Nothing but the scheduler keeps a busy task waiting, over 0.7 s at some time.
pub(crate) fn assert_free(task: i32, what: &str) {
    in_some_attempt(|| {
        let [used, waited] = shares_of(task);
        if used + waited > 0.9 { Ok(()) } else { Err(format!("{what}: {used} used, {waited} waited")) }
    });
}

/// Which part of 0.7 s a task runs, and which it waits for a CPU, by the kernel's account.
fn shares_of(task: i32) -> [f64; 2] {
    let account = || {
        let text = fs::read_to_string(format!("/proc/{task}/schedstat")).expect("an account");
        let mut times = text.split(' ').map(|time| time.parse::<f64>().expect("a time"));
        [(); 2].map(|()| times.next().expect("a time"))
    };
    let (begin, before) = (Instant::now(), account());
    thread::sleep(Duration::from_millis(700));
    let (after, length) = (account(), begin.elapsed().as_nanos() as f64);
    [0, 1].map(|kind| (after[kind] - before[kind]) / length)
}

/// What emu has written as JSON. It must be as the schema of that name has it.
#[track_caller]
pub(crate) fn as_written(schema: &str, text: &str) -> serde_json::Value {
    let value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_form(schema, std::slice::from_ref(&value));
    value
}

/// The samples of a record, each as `schemas/samples.json` has it.
pub(crate) fn samples(record: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(record.join("samples.jsonl")).expect("samples");
    let lines: Vec<_> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_form("samples", &lines);
    lines
}

fn assert_form(schema: &str, values: &[serde_json::Value]) {
    let file = format!("{}/../../schemas/{schema}.json", env!("CARGO_MANIFEST_DIR"));
    let form = serde_json::from_str(&fs::read_to_string(file).expect("a schema")).expect("JSON");
    let validator = jsonschema::validator_for(&form).expect("a schema");
    let errors = values.iter().flat_map(|value| validator.iter_errors(value));
    let wrong: Vec<_> = errors.map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(wrong.is_empty(), "not as schemas/{schema}.json has it: {wrong:#?}");
}

/// The zone of an emu as `emu top` has it.
pub(crate) fn zone_of(emu_pid: u32) -> serde_json::Value {
    let ended = run(&mut emu(["top", "--once", "--json"]), "");
    let line = as_written("top", &ended.stdout);
    let zones = line["zones"].as_array().expect("zones");
    zones.iter().find(|zone| zone["pid"] == emu_pid).cloned().unwrap_or_default()
}

/// The methods that can do 50 % here, for the caller.
pub(crate) fn methods() -> Vec<String> {
    static METHODS: OnceLock<Vec<String>> = OnceLock::new();
    let ask = || {
        let ended = run(&mut emu(["methods", "--json", "--speed", "50%"]), "");
        let json = as_written("methods", &ended.stdout);
        let methods = json["methods"].as_array().expect("a list").iter();
        let works = methods.filter(|method| method["works"] == true);
        let names = works.map(|method| method["method"].as_str().expect("a name").to_owned());
        names.filter(|name| !name.contains(':')).collect()
    };
    METHODS.get_or_init(ask).clone()
}

/// Whether any method works; else says why the test does not run.
pub(crate) fn can_emulate() -> bool {
    let can = !methods().is_empty();
    if !can {
        skip("no method works here for this user; `emu methods` tells why");
    }
    can
}

/// Whether these methods work here for the caller; says so where a test is skipped for that.
pub(crate) fn can_emulate_by(wanted: &[&str]) -> bool {
    let missing = wanted.iter().find(|wanted| methods().iter().all(|method| method != *wanted));
    missing.inspect(|method| skip(&format!("{method} does not work here for this user"))).is_none()
}

/// Whether there are so many CPUs; says so where a test is skipped for that.
pub(crate) fn has_cpus(wanted: usize) -> bool {
    let there = thread::available_parallelism().map_or(1, usize::from);
    if there < wanted {
        skip(&format!("it needs {wanted} CPUs, and there are {there}"));
    }
    there >= wanted
}

/// A method that needs little of the host, for tests of what is around it.
pub(crate) fn some_method() -> Option<String> {
    let works = methods();
    let preferred = ["cpu-lim", "cpu-freeze", "fracas"].map(String::from);
    preferred.into_iter().find(|name| works.contains(name)).or_else(|| works.into_iter().next())
}

/// Waits until a child of `parent` is the program of this name; returns it. As emu's command it is in its zone by then.
pub(crate) fn until_child(parent: u32, name: &str) -> i32 {
    let mut found = None;
    eventually(&format!("{name} runs"), || {
        found = child_called(parent, name);
        found.is_some()
    });
    found.expect("found")
}

/// Waits until the process is emu and takes this signal itself. A process that is being made blocks signals, too,
/// before it is emu.
pub(crate) fn until_it_takes(pid: u32, signal: Signal) {
    let takes = || comm(pid as i32).as_deref() == Some("emu") && blocks(pid, signal);
    eventually("emu takes signals itself", takes);
}

/// Waits until an emu slows down what it was told to: the thread that watches what is delivered begins then.
pub(crate) fn until_it_acts(emu: u32) {
    let threads = || fs::read_dir(format!("/proc/{emu}/task")).into_iter().flatten().flatten();
    let watches = |task: fs::DirEntry| {
        fs::read(task.path().join("comm")).is_ok_and(|comm| comm.starts_with(b"emu-account"))
    };
    eventually("emu acts", || threads().any(watches));
}

/// The text as one line: emu breaks long ones, and begins each with its name while a command runs.
pub(crate) fn unwrapped(text: &str) -> String {
    let lines = text.lines().map(|line| line.strip_prefix("emu: ").unwrap_or(line).trim());
    lines.collect::<Vec<_>>().join(" ")
}

/// The folders of cgroups that the emu of that process ID has made.
pub(crate) fn groups_of(emu: u32) -> Vec<PathBuf> {
    fn search(folder: PathBuf, depth: u8, prefix: &str, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with(prefix) {
                    found.push(path);
                } else if depth > 0 {
                    search(path, depth - 1, prefix, found);
                }
            }
        }
    }
    let mut found = Vec::new();
    search("/sys/fs/cgroup".into(), 6, &format!("emu-{emu}-"), &mut found);
    found
}

/// `emu run` at half speed with these further words.
pub(crate) fn half(line: &str) -> Command {
    let method = some_method().map(|name| format!("--method {name}")).unwrap_or_default();
    let method = if line.contains("--method") { String::new() } else { method };
    emu(words(&format!("run --speed 50% {method} {line}")))
}

/// One clear error with a hint, and nothing changed.
pub(crate) fn assert_refused(ended: &Ended, code: i32, what: &str) {
    assert_eq!(ended.code(), Some(code), "{what}: {}", ended.stderr);
    assert_eq!(ended.stdout, "", "{what}");
    assert_eq!(ended.stderr.matches("error: ").count(), 1, "{what}: {}", ended.stderr);
    assert!(ended.stderr.contains("hint: ") || ended.stderr.contains("tip: "), "{what}: {}", ended.stderr);
    assert_nothing_left(ended.pid);
}

/// A measurement ended well, its text fits a terminal, and its record is whole, with these figures beside the first;
/// returns the JSON of the record.
pub(crate) fn assert_measured(
    ended: &Ended,
    record: &Path,
    stem: &str,
    others: &[&str],
) -> serde_json::Value {
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
    let mut files: Vec<String> = fs::read_dir(record)
        .expect("the record")
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    let mut expected: Vec<String> = ["json", "csv", "svg"].map(|kind| format!("{stem}.{kind}")).into();
    expected
        .extend(["record.json", "samples.jsonl"].into_iter().chain(others.iter().copied()).map(String::from));
    expected.sort();
    assert_eq!(files, expected);
    let text = |name: &str| fs::read_to_string(record.join(name)).expect(name);
    let figure = format!("{stem}.svg");
    for name in others.iter().copied().chain([figure.as_str()]) {
        assert!(text(name).starts_with("<svg ") && text(name).contains("<title>"), "{name}");
    }
    samples(record);
    let csv = text(&format!("{stem}.csv"));
    let columns: std::collections::BTreeSet<_> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(columns.len(), 1, "every line of the CSV has the same columns: {csv}");
    let json = as_written(stem, &text(&format!("{stem}.json")));
    assert_eq!(
        (&json["schema"], &json["about"]["measurement"]["name"]),
        (&1.into(), &stem.replace('-', " ").into())
    );
    json
}

/// No cgroup of the emu is left.
pub(crate) fn assert_nothing_left(emu: u32) {
    let left = groups_of(emu);
    assert!(left.is_empty(), "{left:?}");
}

//! The commands that the documents show: each of emu is understood, and each is run as it stands, or is marked here with why not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::common::{
    EMU, Ended, alone, assert_nothing_left, can_emulate, eventually, finish, has_cpus, inside, is_root, run,
    skip, start, until_it_acts,
};

/// The beginnings of commands that are not run, and why not.
const NOT_RUN: [(&str, &str); 35] = [
    ("cargo ", "it is how the tests are run, or takes minutes"),
    (".ci/run", "it runs the tests"),
    ("tests/campaign", "it takes minutes: campaign.rs"),
    ("benches/programs/measure", "it takes minutes, and needs a release build"),
    ("gzip -9 benches/results", "it needs such a record"),
    ("git ", "it needs the history"),
    ("emu top --once | docs/picture.py", "it makes a picture anew"),
    ("packaging/release", "it takes minutes: packaging/try"),
    ("sudo packaging/try", "it needs release files, and changes the host"),
    ("sudo install", "it changes the host"),
    ("sudo dpkg", "it changes the host: packaging/try"),
    ("pip install", "it needs the network; the tests hold all that is written against the schemas"),
    ("EMU_BINARY=", "it needs pytest: .ci/run"),
    ("ANSIBLE_ROLES_PATH=", "it needs Ansible and hosts: tests/hosts/ansible"),
    ("ansible ", "it needs Ansible and hosts: tests/hosts/ansible"),
    ("tar czf emu.tar.gz", "it needs Ansible"),
    ("mpirun ", "it needs MPI: tests/hosts/mpi"),
    ("srun ", "it needs Slurm: tests/hosts/slurm"),
    ("taskset -c 0 redis-server", "it needs Redis: tests/hosts/latency"),
    ("taskset -c 1 redis-benchmark", "it needs Redis: tests/hosts/latency"),
    ("emu attach --name", "it needs Redis or a browser: tests/hosts/latency, names.rs"),
    ("emu run --like", "it needs the profile of another machine: like.rs"),
    ("emu profile", "it takes 40 s: like.rs"),
    ("emu attach --container", "it needs a container: names.rs"),
    ("emu trace record", "it takes a minute: trace.rs"),
    ("emu bench", "it takes minutes: bench.rs"),
    ("emu report", "it needs such a record: bench.rs"),
    ("emu verify", "it takes half a minute: bench.rs"),
    ("emu run --verify", "it takes a quarter of a minute: cli.rs"),
    ("emu noise", "it takes half a minute: noise.rs"),
    ("emu timers", "it takes half a minute: timers.rs"),
    ("emu measure", "it takes minutes: measure.rs, hpcc.rs"),
    ("emu calibrate", "it takes minutes: calibrate.rs"),
    ("emu doctor tune --for", "it takes ten minutes: doctor.rs"),
    ("emu doctor tune --measure", "it takes minutes: doctor.rs"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages whose commands somebody might type, the same in each run.
fn documents() -> Vec<PathBuf> {
    let folders =
        ["", "docs", "python", "ansible", "benches/results", "tests/rig"].map(|name| root().join(name));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut documents: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    documents.retain(|path| path.extension().is_some_and(|is| is == "md"));
    documents.sort();
    documents
}

/// The commands of a document, without their comments; lines that end with a backslash go on.
fn commands(document: &Path) -> Vec<String> {
    let text = fs::read_to_string(document).unwrap();
    let mut commands: Vec<String> = Vec::new();
    let (mut is_console, mut goes_on) = (false, false);
    for line in text.lines() {
        if let Some(language) = line.strip_prefix("```") {
            is_console = language == "console";
        }
        if !is_console {
            continue;
        }
        let code = line.split("  #").next().unwrap().trim_end();
        let part = code.trim_end_matches('\\').trim();
        match code.strip_prefix("$ ") {
            Some(_) => commands.push(part.trim_start_matches("$ ").to_owned()),
            None if goes_on => commands.last_mut().unwrap().extend([" ", part]),
            None => {}
        }
        goes_on = code.ends_with('\\');
    }
    commands
}

/// A shell in a folder, for which emu and some programs are commands; the process becomes that of the line.
fn shell(folder: &Path, line: &str) -> Command {
    let path = format!(
        "{}:{}:{}",
        folder.join("bin").display(),
        Path::new(EMU).parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut command = inside(":", "sh");
    command.args(["-c", line]).current_dir(folder).env("PATH", path);
    command.env("GITHUB_STEP_SUMMARY", folder.join("summary.md"));
    command
}

#[test]
fn every_command_shown_is_understood() {
    let all: Vec<_> = documents().iter().flat_map(|document| commands(document)).collect();
    let own: Vec<_> = all.iter().filter(|command| command.starts_with("emu ")).collect();
    assert!(own.len() > 50, "{own:?}");
    let dir = tempfile::tempdir().unwrap();
    for command in own {
        // Help comes after the options before it are understood.
        let command = command.trim_end_matches('&').split(" | ").next().unwrap();
        let asked = match command.split_once(" -- ") {
            Some((options, rest)) => format!("{options} --help -- {rest}"),
            None => format!("{command} --help"),
        };
        let ended = run(&mut shell(dir.path(), &asked), "");
        assert_eq!(ended.code(), Some(0), "{command}: {}", ended.stderr);
    }
    for (beginning, _) in NOT_RUN {
        assert!(all.iter().any(|command| command.starts_with(beginning)), "no document shows `{beginning}`");
    }
}

/// The targets of the links of a page, without those that are not of this repository.
fn links(text: &str) -> Vec<String> {
    let (mut targets, mut is_code) = (Vec::new(), false);
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            let inline = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            targets.extend(inline.map(|(target, _)| target.to_owned()));
            // A definition: `[name]: target`.
            let defined = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
            targets.extend(defined.map(|(_, target)| target.to_owned()));
        }
    }
    let targets = targets.into_iter().map(|target| target.split('#').next().unwrap_or_default().to_owned());
    targets.filter(|target| !target.is_empty() && !target.contains(':')).collect()
}

#[test]
fn every_page_is_in_the_book_and_its_links_resolve() {
    let docs = root().join("docs");
    let listed = links(&fs::read_to_string(docs.join("SUMMARY.md")).unwrap());
    for entry in fs::read_dir(&docs).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_page = name.strip_suffix(".md").is_some_and(|page| page != "SUMMARY");
        assert_eq!(listed.iter().filter(|link| **link == name).count(), usize::from(is_page), "{name}");
    }
    for page in listed {
        let page = docs.join(page);
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        for link in links(&text) {
            let target = page.parent().unwrap().join(&link);
            assert!(target.exists(), "{}: no {link}", page.display());
        }
    }
}

#[test]
fn the_book_has_the_help_of_every_command() {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|ended| ended.status.success()) {
        skip("it needs Python 3");
        return;
    }
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    assert_eq!(summary.matches("]()").count(), 1, "{summary}");
    let chapter = |name: &str, source: Option<&str>| {
        let content = "[1](CI.md)";
        json!({"Chapter": {"name": name, "content": content, "sub_items": [], "source_path": source}})
    };
    let chapters = [chapter("The commands", None), chapter("CI", Some("CI.md"))];
    let mut book = Command::new("python3");
    book.arg(root().join("docs/book.py")).env("EMU", EMU);
    let ended = run(&mut book, &json!([{}, {"items": chapters}]).to_string());
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let made: Value = serde_json::from_str(&ended.stdout).unwrap();
    let [commands, page] = [0, 1].map(|at| &made["items"][at]["Chapter"]);
    assert_eq!((&commands["path"], &page["path"]), (&"commands.md".into(), &"CI.md".into()));
    let text = commands["content"].as_str().unwrap();
    for part in [
        "# The commands\n",
        "\n## emu node create\n\n```text\nMake a node",
        "\n## emu man\n",
        "\n## emu calibrate map\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("## emu worker") && !text.contains("## emu help"), "{text}");
    let ended = run(book.env("EMU", "/no/such/emu"), &json!([{}, {"items": chapters}]).to_string());
    assert!(ended.code() == Some(1) && ended.stderr.contains("/no/such/emu"), "{ended:?}");
}

/// Programs that the documents slow, which do little.
fn stand_ins(folder: &Path) {
    let script = "#!/bin/sh\ncase \"$*\" in *junit*) echo '<testsuite><testcase name=\"a\"/></testsuite>' >junit.xml ;; esac\n\
                  exec sleep 0.3\n";
    fs::create_dir(folder.join("bin")).unwrap();
    let shown = ["server", "pair", "program", "benchmark"];
    for name in shown.into_iter().chain(["bin/make", "bin/pytest", "bin/node", "bin/chromium"]) {
        fs::write(folder.join(name), script).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Something that runs already, and the emu that is attached to it.
struct Attached(Option<Child>, Child);

impl Attached {
    const SHOWN: &str = "4711";

    fn run(&mut self, folder: &Path, command: &str) -> Option<Ended> {
        let line = command.trim_end_matches('&').replace(Self::SHOWN, &self.1.id().to_string());
        if line.starts_with("emu attach") {
            let child = start(&mut shell(folder, &format!("exec {line}")));
            until_it_acts(child.id());
            self.0 = Some(child);
            return None;
        }
        let ended = run(&mut shell(folder, &line), "");
        self.detach();
        Some(ended)
    }

    fn detach(&mut self) {
        if let Some(attached) = self.0.take() {
            kill(Pid::from_raw(attached.id() as i32), Signal::SIGINT).unwrap();
            let attached = finish(attached);
            assert_eq!(attached.code(), Some(0), "{}", attached.stderr);
            assert_nothing_left(attached.pid);
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.1.kill();
        let _ = self.1.wait();
    }
}

#[test]
fn commands_shown_run_as_they_stand() {
    let _alone = alone();
    if !can_emulate() || !has_cpus(2) {
        return;
    }
    if !is_root() {
        skip("it needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    stand_ins(folder);
    fs::write(folder.join("laptop.csv"), "time_s,cpu,speed\n0,*,100%\n0.1,*,40%\n0.2,*,end\n").unwrap();
    let mut attached = Attached(None, Command::new("sleep").arg("600").spawn().unwrap());
    let mut count = 0;
    for document in documents() {
        for command in commands(&document) {
            if NOT_RUN.iter().any(|(beginning, _)| command.starts_with(beginning)) {
                continue;
            }
            count += 1;
            let ended = if command.contains(Attached::SHOWN) {
                let Some(ended) = attached.run(folder, &command) else { continue };
                ended
            } else {
                run(&mut shell(folder, &command), "")
            };
            let is_right = match ended.code() {
                // A machine is hardly ever tuned.
                Some(7) => command == "emu doctor show",
                code => code == Some(0),
            };
            assert!(
                is_right,
                "{}: `{command}`: {:?}, {}{}",
                document.display(),
                ended.status,
                ended.stdout,
                ended.stderr
            );
        }
        attached.detach();
    }
    assert!(count >= 30, "{count}");
    eventually("no node is left", || !run(&mut shell(folder, "emu node list"), "").stdout.contains("big"));
}

#[test]
fn the_action_runs_as_it_stands_and_pastes_no_input() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let action = fs::read_to_string(root().join("action.yml")).unwrap();
    let (head, script) = action.split_once("run: |\n").unwrap();
    assert!(!script.contains("${{"), "{script}");
    for input in ["run", "speeds", "reps", "timeout", "junit"] {
        let variable = format!("INPUT_{}", input.to_uppercase());
        assert!(head.contains(&format!("{variable}: ${{{{ inputs.{input} }}}}\n")), "{input}: {head}");
        assert!(
            script.contains(&format!("${variable}")) || script.contains(&format!("${{{variable}")),
            "{input}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    stand_ins(folder);
    fs::write(folder.join("script"), script).unwrap();
    let step = |run_input: &str, timeout: &str, junit: &str| {
        let mut command = shell(folder, "exec bash --noprofile --norc -eo pipefail script");
        command.env("INPUT_RUN", run_input).env("INPUT_SPEEDS", "100%,50%").env("INPUT_REPS", "1");
        run(command.env("INPUT_TIMEOUT", timeout).env("INPUT_JUNIT", junit), "")
    };
    let ended = step("pytest --junit-xml 'a b'; touch \"$(echo c d)\"", "1m", "junit.xml");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    let summary = fs::read_to_string(folder.join("summary.md")).unwrap();
    assert!(
        folder.join("c d").exists() && summary.contains("none of its tests fails only when slow"),
        "{summary}"
    );
    let ended = step("false; true", "", "");
    assert_eq!(ended.code(), Some(1), "{}", ended.stderr);
}

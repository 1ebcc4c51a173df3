//! The command from end to end: exit codes, streams, signals, and what is left behind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;

use crate::common::{
    EMU, alone, as_written, assert_nothing_left, assert_refused, can_emulate, comm, emu, finish, groups_of,
    half, in_some_attempt, inside, methods, run, skip, some_method, start, state, until_child,
    until_it_takes, unwrapped, words,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[test]
fn the_exit_code_of_the_command_is_passed_on() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    for method in methods() {
        for (script, code) in [("true", 0), ("exit␣7", 7), ("exit␣255", 255)] {
            let ended = run(&mut half(&format!("--method {method} -- sh -c {script}")), "");
            assert_eq!(ended.code(), Some(code), "{method}, {script}: {}", ended.stderr);
        }
    }
}

#[test]
fn the_exit_code_is_passed_on_where_sigchld_is_ignored() {
    let _alone = alone();
    let Some(method) = some_method() else {
        skip("no method works here for this user");
        return;
    };
    // As some daemons start their children; dash would reset the action.
    let ignoring = |command: &str| {
        let line = format!("run -q --speed 50% --method {method} -- {command}");
        let ended = run(inside(":", "env").args(["--ignore-signal=CHLD", EMU]).args(words(&line)), "");
        assert_nothing_left(ended.pid);
        ended
    };
    for (script, code) in [("exit␣0", 0), ("exit␣7", 7)] {
        let ended = ignoring(&format!("sh -c {script}"));
        assert_eq!(ended.code(), Some(code), "{}", ended.stderr);
    }
    let ended = ignoring("sh -c kill␣-TERM␣$$");
    assert_eq!(ended.status.signal(), Some(Signal::SIGTERM as i32), "{}", ended.stderr);
    // The command begins with what emu was given.
    let ended = ignoring("grep SigIgn /proc/self/status");
    let ignored = ended.stdout.split_whitespace().last().map(|mask| u64::from_str_radix(mask, 16).unwrap());
    let sigchld = 1u64 << (Signal::SIGCHLD as i32 - 1);
    assert_eq!(ignored.map(|mask| mask & sigchld), Some(sigchld), "{ended:?}");
}

#[test]
fn death_by_signal_is_passed_on_as_death_by_the_same_signal() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGKILL,
        Signal::SIGSEGV,
        Signal::SIGABRT,
        Signal::SIGQUIT,
        Signal::SIGHUP,
        Signal::SIGUSR1,
    ] {
        let ended = run(&mut half(&format!("-- sh -c kill␣-{}␣$$", signal as i32)), "");
        assert_eq!(ended.status.signal(), Some(signal as i32), "{signal}: {}", ended.stderr);
        assert!(!ended.status.core_dumped(), "{signal}");
    }
    // Rust programs ignore SIGPIPE, and real-time signals have no name: the code tells.
    for number in [13, 40] {
        let ended = run(&mut half(&format!("-- sh -c kill␣-{number}␣$$")), "");
        let seen = ended.code().or(ended.status.signal().map(|signal| signal + 128));
        assert_eq!(seen, Some(128 + number), "{}", ended.stderr);
    }
}

#[test]
fn a_command_that_cannot_run_is_told_apart_as_env_does() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    fs::write(&plain, "text").unwrap();
    for (program, code) in [
        ("no-such-program-of-emu", 127),
        ("/no/such/program", 127),
        (plain.to_str().unwrap(), 126),
        (dir.path().to_str().unwrap(), 126),
    ] {
        let ended = run(&mut half(&format!("-- {program}")), "");
        assert_refused(&ended, code, program);
    }
    if can_emulate() {
        // Only the kernel can tell that its interpreter is not there.
        let script = dir.path().join("script");
        fs::write(&script, "#!/no/such/interpreter\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let ended = run(&mut half(&format!("--quiet -- {}", script.display())), "");
        assert_refused(&ended, 127, "a script without its interpreter");
    }
}

#[test]
fn input_and_output_are_the_commands_alone() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let text = "a line of some length\n".repeat(20_000);
    for method in methods() {
        let ended = run(&mut half(&format!("--method {method} -- cat")), &text);
        assert_eq!(ended.stdout, text, "{method}");
        assert!(ended.stderr.lines().all(|line| line.starts_with("emu: ")), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("asked 50%") || ended.stderr.contains("before a period"),
            "{}",
            ended.stderr
        );
    }
    let quiet = run(&mut half("--quiet -- sh -c echo␣out;␣echo␣err␣>&2"), "");
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("out\n", "err\n"));
}

#[test]
fn the_command_keeps_its_group_environment_and_signal_mask() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let script = "ps␣-o␣pgid=␣-p␣$$;␣ps␣-o␣pgid=␣-p␣$PPID;␣echo␣$COLOUR;␣grep␣SigBlk␣/proc/self/status";
    let mut command = half(&format!("-q -- sh -c {script}"));
    let ended = run(command.env("COLOUR", "blue"), "");
    let lines: Vec<_> = ended.stdout.lines().map(str::trim).collect();
    let [own, parents, colour, mask] = lines[..] else { panic!("{ended:?}") };
    assert_eq!(own, parents);
    assert_eq!(colour, "blue");
    assert_eq!(mask.split_whitespace().last(), Some("0000000000000000"));
}

#[test]
fn json_tells_what_was_asked_and_delivered() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.json");
    let script = "i=0;␣while␣[␣$i␣-lt␣100000␣];␣do␣i=$((i+1));␣done;␣exit␣3";
    let ended = run(&mut half(&format!("-q --json {} -- sh -c {script}", path.display())), "");
    assert_eq!(ended.code(), Some(3), "{}", ended.stderr);
    let json = as_written("run", &fs::read_to_string(&path).unwrap());
    assert_eq!(json["schema"], 3);
    assert_eq!(json["command"][0], "sh");
    assert_eq!(json["asked"]["speed"], "50%");
    assert_eq!(
        (&json["asked"]["round"], &json["asked"]["widen_policies"]),
        (&"nearest".into(), &false.into())
    );
    assert_eq!(json["exit"]["code"], 3);
    assert_eq!(json["verified"], serde_json::Value::Null);
    assert!(json["status"]["cpus"].as_array().unwrap().iter().all(|cpu| cpu["asked_share"] == 0.5));
    assert!(json["status"]["wall_ns"].as_u64().unwrap() > 0);
}

#[test]
fn the_json_is_there_after_a_command_that_cleans_its_folder() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let (folder, path) = (dir.path().join("folder"), dir.path().join("folder/json"));
    for (then, code) in [("", 0), ("; echo new > new; mv new folder/json", 125), ("; rmdir folder", 125)] {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let script = format!("rm -rf folder; mkdir folder{then}");
        let mut command = half("-q --json folder/json -- sh -c");
        let ended = run(command.arg(script).current_dir(dir.path()), "");
        assert_eq!(ended.code(), Some(code), "{then}: {}", ended.stderr);
        match code {
            0 => drop(as_written("run", &fs::read_to_string(&path).unwrap())),
            _ => assert!(ended.stderr.contains("meanwhile"), "{}", ended.stderr),
        }
    }
}

#[test]
fn a_command_is_started_only_when_its_speed_is_delivered() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    for method in methods() {
        let verified = |tolerance| -> Result<_, String> {
            let dir = tempfile::tempdir().unwrap();
            let (json, mark) = (dir.path().join("json"), dir.path().join("ran"));
            let line = format!(
                "--verify --tolerance {tolerance} --json {} --method {method} -- touch {}",
                json.display(),
                mark.display()
            );
            let ended = run(&mut half(&line), "");
            assert_nothing_left(ended.pid);
            let is_started = mark.exists();
            assert_eq!(is_started, ended.code() == Some(0), "{method}: {}", ended.stderr);
            let record = fs::read_to_string(&json).unwrap_or_else(|_| panic!("{method}: {}", ended.stderr));
            let record = as_written("run", &record);
            // On a busy machine a verification may not come to its end, and says why.
            let seen = record["verified"]["cpus"].as_array().ok_or_else(|| ended.stderr.clone())?;
            let is_told =
                |cpu: &serde_json::Value| cpu["error"].is_number() || cpu["native_clock_hz"].is_null();
            assert!(!seen.is_empty() && seen.iter().all(is_told), "{method}: {record}");
            Ok((ended, is_started))
        };
        // No method is so exact.
        in_some_attempt(|| {
            let (ended, is_started) = verified("0.0001%")?;
            assert!(!is_started && [Some(5), Some(9)].contains(&ended.code()), "{method}: {}", ended.stderr);
            Ok(())
        });
        // And none is so wrong, unless others take the CPUs.
        in_some_attempt(|| match verified("95%")? {
            (_, true) => Ok(()),
            (ended, false) => Err(ended.stderr),
        });
    }
}

#[test]
fn an_interrupted_verification_ends_emu_by_the_signal() {
    let _alone = alone();
    let Some(method) = some_method() else {
        skip("no method works here for this user");
        return;
    };
    // Four windows of ten periods are measured.
    let child = start(&mut half(&format!("--verify --period 200ms --method {method} -- true")));
    until_it_takes(child.id(), Signal::SIGINT);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let ended = finish(child);
    assert_eq!(ended.status.signal(), Some(Signal::SIGINT as i32), "{}", ended.stderr);
    assert_nothing_left(ended.pid);
}

#[test]
fn what_another_process_sends_to_emu_reaches_the_command() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let script =
        "trap␣'echo␣term;␣exit␣9'␣TERM;␣trap␣'echo␣usr1'␣USR1;␣echo␣ready;␣while␣:;␣do␣sleep␣0.05;␣done";
    for method in methods() {
        let mut child = start(&mut half(&format!("--method {method} -q -- sh -c {script}")));
        let emu = Pid::from_raw(child.id() as i32);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(lines.next().as_deref(), Some("ready"), "{method}");
        kill(emu, Signal::SIGUSR1).unwrap();
        assert_eq!(lines.next().as_deref(), Some("usr1"), "{method}");
        kill(emu, Signal::SIGTERM).unwrap();
        assert_eq!(lines.next().as_deref(), Some("term"), "{method}");
        let ended = finish(child);
        assert_eq!(ended.code(), Some(9), "{method}");
        assert_nothing_left(ended.pid);
    }
}

#[test]
fn after_a_kill_the_command_runs_freely_and_the_guardian_speaks() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    for method in methods() {
        let mut child = start(&mut half(&format!("--method {method} -q -- sleep 600")));
        let emu = child.id();
        let sleeper = until_child(emu, "sleep");
        let had_groups = !groups_of(emu).is_empty();
        kill(Pid::from_raw(emu as i32), Signal::SIGKILL).unwrap();
        // Where nothing had been changed there is nothing to be said.
        if had_groups {
            let mut said = String::new();
            BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
            assert!(said.contains("emu died; everything was restored"), "{method}: {said}");
        }
        child.wait().unwrap();
        assert_eq!(comm(sleeper).as_deref(), Some("sleep"), "{method}");
        assert_eq!(state(sleeper), Some('S'), "{method}");
        let groups = fs::read_to_string(format!("/proc/{sleeper}/cgroup")).unwrap();
        assert!(!groups.contains("emu-"), "{method}: {groups}");
        kill(Pid::from_raw(sleeper), Signal::SIGKILL).unwrap();
        assert_nothing_left(emu);
    }
}

#[test]
fn a_second_emu_on_the_same_cpus_is_refused_and_names_the_first() {
    let _alone = alone();
    if !can_emulate() {
        return;
    }
    let method = some_method().unwrap();
    let line = format!("--method {method}");
    let first = start(&mut half(&format!("{line} -- sleep 600")));
    until_child(first.id(), "sleep");
    let second = run(&mut half(&format!("{line} -- true")), "");
    kill(Pid::from_raw(first.id() as i32), Signal::SIGTERM).unwrap();
    let first = finish(first);
    assert_eq!(second.code(), Some(3), "{}", second.stderr);
    assert!(unwrapped(&second.stderr).contains(&format!("by emu {}", first.pid)), "{}", second.stderr);
    assert_nothing_left(first.pid);
}

#[test]
fn reading_commands_keep_to_eighty_columns_and_have_json() {
    for line in ["methods", "methods --method cpu-lim", "info", "methods --speed 1% --period 500us"] {
        let ended = run(&mut emu(words(line)), "");
        assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
        assert!(!ended.stdout.contains('\x1b'), "colour in a pipe");
        for text in ended.stdout.lines().filter(|text| !text.contains("://")) {
            assert!(text.chars().count() <= 80, "{line}: {text}");
        }
    }
    for (line, form, schema) in [
        ("methods --json", "methods", 3),
        ("info --json", "info", 1),
        ("restore --json", "restore", 1),
        ("doctor reset --json", "restore", 1),
    ] {
        let ended = run(&mut emu(words(line)), "");
        let json = as_written(form, &ended.stdout);
        assert_eq!(json["schema"], schema, "{line}");
    }
}

#[test]
fn what_emu_says_keeps_to_eighty_columns() {
    let _alone = alone();
    let narrow = |line: &str, text: &str| {
        for text in text.lines() {
            assert!(text.chars().count() <= 80, "{line}: {text}");
        }
    };
    for line in
        ["", "run", "attach", "methods", "verify", "bench", "calibrate", "measure disk", "doctor tune"]
    {
        let line = format!("{line} --help");
        narrow(&line, &run(&mut emu(words(&line)), "").stdout);
    }
    // All that is said at the begin and the end of a command.
    for method in methods() {
        let line = format!("--method {method} -- true");
        narrow(&line, &run(&mut half(&line), "").stderr);
    }
}

#[test]
fn a_published_form_is_a_method_of_its_own() {
    let _alone = alone();
    if !methods().contains(&"cpu-lim".to_owned()) {
        skip("cpu-lim does not work here for this user");
        return;
    }
    let ended = run(&mut half("--method cpu-lim:published -- true"), "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("emu: cpu-lim:published slows "), "{}", ended.stderr);
    let ended = run(&mut emu(words("methods --json --method cpu-lim:published")), "");
    let json = as_written("methods", &ended.stdout);
    assert_eq!(json["methods"][0]["method"], "cpu-lim:published");
    let line = "--method cpu-lim --variant published -- true";
    let ended = run(&mut half(line), "");
    assert_refused(&ended, 2, line);
    assert!(
        ended.stderr.contains("--method fracas:published or --method cpu-lim:published"),
        "{}",
        ended.stderr
    );
}

#[test]
fn completions_and_manual_pages_can_be_had() {
    let script = run(&mut emu(["completions", "bash"]), "");
    assert!(
        script.stdout.contains("complete -o") && script.stdout.contains("EMU_COMPLETE"),
        "{}",
        script.stdout
    );
    // In zsh's search path it is the body of `_emu`, which has to answer too.
    let script = run(&mut emu(["completions", "zsh"]), "");
    let answers = script.stdout.split("function _clap_dynamic_completer_emu()").nth(1).unwrap_or_default();
    assert!(answers.contains("    _clap_dynamic_completer_emu \"$@\""), "{}", script.stdout);
    let page = run(&mut emu(["man"]), "");
    assert!(page.stdout.contains(".TH emu 1") && page.stdout.contains("125"));
    let dir = tempfile::tempdir().unwrap();
    let ended = run(emu(["man", "--dir"]).arg(dir.path()), "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    for name in ["emu.1", "emu-run.1", "emu-attach.1", "emu-methods.1"] {
        assert!(dir.path().join(name).is_file(), "{name}");
    }
    assert!(!dir.path().join("emu-worker.1").exists());
    let page = fs::read_to_string(dir.path().join("emu-run.1")).unwrap();
    assert!(page.contains("Examples:") && page.contains("Exit codes:"), "{page}");
    assert_refused(&run(&mut emu(["man", "--dir", "/no/such/folder"]), ""), 2, "no folder");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut command = inside(":", "sh");
    let ended =
        run(command.args(["-c", &format!("{EMU} methods | head -c 1; {EMU} info > /dev/full; echo $?")]), "");
    assert!(ended.stdout.ends_with("125\n"), "{ended:?}");
    assert!(
        !ended.stderr.contains("panicked") && ended.stderr.contains("cannot write to stdout"),
        "{ended:?}"
    );
}

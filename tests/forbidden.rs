//! System calls that a sandbox forbids: emu works without them, or says what is missing, and ends in any case.

#![expect(unsafe_code, reason = "a filter is set between fork and exec")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{alone, assert_nothing_left, can_emulate_by, emu, has_cpus, methods, run, words};

/// How long emu may take, on a machine that is shared.
const SOON: Duration = Duration::from_secs(5);

const CALLS: [(&str, libc::c_long); 8] = [
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
    ("clone3", libc::SYS_clone3),
    ("close_range", libc::SYS_close_range),
    ("sched_setscheduler", libc::SYS_sched_setscheduler),
    ("sched_setaffinity", libc::SYS_sched_setaffinity),
    ("timer_create", libc::SYS_timer_create),
    ("prctl", libc::SYS_prctl),
];

/// A burner is a real-time thread. An error that is no refusal shows only when it becomes one.
const REAL_TIME: [libc::c_long; 2] = [libc::SYS_sched_setscheduler, libc::SYS_sched_setattr];
const LATE: i32 = libc::EBUSY;

/// Has a command, and what it runs, fail in these system calls (`seccomp(2)`).
fn forbid<const N: usize>(command: &mut Command, calls: [libc::c_long; N], errno: i32) {
    let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    // The number of the call is the first word of what a filter sees.
    let mut filter = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for call in calls {
        filter.push(step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32));
        filter.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    filter.push(step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW));
    let set = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        nix::sys::prctl::set_no_new_privs()?;
        // SAFETY: the kernel reads the program, which outlives the call.
        let set =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(set) };
}

#[test]
fn emu_ends_whatever_call_is_forbidden() {
    let _alone = alone();
    let mut seen = Vec::new();
    for method in methods() {
        for (name, call) in CALLS {
            // Every other way of refusing for every other method: the first method sees both.
            let errnos: &[i32] = if seen.is_empty() { &[libc::EPERM, libc::ENOSYS] } else { &[libc::EPERM] };
            for &errno in errnos {
                let mut command = emu(words(&format!("run -s 40% -m {method} -- true")));
                forbid(&mut command, [call], errno);
                check(&mut command, &format!("{method} without {name} ({errno})"));
            }
        }
        let mut command = emu(words(&format!("run -s 40% -m {method} -- true")));
        forbid(&mut command, [libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal], libc::EPERM);
        check(&mut command, &format!("{method} without pidfds"));
        // A sandbox may answer what it likes; without any way to send a signal, there is one to end.
        for calls in [[libc::SYS_pidfd_send_signal; 2], [libc::SYS_pidfd_send_signal, libc::SYS_kill]] {
            let mut command = emu(words(&format!("run -s 40% -m {method} -- true")));
            forbid(&mut command, calls, libc::EACCES);
            check(&mut command, &format!("{method} without {calls:?}"));
        }
        seen.push(method);
    }
}

#[test]
fn what_is_forbidden_is_known_before_a_run() {
    let _alone = alone();
    let told = |calls: &[libc::c_long], line: &str| {
        let mut command = emu(words(line));
        for &call in calls {
            forbid(&mut command, [call], libc::EPERM);
        }
        run(&mut command, "").stdout
    };
    let works = |calls: &[libc::c_long]| {
        let json: serde_json::Value = serde_json::from_str(&told(calls, "methods --json")).unwrap();
        let all = json["methods"].as_array().unwrap().iter();
        all.filter(|one| one["works"] == true)
            .map(|one| one["method"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for call in [libc::SYS_openat2, libc::SYS_pidfd_open, libc::SYS_clone3] {
        assert_eq!(works(&[call]), Vec::<String>::new());
    }
    let burners = works(&[libc::SYS_sched_setscheduler]);
    assert!(!burners.contains(&"cpu-hogs".to_owned()), "{burners:?}");
    let info = told(&[libc::SYS_openat2, libc::SYS_timerfd_create], "info");
    assert!(info.contains("timerfd_create, openat2") || info.contains("openat2, timerfd_create"), "{info}");
}

#[test]
fn another_method_takes_the_place_of_one_that_is_refused() {
    let _alone = alone();
    if !can_emulate_by(&["cpu-hogs", "cpu-freeze"]) {
        return;
    }
    let mut command = emu(words("run -s 40% --cpus 0 -- true"));
    forbid(&mut command, REAL_TIME, LATE);
    let ended = run(&mut command, "");
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("cannot begin by cpu-hogs"), "{}", ended.stderr);
    assert_nothing_left(ended.pid);
}

#[test]
fn nodes_that_cannot_all_be_made_are_taken_back() {
    let _alone = alone();
    if !can_emulate_by(&["cpu-hogs", "cpu-freeze"]) || !has_cpus(2) {
        return;
    }
    let node = |name: &str, cpu: u32, method: &str| {
        format!("[node.{name}]\ncpus = \"{cpu}\"\nspeed = \"50%\"\nmethod = \"{method}\"\n")
    };
    let mut command = emu(words("node apply -"));
    forbid(&mut command, REAL_TIME, LATE);
    let ended = run(&mut command, &(node("a", 0, "cpu-freeze") + &node("b", 1, "cpu-hogs")));
    assert!(ended.stderr.contains("create a") && !ended.stderr.contains("create b"), "{}", ended.stderr);
    assert_eq!(ended.code(), Some(125), "{}", ended.stderr);
    let left = run(&mut emu(words("node list")), "");
    assert_eq!(left.stdout, "There is no node of yours here.\n");
    assert_nothing_left(ended.pid);
}

fn check(command: &mut Command, what: &str) {
    let begin = Instant::now();
    let ended = run(command, "");
    let took = begin.elapsed();
    assert!(took < SOON, "{what}: {took:?}: {}", ended.stderr);
    assert!(!ended.stderr.contains("panicked"), "{what}: {}", ended.stderr);
    match ended.code() {
        Some(0) => {}
        Some(3 | 4 | 125) => {
            assert!(
                ended.stderr.contains("error: ") && ended.stderr.contains(" cannot "),
                "{what}: {}",
                ended.stderr
            );
        }
        code => panic!("{what}: {code:?}: {}", ended.stderr),
    }
    assert_nothing_left(ended.pid);
}

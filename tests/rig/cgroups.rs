//! The methods with every layout of cgroups, on several CPUs, by root and by an ordinary user; and what `emu info` and
//! `emu methods` tell of such hosts.

use super::duty;
use super::guest::{Guest, Report, is_full, numbers, run_at_once};

/// The shares of a CPU that the two threads used.
fn used(report: &Report, name: &str) -> [f64; 2] {
    let line = report.lines("used").find(|words| words[0] == name);
    let words = line.unwrap_or_else(|| panic!("nothing of {name}: {}", report.text()));
    // First comes the main thread, which sleeps.
    let [_, first, second] = numbers(&words[1..])[..] else { panic!("not two threads: {words:?}") };
    println!("{name}: {:.2} % and {:.2} %", first * 100.0, second * 100.0);
    [first, second]
}

/// The groups that had this value in a file while a method was at work.
fn groups_with(report: &Report, name: &str, file: &str, value: &str) -> usize {
    let of_it = report.lines("group").filter(|words| words[0] == name && words[1].ends_with(file));
    of_it.filter(|words| words[2..].join(" ") == value).count()
}

/// What the two threads are to use.
fn wanted(name: &str) -> [f64; 2] {
    match name {
        "cpu-hogs-unequal" | "fracas-unequal" => [0.4, 0.6],
        _ => [0.4; 2],
    }
}

/// How far from it they may be, as a share of it.
fn closeness(name: &str) -> f64 {
    match name {
        // The guest's CPUs take turns of up to some milliseconds, and a stop counts from when the last of the tasks is
        // stopped: up to 23 % off was seen, the same on every run of a binary.
        "cpu-freeze" | "attach-cpu-freeze" | "cpu-lim" => 0.25,
        // Of a burner that waits for its CPU's turn, up to 3.4 %.
        "cpu-hogs" | "cpu-hogs-unequal" => 0.06,
        // At most 1.8 % was seen, and fracas makes up for stalls with up to 1.9 %.
        _ => 0.05,
    }
}

fn check_methods(guest: Guest, names: &[&str]) -> Option<Report> {
    let report = guest.run(&format!("cgroups.sh {}", names.join(" ")))?;
    for &name in names {
        let (wanted, got) = (wanted(name), used(&report, name));
        let close = closeness(name);
        let is_close = |wanted: f64, got: f64| (got / wanted - 1.0).abs() < close;
        let is_right = if name == "fracas-published" {
            // One quota for the sum.
            is_close(wanted.iter().sum(), got.iter().sum())
        } else {
            wanted.iter().zip(got).all(|(wanted, got)| is_close(*wanted, got))
        };
        assert!(is_right, "{guest:?}, {name}: {wanted:?} asked, {got:?} got: {}", report.text());
    }
    for words in report.lines("frozen").filter(|words| words[0].ends_with("cpu-freeze")) {
        // Looked at 20 times; more often than not it is stopped.
        assert!((3..=20).contains(&words[1].parse().expect("a number")), "{words:?}: {}", report.text());
    }
    for words in report.lines("left-in-theirs") {
        assert_eq!(words[1..], ["0", "max", "100000", "[]"]);
    }
    Some(report)
}

#[test]
fn two_cpus_with_cgroup_v2() {
    // Not the shares of fracas: the job has so little weight beside the burners that it takes minutes.
    let names = ["cpu-hogs-unequal", "fracas-published", "attach-cpu-freeze", "attach-fracas"];
    check_methods(Guest::TWO, &names);
}

#[test]
fn two_cpus_with_cgroup_v2_on_the_newer_kernel() {
    let guest = Guest::TWO_NEW;
    let names = ["cpu-freeze", "fracas", "cpu-lim", "fracas-unequal", "cpu-hogs"];
    // Burners make a guest slow.
    let names = if is_full() { &names[..] } else { &names[..4] };
    let Some(report) = check_methods(guest, names) else { return };
    assert_eq!(groups_with(&report, "fracas", "cgroup.type", "threaded"), 2, "{}", report.text());
    for cpu in ["0", "1"] {
        assert_eq!(groups_with(&report, "fracas-unequal", "cpuset.cpus", cpu), 1, "{}", report.text());
    }
}

#[test]
fn two_cpus_with_cgroup_v1() {
    check_methods(Guest::TWO_V1, &["cpu-freeze", "fracas", "fracas-unequal"]);
}

#[test]
fn an_ordinary_user_needs_a_group_that_was_handed_over() {
    const RUNS: &str = "fracas:100ms:2000:20,50,80 cpu-freeze:20ms:4000:20,50,80 cpu-lim:20ms:1000:20,50,80";
    // The controller shares the only CPU as a task among others. Linux 6.12 lets it wait for a tick or two, now and then,
    // so that a window begins and ends with turns of another length: cpu-freeze needs a window of many turns.
    let guests = [(Guest::ONE, 0.02), (Guest::ONE_NEW, 0.05)];
    let reports = run_at_once(guests.map(|(guest, _)| (guest, format!("delegation.sh {RUNS}"))));
    for ((guest, close), report) in guests.into_iter().zip(reports) {
        let Some(report) = report else { return };
        duty::judge(&format!("{guest:?} by a user"), &report, 9, close);
        assert_eq!(report.lines("left").count(), 0, "{}", report.text());
        assert_eq!(report.lines("controllers").next(), Some(vec![]), "{}", report.text());
        for (method, status, why) in [
            ("cpu-freq", "4", "can only be written by root"),
            ("cpu-gov", "4", "can only be written by root"),
            ("cpu-hogs", "4", "CAP_SYS_NICE"),
            ("fracas", "4", "cgroup"),
            ("cpu-freeze", "4", "cgroup"),
            ("cpu-lim", "0", ""),
        ] {
            let ended = report.lines("ended").find(|words| words[0] == method);
            assert_eq!(ended, Some(vec![method, status]), "{}", report.text());
            let lines = report.lines("words").filter(|words| words[0] == method);
            let words = lines.map(|words| words[1..].join(" ")).collect::<Vec<_>>().join(" ");
            assert!(words.contains(why), "{method}: {words}");
            assert_eq!(words.contains("hint:"), status != "0", "{method}: {words}");
        }
    }
}

#[test]
fn a_node_has_memory_and_a_cpu_of_its_own_with_cgroup_v2() {
    let Some(report) = Guest::TWO_NEW.run("node.sh") else { return };
    for end in ["removed", "killed"] {
        let of_it: Vec<_> = report.lines(end).map(|words| words.join(" ")).collect();
        let bytes = format!("limit {}", 32 << 20);
        let wanted = [&bytes, "inside 1", "outside 0", "eater 137", "after 0-1"];
        assert_eq!(of_it, wanted, "{end}: {}", report.text());
    }
    for method in ["cpu-lim", "cpu-freeze", "fracas"] {
        let of_it: Vec<_> = report.lines(method).map(|words| words.join(" ")).collect();
        let wanted = ["joined /emu 1", "left /home 0-1", "members []", "removed /home 0-1"];
        assert_eq!(of_it, wanted, "{method}: {}", report.text());
    }
}

/// The text with its lines joined.
fn unwrapped(report: &Report) -> String {
    report.text().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn info_and_methods_tell_what_the_clocks_can_do() {
    let Some(each) = Guest::FOUR.run("describe.sh") else { return };
    for said in [
        "acpi-cpufreq",
        "schedutil",
        "800.0 MHz to 2.600 GHz in 6 steps",
        "each CPU has a clock of its own",
        "set by the userspace governor",
        "below 30.8% (800.0 MHz) cpu-gov freezes tasks too",
        "cpu-freq",
        "cpu-gov",
    ] {
        assert!(unwrapped(&each).contains(said), "{said}: {}", each.text());
    }
    let Some(pairs) = Guest::PAIRS.run("describe.sh") else { return };
    for said in ["CPUs 0-1", "CPUs 2-3", "share a clock"] {
        assert!(unwrapped(&pairs).contains(said), "{said}: {}", pairs.text());
    }
    for report in [each, pairs] {
        let long: Vec<_> = report.text().lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "wider than 80 columns: {long:#?}");
    }
}

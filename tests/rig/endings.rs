//! However an emulation ends, by itself or by signals, every file of cpufreq is as it was, and nothing is left stopped,
//! frozen, limited or in the way.

use super::guest::{Guest, is_full};

const ENDINGS: [&str; 4] = ["release", "interrupt", "kill", "kill-both"];
/// In each state of the policies: cpu-freq, and cpu-gov with and without freezing.
const ON_CPUFREQ: usize = 3;
/// Once: the other methods.
const OTHERS: usize = 4;

fn check(guest: Guest, states: &[&str], endings: &[&str]) {
    let Some(report) = guest.run(&format!("endings.sh {} {}", states.join(","), endings.join(","))) else {
        return;
    };
    let mut ended = 0;
    for words in report.lines("ended") {
        let [_, method, ending, code, groups, real_time, ref governors @ ..] = words[..] else {
            panic!("an ending lacks words: {words:?}");
        };
        let wanted = match ending {
            "release" => "0",
            "interrupt" => "130",
            _ => "137",
        };
        assert_eq!(code, wanted, "{words:?}");
        // It was at work, or there was nothing to be undone.
        assert!(
            match method {
                "cpu-freq" | "cpu-gov" | "cpu-gov-frozen" => governors == ["userspace"],
                "cpu-hogs" => real_time == "-1",
                _ => groups != "0",
            },
            "{words:?}"
        );
        ended += 1;
    }
    assert_eq!(ended, endings.len() * (states.len() * ON_CPUFREQ + OTHERS), "{}", report.text());
    assert_eq!(report.lines("left").count(), 0, "{guest:?}: {}", report.text());
}

#[test]
fn however_it_ends_everything_is_as_before() {
    check(Guest::TWO, &["userspace"], &ENDINGS);
}

#[test]
fn however_it_ends_everything_is_as_before_on_the_newer_kernel() {
    check(Guest::TWO_NEW, &["ondemand"], &["kill-both"]);
}

#[test]
fn however_it_ends_everything_is_as_before_with_cgroup_v1() {
    check(Guest::TWO_V1, if is_full() { &["mixed", "schedutil"] } else { &["mixed"] }, &["kill"]);
}

//! However a tuning of the machine ends, by itself or by signals, every file that it has changed is as it was: governors
//! with their tunables, interrupts, addresses.

use super::guest::Guest;

fn check(guest: Guest, states: &[&str], endings: &[&str]) {
    let Some(report) = guest.run(&format!("doctor.sh {} {}", states.join(","), endings.join(","))) else {
        return;
    };
    let mut ended = 0;
    for words in report.lines("ended") {
        let [state, ending, code, aslr, other, governor] = words[..] else {
            panic!("an ending lacks words: {words:?}");
        };
        assert_eq!(code, if ending == "interrupt" { "0" } else { "137" }, "{words:?}\n{}", report.text());
        assert_eq!(aslr, "0", "it was at work: {words:?}\n{}", report.text());
        // A frequency that is set by hand does not move, and is left alone.
        let wanted = if state == "userspace" { "userspace" } else { "performance" };
        assert_eq!(governor, wanted, "{words:?}\n{}", report.text());
        // The policy of CPU 0 is nothing to a tuning of CPU 1.
        let untouched = if state == "mixed" { "performance" } else { state };
        assert_eq!(other, untouched, "{words:?}\n{}", report.text());
        ended += 1;
    }
    assert_eq!(ended, states.len() * endings.len(), "{}", report.text());
    assert_eq!(report.lines("left").count(), 0, "{guest:?}: {}", report.text());
}

#[test]
fn however_a_tuning_ends_the_machine_is_as_before() {
    check(Guest::TWO, &["ondemand", "mixed", "userspace"], &["interrupt", "kill", "kill-both"]);
}

#[test]
fn however_a_tuning_ends_a_newer_kernel_is_as_before() {
    check(Guest::TWO_NEW, &["conservative", "schedutil"], &["interrupt", "kill-both"]);
}

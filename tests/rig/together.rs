//! Two emus at once, on CPUs of their own, which rely on the same state of the machine: whichever ends first, and however,
//! leaves it to the other, and after both everything is as before.

use super::guest::{Guest, is_full, numbers};

/// METHOD-WHO-ENDING, as `together.sh` takes them; the last two where all is tried.
const CASES: [&str; 5] = [
    "fracas-second-terminate",
    "fracas-first-both",
    "cpu-hogs-first-kill",
    "cpu-hogs-second-release",
    "fracas-first-release",
];

#[test]
fn the_first_to_end_leaves_to_the_other_what_it_relies_on() {
    let guest = Guest::TWO;
    let cases = if is_full() { &CASES[..] } else { &CASES[..3] };
    let Some(report) = guest.run(&format!("together.sh {}", cases.join(" "))) else { return };
    for &case in cases {
        let (controllers, real_time, share) = if case.starts_with("fracas") {
            (["cpuset", "cpu"].as_slice(), "900000", 0.4)
        } else {
            (["cpuset"].as_slice(), "-1", 0.07)
        };
        for moment in ["both", "one"] {
            let line = report.lines("seen").find(|words| words[..2] == [case, moment]);
            let seen = line.unwrap_or_else(|| panic!("{case}, {moment}: {}", report.text()));
            let are_on = controllers.iter().all(|controller| seen[3..].contains(controller));
            assert!(seen[2] == real_time && are_on, "{seen:?}: {}", report.text());
        }
        let line = report.lines("used").find(|words| words[0] == case);
        let used = numbers(&line.unwrap_or_else(|| panic!("{case}: {}", report.text()))[1..]);
        let used: f64 = used.iter().sum();
        println!("{case}: {:.2} % of {:.0} %", used * 100.0, share * 100.0);
        // Guests' CPUs take turns. With its limits lost the program would use all of the CPU, or what a real-time limit keeps
        // for it: a tenth, and half as much again as it should.
        assert!((used / share - 1.0).abs() < 0.2, "{case}: {used}: {}", report.text());
    }
    assert_eq!(report.lines("left").count(), 0, "{}", report.text());
}

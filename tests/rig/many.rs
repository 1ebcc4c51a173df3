//! Many CPUs: each method begins and ends on all of them in a moment, or is refused, and leaves nothing.

use super::guest::{Guest, numbers, run_at_once};

#[test]
fn each_method_begins_and_ends_soon_on_many_cpus() {
    const METHODS: [&str; 6] = ["cpu-freeze", "cpu-lim", "fracas", "cpu-hogs", "cpu-freq", "cpu-gov"];
    let guests = [Guest::EIGHT, Guest::SIXTEEN];
    let reports = run_at_once(guests.map(|guest| (guest, format!("many.sh {}", METHODS.join(" ")))));
    for (guest, report) in guests.into_iter().zip(reports) {
        let Some(report) = report else { return };
        assert_eq!(report.lines("left").count(), 0, "{}", report.text());
        for method in METHODS {
            let line = report.lines("ended").find(|words| words[0] == method);
            let words = line.unwrap_or_else(|| panic!("nothing of {method}: {}", report.text()));
            let [code, begin, end] = numbers(&words[1..])[..] else { panic!("{words:?}") };
            println!("{guest:?}, {method}: {code}, begun after {begin}0 ms, ended after {end}0 ms");
            // Only the first CPUs of the rig have frequencies: the whole zone is refused.
            let is_refused = ["cpu-freq", "cpu-gov"].contains(&method);
            assert_eq!(code as i32, if is_refused { 3 } else { 0 }, "{method}: {}", report.text());
            assert!(is_refused || begin <= 100.0 && end <= 100.0, "{method}: {}", report.text());
        }
    }
}

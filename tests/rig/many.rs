//! Many CPUs.

use super::guest::{Guest, is_full, number, numbers};

const ASKED: f64 = 0.4;

/// By how much their mean may be off, as a part of the share, and what no CPU may exceed. A CPU of this guest is slow, and the
/// kernel and emu take their part of it: up to 11 % less was seen.
const CLOSENESS: f64 = 0.15;
const MOST: f64 = 0.44;

/// By how much what emu tells may differ, beyond its interval, from the kernel's account of four seconds amid its own time.
const TOLD: f64 = 0.04;

/// How long a program may wait to begin, in seconds.
const ENGAGED: f64 = 1.0;

#[test]
fn sixteen_cpus_are_slowed_at_once() {
    let methods: &[&str] =
        if is_full() { &["auto", "cpu-hogs", "cpu-freeze", "fracas", "cpu-lim"] } else { &["cpu-freeze"] };
    let Some(report) = Guest::SIXTEEN.run(&format!("many.sh {}", methods.join(" "))) else { return };
    let words_of = |key, method| {
        let line = report.lines(key).find(|words| words[0] == method);
        line.unwrap_or_else(|| panic!("nothing {key} of {method}: {}", report.text()))[1..].to_vec()
    };
    for &method in methods {
        let engaged = number(words_of("engaged", method)[0]);
        let used = numbers(&words_of("used", method));
        let told = words_of("told", method);
        let mean = used.iter().sum::<f64>() / used.len() as f64;
        println!("{method}: begun after {engaged:.2} s, {:.1} %, told {}", 100.0 * mean, told.join(" "));
        assert!(engaged <= ENGAGED, "{method}: {}", report.text());
        assert_eq!(used.len(), 16, "{method}: {}", report.text());
        let is_right = (mean / ASKED - 1.0).abs() < CLOSENESS && used.iter().all(|&used| used < MOST);
        assert!(is_right, "{method}: {used:?}");
        // Where too little could be seen of the tasks, that is told.
        let is_true = match told[1..] {
            [low, high] => (number(low) / mean - 1.0) < TOLD && (number(high) / mean - 1.0) > -TOLD,
            _ => told[1] == "-",
        };
        assert!(is_true, "{method}: {told:?} told, {mean} used");
    }
}

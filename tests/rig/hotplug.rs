//! CPUs of a zone that go offline and come back.

use super::guest::{Guest, Report, numbers, run_at_once};

/// What a program may be off by, as a share of what it is to use.
const CLOSENESS: f64 = 0.05;

/// What the two programs used of a CPU at one time.
fn used(report: &Report, when: &str) -> [f64; 2] {
    let line = report.lines("used").find(|words| words[0] == when);
    let words = line.unwrap_or_else(|| panic!("nothing of {when}: {}", report.text()));
    numbers(&words[1..]).try_into().unwrap_or_else(|numbers| panic!("not two programs: {numbers:?}"))
}

#[test]
fn a_cpu_that_comes_back_is_used_again() {
    // Two ways back: the kernel's own on version 2, and emu's on version 1, where all methods but fracas share it. That
    // nobody has bound a thread, fracas believes after a second. Burners make a guest slow.
    const FRACAS: &str = "fracas 1500000 800000";
    let jobs = [(Guest::FOUR, FRACAS), (Guest::FOUR_V1, FRACAS), (Guest::FOUR_V1, "cpu-hogs 500000 500000")];
    let reports = run_at_once(jobs.map(|(guest, method)| (guest, format!("hotplug.sh {method}"))));
    for ((guest, method), report) in jobs.into_iter().zip(reports) {
        let Some(report) = report else { return };
        let is_close = |got: f64, wanted: f64| (got / wanted - 1.0).abs() < CLOSENESS;
        for when in ["both", "one", "back", "moment"] {
            let [one, other] = used(&report, when);
            println!("{guest:?}, {method}, {when}: {:.1} and {:.1} %", one * 100.0, other * 100.0);
            // Programs that share a CPU, or its group, have its 40 % together.
            let is_right = if when == "one" {
                is_close(one + other, 0.4)
            } else {
                is_close(one, 0.4) && is_close(other, 0.4)
            };
            assert!(is_right, "{guest:?}, {method}, {when}: {}", report.text());
        }
        // The zone's, and those of two CPUs with fracas.
        let sets = if method == FRACAS { 3 } else { 1 };
        assert_eq!(report.lines("cpuset").count(), sets, "{}", report.text());
        for words in report.lines("cpuset") {
            // Those of the CPUs, where there are any, have their own at least.
            let all = ["1-2", words[0].strip_prefix("cpu").unwrap_or("1-2")];
            assert!(words[1..].iter().any(|cpus| all.contains(cpus)), "{words:?}: {}", report.text());
        }
    }
}

#[test]
fn tasks_that_lose_their_last_cpu_are_slowed_when_it_is_back() {
    // The windows have 50 periods each, and burners wait for their guest's turn: 5.3 % off was seen. Unslowed it is 150 %.
    const CLOSE: f64 = 0.1;
    let Some(report) = Guest::FOUR_V1.run("last-cpu.sh") else { return };
    let used = |when: &str| {
        let line = report.lines("used").find(|words| words[0] == when);
        numbers(&line.unwrap_or_else(|| panic!("nothing of {when}: {}", report.text()))[1..])
    };
    for (when, wanted) in [("before", 0.4), ("without", 1.0), ("after", 0.4), ("both", 0.4)] {
        let got: f64 = used(when).iter().sum();
        println!("{when}: {:.1} %", got * 100.0);
        assert!((got / wanted - 1.0).abs() < CLOSE, "{when}: {}", report.text());
    }
    let words: Vec<_> = report.lines("words").flatten().collect();
    assert!(words.join(" ").contains("all CPUs of the zone were offline"), "{words:?}");
}

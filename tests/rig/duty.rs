//! What a loop of known work gets, in a guest whose time is the count of its instructions: there is no noise, so a
//! method has no excuse.

use std::collections::BTreeMap;
use std::thread;

use crate::guest::{Guest, Report};

/// The speeds in percent.
const SPEEDS: [f64; 9] = [5.0, 10.0, 20.0, 30.0, 50.0, 70.0, 80.0, 90.0, 95.0];

/// The lowest frequency as a share of the highest, below which cpu-gov freezes.
const LOWEST: f64 = 800.0 / 2600.0;

/// How far from the speed asked for, as a share of it; and at 5 %, where little is left, of the whole CPU. So with
/// cpu-lim, too: each stop and each continuation wakes the parent, emu, on the guest's only CPU.
const CLOSE: f64 = 0.005;
const CLOSE_AT_LEAST: f64 = 0.003;

/// The runs of a method: each speed at each period, over a window of many periods.
fn runs(method: &str, periods: &[(&str, u32)], speeds: &[f64]) -> String {
    let scale = if method == "cpu-gov" { LOWEST } else { 1.0 };
    let speeds: Vec<_> = speeds.iter().map(|speed| format!("{:.4}", speed * scale)).collect();
    let run = |(period, window): &(&str, u32)| format!(" {method}:{period}:{window}:{}", speeds.join(","));
    periods.iter().map(run).collect()
}

/// The shares of the CPU that the loop got, by method, period and speed in percent.
fn shares(report: &Report) -> BTreeMap<(String, String), Vec<(f64, f64)>> {
    let rate = |word: &str| word.parse::<f64>().unwrap_or_else(|_| panic!("not a rate: {}", report.text()));
    let full = report.lines("rate").next().map(|words| rate(words[0])).expect("the rate without emulation");
    let mut shares: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for words in report.lines("share") {
        let [method, period, percent, done] = words[..] else { panic!("a share lacks words: {words:?}") };
        let scale = if method == "cpu-gov" { LOWEST } else { 1.0 };
        let asked = percent.parse::<f64>().expect("a speed") / 100.0 / scale;
        shares.entry((method.into(), period.into())).or_default().push((asked, rate(done) / full));
    }
    shares
}

/// Shows and judges all shares, of which there are so many; each must be `close` to what was asked for.
pub(crate) fn judge(what: &str, report: &Report, count: usize, close: f64) {
    let mut far = Vec::new();
    let mut seen = 0;
    for ((method, period), shares) in shares(report) {
        println!("{what} {method} {period}:");
        for (asked, got) in shares {
            println!(
                "  {:5.1} % asked, {:7.3} % got, {:+6.2} %",
                asked * 100.0,
                got * 100.0,
                (got / asked - 1.0) * 100.0
            );
            let is_lenient = asked < 0.075 || method == "cpu-lim";
            let at_most = if is_lenient { CLOSE_AT_LEAST.max(close * asked) } else { close * asked };
            if (got - asked).abs() > at_most {
                far.push(format!("{method} {period}: {asked:.4} asked, {got:.5} got"));
            }
            seen += 1;
        }
    }
    assert_eq!(seen, count, "{}", report.text());
    assert!(far.is_empty(), "{what}: not close enough: {far:#?}");
}

/// Runs a job in two guests at once, which must agree on every figure; judges it.
fn exactly(what: &str, guest: Guest, runs: &str) {
    let boot = || guest.run(&format!("duty.sh{runs}"));
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(boot);
        (boot(), second.join().expect("the second guest"))
    });
    let (Some(first), Some(second)) = (first, second) else { return };
    assert_eq!(first, second, "{what}: two runs differ");
    let settings =
        runs.split_whitespace().map(|run| run.rsplit(':').next().unwrap_or_default().split(',').count());
    judge(what, &first, settings.sum(), CLOSE);
}

#[test]
fn every_method_gives_the_share_asked_for_and_the_same_on_every_run() {
    let held = [("20ms", 1000), ("100ms", 2000)];
    let all = [
        runs("cpu-hogs", &[("1ms", 100), ("10ms", 300)], &SPEEDS),
        runs("cpu-freeze", &held, &SPEEDS),
        runs("fracas", &[("50ms", 2000), ("100ms", 2000)], &SPEEDS),
        runs("cpu-lim", &held, &SPEEDS),
        runs("cpu-gov", &held, &SPEEDS),
    ];
    exactly("Linux 6.1, cgroup v2", Guest::EXACT, &all.concat());
}

#[test]
fn every_method_gives_the_share_asked_for_on_every_layout_of_cgroups_and_on_the_newer_kernel() {
    let some = [10.0, 50.0, 90.0];
    let runs = [
        runs("cpu-hogs", &[("10ms", 500)], &some),
        runs("cpu-freeze", &[("20ms", 1000)], &some),
        runs("fracas", &[("100ms", 2000)], &some),
        runs("cpu-lim", &[("20ms", 1000)], &some),
        runs("cpu-gov", &[("20ms", 1000)], &some),
    ];
    let guests = [
        ("Linux 6.12, cgroup v2", Guest::EXACT_NEW),
        ("Linux 6.1, cgroup v1", Guest::EXACT_V1),
        ("Linux 6.1, cgroup v1 and v2", Guest::EXACT_HYBRID),
    ];
    thread::scope(|scope| {
        for (what, guest) in guests {
            let job = format!("duty.sh{}", runs.concat());
            scope.spawn(move || guest.run(&job).iter().for_each(|report| judge(what, report, 15, CLOSE)));
        }
    });
}

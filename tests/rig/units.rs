//! Units of systemd by their names, where systemd is the first process.

use super::guest::{Guest, fetch, number};
use crate::common::skip;

/// How far from the share asked for a unit may be, as a share of it, in the middle one of three windows: a window of 0.7 s has
/// 35 periods and may end within one. With several binaries, 2 % were seen.
const CLOSE: f64 = 0.06;

#[test]
fn units_are_slowed_by_name_with_systemd_as_init() {
    if let Err(why) = fetch(&["systemd"]) {
        skip(&why);
        return;
    }
    // Not `cpu-hogs`: on the only CPU it slows systemd, whose work beside is then more than a part in thirty. Nor `fracas`:
    // systemd gives services no `cpu` controller that have no setting of it.
    let methods = ["cpu-freeze", "cpu-lim"];
    let Some(report) = Guest::SYSTEMD.run(&format!("units.sh {}", methods.join(" "))) else { return };
    let systems = methods.map(|method| ("system", method));
    let others = [
        ("system", "node"),
        ("root", "cpu-freeze"),
        ("user", "cpu-lim"),
        ("scope", "cpu-freeze"),
        ("scope", "fracas"),
    ];
    for (kind, method) in systems.into_iter().chain(others) {
        let of = |word| {
            let line = report.lines(word).find(|words| words[..2] == [kind, method]);
            line.unwrap_or_else(|| panic!("nothing {word} of {kind} {method}: {}", report.text()))
        };
        let is_restarted = ["system", "user"].contains(&kind);
        let windows: &[_] = if is_restarted { &["used", "again"] } else { &["used"] };
        for window in windows {
            let share = number(of(window)[2]);
            println!("{kind} {method} {window}: {:.2} %", share * 100.0);
            assert!(
                (share / 0.3 - 1.0).abs() < CLOSE,
                "{kind} {method} {window}: {share}: {}",
                report.text()
            );
        }
        assert_eq!(of("ended")[2], "0", "{kind} {method}: {}", report.text());
        of("as-before");
    }
    // `ci` has asked systemd for a group, and the tests were slowed, by a method that needs one.
    let ci = report.lines("ci").next().unwrap_or_else(|| panic!("{}", report.text()));
    assert_eq!(ci[..2], ["0", "1"], "{}", report.text());
    assert!((number(ci[2]) / 0.5 - 1.0).abs() < CLOSE, "{}", report.text());
    assert!(["fracas", "cpu-freeze"].contains(&ci[3]), "{}", report.text());
}

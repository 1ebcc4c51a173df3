//! What the clocks of a machine mean for those who time on it.

use emu_bench::numbers::nanos;

use super::drift::is_disturbed;
use super::{Direction, Disparity, Drift, Ledger, Pass, Quality};

/// CPU time and wall time agree when they are within this share.
const AGREES: f64 = 0.01;

/// A clock with a longer step counts in ticks.
const TICK_NS: f64 = 1e6;

/// The CPU clock that is compared with the wall: the finest that counts all threads.
const FINEST: &str = "PROCESS_CPUTIME";

/// A change with the order of sizes that is worth naming.
const DRIFT: f64 = 0.05;

/// Shorter computations are not looked at for drift, as caches and the clock's own step make it, in nanoseconds.
const DRIFT_MIN_NS: f64 = 1e6;

pub(super) fn of(
    clocks: &[Quality],
    disparities: &[Disparity],
    (drift, passes): (&[Drift], &[Pass]),
) -> String {
    let mut sentences: Vec<String> = clocks.iter().filter_map(accusation).collect();
    if sentences.is_empty() {
        sentences.push("No clock ran back, on one CPU or from one to the next.".into());
    }
    sentences.extend(disparities.iter().filter_map(inversion));
    sentences.extend(ticks(clocks));
    sentences.extend(agreement(disparities));
    sentences.extend(order(drift, passes));
    sentences.join(" ")
}

fn accusation(clock: &Quality) -> Option<String> {
    let within = clock.within.iter().max_by_key(|seen| seen.worst_ns).filter(|seen| seen.count > 0);
    let across = clock.across.as_ref().filter(|seen| seen.count > 0);
    let (seen, place) = match (within, across) {
        (Some(seen), _) => (seen, format!("on CPU {}", seen.cpu)),
        (None, Some(seen)) => (seen, format!("from one CPU to the next, CPU {} being behind", seen.cpu)),
        (None, None) => return None,
    };
    Some(format!(
        "{} ran back by up to {}, {} of {} times, {place}: do not trust it.",
        clock.clock,
        nanos(seen.worst_ns as f64),
        seen.count,
        seen.reads
    ))
}

fn inversion(of: &Disparity) -> Option<String> {
    let share = &of.inverted_beyond_error;
    (share.estimate > 0.0).then(|| {
        format!(
            "{} counted more CPU time than time passed in {:.1}% of the computations (95%: {:.1} to {:.1}%), by up to \
             {}, which its step does not explain.",
            of.clock,
            share.estimate * 100.0,
            share.low * 100.0,
            share.high * 100.0,
            nanos(of.worst_excess_ns as f64)
        )
    })
}

fn ticks(clocks: &[Quality]) -> Option<String> {
    let ticking = clocks.iter().filter_map(|clock| {
        let step = clock.step_ns.filter(|step| *step >= TICK_NS)?;
        Some(format!("{} counts in ticks of {}", clock.clock, nanos(step)))
    });
    let words = ticking.collect::<Vec<_>>().join(", ");
    (!words.is_empty()).then(|| format!("{words}: use it for seconds, or not at all."))
}

fn agreement(disparities: &[Disparity]) -> Option<String> {
    let of = disparities.iter().find(|of| of.clock == FINEST)?;
    Some(if let Some(size) = of.agrees_from(AGREES) {
        let wall = size.times.iter().map(|times| times.wall_ns).min().unwrap_or(0);
        let from = nanos(wall as f64);
        format!("CPU time and wall time agree within 1% in computations of {from} and more.")
    } else {
        // By the account of these computations: others may have met another machine.
        let account = of.sizes.last().and_then(|longest| longest.account.as_ref());
        let why = account.map_or("where its time went was not recorded", |account| {
            hindrance(account).unwrap_or("nothing that the kernel accounts for explains it")
        });
        format!("CPU time and wall time do not agree within 1% even in the longest computation: {why}.")
    })
}

fn hindrance(account: &Ledger) -> Option<&'static str> {
    let causes = [
        (account.queue_ns, "other tasks use the CPUs"),
        (account.own_throttle_ns, "a quota of the group that emu is in throttles it"),
        (account.outer_throttle_ns, "a quota of a group above that of emu throttles it"),
        (Some(account.stolen_ns), "the hypervisor gives the CPUs to others"),
    ];
    let (time_ns, cause) = causes.into_iter().max_by_key(|(time_ns, _)| *time_ns)?;
    (time_ns? as f64 > account.run_ns as f64 * AGREES).then_some(cause)
}

/// What the order of sizes does: the largest change that chance does not explain, or that one that would be worth naming is
/// not decided.
fn order(drift: &[Drift], passes: &[Pass]) -> Option<String> {
    let long = drift.iter().filter(|drift| drift.steps as f64 * 1e9 / drift.best_hz.max(1.0) >= DRIFT_MIN_NS);
    let of_orders = |of: &Drift| [(of.steps, "descending", of.descending), (of.steps, "random", of.random)];
    let changes: Vec<_> = long.flat_map(of_orders).collect();
    let certain = changes.iter().filter_map(|(steps, order, change)| Some((steps, order, change.certain()?)));
    let largest = certain.max_by(|a, b| a.2.estimate.abs().total_cmp(&b.2.estimate.abs()));
    if let Some((steps, order, mean)) = largest.filter(|(.., mean)| mean.estimate.abs() > DRIFT) {
        let than = if mean.estimate > 0.0 { "longer" } else { "shorter" };
        let [one, other] = [mean.low, mean.high].map(f64::abs);
        return Some(format!(
            "Sizes in {order} order take up to {:.0}% ({:.0} to {:.0}%) {than} than in ascending order, at 2^{} steps: compare \
             only times of the same order.",
            mean.estimate.abs() * 100.0,
            one.min(other) * 100.0,
            one.max(other) * 100.0,
            steps.ilog2()
        ));
    }
    let most = changes.iter().map(|(.., change)| change.median.abs()).fold(0.0, f64::max);
    let rounds = passes.chunks(Direction::ALL.len());
    let (rounds, disturbed) = (rounds.len(), rounds.filter(|round| is_disturbed(round)).count());
    (most > DRIFT).then(|| {
        let left_out = match disturbed {
            0 => String::new(),
            some => format!(" Others disturbed {some} of {rounds} rounds, which are left out."),
        };
        format!(
            "Whether the order in which sizes are computed changes times is undecided: they differ by up to {:.0}%, which \
             chance may explain.{left_out}",
            most * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::clock::Counts;
    use super::super::{Backwards, Change, OfSize, Times};
    use super::*;
    use emu_bench::stats::Interval;

    fn clock(step_ns: f64, within: u64, across: u64) -> Quality {
        let seen = |count| Backwards { cpu: 1, reads: 1000, count, worst_ns: count as i64 * 500 };
        Quality {
            clock: "X".into(),
            counts: Counts::Wall,
            declared_ns: Some(1.0),
            cost_ns: 20.0,
            step_ns: Some(step_ns),
            error_ns: step_ns,
            within: vec![seen(0), seen(within)],
            across: Some(seen(across)),
        }
    }

    fn disparity(cpu_ns: i64, wall_ns: i64) -> Disparity {
        accounted(cpu_ns, wall_ns, None)
    }

    fn accounted(cpu_ns: i64, wall_ns: i64, account: Option<Ledger>) -> Disparity {
        let sizes = vec![OfSize { steps: 1, times: vec![Times { cpu_ns, wall_ns }; 20], account }];
        Disparity::new(FINEST.into(), 100.0, sizes).unwrap()
    }

    /// A change of every round alike, with this interval.
    fn change(estimate: f64, low: f64, high: f64) -> Change {
        Change { median: estimate, low, high, mean: Some(Interval { estimate, low, high, level: 0.99 }) }
    }

    #[test]
    fn an_order_is_accused_by_its_own_interval_only() {
        let drift =
            |descending, random| Drift { steps: 1 << 24, descending, random, best_hz: 1e9, sd_hz: 0.0 };
        let none = change(0.01, -0.02, 0.04);
        let faster = order(&[drift(none, change(-0.2, -0.3, -0.1))], &[]).unwrap();
        assert!(faster.contains("in random order take up to 20% (10 to 30%) shorter"), "{faster}");
        // Every round agrees, by chance.
        let noise = Change { low: 0.12, ..change(0.3, -0.5, 1.1) };
        let undecided = order(&[drift(noise, none)], &[]).unwrap();
        assert!(undecided.contains("is undecided: they differ by up to 30%"), "{undecided}");
        let pass = |disturbed| Pass { direction: Direction::Random, times: vec![], disturbed };
        let passes = [true, false, false, false, false, false].map(pass);
        let undecided = order(&[drift(noise, none)], &passes).unwrap();
        assert!(undecided.ends_with("Others disturbed 1 of 2 rounds, which are left out."), "{undecided}");
        assert_eq!(order(&[drift(none, none)], &passes), None);
    }

    #[test]
    fn clocks_that_are_right_are_not_accused() {
        let none = Change { median: 0.02, low: -0.1, high: 0.1, mean: None };
        let drift = Drift { steps: 1 << 24, descending: none, random: none, best_hz: 1e9, sd_hz: 0.0 };
        let text = of(&[clock(20.0, 0, 0)], &[disparity(2_999_000, 3_000_000)], (&[drift], &[]));
        let expected = "No clock ran back, on one CPU or from one to the next. CPU time and wall time agree within \
                        1% in computations of 3ms and more.";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let sure = change(0.4, 0.3, 0.5);
        let steep = Drift { steps: 1 << 24, descending: sure, random: sure, best_hz: 1e9, sd_hz: 0.0 };
        let short = Drift { steps: 256, ..steep };
        let calm = disparity(1000, 1000);
        for (clocks, of_cpu, drift, words) in [
            (clock(20.0, 3, 0), &calm, short, "X ran back by up to 1.5µs, 3 of 1000 times, on CPU 1: do"),
            (clock(20.0, 0, 2), &calm, short, "from one CPU to the next, CPU 1 being behind"),
            (clock(4e6, 0, 0), &calm, short, "X counts in ticks of 4ms"),
            (
                clock(20.0, 0, 0),
                &disparity(1200, 1000),
                short,
                "counted more CPU time than time passed in 100.0%",
            ),
            (clock(20.0, 0, 0), &disparity(500, 1000), short, "do not agree within 1%"),
            (clock(20.0, 0, 0), &calm, steep, "order take up to 40% (30 to 50%) longer than in ascending"),
        ] {
            let text = of(&[clocks], std::slice::from_ref(of_cpu), (&[drift], &[]));
            assert!(text.contains(words), "{text}");
        }
        assert!(of(&[], &[calm], (&[short], &[])).starts_with("No clock ran back"), "too short to judge");
    }

    #[test]
    fn what_prevents_running_is_named_only_with_accounts() {
        let calm = Ledger {
            wall_ns: 150,
            run_ns: 100,
            queue_ns: Some(0),
            own_throttle_ns: None,
            outer_throttle_ns: Some(0),
            stolen_ns: 0,
            sleep_ns: 50,
            asked_sleep_ns: 50,
        };
        for (ledger, words) in [
            (Ledger { queue_ns: Some(20), stolen_ns: 10, ..calm }, "computation: other tasks use"),
            (Ledger { own_throttle_ns: Some(20), queue_ns: None, ..calm }, "group that emu is in"),
            (Ledger { outer_throttle_ns: Some(20), ..calm }, "group above that of emu"),
            (Ledger { stolen_ns: 20, queue_ns: Some(10), ..calm }, "hypervisor gives"),
            (Ledger { queue_ns: Some(1), ..calm }, "nothing that the kernel accounts for"),
            (calm, "nothing that the kernel accounts for"),
        ] {
            let text = of(&[], &[accounted(500, 1000, Some(ledger))], (&[], &[]));
            assert!(text.contains(words), "{text}");
        }
        let old = of(&[], &[disparity(500, 1000)], (&[], &[]));
        assert!(old.ends_with("in the longest computation: where its time went was not recorded."), "{old}");
    }
}

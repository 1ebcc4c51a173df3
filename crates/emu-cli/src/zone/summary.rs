//! The lines that `run`, `attach` and nodes say at their begin and end.

use std::time::Duration;

use emu_bench::grouped;
use emu_bench::numbers::{percent, signed, span};
use emu_bench::table::width;
use emu_bench::verify::Delivered;
use emu_core::{CpuList, CpuStatus, Health, Hertz, SpeedSpec, Status, Stretch, Target};

use crate::output::PREFIX;
use crate::values::at_end_name;
use crate::zone::follow::Follow;
use crate::zone::plan::Plan;
use crate::zone::verification::Verification;

pub(crate) fn opening(plan: &Plan) -> String {
    let picked = if plan.automatic { " (best here)" } else { "" };
    // Speeds for each CPU name their CPUs.
    let cpus = match plan.speed {
        SpeedSpec::Uniform(_) => format!("{:#}", plan.prepared.demand().cpus()),
        SpeedSpec::PerCpu(_) => "CPUs".to_owned(),
    };
    let expected = plan.prepared.expected();
    let error = percent(expected.error);
    let cycle = match expected.period {
        Duration::ZERO => String::new(),
        period => format!(", period {}", span(period)),
    };
    let method = plan.prepared.method().id();
    match &plan.trace {
        None => format!("{method}{picked} slows {cpus} to {}: expected error {error}{cycle}", plan.speed),
        Some(Follow { player, .. }) => {
            let (cpus, steps) = (format!("{:#}", plan.prepared.demand().cpus()), player.trace().steps());
            let length =
                player.trace().length().map_or(String::new(), |length| format!(", {}", span(length)));
            let end = at_end_name(player.at_end());
            format!("{method}{picked} has {cpus} follow a trace ({steps} steps{length}, then {end}){cycle}")
        }
    }
}

/// How a trace was followed: when its speeds were set, and by how much what was delivered was off, where that can be told.
pub(crate) fn followed(follow: &Follow, stretches: &[Stretch]) -> Vec<String> {
    let (set, late) = (follow.changes, span(follow.player.lateness()));
    let begin = format!("trace: the speed was set {set} times, at most {late} late");
    let mut errors: Vec<f64> = stretches.iter().filter_map(|one| Some(one.delivered?.error.abs())).collect();
    errors.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| errors.get((errors.len() as f64 * part) as usize).map(|error| percent(*error));
    match (at(0.5), at(0.9)) {
        (Some(half), Some(most)) => {
            let (told, all) = (errors.len(), stretches.len());
            let told = format!(
                "{told} of {all} steps can be told: half are off by {half} at most, nine of ten by {most}"
            );
            vec![begin, told]
        }
        _ => vec![begin],
    }
}

/// What was asked and delivered in the time since the targets were changed last, and at what cost in all.
pub(crate) fn closing(status: &Status, wall: Duration, since: Duration) -> Vec<String> {
    // At full speed there is nothing to do in a period, and none is counted.
    let is_slowed = status.cpus.iter().any(|cpu| cpu.asked.share < 1.0);
    if status.periods == 0 && !status.period.is_zero() && is_slowed && status.delivered.is_none() {
        let (wall, period) = (span(wall), span(status.period));
        return vec![format!("ended after {wall}, before a period of {period} was counted")];
    }
    let asked = |asked: &Target| match asked.clock {
        Some(clock) => format!("{clock} ({})", percent(asked.share)),
        None => percent(asked.share),
    };
    let mut lines: Vec<String> = Vec::new();
    for cpus in alike(&status.cpus) {
        let delivered = delivered(&cpus, status).map_or_else(String::new, |it| format!(", delivered {it}"));
        let (list, first, set) = told(&cpus);
        let first = first.map_or(String::new(), asked);
        lines.push(format!("{list:#}: asked {first}, set {}{delivered} over {}", percent(set), span(since)));
    }
    lines.extend(alike(&status.cpus).iter().filter_map(|cpus| clocks(cpus)));
    if status.delivered.is_none() {
        let why = match status.used {
            Some(used) => format!(
                "tasks may have wanted no more than {} of a CPU, or too little was seen",
                percent(used)
            ),
            None => "too little was seen of the tasks".to_owned(),
        };
        lines.push(format!("delivered: cannot tell, {why}"));
    }
    let cycle = match status.period {
        Duration::ZERO => "no on/off cycle".to_owned(),
        period => {
            let (stall, Status { missed, periods, .. }) = (span(status.longest_stall), status);
            format!("period {}, longest stall {stall}, missed {missed} of {periods}", span(period))
        }
    };
    let share = status.own_cpu.as_secs_f64() / wall.as_secs_f64().max(1e-9);
    let own = format!("own CPU {} ({})", span(status.own_cpu), percent(share));
    if PREFIX.len() + format!("{cycle}, {own}").chars().count() > width() {
        lines.extend([cycle, own]);
    } else {
        lines.push(format!("{cycle}, {own}"));
    }
    lines.extend(status.background.map(|share| {
        format!("tasks outside the zone were left the {} of its CPUs that they used", percent(share))
    }));
    lines
}

pub(crate) fn verified(verification: &Verification) -> Vec<String> {
    let line = |seen: &Delivered| {
        let delivered = if seen.error.is_nan() {
            "unknown".to_owned()
        } else {
            format!("{} ({})", percent(seen.delivered), signed(seen.error))
        };
        let native = seen.native_clock.map_or_else(|| "unknown".to_owned(), |clock| clock.to_string());
        let (cpu, asked) = (seen.cpu, percent(seen.asked));
        format!("measured: CPU {cpu} asked {asked}, delivered {delivered}, native {native}")
    };
    verification.cpus.iter().map(line).collect()
}

/// CPUs that were asked and set the same: many CPUs make few lines.
fn alike(cpus: &[CpuStatus]) -> Vec<Vec<&CpuStatus>> {
    grouped(cpus, |one, cpu| one.asked == cpu.asked && percent(one.set) == percent(cpu.set))
}

/// What some CPUs were seen to deliver, with its interval; that of the zone where they are all that it has.
fn delivered(cpus: &[&CpuStatus], status: &Status) -> Option<String> {
    let seen: Vec<_> = cpus.iter().filter_map(|cpu| cpu.delivered).collect();
    let [share, low, high] = match status.delivered {
        Some(zone) if cpus.len() == status.cpus.len() => [zone.share, zone.low, zone.high],
        _ if seen.is_empty() => return None,
        _ => {
            let mean =
                |of: fn(&emu_core::Delivered) -> f64| seen.iter().map(of).sum::<f64>() / seen.len() as f64;
            [mean(|one| one.share), mean(|one| one.low), mean(|one| one.high)]
        }
    };
    Some(between(share, low, high))
}

pub(crate) fn between(share: f64, low: f64, high: f64) -> String {
    format!("{} ±{}", percent(share), percent((high - low) / 2.0))
}

/// The clock that was set, and what was measured; `None` for a method that sets none.
fn clocks(cpus: &[&CpuStatus]) -> Option<String> {
    let mean = |of: fn(&CpuStatus) -> Option<Hertz>| {
        let clocks: Vec<f64> = cpus.iter().filter_map(|cpu| Some(of(cpu)?.as_f64())).collect();
        (!clocks.is_empty()).then(|| Hertz((clocks.iter().sum::<f64>() / clocks.len() as f64) as u64))
    };
    let (list, set): (CpuList, _) = (cpus.iter().map(|cpu| cpu.cpu).collect(), mean(|cpu| cpu.set_clock)?);
    let measured =
        mean(|cpu| cpu.clock).map_or("not measured".to_owned(), |clock| format!("measured {clock}"));
    Some(format!("{list:#}: clock set to {set}, {measured}"))
}

/// CPUs, what they are asked, what is set, and what is delivered so far: a row for all that are alike.
pub(crate) fn columns(status: &Status) -> Vec<[String; 4]> {
    let asked =
        |target: &Target| target.clock.map_or_else(|| percent(target.share), |clock| clock.to_string());
    let row = |cpus: &Vec<&CpuStatus>| {
        let (list, first, set) = told(cpus);
        let delivered = delivered(cpus, status).unwrap_or_else(|| "-".into());
        [list.to_string(), first.map_or(String::new(), asked), percent(set), delivered]
    };
    alike(&status.cpus).iter().map(row).collect()
}

/// Which CPUs these are, what the first is asked, and what is set for them in the mean.
fn told<'a>(cpus: &[&'a CpuStatus]) -> (CpuList, Option<&'a Target>, f64) {
    let set = cpus.iter().map(|cpu| cpu.set).sum::<f64>() / cpus.len() as f64;
    (cpus.iter().map(|cpu| cpu.cpu).collect(), cpus.first().map(|cpu| &cpu.asked), set)
}

/// The problems of an emulation that does not hold, each after what it is called.
pub(crate) fn remarks(name: &str, status: &Status) -> Vec<String> {
    let problems = status.problems.iter().filter(|_| status.health != Health::Holding);
    problems.map(|problem| format!("{name}: {problem}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_bench::table::WIDTH;
    use emu_core::MethodId;

    fn status(cpus: &[(usize, Target, f64)]) -> Status {
        Status {
            method: MethodId::new("cpu-hogs"),
            period: Duration::from_millis(10),
            periods: 1234,
            missed: 2,
            longest_stall: Duration::from_micros(6130),
            own_cpu: Duration::from_micros(24_700),
            burned: Duration::from_secs(7),
            background: None,
            cpus: cpus
                .iter()
                .map(|&(cpu, asked, set)| CpuStatus { set, duty: set, ..CpuStatus::new(cpu, asked) })
                .collect(),
            delivered: None,
            used: None,
            health: Health::Holding,
            problems: vec![],
            notes: vec![],
        }
    }

    const HALF: Target = Target { share: 0.5, clock: None };

    const UNSEEN: &str = "delivered: cannot tell, too little was seen of the tasks";

    #[test]
    fn cpus_that_are_alike_share_a_line() {
        let lines = closing(
            &status(&[(0, HALF, 0.500_1), (1, HALF, 0.499_9), (2, HALF, 0.47)]),
            Duration::from_millis(12_340),
            Duration::from_millis(12_340),
        );
        assert_eq!(
            lines,
            [
                "CPUs 0-1: asked 50%, set 50% over 12.3s",
                "CPU 2: asked 50%, set 47% over 12.3s",
                UNSEEN,
                "period 10ms, longest stall 6.13ms, missed 2 of 1234, own CPU 24.7ms (0.2%)",
            ]
        );
        assert!(lines.iter().all(|line| PREFIX.len() + line.len() <= WIDTH));
    }

    #[test]
    fn what_is_too_long_for_a_line_becomes_two() {
        let long = Status { periods: 123_456, missed: 12_345, ..status(&[(0, HALF, 0.5)]) };
        assert_eq!(
            closing(&long, Duration::from_secs(1234), Duration::from_secs(1234))[1..],
            [UNSEEN, "period 10ms, longest stall 6.13ms, missed 12345 of 123456", "own CPU 24.7ms (0%)"]
        );
    }

    #[test]
    fn a_clock_is_shown_with_the_share_that_it_is() {
        let target = Target { share: 0.336, clock: Some(Hertz(1_200_000_000)) };
        let lines = closing(&status(&[(0, target, 0.336)]), Duration::from_secs(1), Duration::from_secs(1));
        assert_eq!(lines[0], "CPU 0: asked 1.200 GHz (33.6%), set 33.6% over 1s");
    }

    #[test]
    fn the_clock_that_was_set_stands_beside_the_measured_one() {
        let mut status = status(&[(0, HALF, 0.5), (1, HALF, 0.5)]);
        let ghz = |tenths: u64| Some(Hertz(tenths * 100_000_000));
        for (cpu, (set, measured)) in status.cpus.iter_mut().zip([(ghz(14), ghz(12)), (ghz(14), ghz(14))]) {
            (cpu.set_clock, cpu.clock) = (set, measured);
        }
        let second = Duration::from_secs(1);
        let line = |status: &Status| closing(status, second, second)[1].clone();
        assert_eq!(line(&status), "CPUs 0-1: clock set to 1.400 GHz, measured 1.300 GHz");
        status.cpus.iter_mut().for_each(|cpu| cpu.clock = None);
        assert_eq!(line(&status), "CPUs 0-1: clock set to 1.400 GHz, not measured");
    }

    #[test]
    fn nothing_is_claimed_of_less_than_a_period() {
        let mut status = status(&[(0, HALF, 1.0)]);
        status.periods = 0;
        assert_eq!(
            closing(&status, Duration::from_micros(691), Duration::from_micros(691)),
            ["ended after 691µs, before a period of 10ms was counted"]
        );
        // Where the account tells something, it was not too short.
        let second = Duration::from_secs(1);
        status.delivered = serde_json::from_value(serde_json::json!({
            "basis": "cpu-time", "share": 0.9, "low": 0.8, "high": 1.0, "asked": 0.5, "error": 0.8, "observed_ns": 1_000_000_000,
        }))
        .unwrap();
        assert!(closing(&status, second, second)[0].starts_with("CPU 0: asked 50%, set 100%, delivered 90%"));
    }

    #[test]
    fn full_speed_is_delivered_without_a_period() {
        let mut status = status(&[(0, Target { share: 1.0, clock: None }, 1.0)]);
        status.periods = 0;
        let lines = closing(&status, Duration::from_millis(12_340), Duration::from_millis(12_340));
        assert_eq!(lines[0], "CPU 0: asked 100%, set 100% over 12.3s");
    }

    #[test]
    fn the_background_load_is_told_where_it_is_excluded() {
        let mut status = status(&[(0, HALF, 0.5)]);
        status.background = Some(0.0321);
        let lines = closing(&status, Duration::from_secs(1), Duration::from_secs(1));
        assert_eq!(
            lines.last().unwrap(),
            "tasks outside the zone were left the 3.21% of its CPUs that they used"
        );
    }

    #[test]
    fn a_method_without_a_cycle_has_none_to_report() {
        let mut status = status(&[(0, HALF, 0.5)]);
        status.period = Duration::ZERO;
        assert_eq!(
            closing(&status, Duration::from_secs(1), Duration::from_secs(1))[1..],
            [UNSEEN, "no on/off cycle, own CPU 24.7ms (2.47%)"]
        );
    }
}

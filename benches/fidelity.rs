//! Measures every promise about the methods, row by row, and says which are kept.
//!
//! `cargo bench -p emu-bench --bench fidelity -- [--row NAME]… [--case NAME]… [--pairs 15] [--seed N] [--out benches/results]`
//!
//! Needs root, and a machine on which nothing else runs.

mod common;

use std::process::ExitCode;
use std::time::Duration;

use common::{Line, Met, Run, demand, error, figure, median, remarks};
use emu_bench::stats::{Bootstrap, Granularity, Interval, Noise, SMOOTH_CV, Sample, Spread};
use emu_bench::verify::{
    Finding, Nothing, Outcome, Pair, Plan, SessionEmulated, Trial, Window, rates, spectrum, verify,
};
use emu_core::{Demand, Error, MethodId, Result};

const MS: Duration = Duration::from_millis(1);

/// Speeds of the CPU loop on one CPU, and one that has a limit of its own.
const SPEEDS: [&str; 6] = ["10%", "25%", "50%", "75%", "90%", "95%"];
const LOWEST: &str = "5%";

/// Speeds of the workloads on two CPUs.
const SPEEDS_OF_TWO: [&str; 3] = ["25%", "50%", "75%"];

/// Workloads on two CPUs.
const WORKLOADS: [&str; 4] = ["cpu-loop", "multithread", "multiprocess", "sleep-compute"];

/// Processes of a crowd.
const CROWD: usize = 500;

/// Where emu keeps what a wake-up costs, in its state folder.
const WAKE_COSTS: &str = "wake-costs.json";

fn main() -> ExitCode {
    common::main("fidelity", |run| {
        for (row, measure) in ROWS {
            if !run.wants(row) {
                continue;
            }
            match measure(run, row) {
                Err(why) if run.is_ended_by(&why) => return Err(why),
                // Hours of other rows are not lost for one that fails.
                Err(why) => run.line(row, Line::refused("-", "-", &why)),
                Ok(()) => {}
            }
        }
        Ok(())
    })
}

const HOGS: MethodId = MethodId::new("cpu-hogs");
const FREEZE: MethodId = MethodId::new("cpu-freeze");
const LIM: MethodId = MethodId::new("cpu-lim");
const FRACAS: MethodId = MethodId::new("fracas");

type Measure = fn(&mut Run, &'static str) -> Result<()>;

const ROWS: &[(&str, Measure)] = &[
    ("hogs-10ms", |run, row| one_cpu(run, row, HOGS, 10, 1.0, Some(2.0))),
    ("hogs-1ms", |run, row| one_cpu(run, row, HOGS, 1, 2.0, None)),
    ("hogs-two", |run, row| two_cpus(run, row, HOGS, 10, false)),
    ("hogs-two-spared", |run, row| two_cpus(run, row, HOGS, 10, true)),
    ("hogs-mixed", |run, row| mixed(run, row, HOGS, 10)),
    ("hogs-clock", clock),
    ("hogs-grain", grain),
    ("hogs-cost", cost),
    ("freeze-20ms", |run, row| whole_table(run, row, FREEZE, 20)),
    ("freeze-100ms", |run, row| whole_table(run, row, FREEZE, 100)),
    ("fracas-20ms", |run, row| whole_table(run, row, FRACAS, 20)),
    ("fracas-100ms", |run, row| whole_table(run, row, FRACAS, 100)),
    ("lim-20ms", |run, row| whole_table(run, row, LIM, 20)),
    ("lim-100ms", |run, row| whole_table(run, row, LIM, 100)),
    ("crowd-freeze", |run, row| crowd(run, row, FREEZE)),
    ("crowd-lim", |run, row| crowd(run, row, LIM)),
];

/// One emulated case and what it must reach.
struct Case {
    name: String,
    demand: Demand,
    method: MethodId,
    workload: &'static str,
    /// Largest relative error, in percent.
    must: f64,
}

/// Windows of 50 periods, but no shorter than half a second and no longer than a second, which is 10 periods of 100 ms.
/// Where that has less than 100 ms of work at the lowest speed, so long that it has: on less, a single interrupt shows.
fn window(demand: &Demand) -> Duration {
    const WORK: Duration = Duration::from_millis(100);
    let period = demand.period.unwrap_or_default();
    let lowest = demand.targets.values().map(|target| target.share).fold(1.0, f64::min);
    (period * 50).clamp(MS * 500, MS * 1000).max(WORK.div_f64(lowest))
}

/// Measures a case and adds a line for each finding.
fn case(run: &mut Run, row: &'static str, case: &Case) -> Result<()> {
    if !run.wants_case(&case.name) {
        return Ok(());
    }
    let must = format!("≤ {}%", case.must);
    let plan = run.plan(window(&case.demand));
    let findings = match findings(run, row, case, &plan) {
        Ok(findings) => findings,
        Err(why) if run.is_ended_by(&why) => return Err(why),
        Err(why) => {
            run.line(row, Line::refused(&case.name, must, &why));
            return Ok(());
        }
    };
    for finding in findings {
        let name = finding.cpu.map_or(case.name.clone(), |cpu| format!("{} CPU {cpu}", case.name));
        let line = Line {
            case: name,
            measured: format!("{}{}", error(&finding.relative), remarks(&finding)),
            must: must.clone(),
            met: Met::within(&finding, &plan, case.must)?,
        };
        run.line(row, line);
    }
    Ok(())
}

/// How evenly the parts shared; of no promise, but a sum tells nothing of those that starve.
fn fairness(finding: &Finding) -> String {
    finding.fairness.map_or(String::new(), |fairness| {
        format!("; fairness {:.2}, native {:.2}", fairness.emulated, fairness.native)
    })
}

fn findings(run: &mut Run, row: &str, case: &Case, plan: &Plan) -> Result<Vec<Finding>> {
    let mut emulated = SessionEmulated::named(&run.host, &case.demand, case.method)?;
    let period = case.demand.period.unwrap_or_default();
    let mut trial = Trial::of(case.workload, &case.demand, &plan.setting(&emulated, &case.demand.targets))?;
    if !trial.job.sleep.is_zero() {
        // Bursts of ten periods, however long a window that takes.
        (trial.job.burst, trial.job.sleep, trial.job.cycles) = (period * 10, period * 5, 1);
    }
    Ok(verify(&mut emulated, &trial, plan, &mut |pair| run.pair(row, &case.name, pair))?.findings)
}

/// The CPU loop must be right to `must` percent, at the lowest speed to `must_lowest` where that is promised.
fn one_cpu(
    run: &mut Run,
    row: &'static str,
    method: MethodId,
    period: u32,
    must: f64,
    must_lowest: Option<f64>,
) -> Result<()> {
    let lowest = must_lowest.map(|must| (LOWEST, must));
    for (speed, must) in lowest.into_iter().chain(SPEEDS.map(|speed| (speed, must))) {
        let demand = demand(speed, &run.cpus(1), MS * period)?;
        let name = format!("cpu-loop {speed}");
        case(run, row, &Case { name, demand, method, workload: "cpu-loop", must })?;
    }
    Ok(())
}

fn two_cpus(
    run: &mut Run,
    row: &'static str,
    method: MethodId,
    period: u32,
    exclude_background: bool,
) -> Result<()> {
    for workload in WORKLOADS {
        for speed in SPEEDS_OF_TWO {
            let mut demand = demand(speed, &run.cpus(2), MS * period)?;
            demand.exclude_background = exclude_background;
            let name = format!("{workload} {speed} on 2 CPUs");
            case(run, row, &Case { name, demand, method, workload, must: 2.0 })?;
        }
    }
    Ok(())
}

fn mixed(run: &mut Run, row: &'static str, method: MethodId, period: u32) -> Result<()> {
    let cpus = run.cpus(2);
    let names: Vec<_> =
        cpus.iter().zip(["40%", "80%"]).map(|(cpu, speed)| format!("{cpu}={speed}")).collect();
    let name = names.join(",");
    let demand = demand(&name, &cpus, MS * period)?;
    case(run, row, &Case { name, demand, method, workload: "multithread", must: 2.0 })
}

fn whole_table(run: &mut Run, row: &'static str, method: MethodId, period: u32) -> Result<()> {
    one_cpu(run, row, method, period, 2.0, Some(2.0))?;
    two_cpus(run, row, method, period, false)?;
    mixed(run, row, method, period)
}

/// The undisturbed pairs of an emulated window, as native and emulated.
fn sides(outcome: &Outcome) -> Vec<(&Window, &Window)> {
    outcome.pairs.iter().filter(|pair| pair.is_undisturbed()).filter_map(Pair::sides).collect()
}

/// An absolute clock is held while the native one wanders.
fn clock(run: &mut Run, row: &'static str) -> Result<()> {
    const GHZ: f64 = 1.2;
    const WITHIN: f64 = 2.0;
    let speed = format!("{GHZ}GHz");
    let demand = demand(&speed, &run.cpus(1), MS * 10)?;
    let mut emulated = SessionEmulated::named(&run.host, &demand, HOGS)?;
    let plan = run.plan(window(&demand));
    let trial = Trial::of("cpu-loop", &demand, &plan.setting(&emulated, &demand.targets))?;
    let outcome = verify(&mut emulated, &trial, &plan, &mut |pair| run.pair(row, &speed, pair))?;
    let pairs: Vec<_> = sides(&outcome)
        .into_iter()
        .map(|(native, emulated)| (native.done.rate(), emulated.done.rate()))
        .collect();
    let spread = |rates: Vec<f64>| Ok::<_, emu_core::Error>(Noise::of(&Sample::new(rates)?)?.iqr);
    let difference = |pairs: &[&(f64, f64)]| {
        let native = spread(pairs.iter().map(|pair| pair.0).collect());
        let held = spread(pairs.iter().map(|pair| pair.1).collect());
        held.and_then(|held| Ok(held - native?)).unwrap_or(f64::NAN)
    };
    // How much wider the spread is under emulation, resampled over pairs: both sides of one met the same clock.
    let wider = Bootstrap::new(plan.seed).percentile(&pairs, plan.level, difference);
    let percent = |share: f64| format!("{:.2}%", share * 100.0);
    let native = spread(pairs.iter().map(|pair| pair.0).collect()).map_or_else(|_| "-".into(), percent);
    let held = spread(pairs.iter().map(|pair| pair.1).collect()).map_or_else(|_| "-".into(), percent);
    let line = Line {
        case: format!("{speed}: spread, IQR / median"),
        measured: match &wider {
            Ok(Interval { low, high, .. }) => {
                format!("{held}; native {native}; wider by [{:+.2}, {:+.2}]%", low * 100.0, high * 100.0)
            }
            Err(_) => format!("{held}; native {native}"),
        },
        must: "≤ native".into(),
        met: match wider {
            Ok(wider) if wider.high <= 0.0 => Met::Yes,
            Ok(wider) if wider.low > 0.0 => Met::No,
            // Too few pairs have no interval.
            _ => Met::Untold,
        },
    };
    run.line(row, line);
    for finding in &outcome.findings {
        let errors = rates(&outcome.trial, &outcome.pairs, &plan)?;
        let errors = errors.iter().map(|(_, pair)| (pair.log_ratio().exp() / finding.ideal - 1.0).abs());
        let largest = figure(errors.reduce(f64::max).map(|largest| largest * 100.0), "%");
        let line = Line {
            case: format!("{speed}: clock in the median"),
            measured: format!("{}, at most {largest}{}", error(&finding.relative), remarks(finding)),
            must: format!("≤ {WITHIN}%"),
            met: Met::within(finding, &plan, WITHIN)?,
        };
        run.line(row, line);
    }
    Ok(())
}

/// The roughest of the windows from 10 ms on, where there are some.
fn roughest(seen: &Granularity) -> Option<f64> {
    let spreads = seen.windows.iter().filter(|window| window.length_ms >= 10);
    let known = spreads.filter_map(|window| if let Spread::Cv(cv) = window.spread { Some(cv) } else { None });
    known.reduce(f64::max)
}

/// Progress at a period of 1 ms is smooth in windows of 10 ms and longer; that of native work is told beside it.
fn grain(run: &mut Run, row: &'static str) -> Result<()> {
    for speed in ["25%", "50%", "75%"] {
        let demand = demand(speed, &run.cpus(1), MS)?;
        let mut emulated = SessionEmulated::named(&run.host, &demand, HOGS)?;
        let plan = run.plan(MS * 1000);
        let trial = Trial::of("cpu-loop", &demand, &plan.setting(&emulated, &demand.targets))?;
        let (mut native_at_ten, mut at_ten, mut stalls) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..run.options.pairs {
            let native = spectrum(&mut Nothing, &trial, &plan, MS * 1000)?;
            let seen = spectrum(&mut emulated, &trial, &plan, MS * 1000)?;
            if native.taint.is_none() && seen.taint.is_none() {
                native_at_ten.extend(roughest(&native.granularity));
                at_ten.extend(roughest(&seen.granularity));
                stalls.push(seen.granularity.longest_stall_ns as f64 / 1e6);
            }
            run.sample(row, &(native, seen))?;
        }
        let (cv, native) = (median(&at_ten), median(&native_at_ten));
        // What is uneven without emulation is not its doing.
        let own = cv.zip(native).map(|(cv, native)| (cv.powi(2) - native.powi(2)).max(0.0).sqrt());
        let percent = |share: Option<f64>| figure(share.map(|share| share * 100.0), "%");
        let line = Line {
            case: format!("1 ms at {speed}: CV from 10 ms on"),
            measured: format!(
                "{} beside native {}, {} in all; longest stall {}",
                percent(own),
                percent(native),
                percent(cv),
                figure(median(&stalls), " ms")
            ),
            must: format!("< {}%", SMOOTH_CV * 100.0),
            met: match (own, native) {
                (_, Some(native)) if native >= SMOOTH_CV => Met::Untold,
                (Some(own), _) => (own < SMOOTH_CV).into(),
                (None, _) => Met::Untold,
            },
        };
        run.line(row, line);
    }
    Ok(())
}

/// What emu itself costs at a period of 1 ms.
fn cost(run: &mut Run, row: &'static str) -> Result<()> {
    let cpus = run.host.allowed.clone();
    let demand = demand("50%", &cpus, MS)?;
    // What was kept of another hour says nothing of this one: emu measures it anew.
    match std::fs::remove_file(run.host.roots.state.join(WAKE_COSTS)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("cannot remove what emu has kept of the cost of wake-ups", error));
        }
        _ => {}
    }
    let mut emulated = SessionEmulated::named(&run.host, &demand, HOGS)?;
    let plan = run.plan(MS * 1000);
    let trial = Trial::of("multithread", &demand, &plan.setting(&emulated, &demand.targets))?;
    let outcome = verify(&mut emulated, &trial, &plan, &mut |pair| run.pair(row, "50%", pair))?;
    let deliveries: Vec<_> =
        sides(&outcome).into_iter().filter_map(|(_, window)| window.delivery.as_ref()).collect();
    let count = cpus.len() as f64;
    let shares: Vec<f64> =
        deliveries.iter().map(|one| one.process_cpu_s / one.wall_s / count * 100.0).collect();
    let share = median(&shares);
    run.line(
        row,
        Line {
            case: "own CPU for each CPU, kernel's account".into(),
            measured: figure(share, "%"),
            must: "≤ 1%".into(),
            met: Met::at_most(share, 1.0),
        },
    );
    let period_us: Vec<f64> = deliveries
        .iter()
        .filter(|one| one.periods > 0)
        .map(|one| one.own_cpu_s * 1e6 / (one.periods as f64 * count))
        .collect();
    let period_us = median(&period_us);
    let (met, measured) = match wake_cost_us(run) {
        Some(switching) => {
            let own = period_us.map(|all| all - switching);
            (Met::at_most(own, 2.0), format!("{} beside {switching:.2} µs of switching", figure(own, " µs")))
        }
        None => (
            Met::Not("the cost of a wake-up is not known".into()),
            format!("{} in all", figure(period_us, " µs")),
        ),
    };
    run.line(
        row,
        Line { case: "controller's own code in a period".into(), measured, must: "≤ 2 µs".into(), met },
    );
    Ok(())
}

/// The CPU time that a wake-up takes of a thread that does nothing else, as emu has measured and kept it.
fn wake_cost_us(run: &Run) -> Option<f64> {
    let text = std::fs::read_to_string(run.host.roots.state.join(WAKE_COSTS)).ok()?;
    let kept: serde_json::Value = serde_json::from_str(&text).ok()?;
    let costs = kept.get("values")?.as_object()?.values();
    let visible: Vec<f64> = costs.filter_map(|cost| cost.get("value")?.get("visible")?.as_f64()).collect();
    median(&visible).map(|visible_ns| visible_ns / 1000.0)
}

/// Hundreds of processes, sleeping or busy.
fn crowd(run: &mut Run, row: &'static str, method: MethodId) -> Result<()> {
    let cpus = run.cpus(2);
    let demand = demand("50%", &cpus, MS * 100)?;
    let mut emulated = match SessionEmulated::named(&run.host, &demand, method) {
        Ok(emulated) => emulated,
        Err(why) => {
            run.line(row, Line::refused("50%", "≤ 2%", &why));
            return Ok(());
        }
    };
    for (name, active) in [("sleeping", cpus.len()), ("busy", CROWD)] {
        if !run.wants_case(name) {
            continue;
        }
        // With so many processes some periods become one: short windows would tell where in it they begin and end.
        let mut plan = run.plan(MS * 12_000);
        // Every process must have had its turn before the window opens, and the method some stops to see who sleeps.
        plan.lead = MS * 10_000;
        let mut trial = Trial::of("multiprocess", &demand, &plan.setting(&emulated, &demand.targets))?;
        (trial.job.active, trial.job.idle) = (active, CROWD - active);
        let outcome = verify(&mut emulated, &trial, &plan, &mut |pair| run.pair(row, name, pair))?;
        let own: Vec<f64> = sides(&outcome)
            .into_iter()
            .filter_map(|(_, window)| window.delivery.as_ref())
            .map(|one| one.process_cpu_s / one.wall_s * 100.0)
            .collect();
        for finding in &outcome.findings {
            let line = Line {
                case: format!("{CROWD} processes, {name}, 50%"),
                measured: format!("{}{}{}", error(&finding.relative), remarks(finding), fairness(finding)),
                must: "≤ 2%".into(),
                met: Met::within(finding, &plan, 2.0)?,
            };
            run.line(row, line);
        }
        let own = median(&own);
        let line = Line {
            case: format!("own CPU, {CROWD} {name}"),
            measured: figure(own, "%"),
            must: "≤ 2%".into(),
            met: Met::at_most(own, 2.0),
        };
        run.line(row, line);
    }
    Ok(())
}

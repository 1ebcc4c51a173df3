//! What is measured where the command line does not say otherwise.

use std::time::Duration;

use emu_bench::experiment::{Cores, Crowd, Part, Repetitions, Request, methods};
use emu_bench::external::EXTERNALS;
use emu_bench::record::seed_from_clock;
use emu_bench::report::BUCHERT_2011_METHODS;
use emu_bench::stats::Band;
use emu_bench::workload::{BUSY, WORKLOADS};
use emu_core::{Demand, Host, MethodId, Result, Speed, Target, choose};

use super::args::{BenchArgs, Preset};

/// Pairs unless given, and as published.
const REPETITIONS: usize = 15;
const REPETITIONS_FULL: usize = 40;

/// Time of a quick run; starting and reporting take some more.
const QUICK: Duration = Duration::from_secs(112);

/// Bound to the CPU, as the loop is, and not published.
const UNPACED: &str = "udp-io-unpaced";

const LOOP: &str = "cpu-loop";

/// Windows, unless that is less than three periods of the method.
const WINDOW: Duration = Duration::from_millis(200);
const WINDOW_QUICK: Duration = Duration::from_millis(100);
const WINDOW_FULL: Duration = Duration::from_millis(500);
const WINDOW_LONG: Duration = Duration::from_secs(1);

/// The granularity spectrum is taken over this time. Windows of 300 ms need three seconds.
const SPECTRUM: Duration = Duration::from_secs(3);
const SPECTRUM_QUICK: Duration = Duration::from_millis(500);

/// CPU time of a window at the lowest speed, where figures are to be right to a percent.
const WORK: Duration = Duration::from_millis(100);

const CROWD: usize = 500;

/// With so many processes some periods become one: short windows would tell where in it they begin and end.
const WINDOW_CROWD: Duration = Duration::from_secs(12);

/// Every process of a crowd must have had its turn before the window opens, and the method some stops to see who sleeps.
const LEAD_CROWD: Duration = Duration::from_secs(10);

pub(super) fn usual(host: &Host, args: &BenchArgs) -> Result<Request> {
    let usual = Request {
        contenders: methods::best(),
        parts: vec![part(all_but(&[]), &[25, 50, 75], powers(host, usize::MAX))?],
        repetitions: Repetitions::Count(REPETITIONS),
        window: WINDOW,
        work: Duration::ZERO,
        lead: Duration::ZERO,
        spectrum: SPECTRUM,
        exclude_background: false,
        crowd: None,
        sparing: args.quick && args.reps.is_none(),
        period: args.period,
        hold_clock: !args.no_hold_clock,
        tolerance: Band::new(args.tolerance)?,
        preset: args.preset.map(Preset::name),
        seed: args.seed.unwrap_or_else(seed_from_clock),
    };
    if args.quick {
        return Ok(Request {
            // The loop at three speeds: a point says less than a line.
            parts: vec![
                part(BUSY.map(String::from).into(), &[50], Cores::Filled)?,
                part(vec![LOOP.into()], &[25, 75], Cores::Filled)?,
            ],
            repetitions: Repetitions::Within(QUICK),
            window: WINDOW_QUICK,
            spectrum: SPECTRUM_QUICK,
            ..usual
        });
    }
    Ok(match args.preset {
        None if args.full => Request {
            parts: vec![part(all_but(&[]), &[10, 20, 30, 40, 50, 60, 70, 80, 90], powers(host, usize::MAX))?],
            repetitions: Repetitions::Count(REPETITIONS_FULL),
            window: WINDOW_FULL,
            ..usual
        },
        None => usual,
        Some(Preset::Buchert2011) => Request {
            contenders: BUCHERT_2011_METHODS.into(),
            parts: vec![part(all_but(&[UNPACED]), &[20, 40, 60, 80], powers(host, 4))?],
            repetitions: Repetitions::Count(REPETITIONS_FULL),
            ..usual
        },
        Some(Preset::Fidelity) => Request {
            parts: vec![
                part(vec![LOOP.into()], &[5, 10, 25, 50, 75, 90, 95], powers(host, 1))?,
                part(
                    BUSY.map(String::from).into(),
                    &[25, 50, 75],
                    Cores::Each(vec![host.allowed.len().min(2)]),
                )?,
            ],
            window: WINDOW_FULL,
            work: WORK,
            ..usual
        },
        Some(Preset::Peers) => Request {
            contenders: best_here(host).into_iter().chain(EXTERNALS.iter().map(|one| one.id)).collect(),
            parts: vec![part(BUSY.map(String::from).into(), &[10, 25, 50, 75], Cores::Filled)?],
            window: WINDOW_LONG,
            // As the others do, which limit the tasks alone.
            exclude_background: true,
            ..usual
        },
        Some(one @ (Preset::CrowdBusy | Preset::CrowdAsleep)) => {
            let cpus = host.allowed.len().min(2);
            let active = if one == Preset::CrowdBusy { CROWD } else { cpus };
            Request {
                parts: vec![part(vec!["multiprocess".into()], &[50], Cores::Each(vec![cpus]))?],
                window: WINDOW_CROWD,
                lead: LEAD_CROWD,
                crowd: Some(Crowd { active, idle: CROWD - active }),
                ..usual
            }
        }
    })
}

fn part(workloads: Vec<String>, percent: &[u32], cores: Cores) -> Result<Part> {
    let speeds = percent.iter().map(|one| Speed::share(f64::from(*one) / 100.0)).collect::<Result<_>>()?;
    Ok(Part { workloads, speeds, cores })
}

fn all_but(without: &[&str]) -> Vec<String> {
    let names = WORKLOADS.iter().map(|workload| workload.name());
    names.filter(|name| !without.contains(name)).map(str::to_owned).collect()
}

/// 1, 2, 4 … CPUs, as there are, so many numbers of them at most.
fn powers(host: &Host, most: usize) -> Cores {
    let here = host.allowed.len();
    let powers = std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count <= here);
    Cores::Each(powers.take(most).collect())
}

/// The method that is expected to be best here at a low speed; none where none can be used.
fn best_here(host: &Host) -> Option<MethodId> {
    let cpu = host.allowed.first()?;
    let demand = Demand::new([(cpu, Target { share: 0.1, clock: None })].into());
    choose(host, &demand).ok().map(|prepared| prepared.method().id())
}

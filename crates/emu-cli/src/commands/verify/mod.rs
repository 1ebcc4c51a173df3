//! `emu verify`: how faithful methods are on this host, measured.

mod args;
pub(crate) mod show;

pub(crate) use args::VerifyArgs;

use std::time::{Duration, Instant};

use emu_bench::record::{About, Machine, seed_from_clock};
use emu_bench::stats::Band;
use emu_bench::verify::{self, Emulated, Finding, Outcome, Pair, Plan, SessionEmulated, Spectrum, Trial};
use emu_bench::workload::{BUSY, WORKLOADS};
use emu_core::{
    Demand, Error, Hint, Host, MethodId, Prepared, Result, SpeedSpec, Trait, Unavailable, choose, judge,
    method,
};

use self::show::{Refused, Report, Section, Settings, title};
use crate::ending::Ending;
use crate::exit::{Exit, Failure};
use crate::options::{flag, option};
use crate::output::progress::Progress;
use crate::signals::Signals;
use crate::values::{MethodChoice, Methods, TOLERANCE, exact, share};
use crate::zone::plan;
use crate::{hints, host, output};

/// Pairs unless given, and with `--quick`: the fewest that give an interval of 95 %.
const PAIRS: u16 = 15;
const PAIRS_QUICK: u16 = 6;

/// Windows, unless that is too few periods of the method.
const WINDOW: Duration = Duration::from_millis(200);
const WINDOW_QUICK: Duration = Duration::from_millis(100);

/// For how long more pairs are taken where the first ones do not decide; with `--quick` all takes less than half a minute.
const MORE: Duration = Duration::from_secs(60);
const MORE_QUICK: Duration = Duration::from_secs(8);

/// The granularity spectrum is taken over this time, unless that is too few periods.
const SPECTRUM: Duration = Duration::from_secs(1);

pub(crate) fn verify(args: &VerifyArgs) -> Result<Exit, Failure> {
    let signals = Signals::block()?;
    let host = host::detect()?;
    let settings = settings(args)?;
    let about = About::new(Machine::of(&host), command(args, settings.seed)?, settings.seed);
    let mut report = Report::new(about, settings);
    let mut cases = cases(&host, args, &mut report)?;
    let total = cases.iter().map(Case::expected_time).sum();
    let more = args.until_decided.unwrap_or(if args.quick { MORE_QUICK } else { MORE });
    let mut run = Run { ending: Ending::new(signals), progress: Progress::new(total), more };
    for case in &mut cases {
        let section = run.section(case);
        run.progress.clear();
        run.ending.by_signal(section.as_ref().err())?;
        report.sections.push(section?);
    }
    let text = if args.json { output::json(&report)? } else { report.text() };
    output::print(&text)?;
    Ok(report.exit())
}

fn settings(args: &VerifyArgs) -> Result<Settings> {
    Ok(Settings {
        seed: args.seed.unwrap_or_else(seed_from_clock),
        pairs: args.pairs.unwrap_or(if args.quick { PAIRS_QUICK } else { PAIRS }).into(),
        tolerance: Band::new(args.tolerance)?,
        window: if args.quick { WINDOW_QUICK } else { WINDOW },
    })
}

fn command(args: &VerifyArgs, seed: u64) -> Result<String> {
    let speeds = args.speed.iter().map(|speed| option("speed", [speed.to_string().replace(' ', "")]));
    let tolerance = (args.tolerance - share(TOLERANCE)?).abs() > f64::EPSILON;
    Ok([
        "emu verify".to_owned(),
        speeds.collect(),
        option("method", [args.method]),
        args.demand.options(),
        option("workloads", &args.workloads),
        option("pairs", args.pairs),
        option("until-decided", args.until_decided.map(exact)),
        option("tolerance", tolerance.then_some(args.tolerance)),
        flag("quick", args.quick),
        option("seed", [seed]),
    ]
    .concat())
}

struct Case {
    speed: SpeedSpec,
    emulated: SessionEmulated,
    plan: Plan,
    trials: Vec<Trial>,
}

impl Case {
    /// Changes nothing.
    fn new(speed: &SpeedSpec, prepared: Prepared, settings: &Settings, names: &[&str]) -> Result<Self> {
        let proc = prepared.host().roots.proc.clone();
        let emulated = SessionEmulated::new(prepared);
        let plan = Plan {
            pairs: settings.pairs,
            window: verify::window_for(settings.window, &emulated, emulated.demand().lowest_share()),
            repeats: repeats(settings.pairs),
            tolerance: settings.tolerance,
            proc,
            ..Plan::new(settings.seed)
        };
        let demand = emulated.demand();
        let setting = plan.setting(&emulated, &demand.targets);
        let trials = names.iter().map(|name| Trial::of(name, demand, &setting)).collect::<Result<_>>()?;
        Ok(Self { speed: speed.clone(), emulated, plan, trials })
    }

    fn method(&self) -> MethodId {
        self.emulated.method().id()
    }

    fn spectrum(&self) -> Duration {
        verify::spectrum_of_periods(SPECTRUM, self.emulated.cycle())
    }

    fn expected_time(&self) -> Duration {
        let pairs = self.trials.iter().map(|trial| self.plan.expected_time(&self.emulated, trial));
        pairs.sum::<Duration>() + self.spectrum()
    }
}

/// How many disturbed pairs are taken again. Of the fewest pairs each one is needed for a verdict.
fn repeats(pairs: usize) -> usize {
    if pairs <= PAIRS_QUICK.into() { pairs } else { pairs.div_ceil(5) }
}

/// Every method at every speed; what a method cannot do goes to the report, unless it was asked for by name.
fn cases(host: &Host, args: &VerifyArgs, report: &mut Report) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for speed in &args.speed {
        let demand = plan::demand(host, speed, &args.demand)?;
        let names = workloads(args, &demand);
        let prepared = match args.method {
            Methods::One(MethodChoice::Auto) => vec![choose(host, &demand)?],
            Methods::One(MethodChoice::Named(id)) => vec![Prepared::named(id, host, &demand)?],
            Methods::All => judge(host, &demand)
                .into_iter()
                .filter(|one| method(one.method).is_some_and(|it| !it.about().has(Trait::Published)))
                .filter_map(|one| accepted(one.method, one.result, speed, &demand, report))
                .collect(),
        };
        let alone = on_one_cpu(args, speed, &demand);
        for prepared in prepared {
            let method = prepared.method();
            cases.push(Case::new(speed, prepared, &report.settings, &names)?);
            if let Some(alone) = &alone
                && let judged = Prepared::new(method, host, alone)
                && let Some(prepared) = accepted(method.id(), judged, speed, alone, report)
            {
                cases.push(Case::new(speed, prepared, &report.settings, &[verify::SMOOTH])?);
            }
        }
    }
    if cases.is_empty() {
        return Err(Error::unavailable("no method can do this here").hint(Hint::Judge));
    }
    Ok(cases)
}

fn accepted(
    method: MethodId,
    judged: Result<Prepared, Unavailable>,
    speed: &SpeedSpec,
    demand: &Demand,
    report: &mut Report,
) -> Option<Prepared> {
    let refuse = |why| Refused {
        method,
        speed: speed.to_string(),
        cpus: demand.cpus(),
        unavailable: hints::worded(why),
    };
    judged.map_err(|why| report.refused.push(refuse(why))).ok()
}

/// The demand of the first CPU alone, for [`SMOOTH`](verify::SMOOTH), whose one thread can move on several; `None` where
/// CPUs or other work were named.
fn on_one_cpu(args: &VerifyArgs, speed: &SpeedSpec, demand: &Demand) -> Option<Demand> {
    let are_named = args.demand.cpus.is_some() || speed.cpus().is_some();
    let is_wanted = args.workloads.is_empty() || args.workloads.iter().any(|name| name == verify::SMOOTH);
    if are_named || !is_wanted || demand.targets.len() < 2 {
        return None;
    }
    let targets = demand.targets.iter().take(1).map(|(&cpu, &target)| (cpu, target)).collect();
    Some(Demand { targets, ..demand.clone() })
}

/// What is asked for, else all that emulation promises; of that, where speeds differ by CPU, what can be told apart by CPU.
fn workloads<'a>(args: &'a VerifyArgs, demand: &Demand) -> Vec<&'a str> {
    if !args.workloads.is_empty() {
        return args.workloads.iter().map(String::as_str).collect();
    }
    let promised = WORKLOADS.iter().filter(|workload| workload.is_promised()).map(|workload| workload.name());
    let all = promised.filter(|name| !args.quick || BUSY.contains(name));
    let parallel = |name: &&str| matches!(*name, "multithread" | "multiprocess");
    if demand.uniform_share().is_some() { all.collect() } else { all.filter(parallel).collect() }
}

struct Run {
    ending: Ending<Signals>,
    progress: Progress,
    /// The time that is left for more pairs.
    more: Duration,
}

impl Run {
    fn section(&mut self, case: &mut Case) -> Result<Section> {
        let mut outcomes: Vec<Outcome> = Vec::new();
        let mut spectrum: Option<Spectrum> = None;
        let title = title(case.method(), &case.speed.to_string(), &case.emulated.demand().cpus());
        for trial in &case.trials {
            let name = format!("{title}, {}", trial.job.workload);
            let mut left = case.plan.pairs + case.plan.controls();
            let expected_time = case.plan.expected_time(&case.emulated, trial);
            let expected = expected_time / left.max(1) as u32;
            let started = Instant::now();
            let mut begin = started;
            self.progress.show(&name);
            // Pairs that are taken again take of the same time as more pairs.
            let repeats = if self.more.is_zero() { 0 } else { case.plan.repeats };
            let plan = Plan { repeats, ..case.plan.clone() };
            outcomes.push(verify::verify(&mut case.emulated, trial, &plan, &mut |pair| {
                self.ending.go_on()?;
                let Some(pair) = pair else { return Ok(()) };
                if pair.kept {
                    left -= 1;
                    self.progress.advance(expected, begin.elapsed());
                    begin = Instant::now();
                }
                self.progress.show(&format!("{name}: {left} pairs left"));
                Ok(())
            })?);
            self.more = self.more.saturating_sub(started.elapsed().saturating_sub(expected_time));
            if trial.job.workload == verify::SMOOTH {
                let length = case.spectrum();
                let look = &mut || self.ending.go_on();
                spectrum = Some(verify::spectrum(&mut case.emulated, trial, &case.plan, length, look)?);
            }
        }
        self.decide(case, &title, &mut outcomes)?;
        Ok(Section::new(case.method(), &case.speed, &case.emulated, &case.plan, spectrum, outcomes))
    }

    /// Takes more pairs for what is undecided, while there is time for as many again.
    fn decide(&mut self, case: &mut Case, title: &str, outcomes: &mut [Outcome]) -> Result<()> {
        for outcome in outcomes {
            let expected = case.plan.expected_time_of_more(&case.emulated, &outcome.trial);
            while outcome.findings.iter().any(Finding::is_undecided) && expected <= self.more {
                let begin = Instant::now();
                self.progress.show(&format!("{title}, {}: more pairs", outcome.trial.job.workload));
                let mut go_on = |_: Option<&Pair>| self.ending.go_on();
                verify::extend(&mut case.emulated, outcome, &case.plan, &mut go_on)?;
                self.more = self.more.saturating_sub(begin.elapsed());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use emu_core::Target;

    #[test]
    fn the_command_that_is_recorded_measures_the_same_again() {
        let line = "emu verify --speed 25% --speed 0=40%,1=1.200GHz --method cpu-lim:published --cpus 0-1 --period 10ms \
                    --lift-rt-limit --exclude-background --round up --widen --no-hold-clock --workloads cpu-loop,stream --pairs 40 \
                    --until-decided 1500us --tolerance 0.02 --quick --seed 7";
        let command = |line: &str| {
            let Command::Verify(args) = Cli::try_parse_from(line.split_whitespace()).unwrap().command else {
                panic!("{line}")
            };
            command(&args, args.seed.unwrap_or(3)).unwrap()
        };
        assert_eq!(command(line), line);
        assert_eq!(command("emu verify"), "emu verify --speed 50% --method auto --seed 3");
    }

    #[test]
    fn where_each_pair_is_needed_each_may_be_taken_again() {
        assert_eq!([3, 6, 15, 30].map(repeats), [3, 6, 3, 6]);
    }

    #[test]
    fn the_cpu_loop_is_also_measured_on_one_cpu_unless_told_else() {
        let alone = |line: &str, cpus: usize| {
            let line = format!("emu verify {line}");
            let Command::Verify(args) = Cli::try_parse_from(line.split_whitespace()).unwrap().command else {
                panic!("{line}")
            };
            let target = Target { share: 0.5, clock: None };
            let demand = Demand::new((0..cpus).map(|cpu| (cpu, target)).collect());
            on_one_cpu(&args, &args.speed[0], &demand).map(|alone| alone.cpus().to_string())
        };
        for line in ["", "--speed 1GHz", "--workloads multithread,cpu-loop"] {
            assert_eq!(alone(line, 2).as_deref(), Some("0"), "{line}");
            assert_eq!(alone(line, 1), None, "{line}");
        }
        for line in ["--cpus 0-1", "--speed 0-1=50%", "--workloads multithread"] {
            assert_eq!(alone(line, 2), None, "{line}");
        }
    }
}

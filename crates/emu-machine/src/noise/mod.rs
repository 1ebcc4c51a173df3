//! How far runs of the same work lie apart on this machine, and what disturbs them.
//!
//! The figure is that of H. Ingo and D. Daly (`MongoDB`, *Repeatable performance tests: CPU options are best
//! disabled*): (max − min) / median over five runs in each of five fresh processes.

mod conclusion;
mod gap;
mod kind;
mod period;
mod server;
mod setting;

pub use gap::{CpuGaps, Gap};
pub use kind::{Answer, Kind, Order, Run, Runs};
pub use period::Period;
pub use server::Server;
pub use setting::Setting;

use std::net::SocketAddr;
use std::time::Duration;

use emu_bench::stats::{Noise, Sample};
use emu_bench::ticks::Ticks;
use emu_bench::worker::{self, Kind as WorkerKind, Task};
use emu_core::{CpuList, Error, Host, Result, clock};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Event, Watch, notes_of_build, tell};
use crate::kernel::on_each_cpu;

/// The task of the processes that make runs; who measures serves it.
pub const TASK: WorkerKind = WorkerKind::of::<Runner>();

/// No runs take longer.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Fresh processes of each kind, and runs in each: as published, as the figure grows with their number.
const BLOCKS: u32 = 5;
const RUNS_IN_BLOCK: u32 = 5;

/// How long a run is to take. A sleep of 10 ms is in it twice at least.
const RUN: Duration = Duration::from_millis(100);
const RUN_QUICK: Duration = Duration::from_millis(20);

/// How long gaps are looked for; 10 s have 20 cycles of anything that comes twice a second.
const LOOK: Duration = Duration::from_secs(10);
const LOOK_QUICK: Duration = Duration::from_secs(2);

/// Time in which the core clock is measured between blocks.
const METER: Duration = Duration::from_millis(5);

/// Time to start and end a process, for the time left.
const START: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(crate) struct Runner;

impl Task for Runner {
    const NAME: &'static str = "noise";
    type Request = Order;
    type Answer = Answer;

    fn answer(&mut self, order: Order) -> Result<Answer> {
        order.answer()
    }
}

/// Has a fresh process make runs, of work that every machine can do.
pub(crate) fn runs(order: &Order) -> Result<Runs> {
    worker::ask_once::<Runner>(order, PATIENCE)?.map_err(Error::unavailable)
}

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoisePlan {
    /// Fresh processes of each kind.
    pub blocks: u32,
    /// Runs in each of them.
    pub runs: u32,
    /// How long a run is to take.
    pub run_ns: u64,
    /// How long each CPU is looked at for gaps.
    pub look_ns: u64,
    /// What is longer is a gap; `None` for ten steps of the loop and 1 µs at least.
    pub threshold_ns: Option<u64>,
    /// The CPUs that are looked at, all at the same time.
    pub cpus: CpuList,
    /// The server through which the kinds go once more; `None` for none.
    pub server: Option<Server>,
    /// Start of the random numbers by which the kinds are ordered.
    pub seed: u64,
}

impl NoisePlan {
    /// The usual plan, or a shorter one for a first look: fewer operations in a run, never fewer runs.
    pub fn new(host: &Host, quick: bool, seed: u64) -> Self {
        let (run, look) = if quick { (RUN_QUICK, LOOK_QUICK) } else { (RUN, LOOK) };
        Self {
            blocks: BLOCKS,
            runs: RUNS_IN_BLOCK,
            run_ns: run.as_nanos() as u64,
            look_ns: look.as_nanos() as u64,
            threshold_ns: None,
            cpus: host.allowed.clone(),
            server: None,
            seed,
        }
    }

    fn kinds(&self) -> impl Iterator<Item = Kind> {
        let through_server = self.server.iter().flat_map(|_| Kind::THROUGH_SERVER);
        Kind::ALONE.into_iter().chain(through_server)
    }

    /// One block of one kind, with its warming up.
    fn block_time(&self) -> Duration {
        START + Duration::from_nanos(self.run_ns) * (self.runs + 1)
    }

    fn look_time(&self) -> Duration {
        Duration::from_nanos(self.look_ns)
    }
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Each kind of work that can be measured here.
    pub kinds: Vec<OfKind>,
    /// The others.
    pub not_available: Vec<NotAvailable>,
    /// The address of the server through which some kinds went; `None` for none.
    #[serde(default)]
    pub server: Option<SocketAddr>,
    /// The gaps of each CPU.
    pub cpus: Vec<CpuGaps>,
    /// The core clock of the first CPU before each block and after the last one, in Hz; without those at which it was
    /// too busy to tell.
    pub clocks_hz: Vec<f64>,
    /// Share of the CPUs' time that the hypervisor gave to others during the runs, by the kernel's account.
    pub stolen: f64,
    /// What is to be known of the figures, in sentences.
    pub notes: Vec<String>,
    /// Whether the machine may be trusted, and for what.
    pub conclusion: String,
}

/// A kind of work that cannot be measured here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotAvailable {
    /// The kind.
    pub kind: Kind,
    /// Why.
    pub why: String,
}

/// A kind of work, and how far its runs lie apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OfKind {
    /// The kind.
    pub kind: Kind,
    /// Operations of each run.
    pub operations: u64,
    /// The middle time of an operation, in nanoseconds.
    pub median_ns: f64,
    /// How far the runs lie apart.
    pub noise: Noise,
    /// How often another task took the CPU from a run.
    pub preempted: u64,
    /// The runs of each block.
    pub blocks: Vec<Vec<Run>>,
}

impl OfKind {
    fn new(kind: Kind, operations: u64, blocks: Vec<Vec<Run>>) -> Result<Self> {
        let runs = || blocks.iter().flatten();
        let times: Vec<f64> = runs().map(|run| run.wall_ns as f64 / operations as f64).collect();
        let sample = Sample::new(times)?;
        Ok(Self {
            kind,
            operations,
            median_ns: sample.median(),
            noise: Noise::of(&sample)?,
            preempted: runs().map(|run| run.preempted).sum(),
            blocks,
        })
    }
}

/// Measures by a plan. Runs are made in fresh processes of this executable, which must serve [`TASK`].
pub fn measure(host: &Host, plan: &NoisePlan, watch: Watch<'_>) -> Result<Measured> {
    measure_with(host, plan, &|order| worker::ask_once::<Runner>(order, PATIENCE), watch)
}

fn measure_with(
    host: &Host,
    plan: &NoisePlan,
    ask: &dyn Fn(&Order) -> Result<Answer>,
    watch: Watch<'_>,
) -> Result<Measured> {
    host.check_cpus(&plan.cpus)?;
    let mut left = plan.look_time() + plan.block_time() * plan.blocks * plan.kinds().count() as u32;
    let server = plan.server.map(Server::start).transpose()?;
    // Free to move, as programs are.
    let cpus = CpuList::default();
    let ask = |kind: Kind, runs, operations| {
        match ask(&Order { kind, runs, operations, length_ns: plan.run_ns, cpus: cpus.clone(), server })? {
            // Who has named a server wants to know.
            Err(why) if kind.is_through_server() => Err(Error::unavailable(why).hint(server::HINT)),
            answer => Ok(answer),
        }
    };
    let (mut work, mut not_available) = (Vec::new(), Vec::<NotAvailable>::new());
    for kind in plan.kinds() {
        watch(Event::Next { what: &format!("{}: finding the length of a run", kind.name()), left })?;
        match ask(kind, 0, None)? {
            Ok(done) => work.push((kind, done.operations, Vec::new())),
            Err(why) => {
                not_available.push(NotAvailable { kind, why });
                left = left.saturating_sub(plan.block_time() * plan.blocks);
            }
        }
    }
    let mut rng = Pcg64::seed_from_u64(plan.seed);
    let mut clocks_hz = Vec::new();
    let before = Ticks::now(&host.roots.proc, &plan.cpus)?;
    for block in 1..=plan.blocks {
        clocks_hz.extend(clock(&plan.cpus));
        let mut turns: Vec<_> = work.iter_mut().collect();
        turns.shuffle(&mut rng);
        for (kind, operations, blocks) in turns {
            watch(Event::Next { what: &format!("{}, block {block} of {}", kind.name(), plan.blocks), left })?;
            left = left.saturating_sub(plan.block_time());
            match ask(*kind, plan.runs, Some(*operations))? {
                Ok(done) => {
                    tell(&mut *watch, kind.name(), &done.runs)?;
                    blocks.push(done.runs);
                }
                Err(why) => {
                    not_available.push(NotAvailable { kind: *kind, why });
                    left = left.saturating_sub(plan.block_time() * (plan.blocks - block));
                }
            }
        }
        work.retain(|(kind, ..)| not_available.iter().all(|other| other.kind != *kind));
    }
    clocks_hz.extend(clock(&plan.cpus));
    let stolen = Ticks::now(&host.roots.proc, &plan.cpus)?.since(before).stolen_share();
    watch(Event::Next { what: &format!("gaps on CPUs {}", plan.cpus), left })?;
    let cpus = gaps(host, plan)?;
    for cpu in &cpus {
        tell(&mut *watch, "gaps", cpu)?;
    }
    let kinds = work
        .into_iter()
        .map(|(kind, operations, blocks)| OfKind::new(kind, operations, blocks))
        .collect::<Result<Vec<_>>>()?;
    let conclusion = conclusion::of(&kinds, &cpus, clock_range(&clocks_hz));
    let notes = notes_of_build();
    Ok(Measured { kinds, not_available, server, cpus, clocks_hz, stolen, notes, conclusion })
}

fn gaps(host: &Host, plan: &NoisePlan) -> Result<Vec<CpuGaps>> {
    let threshold = plan.threshold_ns.map(Duration::from_nanos);
    let look = |cpu| gap::of_cpu(cpu, &host.clocks, &host.roots.proc, plan.look_time(), threshold);
    on_each_cpu("the look for gaps", &plan.cpus, look)
}

/// The core clock of the first CPU; `None` where it is too busy to tell.
fn clock(cpus: &CpuList) -> Option<f64> {
    Some(clock::measure(cpus.first()?, METER).ok()?.clock.as_f64())
}

/// How far the core clock moved: (max − min) / median; `None` where it could not be measured twice.
fn clock_range(clocks_hz: &[f64]) -> Option<f64> {
    if clocks_hz.len() < 2 {
        return None;
    }
    Noise::of(&Sample::new(clocks_hz).ok()?).ok().map(|noise| noise.range)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use emu_core::{ErrorKind, Roots};

    fn plan(host: &Host) -> NoisePlan {
        let server = Some(Server::Loopback);
        NoisePlan { run_ns: 1, look_ns: 20_000_000, server, ..NoisePlan::new(host, true, 7) }
    }

    #[test]
    fn every_kind_has_five_times_five_runs_and_every_cpu_its_gaps() {
        let host = Host::detect(&Roots::system()).unwrap();
        let plan = plan(&host);
        let mut rows = Vec::new();
        let mut times_left = Vec::new();
        let mut watch = |event: Event<'_>| {
            match event {
                Event::Next { left, .. } => times_left.push(left),
                Event::Sample { row, .. } => rows.push(row.to_owned()),
            }
            Ok(())
        };
        // In this process: the test binary is no emu.
        let measured = measure_with(&host, &plan, &Order::answer, &mut watch).unwrap();
        assert_eq!(
            measured.kinds.iter().map(|of| of.kind).collect::<Vec<_>>(),
            plan.kinds().collect::<Vec<_>>()
        );
        for of in &measured.kinds {
            assert_eq!(of.blocks.iter().map(Vec::len).collect::<Vec<_>>(), [5; 5], "{:?}", of.kind);
            assert_eq!(rows.iter().filter(|row| *row == of.kind.name()).count(), 5);
            assert!(of.median_ns > 0.0 && of.noise.range >= of.noise.iqr);
        }
        let seen: CpuList = measured.cpus.iter().map(|cpu| cpu.cpu).collect();
        assert_eq!(seen, host.allowed);
        assert!(times_left.is_sorted_by(|a, b| a >= b) && !measured.conclusion.is_empty());
        let json = serde_json::to_string(&measured).unwrap();
        assert_eq!(serde_json::from_str::<Measured>(&json).unwrap(), measured);
    }

    #[test]
    fn a_watcher_ends_it_before_the_next_sample() {
        let host = Host::detect(&Roots::system()).unwrap();
        let mut events = 0;
        let mut watch = |_: Event<'_>| {
            events += 1;
            if events > 7 { Err(Error::new(ErrorKind::Failed, "enough")) } else { Ok(()) }
        };
        let ended = measure_with(&host, &plan(&host), &Order::answer, &mut watch).unwrap_err();
        assert_eq!((ended.to_string().as_str(), events), ("enough", 8));
    }

    #[test]
    fn a_kind_that_cannot_be_had_leaves_the_others_and_the_gaps() {
        let host = Host::detect(&Roots::system()).unwrap();
        // At once, and when some runs have been made.
        for answered in [0, 2] {
            let asked = Cell::new(0);
            let ask = |order: &Order| {
                asked.set(asked.get() + u32::from(order.kind == Kind::UdpPingPong));
                if order.kind == Kind::UdpPingPong && asked.get() > answered {
                    return Ok(Err("no loopback".into()));
                }
                order.answer()
            };
            let measured = measure_with(&host, &plan(&host), &ask, &mut |_| Ok(())).unwrap();
            let kinds: Vec<_> = measured.kinds.iter().map(|of| of.kind).collect();
            let plan = plan(&host);
            assert_eq!(kinds, plan.kinds().filter(|kind| *kind != Kind::UdpPingPong).collect::<Vec<_>>());
            let missing = NotAvailable { kind: Kind::UdpPingPong, why: "no loopback".into() };
            assert_eq!((measured.not_available, asked.get()), (vec![missing], answered + 1));
            assert_eq!(measured.cpus.len(), host.allowed.len());
        }
    }

    #[test]
    fn a_server_that_dies_ends_it_and_is_told() {
        let host = Host::detect(&Roots::system()).unwrap();
        let asked = Cell::new(0);
        let ask = |order: &Order| {
            asked.set(asked.get() + u32::from(order.kind.is_through_server()));
            if asked.get() > 6 { Ok(Err("the server is gone".into())) } else { order.answer() }
        };
        let error = measure_with(&host, &plan(&host), &ask, &mut |_| Ok(())).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::Unavailable, "the server is gone")
        );
    }

    #[test]
    fn noise_is_of_the_time_of_an_operation() {
        let run = |wall_ns| Run { wall_ns, preempted: 1 };
        let blocks = vec![vec![run(10), run(20)], vec![run(30), run(40), run(50)]];
        let of = OfKind::new(Kind::NoOp, 10, blocks).unwrap();
        assert!((of.noise.range - 4.0 / 3.0).abs() < 1e-12 && (of.median_ns - 3.0).abs() < 1e-12);
        assert_eq!(of.preempted, 5);
    }
}

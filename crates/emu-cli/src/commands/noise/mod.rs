//! `emu noise`: how far runs lie apart, and what disturbs them.

mod show;

use std::time::Duration;

use clap::{Args, ValueEnum};
use emu_core::as_ns::nanos;
use emu_machine::Watch;
use emu_machine::noise::{self, NoisePlan, Server, Setting};

use crate::exit::{Exit, Failure};
use crate::measuring::{MeasureArgs, Task, measured};
use crate::options::option;
use crate::values::exact;
use crate::{host, values};

const EXAMPLES: &str = "\
Examples:
  emu noise --quick
  emu noise --node 0 --out as-found
  emu noise --server loopback
  emu doctor tune -- emu noise --out tuned";

/// Measure how far runs of the same work lie apart here, and what disturbs them
///
/// Five runs of each kind of work in each of five fresh processes, and a look at every CPU for moments at which nothing
/// of ours ran. Nothing else should run meanwhile, unless its noise is what is asked for.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct NoiseArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    /// Shortest pause that counts as a gap [default: ten steps of the loop that looks, at least 1us]
    #[arg(long, value_name = "DURATION", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) threshold: Option<Duration>,

    /// Also do the same work through a TCP server that sends back what it gets: emu's own over loopback, or another one
    #[arg(long, value_name = "loopback|HOST:PORT")]
    pub(crate) server: Option<String>,

    /// Run on the CPUs of this NUMA node alone
    #[arg(long, value_name = "N", value_parser = values::whole("number of a NUMA node", 0..=1023_usize, "--node 0"), allow_hyphen_values = true)]
    pub(crate) node: Option<usize>,

    /// Turn the other threads of each core off meanwhile; what is bound to one of them may lose that binding
    #[arg(long, value_enum, value_name = "STATE")]
    pub(crate) smt: Option<Smt>,
}

/// What becomes of simultaneous multithreading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Smt {
    /// One thread a core, by the kernel's switch, which is put back
    Off,
}

pub(crate) fn noise(args: &NoiseArgs) -> Result<Exit, Failure> {
    let mut host = host::detect()?;
    let seed = args.measure.seed();
    let setting = Setting { node: args.node, smt_off: args.smt == Some(Smt::Off) };
    host.allowed = setting.cpus(&host)?;
    let plan = NoisePlan {
        server: args.server.as_deref().map(Server::find).transpose()?,
        threshold_ns: args.threshold.map(nanos),
        ..NoisePlan::new(&host, args.measure.quick, seed)
    };
    let options = option("threshold", args.threshold.map(exact))
        + &option("server", args.server.as_deref())
        + &option("node", args.node)
        + &option("smt", args.smt.map(|Smt::Off| "off"));
    let task = Task { name: "noise", options, seed, plan: &plan };
    let run = |watch: Watch<'_>| {
        let changed = setting.hold(&host)?;
        let measured = noise::measure(&host, &plan, watch);
        changed.map_or(Ok(()), |journal| journal.undo_all()).and(measured)
    };
    measured(&host, &args.measure, &task, run, show::shown)?;
    Ok(Exit::Success)
}

//! `emu measure hpcc`: the kernels of the HPC Challenge.

use emu_bench::measure::hpcc::{self, Plan};
use emu_core::{Host, Roots};

use crate::args::HpccArgs;
use crate::exit::{Exit, Failure};
use crate::measuring::{Measuring, Task};
use crate::output;

/// Runs all kernels, and shows what they reach.
pub(crate) fn hpcc(args: &HpccArgs) -> Result<Exit, Failure> {
    let host = Host::detect(&Roots::system())?;
    let seed = args.measure.seed();
    let threads: Vec<usize> = args.threads.iter().copied().map(usize::from).collect();
    let plan = Plan::new(&host, args.measure.quick, seed, &threads)?;
    let numbers: Vec<_> = threads.iter().map(usize::to_string).collect();
    let options =
        if numbers.is_empty() { String::new() } else { format!(" --threads {}", numbers.join(",")) };
    let task = Task { name: "measure hpcc", options, seed, plan: &plan };
    let mut measuring = Measuring::begin(&host, &args.measure, &task)?;
    let measured = hpcc::measure(&plan, &host, &mut |event| measuring.watch(event));
    let measured = measuring.finish(measured, |measured| Ok(output::measure::hpcc::shown(measured)))?;
    Ok(if measured.passed() { Exit::Success } else { Exit::NotVerified })
}

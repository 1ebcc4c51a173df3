//! `emu measure hpcc`: the kernels of the HPC Challenge.

mod args;
mod show;

pub(crate) use args::HpccArgs;

use emu_machine::hpcc::{self, HpccPlan};

use crate::exit::{Exit, Failure};
use crate::host;
use crate::measuring::{Measuring, Task};
use crate::options::option;

/// Runs all kernels, and shows what they reach.
pub(crate) fn hpcc(args: &HpccArgs) -> Result<Exit, Failure> {
    let host = host::detect()?;
    let seed = args.measure.seed();
    let plan = HpccPlan::new(&host, args.measure.quick, seed, &args.threads)?;
    let options = option("threads", &args.threads);
    let task = Task { name: "measure hpcc", options, seed, plan: &plan };
    let mut measuring = Measuring::begin(&host, &args.measure, &task)?;
    let measured = hpcc::measure(&plan, &host, &mut |event| measuring.watch(event));
    let measured = measuring.finish(measured, |measured| Ok(show::shown(measured)))?;
    Ok(if measured.passed() { Exit::Success } else { Exit::NotVerified })
}

//! `emu measure hpcc`: the kernels of the HPC Challenge.

mod show;

use std::path::PathBuf;

use clap::Args;
use emu_machine::Watch;
use emu_machine::hpcc::{self, HpccPlan, Kernel, Measured, ORDERS, Share, without_counterpart};
use emu_machine::kernel::random_access::THREADS_MAX;
use emu_machine::tools::{Domain, What};
use serde::Serialize;

use crate::commands::measure::beside::{CompareArgs, Compared};
use crate::exit::{Exit, Failure};
use crate::measuring::{Document, MeasureArgs, Task, measured};
use crate::options::option;
use crate::{host, values};

/// Measure this machine by the kernels of the HPC Challenge
///
/// LINPACK, DGEMM, STREAM, random access, FFT and PTRANS, with HPCC's counts of work; every result is verified by its
/// rule. emu ends with code 5 when a result is wrong.
#[derive(Debug, Args)]
pub(crate) struct HpccArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    /// Numbers of threads [default: 1, and as many as there are CPUs, up to 128]
    #[arg(short, long, value_name = "N", value_delimiter = ',', value_parser = values::whole("number of threads", 1..=THREADS_MAX, "--threads 1,2"), allow_hyphen_values = true)]
    pub(crate) threads: Vec<usize>,

    /// A series of problems by LINPACK's equations; the other kernels take about as much memory [default: one usual size
    /// of each]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = values::whole("number of equations", ORDERS, "--sizes 1000,2000,5000"), allow_hyphen_values = true)]
    pub(crate) sizes: Vec<usize>,

    /// Tell the percentage of another machine's rates: its record of emu measure hpcc, of the same sizes and threads
    #[arg(long, value_name = "DIR")]
    pub(crate) reference: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) compare: CompareArgs,
}

const NAME: &str = "measure hpcc";

/// What was measured, and what that is of a reference.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Outcome {
    #[serde(flatten)]
    measured: Measured,
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<Reference>,
}

/// A reference and the shares of its rates.
#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Reference {
    /// The processor of the reference.
    model: String,
    shares: Vec<Share>,
    /// What was measured here and not there.
    without_counterpart: Vec<String>,
    /// What was disturbed there, in sentences.
    disturbed: Vec<String>,
}

impl Reference {
    fn of(here: &Measured, there: &Document<Measured>) -> Self {
        let result = &there.result;
        Self {
            model: there.about.machine.model.clone(),
            shares: Share::all(here, result),
            without_counterpart: without_counterpart(here, result),
            disturbed: result.disturbances().map(str::to_owned).collect(),
        }
    }
}

pub(crate) fn hpcc(args: &HpccArgs) -> Result<Exit, Failure> {
    let reference = args.reference.as_ref().map(|path| Document::<Measured>::read(path, NAME)).transpose()?;
    let others = args.compare.read(Domain::Memory)?;
    let host = host::detect()?;
    let seed = args.measure.seed();
    let mut plan = HpccPlan::new(&host, args.measure.quick, seed, &args.threads)?;
    if !args.sizes.is_empty() {
        plan = plan.of_series(&host, &args.sizes)?;
    }
    // Before anything is measured: what cannot be compared with is told at once.
    if let Some(reference) = &reference {
        plan.check_reference(&reference.result)?;
    }
    let options = option("threads", &args.threads) + &option("sizes", &args.sizes);
    let task = Task { name: NAME, options, seed, plan: &plan };
    let compared = |measured: Measured| {
        let reference = reference.map(|there| Reference::of(&measured, &there));
        Compared::of(Outcome { measured, reference }, &others, here)
    };
    let run = |watch: Watch<'_>| hpcc::measure(&plan, &host, watch).map(compared);
    let measured = measured(&host, &args.measure, &task, run, |compared| {
        let Outcome { measured, reference } = &compared.result;
        show::shown(measured, reference.as_ref()).followed_by(&compared.text())
    })?;
    Ok(if measured.result.measured.passed() { Exit::Success } else { Exit::NotVerified })
}

/// Bytes each second of the same kernel of STREAM; of a series that of the largest problem. `None` where caches may help
/// one of both and not the other.
fn here(result: &Outcome, what: &What) -> Option<f64> {
    let What::Stream(kernel, threads, bytes) = what else { return None };
    let rows = result.measured.rows.iter();
    let same = rows.filter(|row| (row.kernel, row.threads) == (Kernel::Stream(*kernel), *threads));
    let row = same.max_by_key(|row| row.size)?;
    let own = (row.size * size_of::<f64>()) as u64;
    let is_alike = |theirs: u64| theirs == own || (result.measured.stream_obeys_rule && theirs > own);
    bytes.is_none_or(is_alike).then_some(row.best)
}

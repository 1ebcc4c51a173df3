use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use emu_bench::record::seed_from_clock;
use emu_core::Result;
use emu_machine::series::SeriesPlan;

use crate::values;

/// What all measurements of the machine have in common.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Take few and short samples: for a first look
    #[arg(long)]
    pub(crate) quick: bool,

    /// Write JSON to stdout instead of tables, with every sample
    #[arg(long)]
    pub(crate) json: bool,

    /// A new folder for the record: samples, JSON, CSV and figures [default: none is kept]
    #[arg(short, long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Seed of the random numbers [default: from the clock]
    #[arg(long, value_name = "N", value_parser = values::seed, allow_hyphen_values = true)]
    pub(crate) seed: Option<u64>,
}

impl MeasureArgs {
    /// The start of the random numbers that is given, else from the clock: to be asked for once.
    pub(crate) fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(seed_from_clock)
    }
}

/// A long series of one kind of work, instead of all of them.
#[derive(Debug, Args)]
pub(crate) struct SeriesArgs {
    /// Do one kind of work for this time instead, and find the moments at which less is done
    #[arg(long = "for", value_name = "DURATION", value_parser = values::duration, conflicts_with_all = ["quick", "compare"], allow_hyphen_values = true)]
    pub(crate) length: Option<Duration>,

    /// How long a sample is, from 10ms to 10s, with --for
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = "1s", requires = "length", allow_hyphen_values = true)]
    pub(crate) every: Duration,
}

impl SeriesArgs {
    pub(crate) fn plan(&self) -> Result<Option<SeriesPlan>> {
        self.length.map(|length| SeriesPlan::new(length, self.every)).transpose()
    }
}

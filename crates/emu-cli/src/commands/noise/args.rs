use std::time::Duration;

use clap::Args;

use crate::measuring::MeasureArgs;
use crate::values;

/// Measure how far runs of the same work lie apart here, and what disturbs them
///
/// Five runs of each kind of work in each of five fresh processes, and a look at every CPU for moments at which nothing
/// of ours ran. Nothing else should run meanwhile, unless its noise is what is asked for.
#[derive(Debug, Args)]
pub(crate) struct NoiseArgs {
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    /// Shortest pause that counts as a gap [default: ten steps of the loop that looks, at least 1us]
    #[arg(long, value_name = "DURATION", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) threshold: Option<Duration>,
}

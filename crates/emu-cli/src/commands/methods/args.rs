use clap::Args;
use emu_core::{MethodId, SpeedSpec};

use crate::values;
use crate::zone::DemandArgs;

const EXAMPLES: &str = "\
Examples:
  emu methods
  emu methods --speed 25% --cpus 0-3
  emu methods --method cpu-freq";

/// Show which methods work here, how well, and why others do not
///
/// Each is judged as if it were asked for by `emu run` with the same options. Nothing is changed, but what killed emus
/// have left is undone first.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MethodsArgs {
    /// The speed to judge by
    #[arg(short, long, default_value = "50%", allow_hyphen_values = true)]
    pub(crate) speed: SpeedSpec,

    /// Show one method in full
    #[arg(short, long, value_parser = values::method())]
    pub(crate) method: Option<MethodId>,

    #[command(flatten)]
    pub(crate) demand: DemandArgs,

    /// Write JSON to stdout instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

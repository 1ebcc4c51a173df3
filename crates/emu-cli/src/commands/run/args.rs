use std::ffi::OsString;

use clap::Args;

use crate::zone::{TellArgs, ZoneArgs};

const EXAMPLES: &str = "\
Examples:
  emu run --speed 40% -- make -j4
  emu run --speed 1.2GHz --cpus 0-1 --verify -- ./server
  emu run --speed 0=40%,1=80% --json result.json -- ./simulation";

/// Run a command as on a slower CPU
///
/// The command starts inside its zone and keeps its terminal, its input and output, job control and signals;
/// emu ends with its exit code, or by its signal. emu writes to stderr only. Children are slowed too; those that
/// outlive the command run on at full speed.
#[derive(Debug, Args)]
#[command(override_usage = "emu run <--speed SPEED|--trace FILE|--like FILE> [OPTIONS] COMMAND...")]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::TABLE))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) zone: ZoneArgs,

    #[command(flatten)]
    pub(crate) report: TellArgs,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

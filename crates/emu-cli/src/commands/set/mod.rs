//! `emu set`: another speed for an emulation at work.

use clap::Args;
use emu_core::{Pid, Roots, SpeedSpec};

use crate::control;
use crate::exit::{Exit, Failure};
use crate::reporter::Reporter;
use crate::values;

const EXAMPLES: &str = "\
Examples:
  emu set 4711 --speed 25%            # 4711: the emu, its command, or a child of that
  emu set 4711 --speed 1=1.2GHz       # CPU 1 alone";

/// Change the speed of what is slowed already
///
/// The emu of `run` or `attach` takes it over within two periods, without an instant at full speed.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::TABLE))]
pub(crate) struct SetArgs {
    /// A process that is slowed, or the emu that slows it
    #[arg(value_name = "PID", value_parser = values::pid, allow_hyphen_values = true)]
    pub(crate) pid: Pid,

    /// New speed of all CPUs of the zone: 40%, 0.4, 1.2GHz, or of some: 0-1=1.2GHz
    #[arg(short, long, allow_hyphen_values = true)]
    pub(crate) speed: SpeedSpec,

    /// Say nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

pub(crate) fn set(args: &SetArgs) -> Result<Exit, Failure> {
    let session = control::set_speed(&Roots::system(), args.pid, &args.speed)?;
    Reporter::new(args.quiet).tell(&format!(
        "{}, {}, is set to {}",
        session.name,
        session.what(),
        args.speed
    ));
    Ok(Exit::Success)
}

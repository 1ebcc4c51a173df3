use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use emu_core::Pid;

use crate::values;
use crate::zone::{TellArgs, ZoneArgs};

const EXAMPLES: &str = "\
Examples:
  emu attach --pid 1234,1240 --speed 40%
  emu attach --cgroup /user.slice/x.scope --speed 1.2GHz --for 10m";

/// Slow down what runs already, until Ctrl-C or its end
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::TABLE))]
#[command(group = ArgGroup::new("target").required(true).args(["pid", "cgroup"]))]
pub(crate) struct AttachArgs {
    /// Processes, with their threads and children
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = values::pid, allow_hyphen_values = true)]
    pub(crate) pid: Vec<Pid>,

    /// Everything in a cgroup: /user.slice/x.scope, or its folder
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,

    /// End after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) limit: Option<Duration>,

    #[command(flatten)]
    pub(crate) zone: ZoneArgs,

    #[command(flatten)]
    pub(crate) report: TellArgs,
}

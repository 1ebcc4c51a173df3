use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use emu_core::Pid;

use crate::values;
use crate::zone::{TellArgs, ZoneArgs};

const EXAMPLES: &str = "\
Examples:
  emu attach --pid 1234,1240 --speed 40%
  emu attach --name redis-server --speed 25%
  emu attach --unit postgresql --speed 50%
  emu attach --container web --trace laptop.csv
  emu attach --cgroup /user.slice/x.scope --speed 1.2GHz --for 10m";

/// What is slowed.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct TargetArgs {
    /// Processes, with their threads and children
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = values::pid, allow_hyphen_values = true)]
    pub(crate) pid: Vec<Pid>,

    /// Everything in a cgroup: /user.slice/x.scope, or its folder
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,

    /// A unit of systemd: redis.service, or redis; also after it was restarted
    #[arg(long, value_name = "UNIT")]
    pub(crate) unit: Option<String>,

    /// A container of Docker, Podman, containerd, CRI-O or LXC, by name or ID; also after it was restarted
    #[arg(long, value_name = "CONTAINER")]
    pub(crate) container: Option<String>,

    /// All processes of this name, with their threads and children
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// Slow down what runs already, until Ctrl-C or its end
#[derive(Debug, Args)]
#[command(override_usage = "emu attach <--pid PID|--name NAME|--unit UNIT|…> --speed SPEED [OPTIONS]")]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::TABLE))]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,

    /// End after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = values::duration, allow_hyphen_values = true)]
    pub(crate) limit: Option<Duration>,

    #[command(flatten)]
    pub(crate) zone: ZoneArgs,

    #[command(flatten)]
    pub(crate) report: TellArgs,
}

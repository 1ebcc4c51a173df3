use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use emu_core::SpeedSpec;

use crate::values;
use crate::zone::ZoneArgs;

const EXAMPLES: &str = "\
Examples:
  emu node create small --cpus 0 --speed 25%
  emu node create big --speed 1=80% --memory 2G
  emu node exec small -- ./server --port 7001 &
  emu node exec big -- bash
  emu node set small --speed 50%
  emu node list
  emu node remove small --kill
  emu node dump > nodes.toml
  emu node apply nodes.toml";

/// Virtual nodes: CPUs with speeds of their own, and whatever is started there
#[derive(Debug, Subcommand)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::TABLE))]
pub(crate) enum NodeCommand {
    Create(CreateArgs),
    Exec(ExecArgs),
    Set(SetArgs),
    List(ListArgs),
    Remove(RemoveArgs),
    Apply(ApplyArgs),
    /// Write the nodes that there are as a file for `emu node apply`
    Dump,
    #[command(hide = true)]
    Keep(CreateArgs),
}

/// Make a node, which lasts until it is removed or the machine is restarted
///
/// Nodes never share a CPU. An emu of its own keeps each of them; where that is killed, its guardian undoes the node.
#[derive(Debug, Args)]
#[command(override_usage = "emu node create NAME <--speed SPEED|--trace FILE|--like FILE> [OPTIONS]")]
pub(crate) struct CreateArgs {
    /// Name of the node: letters, digits, `-`, `_` and `.`
    #[arg(value_parser = values::node_name)]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) zone: ZoneArgs,

    /// How much memory the node's processes may use together: 512M, 2G
    #[arg(long, value_name = "SIZE", value_parser = values::size, allow_hyphen_values = true)]
    pub(crate) memory: Option<u64>,

    /// Keep all other tasks off the node's CPUs until its end, as far as their affinity can be changed; says what stays;
    /// one node at a time
    #[arg(long)]
    pub(crate) exclusive: bool,

    /// Write what was asked and delivered to this file when the node ends, with each step of a trace
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Say nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Run a command on a node, in this terminal
///
/// The command is on the node before its first instruction, and its children with it. It takes the place of emu, but on a node
/// of `cpu-lim`: there emu stays its parent, and Ctrl-Z does not hold, as the node continues what is stopped.
#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// The node
    #[arg(value_parser = values::node_name)]
    pub(crate) name: String,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Change the speed of a node, or its memory
#[derive(Debug, Args)]
#[command(override_usage = "emu node set NAME <--speed SPEED|--memory SIZE> [OPTIONS]")]
pub(crate) struct SetArgs {
    /// The node
    #[arg(value_parser = values::node_name)]
    pub(crate) name: String,

    /// New speed of all its CPUs: 40%, 0.4, 1.2GHz, or of some: 0-1=1.2GHz
    #[arg(short, long, allow_hyphen_values = true, required_unless_present = "memory")]
    pub(crate) speed: Option<SpeedSpec>,

    /// New limit of its memory; nothing is killed for it
    #[arg(long, value_name = "SIZE", value_parser = values::size, allow_hyphen_values = true)]
    pub(crate) memory: Option<u64>,

    /// Say nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Show the nodes: asked, set and delivered, and how many processes are there
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Show them live, until Ctrl-C
    #[arg(long, conflicts_with = "json")]
    pub(crate) watch: bool,

    /// Write JSON to stdout instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// End a node; everything is as before
#[derive(Debug, Args)]
#[command(override_usage = "emu node remove <NAME|--all> [OPTIONS]")]
pub(crate) struct RemoveArgs {
    /// The node
    #[arg(value_parser = values::node_name, required_unless_present = "all")]
    pub(crate) name: Option<String>,

    /// All nodes of yours, and forget those whose emu has died
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,

    /// Kill what runs there; without this or --free a node with processes stays
    #[arg(long)]
    pub(crate) kill: bool,

    /// Let what runs there run on freely; what has joined the node is back where it was
    #[arg(long, conflicts_with = "kill")]
    pub(crate) free: bool,
}

const FILE: &str = "\
A file:
  [node.small]
  cpus = \"0\"
  speed = \"25%\"
  memory = \"2G\"

  [node.big]
  speed = \"1=1.2GHz\"
  method = \"cpu-freeze\"
  period = \"50ms\"
  exclusive = true

  # What runs already joins, and a command is started. Also `pids`,
  # `names`, `containers` and `cgroups`, as of `emu attach`.
  [node.db]
  cpus = \"2\"
  speed = \"40%\"
  units = [\"postgresql\"]
  run = [\"./exporter\", \"--port\", \"9187\"]

  # Four nodes w1 to w4, each on a core that emu finds; `cores = 2` would
  # give each two.
  [class.slow]
  speed = \"30%\"

  [node.w]
  class = \"slow\"
  count = 4

  # As many CPUs as that machine has, each as fast as there.
  [node.pi]
  like = \"pi4.json\"";

/// Make the nodes those of a file
///
/// Nodes that are not in the file are removed, unless something runs there. Those with another speed are set to it. Where
/// something cannot be done, all is as before. A second time it changes nothing. What is to join and is gone is told.
#[derive(Debug, Args)]
#[command(after_help = format!("{FILE}\n\n{}", crate::exit::TABLE))]
pub(crate) struct ApplyArgs {
    /// The file, in TOML; `-` for stdin
    pub(crate) file: PathBuf,

    /// Show what would be changed, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Write what is changed as JSON to stdout
    #[arg(long)]
    pub(crate) json: bool,

    /// Say nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

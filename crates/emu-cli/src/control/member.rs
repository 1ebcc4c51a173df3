//! What a file of nodes has on a node, beside what is run there by hand.

use std::fmt;
use std::path::PathBuf;

use emu_core::{Error, Pid, Result};
use serde::{Deserialize, Serialize};

/// What is to be on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Member {
    /// A command that is started there: the program and its arguments.
    Run(Vec<String>),
    /// A process, with its children.
    Pid(Pid),
    /// All processes of a name, with their children.
    Name(String),
    /// The processes of a unit of systemd.
    Unit(String),
    /// The processes of a container.
    Container(String),
    /// The processes of a cgroup.
    Cgroup(PathBuf),
}

impl Member {
    /// Whether it may have other processes later, which can be told from what else runs.
    pub(crate) fn comes_again(&self) -> bool {
        matches!(self, Self::Unit(_) | Self::Container(_) | Self::Cgroup(_))
    }

    /// Refuses what can never be there: the node would wait for it.
    pub(crate) fn check(&self) -> Result<()> {
        let can_be = match self {
            Self::Run(_) => true,
            Self::Pid(pid) => *pid > 0,
            Self::Name(name) => !name.is_empty(),
            Self::Unit(name) | Self::Container(name) => !name.is_empty() && !name.contains('/'),
            Self::Cgroup(path) => path.is_absolute() && !path.iter().any(|part| part == ".."),
        };
        let refused = || Error::usage(format!("there can be no {self}"));
        if can_be {
            Ok(())
        } else {
            Err(refused().hint("give a number or name, or the path of a cgroup from /"))
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(command) => write!(f, "`{}`", command.join(" ")),
            Self::Pid(pid) => write!(f, "process {pid}"),
            Self::Name(name) => write!(f, "`{name}`"),
            Self::Unit(unit) => write!(f, "unit {unit}"),
            Self::Container(container) => write!(f, "container {container}"),
            Self::Cgroup(path) => write!(f, "cgroup {}", path.display()),
        }
    }
}

/// A process that has joined as part of a member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct Joined {
    pub(crate) pid: Pid,
    pub(crate) of: Member,
}

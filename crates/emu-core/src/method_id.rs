//! The names of the methods.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The name of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MethodId {
    /// Nearest hardware frequency.
    CpuFreq,
    /// Two neighbouring hardware frequencies in turn.
    CpuGov,
    /// Real-time burners.
    CpuHogs,
    /// Bandwidth of a cgroup.
    Fracas,
    /// Stop and continue signals.
    CpuLim,
    /// Cgroup freezer.
    CpuFreeze,
}

impl MethodId {
    /// Every method, in the order in which they are listed.
    pub const ALL: [Self; 6] =
        [Self::CpuFreq, Self::CpuGov, Self::CpuHogs, Self::Fracas, Self::CpuLim, Self::CpuFreeze];

    /// The name as on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CpuFreq => "cpu-freq",
            Self::CpuGov => "cpu-gov",
            Self::CpuHogs => "cpu-hogs",
            Self::Fracas => "fracas",
            Self::CpuLim => "cpu-lim",
            Self::CpuFreeze => "cpu-freeze",
        }
    }
}

impl fmt::Display for MethodId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for MethodId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|id| id.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str);
            Error::usage(format!("there is no method `{text}`"))
                .hint(format!("one of {}, auto", names.join(", ")))
        })
    }
}

//! Why a method cannot do what is asked of it.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::hint::Hint;
use crate::method_id::MethodId;

/// Why a method cannot do what is asked, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// The kernel offers no control of the CPU frequency.
    NoCpufreq,
    /// A cgroup controller is missing or cannot be used by the caller.
    NoController,
    /// The caller lacks a capability or a file permission.
    NoPrivilege,
    /// The kernel's limit for real-time tasks is in the way.
    RealTimeLimit,
    /// The limit on the CPU time of a process would end what emu keeps CPUs busy with.
    CpuTimeLimit,
    /// The speed is out of the method's reach.
    SpeedOutOfReach,
    /// The period is out of the method's reach.
    PeriodOutOfReach,
    /// It cannot give different speeds to different CPUs.
    UnequalSpeeds,
    /// It slows all tasks of a CPU, and was to exclude the background load.
    SlowsOthers,
    /// A tuning of the machine holds what it would change.
    Tuned,
    /// A system call is refused, as by a sandbox.
    CallRefused,
}

/// A method's refusal: what is missing, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[error("{detail}")]
pub struct Unavailable {
    /// The reason by name.
    pub reason: Reason,
    /// The reason in words, with the object and value concerned.
    pub detail: String,
    /// What to do about it.
    pub hint: Hint,
}

impl Unavailable {
    /// A refusal.
    pub fn new(reason: Reason, detail: impl Into<String>, hint: impl Into<Hint>) -> Self {
        Self { reason, detail: detail.into(), hint: hint.into() }
    }

    /// As an error of the method.
    pub fn into_error(self, method: MethodId) -> Error {
        let kind = match self.reason {
            Reason::NoPrivilege => ErrorKind::NotPermitted,
            Reason::PeriodOutOfReach => ErrorKind::Usage,
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, format!("{method} cannot do this here: {}", self.detail)).hint(self.hint)
    }
}

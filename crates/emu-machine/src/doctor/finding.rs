//! What was found of a knob, and what would change it.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use emu_core::control_file;

/// How good it is for repeatable runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As good as it gets here.
    Ready,
    /// A tuning would make it better.
    Tune,
    /// It disturbs, and can be put right by hand only.
    Hand,
    /// It could be better at a price: a reboot, or half of the CPUs; or for a command alone that a tuning starts. Runs
    /// can be repeatable without.
    Advice,
    /// Good to know; neither good nor bad.
    Fact,
    /// It cannot be seen here.
    Unseen,
}

impl State {
    /// Whether the machine is not ready for this.
    pub fn is_disturbing(self) -> bool {
        matches!(self, Self::Tune | Self::Hand)
    }
}

/// One change that a tuning makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Change {
    /// A value for a control file.
    File {
        /// The file.
        path: PathBuf,
        /// The value.
        value: String,
    },
    /// A word for a control file that reads as all its choices with the one in force in brackets.
    Choice {
        /// The file.
        path: PathBuf,
        /// The word.
        value: String,
    },
    /// A governor for a cpufreq policy, whose tunables are kept.
    Governor {
        /// The policy's folder.
        policy: PathBuf,
        /// The governor.
        value: String,
    },
    /// A limit for the time that an idle CPU may take to wake up, held as long as the device is open
    /// (`Documentation/power/pm_qos_interface.rst`).
    Latency {
        /// The device.
        path: PathBuf,
        /// The limit in microseconds.
        value: i32,
    },
    /// The timer slack of this thread, which commands inherit (`prctl(2)`, `PR_SET_TIMERSLACK`).
    TimerSlack {
        /// In nanoseconds.
        value: u64,
    },
}

impl Change {
    /// The file that is written; none for a system call.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Self::File { path, .. } | Self::Choice { path, .. } | Self::Latency { path, .. } => {
                Some(path.clone())
            }
            Self::Governor { policy, .. } => Some(policy.join("scaling_governor")),
            Self::TimerSlack { .. } => None,
        }
    }

    pub(super) fn obstacle(&self) -> Option<String> {
        let path = self.path()?;
        (!control_file::is_writable(&path))
            .then(|| format!("{} cannot be written by this process", path.display()))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path().unwrap_or_default();
        let path = path.display();
        match self {
            Self::File { value, .. } | Self::Choice { value, .. } | Self::Governor { value, .. } => {
                write!(f, "`{value}` to {path}")
            }
            Self::Latency { value, .. } => write!(f, "{value} µs to {path}, held open"),
            Self::TimerSlack { value } => write!(f, "timer slack of the command {value} ns"),
        }
    }
}

/// What was found of a knob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// How good it is.
    pub state: State,
    /// What was found, or why nothing can be seen.
    pub found: String,
    /// What to do about it by hand, or why it is left alone.
    pub hint: Option<String>,
    /// What a tuning would do.
    pub changes: Vec<Change>,
    /// Whether each change stands for itself, so that those that the kernel refuses are left out.
    pub separable: bool,
}

impl Finding {
    pub(super) fn is_tunable_or_ready(&self) -> bool {
        self.state == State::Ready || !self.changes.is_empty()
    }

    fn new(state: State, found: impl Into<String>) -> Self {
        Self { state, found: found.into(), hint: None, changes: Vec::new(), separable: false }
    }

    pub(super) fn ready(found: impl Into<String>) -> Self {
        Self::new(State::Ready, found)
    }

    pub(super) fn fact(found: impl Into<String>) -> Self {
        Self::new(State::Fact, found)
    }

    pub(super) fn unseen(why: impl Into<String>) -> Self {
        Self::new(State::Unseen, why)
    }

    /// These changes would make it better; none says that it is ready.
    pub(super) fn tune(found: impl Into<String>, changes: Vec<Change>) -> Self {
        let state = if changes.is_empty() { State::Ready } else { State::Tune };
        Self { changes, ..Self::new(state, found) }
    }

    pub(super) fn for_command(found: impl Into<String>, changes: Vec<Change>) -> Self {
        Self { changes, ..Self::new(State::Advice, found) }
    }

    pub(super) fn hand(found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(State::Hand, found).hint(hint)
    }

    pub(super) fn advice(found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(State::Advice, found).hint(hint)
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn separable(mut self) -> Self {
        self.separable = true;
        self
    }
}

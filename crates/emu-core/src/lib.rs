//! Runs tasks as on a slower CPU, per core and crash-safe, and measures the core clock without counters.
//!
//! The words used everywhere: a *host* is this machine as found; a *speed* is what is wanted of a CPU; a *zone* is CPUs with a
//! speed for each and the tasks meant; a *method* is one way of emulating a slower CPU; an *emulation* is a method at work on a
//! zone, and a *session* holds it with the journal that undoes every change.
//!
//! ```no_run
//! use emu_core::{Demand, Host, Roots, Session, Tasks, choose};
//!
//! # fn main() -> emu_core::Result<()> {
//! let host = Host::detect(&Roots::system())?;
//! let demand = Demand::measured(&host, &"40%".parse()?, None)?;
//! let session = Session::engage(&choose(&host, &demand)?, "example", Tasks::Processes(vec![1234]))?;
//! emu_core::sleep(std::time::Duration::from_secs(10));
//! let (status, released) = session.release();
//! println!("{status:?}");
//! # released
//! # }
//! ```
//!
//! Nothing here prints, and nothing is kept beside the values that are returned: what was changed is undone when a
//! [`Session`] or a [`Node`] is released or dropped, and by its guardian where the process is killed. So a node lasts
//! no longer than the process that has made it. Whoever wants nodes that outlast a command, as a file of them
//! describes, keeps a process for each, finds those that are there by [`live_sessions`], and CPUs for new ones by
//! [`place`].

#[cfg(not(feature = "ablation"))]
mod ablation;
#[cfg(feature = "ablation")]
pub mod ablation;
mod cgroup;
mod command;
mod cpu_list;
mod cpufreq;
mod delivery;
mod duty;
mod error;
mod exclusion;
mod hint;
mod host;
mod method;
mod method_id;
mod nearest;
mod node;
mod notes;
mod placement;
mod prepared;
mod process;
mod roots;
mod session;
mod speed;
mod status;
mod sys;
#[cfg(test)]
mod testing;
mod trace;
mod unavailable;
mod undo;
mod zone;

pub mod as_ns;
pub mod clock;
pub mod control_file;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod input_file;
pub mod named;

pub use as_ns::AsNs;
pub use cgroup::{Memory, QuotaLimit, throttled_time};
pub use command::{Ended, SlowChild, SlowCommand, Stdio};
pub use cpu_list::{CPU_ID_MAX, CpuId, CpuList};
pub use cpufreq::select_governor;
pub use delivery::{CpuStretch, Stretch};
pub use duty::{PERIOD_MAX, PERIOD_MIN};
pub use error::{Error, ErrorKind, Result};
pub use exclusion::Exclusive;
pub use hint::{Hint, Setting};
pub use host::{
    CgroupLayout, Cgroups, Clocks, Controller, Cpu, CpuTimes, Cpufreq, FairServer, Hierarchy, Host, Policy,
    Privileges, RealTime, TaskTime,
};
pub use method::{About, Emulation, Expected, METHODS, Method, Plan, Trait, find, ids, method};
pub use method_id::MethodId;
pub use nearest::nearest;
pub use node::{Node, NodeOptions};
pub use placement::{Apart, Placed, place};
pub use prepared::{Judged, Prepared, best, choose, judge, ranked};
pub use process::{adopt_orphans, line_of};
pub use roots::Roots;
pub use session::Session;
pub use speed::{Hertz, Speed, SpeedSpec, Speeds, Target, Targets, lowest_share};
pub use status::{Basis, CpuStatus, Delivered, Health, Status};
pub use sys::Pid;
pub use sys::spawn::{ExecError, Gated, SignalMask, heed_children};
pub use sys::time::{sleep, tick};
pub use sys::times::{cpu_ticks, process_cpu_time};
pub use sys::tsc::tsc;
pub use trace::{AtEnd, Player, STEP_MIN, Trace};
pub use unavailable::{Reason, Unavailable};
pub use undo::{Journal, LiveSession, OnlyOne, RestoreReport, TaskSet, Undo, live_sessions, restore};
pub use zone::{Demand, Round, Tasks, Zone};

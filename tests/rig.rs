//! The methods on real kernels: cpufreq with a P-state register for each CPU, every layout of cgroups, and time without
//! noise. `tests/rig` boots them; its README tells how to run one of these tests.
//!
//! Each test boots a guest or a few, runs jobs of `tests/rig/jobs` in them, and judges the figures that they write by
//! the kernel's own account.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

#[path = "rig/cgroups.rs"]
mod cgroups;
mod common;
#[path = "rig/doctor.rs"]
mod doctor;
#[path = "rig/duty.rs"]
mod duty;
#[path = "rig/endings.rs"]
mod endings;
#[path = "rig/frequency.rs"]
mod frequency;
#[path = "rig/guest.rs"]
mod guest;
#[path = "rig/hotplug.rs"]
mod hotplug;
#[path = "rig/together.rs"]
mod together;

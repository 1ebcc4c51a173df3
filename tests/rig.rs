//! The methods on real kernels: cpufreq with a P-state register for each CPU, every layout of cgroups, and time without
//! noise. `tests/rig` boots them; its README tells how to run one of these tests.
//!
//! Each test boots a guest or a few, runs jobs of `tests/rig/jobs` in them, and judges the figures that they write by
//! the kernel's own account.

mod cgroups;
mod doctor;
mod duty;
mod endings;
mod frequency;
mod guest;
mod hotplug;
mod many;
mod together;
mod units;

pub(crate) use guest::fetch;

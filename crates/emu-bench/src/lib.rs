//! Measures how faithful CPU emulation is: workloads, paired sampling, statistics.

pub mod stats;

//! Computations that are measured, without the measuring: what workloads and measurements of the machine share.

pub mod stream;

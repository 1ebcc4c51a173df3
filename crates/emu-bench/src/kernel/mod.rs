//! Computations that are measured, without the measuring: what workloads and measurements of the machine share.

pub mod arithmetic;
pub mod blocks;
pub mod chase;
pub mod scatter;
pub mod stream;

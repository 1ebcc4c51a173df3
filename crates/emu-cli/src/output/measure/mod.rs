//! What the machine can do, as tables and figures.

pub(crate) mod cpu;
pub(crate) mod disk;
pub(crate) mod hpcc;
pub(crate) mod memory;
pub(crate) mod series;

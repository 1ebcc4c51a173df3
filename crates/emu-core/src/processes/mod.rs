//! The processes of a zone, stopped and continued by signals.

mod limiter;
mod members;
mod runner;
mod stopper;
mod turns;

pub(crate) use limiter::Limiter;
pub(crate) use members::Members;
pub(crate) use stopper::Stopper;

#[cfg(test)]
mod tests;

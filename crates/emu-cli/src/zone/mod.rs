//! What the subcommands that emulate share: the zone asked for, the plan for it, and what is told of a session.

mod args;
pub(crate) mod follow;
pub(crate) mod like;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod record;
pub(crate) mod summary;
pub(crate) mod tell;
pub(crate) mod verification;

pub(crate) use args::{DemandArgs, TellArgs, ZoneArgs};

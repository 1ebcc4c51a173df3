//! What the subcommands do, one folder for each.

pub(crate) mod attach;
pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod ci;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod info;
pub(crate) mod man;
pub(crate) mod measure;
pub(crate) mod methods;
pub(crate) mod node;
pub(crate) mod noise;
pub(crate) mod profile;
pub(crate) mod report;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod set;
pub(crate) mod timers;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod verify;
pub(crate) mod worker;

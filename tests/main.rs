//! The command from end to end, and the methods in guests of the rig.
//!
//! One binary, so that tests that emulate wait for each other and what they share is linked once. A file by itself:
//! `cargo test -p emu-cpu --test end_to_end job_control::`.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do"
)]

mod attach;
mod bad_input;
mod bench;
mod calibrate;
mod campaign;
mod ci;
mod cli;
mod common;
mod crash;
mod delivered;
mod docs;
mod doctor;
mod faults;
mod forbidden;
mod hpcc;
mod job_control;
mod like;
mod live;
mod measure;
mod names;
mod node;
mod node_death;
mod node_file;
mod node_resources;
mod node_terminal;
mod noise;
mod podman;
mod rig;
mod soak;
mod timers;
mod trace;

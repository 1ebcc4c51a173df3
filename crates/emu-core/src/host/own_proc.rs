//! This process's folder of procfs, where that is of this PID namespace.

use std::fs;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::roots::Roots;

/// An error without procfs, or with one of another PID namespace: its numbers are those of other processes.
pub(super) fn find(roots: &Roots) -> Result<PathBuf> {
    let own = roots.proc.join("self");
    let proc = roots.proc.display();
    if !own.exists() {
        return Err(Error::unavailable(format!("cannot read this host: there is no {}", own.display()))
            .hint(format!("mount procfs: mount -t proc proc {proc}")));
    }
    // In a recorded tree it is no link.
    let listed = fs::read_link(&own).ok().and_then(|link| link.to_str()?.parse::<u32>().ok());
    let actual = std::process::id();
    match listed.filter(|listed| *listed != actual) {
        Some(listed) => Err(Error::unavailable(format!(
            "cannot read this host: {proc} is of another PID namespace; process {actual} is {listed} there"
        ))
        .hint(format!("mount one of this namespace: mount -t proc proc {proc}"))),
        None => Ok(own),
    }
}

//! A cgroup of its own for an ordinary user, which systemd hands over.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use emu_core::{Error, Result};

use crate::reporter::Reporter;

const RUN: &str = "systemd-run";
const SCOPE: [&str; 5] = ["--user", "--scope", "--quiet", "--property=Delegate=yes", "--"];

/// Begins this command anew in a scope of the user's systemd, and returns only where there is none to be had, or on failure.
pub(super) fn begin_anew(reporter: Reporter) -> Result<()> {
    let mut trial = Command::new(RUN);
    trial.args(SCOPE).arg("true").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if !trial.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    reporter.note(&format!(
        "begins anew in a cgroup of its own, where more methods work: {RUN} {} emu ci …",
        SCOPE.join(" ")
    ));
    let failed = |cause| Error::io("cannot begin anew in a scope of systemd", cause);
    let own = env::current_exe().map_err(failed)?;
    let mut arguments: Vec<_> = env::args_os().skip(1).collect();
    let subcommand = arguments.iter().position(|word| word == "ci").map_or(arguments.len(), |at| at + 1);
    arguments.insert(subcommand, "--in-scope".into());
    Err(failed(Command::new(RUN).args(SCOPE).arg(own).args(arguments).exec()))
}

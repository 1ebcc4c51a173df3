//! Measuring in a fresh process of this executable, so that memory layout and state differ from sample to sample as
//! they do from run to run of a program.

use std::process::{Command, Stdio};

use emu_core::{Error, ErrorKind, Result};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Runs this executable with `command` and the order as JSON, and reads its answer, a line of JSON.
///
/// # Errors
/// The process cannot be started, or has failed.
pub(super) fn ask<A: DeserializeOwned>(command: &str, order: &impl Serialize) -> Result<A> {
    let failed = |what: &str| Error::new(ErrorKind::Failed, format!("the measuring process {what}"));
    let program = std::env::current_exe()
        .map_err(|cause| Error::io("cannot find this executable to measure in a fresh process", cause))?;
    let order = serde_json::to_string(order).map_err(|cause| failed("has no order").caused_by(cause))?;
    let output = Command::new(program)
        .args([command, &order])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|cause| Error::io("cannot start a process to measure in", cause))?;
    if !output.status.success() {
        return Err(failed(&format!("has failed: {}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(|cause| failed("gave a strange answer").caused_by(cause))
}

/// The other side: does what the order says, and ends with whoever gave it.
///
/// # Errors
/// Usage, for an order that cannot be understood; what the work fails with.
pub fn answer<O: DeserializeOwned, A: Serialize>(
    order: &str,
    work: impl FnOnce(&O) -> Result<A>,
) -> Result<String> {
    let order = serde_json::from_str(order)
        .map_err(|cause| Error::usage("bad order of a measurement").caused_by(cause))?;
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|cause| Error::io("cannot bind the process to its parent", cause.into()))?;
    let answer = work(&order)?;
    serde_json::to_string(&answer)
        .map(|line| line + "\n")
        .map_err(|cause| Error::new(ErrorKind::Failed, "cannot write an answer").caused_by(cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_answered_or_refused() {
        // The bond to the parent is undone at the end, as the test binary goes on.
        assert_eq!(answer("[1,2]", |order: &Vec<u32>| Ok(order.len())).unwrap(), "2\n");
        let refused = answer("[1", |order: &Vec<u32>| Ok(order.len())).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Usage);
        let failed = answer("[]", |_: &Vec<u32>| Err::<(), _>(Error::unavailable("no")));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unavailable);
        prctl::set_pdeathsig(None).unwrap();
    }

    #[test]
    fn a_process_that_gives_no_answer_is_an_error() {
        // The test binary finds no test of that name, and says so in words.
        let error = ask::<u32>("no-such-test", &"nor-this-one").unwrap_err();
        assert!(error.to_string().contains("strange answer"), "{error}");
    }
}

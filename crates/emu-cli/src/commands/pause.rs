//! Emu stopped by job control: its controllers stop with it, so they must have let go before.

use std::thread;

use emu_core::{Result, Session, Target, Targets};

/// Lets the tasks run freely while `act` is done, then holds them to their targets again.
///
/// # Errors
/// The method refuses a change of targets.
pub(crate) fn while_let_go<T>(
    session: &mut Session,
    targets: &Targets,
    act: impl FnOnce() -> T,
) -> Result<T> {
    let free = targets.keys().map(|&cpu| (cpu, Target { share: 1.0, clock: None })).collect();
    session.retarget(&free)?;
    // New targets are in force after two periods, as long as these are now.
    thread::sleep(session.status().period * 2);
    let done = act();
    session.retarget(targets)?;
    Ok(done)
}

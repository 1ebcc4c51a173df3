//! An emulation that is a duty loop and no more: all tasks of the zone are stopped together, at one share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Emulation;
use crate::duty::{DutyLoop, plan};
use crate::error::Result;
use crate::method_id::MethodId;
use crate::speed::Targets;
use crate::status::Status;

pub(super) struct Stopping {
    pub(super) id: MethodId,
    pub(super) duty_loop: DutyLoop,
    pub(super) targets: Targets,
    pub(super) notes: Vec<String>,
    /// Has the next stop look for new processes, where a group does not show them.
    pub(super) look: Option<Arc<AtomicBool>>,
}

impl Emulation for Stopping {
    fn retarget(&mut self, targets: &Targets) -> Result<()> {
        let planned = plan::share_with_error(self.duty_loop.period(), targets);
        let (share, _) = planned.map_err(|why| why.into_error(self.id))?;
        self.duty_loop.set(share);
        self.targets.clone_from(targets);
        Ok(())
    }

    fn period(&self) -> Duration {
        self.duty_loop.period()
    }

    fn status(&self) -> Status {
        self.duty_loop.status(self.id, &self.targets, &self.notes)
    }

    fn look(&self) {
        if let Some(look) = &self.look {
            look.store(true, Ordering::Relaxed);
        }
    }

    fn release(self: Box<Self>) -> Result<()> {
        self.duty_loop.stop()
    }
}

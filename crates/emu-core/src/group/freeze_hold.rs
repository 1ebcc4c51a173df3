//! The freezer as a way of holding all tasks of a zone.

use super::{Freezer, TaskGroup, Usage};
use crate::duty::holder::{Held, Hold};
use crate::sys::time::Nanos;
use crate::{Controller, Error, Journal, Result};

/// The freezer of a group as a way of holding its tasks.
pub(crate) struct FreezeHold {
    freezer: Freezer,
    usage: Option<Usage>,
}

impl FreezeHold {
    /// Takes the group's freezer over; the journal thaws it.
    ///
    /// # Errors
    /// The group has no freezer, or its files cannot be opened.
    pub(crate) fn new(group: &TaskGroup, journal: &Journal) -> Result<Self> {
        let folder = group
            .folder(Controller::Freezer)
            .ok_or_else(|| Error::unavailable("the tasks' cgroup has no freezer"))?;
        Ok(Self { freezer: Freezer::open(folder, journal)?, usage: Usage::of(group) })
    }
}

impl Hold for FreezeHold {
    fn hold(&mut self, deadline: Nanos) -> Result<Held> {
        let frozen = self.freezer.freeze(deadline)?;
        Ok(Held { from: frozen.told, is_sure: frozen.seen.is_some() })
    }

    fn let_go(&mut self) -> Result<Nanos> {
        self.freezer.thaw()
    }

    fn usage(&mut self) -> Option<Nanos> {
        self.usage.as_ref()?.read()
    }
}

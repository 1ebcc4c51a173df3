//! What is judged: something that slows a worker down and lets it go again.

use std::time::Duration;

use emu_core::{Demand, Error, Host, MethodId, Pid, Result, Session, Status, Tasks, Variant, Zone};

/// Something that makes a process run slower for a time: an emulation, another tool, or a test's double.
pub trait Emulated {
    /// What tables and records call it.
    fn name(&self) -> String;

    /// Length of one on/off cycle; zero without one.
    fn period(&self) -> Duration;

    /// How long after [`engage`](Self::engage) the speed is steady.
    fn settle(&self) -> Duration {
        (self.period() * 3).max(Duration::from_millis(100))
    }

    /// Slows the worker and all of its threads and children, present and future.
    ///
    /// # Errors
    /// It cannot be done; then nothing stays changed.
    fn engage(&mut self, worker: Pid) -> Result<()>;

    /// Lets the worker run freely. Nothing to do where it does already.
    ///
    /// # Errors
    /// Something could not be undone.
    fn release(&mut self) -> Result<()>;

    /// Whether it takes CPU time by processes other than this one, such as burners. Then nobody can tell it from
    /// a disturbance.
    fn has_helpers(&self) -> bool {
        false
    }

    /// Whether it works by the core clock itself, so that a changed clock is no disturbance.
    fn moves_clock(&self) -> bool {
        false
    }

    /// What it says of itself while engaged.
    fn status(&self) -> Option<Status> {
        None
    }
}

/// No emulation: what it seems to change is the error of the measurement.
#[derive(Debug, Clone, Copy)]
pub struct Nothing;

impl Nothing {
    /// What tables and records call it.
    pub const NAME: &str = "none";
}

impl Emulated for Nothing {
    fn name(&self) -> String {
        Self::NAME.into()
    }

    fn period(&self) -> Duration {
        Duration::ZERO
    }

    fn settle(&self) -> Duration {
        Duration::ZERO
    }

    fn engage(&mut self, _worker: Pid) -> Result<()> {
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        Ok(())
    }
}

/// One of our methods, in a session.
#[derive(Debug)]
pub struct SessionEmulated {
    host: Host,
    demand: Demand,
    method: MethodId,
    period: Duration,
    session: Option<Session>,
}

impl SessionEmulated {
    /// Checks that the method can meet the demand. Changes nothing.
    ///
    /// # Errors
    /// It cannot, and why.
    pub fn new(host: &Host, demand: Demand, method: MethodId) -> Result<Self> {
        let implementation = emu_core::method(method)
            .ok_or_else(|| Error::unavailable(format!("the method {method} is not built in")))?;
        let expected = implementation.check(host, &demand).map_err(|why| why.into_error(method))?;
        Ok(Self { host: host.clone(), demand, method, period: expected.period, session: None })
    }

    /// What is asked for.
    pub fn demand(&self) -> &Demand {
        &self.demand
    }
}

impl Emulated for SessionEmulated {
    fn name(&self) -> String {
        self.method.to_string()
    }

    fn period(&self) -> Duration {
        self.period
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        let zone = Zone {
            name: "verify".into(),
            demand: self.demand.clone(),
            tasks: Tasks::Processes(vec![worker]),
        };
        self.session = Some(Session::engage(&self.host, &zone, self.method)?);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        self.session.take().map_or(Ok(()), |session| session.release().map(drop))
    }

    /// The tasks of a group with a share compete with processes that burn.
    fn has_helpers(&self) -> bool {
        self.method == MethodId::Fracas && self.demand.variant == Variant::Shares
    }

    fn moves_clock(&self) -> bool {
        matches!(self.method, MethodId::CpuFreq | MethodId::CpuGov)
    }

    fn status(&self) -> Option<Status> {
        self.session.as_ref().and_then(Session::status)
    }
}

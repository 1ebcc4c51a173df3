//! What is judged: something that slows a worker down and lets it go again.

use std::time::Duration;

use emu_core::{Demand, Error, Host, MethodId, Pid, Result, Session, Status, Tasks, Variant, Zone};

use super::LifetimeRule;

/// Something that makes a process run slower for a time: an emulation, another tool, or a test's double.
pub trait Emulated {
    /// What tables and records call it.
    fn name(&self) -> String;

    /// Length of one on/off cycle, as the emulation plans it; zero without one.
    fn period(&self) -> Duration;

    /// Length of the longest round of running and being held, of which a window must have several: the period, unless
    /// there is a [rule](Self::lifetime_rule) that may hold the worker for longer.
    fn cycle(&self) -> Duration {
        self.lifetime_rule().map_or_else(|| self.period(), |rule| rule.cycle())
    }

    /// How long after [`engage`](Self::engage) the speed is steady; with a [rule](Self::lifetime_rule), once the
    /// worker's past no longer matters.
    fn settle(&self) -> Duration {
        (self.cycle() * 3).max(Duration::from_millis(100))
    }

    /// The rule by which it judges each process by its whole life, if it does. Such an emulation may hold the worker at
    /// any moment, for long: a late begin of an emulated window is its own effect.
    fn lifetime_rule(&self) -> Option<LifetimeRule> {
        None
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
        self.session.take().map_or(Ok(()), |session| session.release().1)
    }

    /// The tasks of a group with a share compete with processes that burn.
    fn has_helpers(&self) -> bool {
        self.method == MethodId::Fracas && self.demand.variant == Variant::Shares
    }

    fn moves_clock(&self) -> bool {
        matches!(self.method, MethodId::CpuFreq | MethodId::CpuGov)
    }

    fn lifetime_rule(&self) -> Option<LifetimeRule> {
        let judges_lives = self.method == MethodId::CpuLim && self.demand.variant == Variant::Published;
        judges_lives.then(|| LifetimeRule {
            share: self.demand.lowest_share(),
            period: self.period,
            cpus: self.demand.targets.len(),
        })
    }

    fn status(&self) -> Option<Status> {
        self.session.as_ref().map(Session::status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::{Roots, Target};

    fn cpu_lim(variant: Variant, share: f64) -> SessionEmulated {
        let host = Host::detect(&Roots::system()).unwrap();
        let cpu = host.allowed.first().unwrap();
        let demand = Demand { variant, ..Demand::new([(cpu, Target { share, clock: None })].into()) };
        SessionEmulated::new(&host, demand, MethodId::CpuLim).unwrap()
    }

    #[test]
    fn cpu_lim_as_published_has_cycles_longer_than_its_period() {
        for share in [0.1, 0.2, 0.5] {
            let published = cpu_lim(Variant::Published, share);
            let cycle = published.period().as_secs_f64() / share;
            assert!((published.cycle().as_secs_f64() - cycle).abs() < 1e-6, "{share}");
            assert!(published.settle() >= published.cycle() * 3);
        }
    }

    #[test]
    fn methods_that_hold_in_each_period_have_no_rule() {
        let best = cpu_lim(Variant::Best, 0.2);
        assert_eq!((best.lifetime_rule(), best.cycle()), (None, best.period()));
        assert_eq!(best.settle(), Duration::from_millis(100));
        assert_eq!((Nothing.lifetime_rule(), Nothing.cycle()), (None, Duration::ZERO));
    }
}

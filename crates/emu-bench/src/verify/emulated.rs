//! What is judged: something that slows a worker down and lets it go again.

use std::time::Duration;

use emu_core::{Demand, Host, Method, MethodId, Pid, Prepared, Result, Session, Status, Tasks, Trait, tick};

use super::LifetimeRule;

/// Something that makes a process run slower for a time: an emulation, another tool, or a test's double.
pub trait Emulated {
    /// What tables and records call it.
    fn name(&self) -> String;

    /// Length of one on/off cycle, as the emulation plans it; zero without one.
    fn period(&self) -> Duration {
        Duration::ZERO
    }

    /// Length of the longest round of running and being stopped, of which a window must have several: a
    /// [rule](Self::lifetime_rule) may stop the worker for longer than the period.
    fn cycle(&self) -> Duration {
        self.lifetime_rule().map_or_else(|| self.period(), |rule| rule.cycle())
    }

    /// By how much the CPU time that one CPU gives in a window differs with where the window begins.
    fn grain(&self) -> Duration {
        Duration::ZERO
    }

    /// How long after [`engage`](Self::engage) the speed is steady; with a [rule](Self::lifetime_rule), once the
    /// worker's past no longer matters.
    fn settle(&self) -> Duration {
        (self.cycle() * 3).max(Duration::from_millis(100))
    }

    /// The rule by which it judges each process by its whole life, if it does. Such an emulation may stop the worker at
    /// any moment, for long: a late begin of an emulated window is its own effect.
    fn lifetime_rule(&self) -> Option<LifetimeRule> {
        None
    }

    /// Slows the worker and all of its threads and children, present and future. After an error nothing stays changed.
    fn engage(&mut self, worker: Pid) -> Result<()>;

    /// Lets the worker run freely. Nothing to do where it does already.
    fn release(&mut self) -> Result<()>;

    /// Whether other processes, such as burners, work for it: nobody can tell their CPU time from a disturbance.
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
    pub const ID: MethodId = MethodId::new("none");
}

impl Emulated for Nothing {
    fn name(&self) -> String {
        Self::ID.to_string()
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

/// A method, in a session.
#[derive(Debug)]
pub struct SessionEmulated {
    prepared: Prepared,
    session: Option<Session>,
}

impl SessionEmulated {
    /// What is prepared, to be engaged for each sample. Changes nothing.
    pub fn new(prepared: Prepared) -> Self {
        Self { prepared, session: None }
    }

    /// As [`new`](Self::new), for a method of the registry.
    pub fn named(host: &Host, demand: &Demand, id: MethodId) -> Result<Self> {
        Prepared::named(id, host, demand).map(Self::new)
    }

    /// The method.
    pub fn method(&self) -> &'static dyn Method {
        self.prepared.method()
    }

    /// What is asked for.
    pub fn demand(&self) -> &Demand {
        self.prepared.demand()
    }
}

impl Emulated for SessionEmulated {
    fn name(&self) -> String {
        self.method().id().to_string()
    }

    fn period(&self) -> Duration {
        self.prepared.expected().period
    }

    fn engage(&mut self, worker: Pid) -> Result<()> {
        let tasks = Tasks::Processes(vec![worker]);
        self.session = Some(Session::begin(&self.prepared, "verify", tasks)?);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        self.session.take().map_or(Ok(()), |session| session.release().1)
    }

    /// A turn ends half a tick late in the mean.
    fn grain(&self) -> Duration {
        if self.method().about().has(Trait::EndsAtTicks) { tick() / 2 } else { Duration::ZERO }
    }

    /// The tasks of a group with a share compete with processes that burn.
    fn has_helpers(&self) -> bool {
        self.method().about().has(Trait::HasHelpers)
    }

    fn moves_clock(&self) -> bool {
        self.method().about().has(Trait::MovesClock)
    }

    fn lifetime_rule(&self) -> Option<LifetimeRule> {
        self.method().about().has(Trait::JudgesLifetimes).then(|| LifetimeRule {
            share: self.demand().lowest_share(),
            period: self.period(),
            cpus: self.demand().targets.len(),
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

    fn emulated(name: &str, share: f64) -> SessionEmulated {
        let host = Host::detect(&Roots::system()).unwrap();
        let cpu = host.allowed.first().unwrap();
        let demand = Demand::new([(cpu, Target { share, clock: None })].into());
        SessionEmulated::named(&host, &demand, name.parse().unwrap()).unwrap()
    }

    #[test]
    fn cpu_lim_as_published_has_cycles_longer_than_its_period() {
        for share in [0.1, 0.2, 0.5] {
            let published = emulated("cpu-lim:published", share);
            let cycle = published.period().as_secs_f64() / share;
            assert!((published.cycle().as_secs_f64() - cycle).abs() < 1e-6, "{share}");
            assert!(published.settle() >= published.cycle() * 3);
        }
    }

    #[test]
    fn methods_that_hold_in_each_period_have_no_rule() {
        let best = emulated("cpu-lim", 0.2);
        assert_eq!((best.lifetime_rule(), best.cycle()), (None, best.period()));
        assert_eq!(best.settle(), Duration::from_millis(100));
        assert_eq!((Nothing.lifetime_rule(), Nothing.cycle()), (None, Duration::ZERO));
    }
}

//! Has a zone follow a trace.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Trace;
use crate::clock;
use crate::cpu_list::{CpuId, CpuList};
use crate::error::{Error, Result};
use crate::host::Host;
use crate::session::Session;
use crate::speed::{Hertz, Speed, SpeedSpec, Target, Targets};

/// What comes after the end of a trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AtEnd {
    /// The last speed stays.
    #[default]
    Hold,
    /// It begins anew.
    Loop,
    /// Full speed.
    Full,
}

/// A trace that a zone follows. Its times are counted from [`begin`](Self::begin) on the monotonic clock, so that a change that
/// comes late delays no other.
#[derive(Debug, Clone)]
pub struct Player {
    trace: Trace,
    at_end: AtEnd,
    references: BTreeMap<CpuId, Hertz>,
    begun: Option<Instant>,
    /// How often it has begun anew.
    lap: u32,
    /// The first line that is not in force yet.
    next: usize,
    targets: Targets,
    is_over: bool,
    lateness: Duration,
}

impl Player {
    /// A trace for these CPUs, else those that it names, else all that are allowed. Where it has frequencies, the CPUs' own
    /// clocks are measured, for [`clock::BUDGET`].
    ///
    /// # Errors
    /// A CPU cannot be used; the trace names CPUs outside of the zone, or has no speed for one at its begin; it has no end, and
    /// something is to come after it; a frequency is above the CPU's own clock.
    pub fn new(host: &Host, trace: Trace, cpus: Option<&CpuList>, at_end: AtEnd) -> Result<Self> {
        let cpus = trace.cpus_of(host, cpus);
        host.check_cpus(&cpus)?;
        let named = trace.cpus();
        let outside = named.map(|named| named.difference(&cpus)).filter(|outside| !outside.is_empty());
        if let Some(outside) = outside {
            return Err(Error::usage(format!(
                "the trace names CPUs {outside}, and the zone has CPUs {cpus} alone"
            ))
            .hint("name the CPUs of the trace, or write `*` for all in it"));
        }
        if at_end != AtEnd::Hold && trace.length.is_none() {
            return Err(Error::usage("the trace does not tell where it ends")
                .hint("add a last line with the time of its end: `20,*,end`"));
        }
        let of_clocks = trace.changes.iter().filter(|change| matches!(change.speed, Speed::Clock(_)));
        let clocked: CpuList =
            of_clocks.flat_map(|change| change.cpus.as_ref().unwrap_or(&cpus).iter()).collect();
        let readings = clock::measure_all(&clocked, clock::BUDGET)?;
        let references = readings.iter().map(|reading| (reading.cpu, reading.clock)).collect();
        let (begun, targets) = (None, cpus.iter().map(|cpu| (cpu, FULL)).collect());
        let (lap, next, is_over, lateness) = (0, 0, false, Duration::ZERO);
        let mut player = Self { trace, at_end, references, begun, lap, next, targets, is_over, lateness };
        // A speed that is out of reach is refused before anything begins.
        player.extremes()?;
        let first = player.first()?;
        if let Some(cpu) = cpus.iter().find(|cpu| !first.contains_key(cpu)) {
            return Err(Error::usage(format!("the trace has no speed for CPU {cpu} at time 0"))
                .hint("begin it with a line for all CPUs, such as `0,*,100%`, or choose its CPUs alone"));
        }
        player.targets = first;
        Ok(player)
    }

    /// The speeds at the begin, in words.
    pub fn speed(&self) -> SpeedSpec {
        SpeedSpec::of_targets(&self.first().unwrap_or_default())
    }

    /// What is wanted of each CPU at the begin.
    ///
    /// # Errors
    /// None after [`new`](Self::new).
    pub fn first(&self) -> Result<Targets> {
        let at_begin = self.trace.changes.iter().take_while(|change| change.at.is_zero());
        let mut first = Targets::new();
        for change in at_begin {
            first.extend(self.targets_of(change.cpus.as_ref(), change.speed)?);
        }
        Ok(first)
    }

    /// The lowest and the highest speed of each CPU: a method that can do both can do all between.
    ///
    /// # Errors
    /// None after [`new`](Self::new).
    pub fn extremes(&self) -> Result<[Targets; 2]> {
        let [mut lowest, mut highest] = [Targets::new(), Targets::new()];
        for change in &self.trace.changes {
            for (cpu, target) in self.targets_of(change.cpus.as_ref(), change.speed)? {
                let low = lowest.entry(cpu).or_insert(target);
                *low = if target.share < low.share { target } else { *low };
                let high = highest.entry(cpu).or_insert(target);
                *high = if target.share > high.share { target } else { *high };
            }
        }
        if self.at_end == AtEnd::Full {
            for target in highest.values_mut() {
                *target = FULL;
            }
        }
        Ok([lowest, highest])
    }

    /// What is played.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// What comes after its end.
    pub fn at_end(&self) -> AtEnd {
        self.at_end
    }

    /// Begins now. The zone was made with the [first](Self::first) speeds.
    pub fn begin(&mut self) {
        self.begun = Some(Instant::now());
        (self.lap, self.is_over) = (0, false);
        self.next = self.trace.changes.partition_point(|change| change.at.is_zero());
    }

    /// When [`play`](Self::play) has something to do next; `None` where the speed stays as it is.
    pub fn due(&self) -> Option<Instant> {
        let begun = self.begun.filter(|_| !self.is_over)?;
        let next = self.trace.changes.get(self.next).map(|change| change.at);
        let end = self.trace.length.filter(|_| self.at_end != AtEnd::Hold);
        begun.checked_add(self.lap_begin() + next.or(end)?)
    }

    /// Sets the speed that is due; where several are, the last one. Returns whether it is another one than before.
    ///
    /// # Errors
    /// The session's method refuses it; then the speed is as before, and what comes later can still be played.
    pub fn play(&mut self, session: &mut Session) -> Result<bool> {
        let Some(begun) = self.begun.filter(|_| !self.is_over) else { return Ok(false) };
        let elapsed = begun.elapsed();
        let mut due = None;
        match (self.at_end, self.trace.length) {
            (AtEnd::Loop, Some(length)) => {
                let lap = (elapsed.as_nanos() / length.as_nanos().max(1)) as u32;
                if lap > self.lap {
                    (self.lap, self.next) = (lap, 0);
                }
            }
            (AtEnd::Full, Some(length)) if elapsed >= length => {
                self.is_over = true;
                for target in self.targets.values_mut() {
                    *target = FULL;
                }
                due = Some(length);
            }
            _ => {}
        }
        while let Some(change) = self.trace.changes.get(self.next).filter(|_| !self.is_over) {
            let at = self.lap_begin() + change.at;
            if at > elapsed {
                break;
            }
            let targets: Vec<_> = self.targets_of(change.cpus.as_ref(), change.speed)?.collect();
            self.targets.extend(targets);
            self.next += 1;
            due = Some(at);
        }
        let Some(due) = due else { return Ok(false) };
        self.lateness = self.lateness.max(elapsed.saturating_sub(due));
        if self.targets == session.demand().targets {
            return Ok(false);
        }
        session.retarget(&self.targets).map(|()| true)
    }

    /// Whether the zone is at full speed as the trace has ended.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// By how much the latest change came late until now.
    pub fn lateness(&self) -> Duration {
        self.lateness
    }

    fn lap_begin(&self) -> Duration {
        self.trace.length.unwrap_or_default() * self.lap
    }

    fn targets_of(
        &self,
        cpus: Option<&CpuList>,
        speed: Speed,
    ) -> Result<impl Iterator<Item = (CpuId, Target)> + use<>> {
        let all = || self.targets.keys().copied().collect();
        let cpus: CpuList = cpus.cloned().unwrap_or_else(all);
        let target = |cpu| Ok((cpu, speed.target(cpu, self.references.get(&cpu).copied())?));
        Ok(cpus.iter().map(target).collect::<Result<Vec<_>>>()?.into_iter())
    }
}

const FULL: Target = Target { share: 1.0, clock: None };

//! A thread that alternates the two neighbouring frequencies of a policy on the grid.

use std::sync::Arc;

use crate::cpu_list::CpuList;
use crate::cpufreq::{Mix, Setter};
use crate::duty::settle_duty_thread;
use crate::duty::{Command, Counters, DutyThread, Grid, Ledger, Wait};
use crate::error::Result;
use crate::host::Host;
use crate::notes::Notes;
use crate::speed::Hertz;
use crate::sys::time::{self, Nanos};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Settings {
    /// The same for all policies of the zone.
    pub(crate) grid: Grid,
    pub(crate) mix: Mix,
}

/// Starts the thread, whose counters tell what it has done; "stopped" is time at the low level. It ends by itself only where
/// the kernel refuses a frequency. On return the first of the levels is set; the levels of all settings must be prepared
/// ([`Control::prepare`](crate::cpufreq::Control::prepare)).
///
/// The thread stays away from the `zone`. Where there is no other CPU it goes to one of the policy, which has to
/// take part in each change anyway, ahead of the tasks there.
pub(crate) fn start(
    host: &Host,
    zone: &CpuList,
    policy: &CpuList,
    setter: Setter,
    settings: Settings,
    notes: &Notes,
) -> Result<(DutyThread<Settings>, Arc<Counters>)> {
    let counters = Arc::new(Counters::default());
    let theirs = Arc::clone(&counters);
    let has_others = !host.allowed.difference(zone).is_empty();
    let avoided = if has_others { zone.clone() } else { zone.difference(policy) };
    let (host, notes) = (host.clone(), notes.clone());
    let thread = DutyThread::spawn(
        &format!("emu-gov-{}", policy.first().unwrap_or_default()),
        settings,
        move || {
            settle_duty_thread(&host, &avoided, &notes);
            setter.set(settings.mix.low)?;
            Ok(setter)
        },
        move |setter, wait| Loop { setter, ledger: Ledger::new(), counters: &theirs }.run(wait),
    )?;
    Ok((thread, counters))
}

struct Loop<'a> {
    setter: Setter,
    ledger: Ledger,
    counters: &'a Counters,
}

impl Loop<'_> {
    fn run(mut self, wait: &Wait<Settings>) -> Result<()> {
        let (mut command, mut generation) = wait.command();
        while let Command::Run(settings) = command {
            let mut begun = self.change(settings.mix.low)?;
            while wait.generation() == generation {
                if settings.mix.low == settings.mix.high {
                    // One level is the mean itself.
                    wait.until(Nanos::MAX, generation);
                } else {
                    begun = self.one_period(settings, begun, wait, generation)?;
                }
            }
            (command, generation) = wait.command();
            self.counters.restart();
            self.ledger = Ledger::new();
        }
        Ok(())
    }

    /// Low level first, then the high one until the period ends. `begun` is when the low level was set.
    fn one_period(
        &mut self,
        settings: Settings,
        begun: Nanos,
        wait: &Wait<Settings>,
        generation: u32,
    ) -> Result<Nanos> {
        let grid = settings.grid;
        let index = grid.index(begun);
        // A period that began late is short; the ledger carries debts of two periods only, so a very short one
        // goes with the next.
        let is_short = grid.begin(index + 1) - begun < grid.period() / 2;
        let next = index + 1 + i64::from(is_short);
        let end = grid.begin(next);
        // The account is over the time that really passed, from one change to the low level to the next.
        let length = (end - begun) as f64;
        let low = self.ledger.charge(length, length, settings.mix.high_share);
        wait.until(begun + low.clamp(0.0, length) as Nanos, generation);
        let raised = self.change(settings.mix.high)?;
        wait.until(end, generation);
        let lowered = self.change(settings.mix.low)?;
        self.ledger.settle((raised - begun) as f64);
        // A late end gave the high level more time than was charged for.
        self.ledger.settle(-(1.0 - settings.mix.high_share) * (lowered - end) as f64);
        self.counters.add_stop(raised - begun, 0);
        self.counters.add_elapsed(lowered - begun);
        let missed = (grid.index(lowered) - next).max(0);
        self.counters.add_periods((next - index) as u64, missed as u64);
        self.counters.set_cpu(time::thread_cpu());
        Ok(lowered)
    }

    /// Sets a level and returns when this was done: drivers come back when the hardware has followed.
    fn change(&self, level: Hertz) -> Result<Nanos> {
        self.setter.set(level)?;
        Ok(time::now())
    }
}

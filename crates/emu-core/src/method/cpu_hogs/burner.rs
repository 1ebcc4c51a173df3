//! The thread that burns one CPU for `cpu-hogs`, as the emulation sees it: started, given settings, asked what it has done.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::background_load::BackgroundLoad;
use super::burn_loop::{Loop, Seen, Settings, take_cpu};
use super::wake_cost::WakeCost;
use crate::cpu_list::CpuId;
use crate::duty::idle_pusher::IdlePusher;
use crate::duty::{Counters, DutyThread};
use crate::error::Result;
use crate::speed::Hertz;
use crate::sys::timer_prearm::TimerPrearm;

/// A burner at work; dropping it stops it.
#[derive(Debug)]
pub(crate) struct Burner {
    controller: DutyThread<Settings>,
    seen: Arc<Seen>,
}

impl Burner {
    /// Starts a burner on `cpu`: with its place among those that account for background load, where that is excluded,
    /// and with a pusher, where tasks have other CPUs, too. `has_one_cpu` where all of emu runs on this one.
    pub(crate) fn start(
        cpu: CpuId,
        settings: Settings,
        cost: WakeCost,
        background: Option<(Arc<BackgroundLoad>, usize)>,
        pusher: Option<IdlePusher>,
        has_one_cpu: bool,
    ) -> Result<Self> {
        let seen = Arc::new(Seen::default());
        let theirs = Arc::clone(&seen);
        let controller = DutyThread::spawn(
            &format!("emu-hog-{cpu}"),
            settings,
            move || {
                take_cpu(cpu)?;
                TimerPrearm::new()
            },
            move |announcer, wait| {
                Loop::new(cpu, cost, &theirs, announcer, background, pusher, has_one_cpu).run(wait);
                Ok(())
            },
        )?;
        Ok(Self { controller, seen })
    }

    /// New settings, taken up at the end of a burn.
    pub(crate) fn set(&self, settings: Settings) {
        self.controller.set(settings);
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.seen.counters
    }

    pub(crate) fn clock(&self) -> Option<Hertz> {
        Some(self.seen.clock.load(Ordering::Relaxed)).filter(|clock| *clock > 0).map(Hertz)
    }

    pub(crate) fn is_on_its_cpu(&self) -> bool {
        self.seen.on_its_cpu.load(Ordering::Relaxed)
    }

    /// Time that it was to burn and has given up, as it was kept from running for long.
    pub(crate) fn dropped(&self) -> Duration {
        Duration::from_nanos(self.seen.dropped.load(Ordering::Relaxed))
    }

    pub(crate) fn ended(&self) -> Option<String> {
        self.controller.ended()
    }

    pub(crate) fn stop(mut self) -> Result<()> {
        self.controller.stop()
    }
}

#[cfg(test)]
impl Burner {
    /// One that has ended with this error, with a burn behind it.
    pub(crate) fn failed(error: crate::error::Error) -> Self {
        let seen = Seen::default();
        seen.counters.add_stop(6, 0);
        seen.counters.add_elapsed(10);
        let settings =
            Settings::new(crate::duty::Grid::new(0, 1), crate::speed::Target { share: 0.4, clock: None });
        let controller = DutyThread::spawn("failed", settings, || Ok(()), |(), _| Err(error)).unwrap();
        while !controller.is_finished() {
            std::thread::yield_now();
        }
        Self { controller, seen: Arc::new(seen) }
    }
}

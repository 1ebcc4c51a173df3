//! While the command runs: signals go to whom they are meant for, and emu stops and continues with the command.
//!
//! The command is in emu's process group, so what the terminal sends (Ctrl-C, Ctrl-Z, a hang-up) reaches it without emu. What
//! another process sends to emu alone is passed on; where that process has signalled the whole group the command gets it
//! twice, which cannot be told apart. A shell takes the terminal back when emu itself is stopped, so emu stops by the signal
//! that stopped the command, after its controllers have resumed everything: nobody else could.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use emu_core::{Error, Result};
use nix::sys::signal::{Signal, kill};

use crate::exit::Exit;
use crate::signals::{self, Received, Signals, until};
use crate::supervise::child::{Child, News};

/// How often what is in force is looked at for news.
const LOOK: Duration = Duration::from_secs(1);

/// What emu keeps in force while the command runs: an emulation, a tuning.
pub(crate) trait InForce {
    /// Does `act`, by which emu may be stopped for any time, with nothing in force that would need emu to go on.
    fn while_paused(&mut self, act: &mut dyn FnMut() -> Result<()>) -> Result<()>;

    /// Whether it stops and continues the command's processes itself.
    fn stops_processes(&self) -> bool;

    /// What becomes readable when another emu asks something, if any may.
    fn asked(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn answer(&mut self) {}

    fn due(&self) -> Option<Instant> {
        None
    }

    fn act(&mut self) {}
}

#[derive(Debug)]
pub(crate) struct Supervisor<'a, H> {
    signals: &'a Signals,
    child: Child,
    in_force: H,
    /// Whether the command was asked to stop before it began.
    stop_first: bool,
    stopped: Duration,
}

impl<'a, H: InForce> Supervisor<'a, H> {
    pub(crate) fn new(signals: &'a Signals, child: Child, in_force: H) -> Self {
        Self { signals, child, in_force, stop_first: false, stopped: Duration::ZERO }
    }

    /// For how long emu and the command have been stopped by job control.
    pub(crate) fn stopped(&self) -> Duration {
        self.stopped
    }

    pub(crate) fn into_in_force(self) -> H {
        self.in_force
    }

    /// Passes on what came before the command was there. It blocks all signals until it begins, so that one that it
    /// got as well merges with the one passed on.
    pub(crate) fn pass_on_early_signals(&mut self) -> Result<()> {
        while let Some(received) = self.signals.next()? {
            if received.signal != Signal::SIGCHLD {
                self.child.signal(received.signal)?;
                self.stop_first |= received.signal == Signal::SIGTSTP;
            }
        }
        Ok(())
    }

    /// Watches until the command has ended; `look` sees what is in force now and then.
    pub(crate) fn watch(&mut self, mut look: impl FnMut(&H)) -> Result<Exit> {
        if self.stop_first {
            self.stop_with(Signal::SIGTSTP, true)?;
        }
        let mut looked = Instant::now();
        loop {
            if self.signals.wait(self.in_force.asked().as_slice(), until(self.in_force.due(), LOOK))? {
                self.in_force.answer();
            }
            if self.in_force.due().is_some_and(|due| due <= Instant::now()) {
                self.in_force.act();
            }
            while let Some(received) = self.signals.next()? {
                self.receive(received)?;
            }
            while let Some(news) = self.child.news()? {
                match news {
                    News::Ended(exit) => return Ok(exit),
                    News::Stopped(signal) if self.is_job_control(signal) => self.stop_with(signal, false)?,
                    News::Stopped(_) | News::Continued => {}
                }
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                look(&self.in_force);
            }
        }
    }

    fn receive(&mut self, received: Received) -> Result<()> {
        match received.signal {
            Signal::SIGCHLD => {
                self.child.reap_others();
                Ok(())
            }
            // The command may be unable to stop as its parent should hear of it.
            Signal::SIGTSTP if received.is_from_terminal() => self.stop_with(Signal::SIGTSTP, true),
            // A shell that continues a job signals the whole group.
            Signal::SIGCONT if !self.child.is_stopped() => Ok(()),
            _ if received.is_from_terminal() => Ok(()),
            // Its own `kill 0`, or our own signal to the group.
            _ if received.sender.is_some_and(|pid| pid == self.child.pid() || pid == own_pid()) => Ok(()),
            signal => self.child.signal(signal),
        }
    }

    /// Whether a stop by this signal is one for emu to follow. `cpu-lim` itself stops by `SIGSTOP`. Where no shell waits for
    /// that, whoever stops the command alone will continue it alone, and emu would not hear of it.
    fn is_job_control(&self, signal: Signal) -> bool {
        match signal {
            Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => true,
            Signal::SIGSTOP => !self.in_force.stops_processes() && signals::is_in_foreground(),
            _ => false,
        }
    }

    /// Stops emu by the signal that has stopped the command, until both are continued. A command that does not stop
    /// goes on in its zone.
    fn stop_with(&mut self, signal: Signal, whole_group: bool) -> Result<()> {
        let Self { child, in_force, stopped: total, .. } = self;
        let send = |signal| if whole_group { to_group(signal) } else { child.signal(signal) };
        // A SIGCONT of the method discards a SIGTSTP that was not acted on yet, and continues a command that was
        // stopped by one (signal(7)). SIGTTIN and SIGTTOU come again by themselves.
        let may_be_lost = in_force.stops_processes() && signal == Signal::SIGTSTP;
        in_force.while_paused(&mut || {
            let mut stopped = child.stops_soon();
            if !stopped && may_be_lost {
                send(signal)?;
                stopped = child.stops_soon();
            }
            if !stopped {
                return Ok(());
            }
            let begin = Instant::now();
            signals::stop_self(signal);
            *total += begin.elapsed();
            // Only emu may have been continued.
            if child.is_stopped() { send(Signal::SIGCONT) } else { Ok(()) }
        })
    }
}

/// Signals emu's whole process group; emu itself hears of it and takes no notice.
fn to_group(signal: Signal) -> Result<()> {
    kill(nix::unistd::Pid::from_raw(0), signal)
        .map_err(|e| Error::io(format!("cannot send {signal} to the process group"), e.into()))
}

fn own_pid() -> i32 {
    std::process::id() as i32
}

//! What was delivered between two changes of targets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::account::Account;
use crate::as_ns::AsNs;
use crate::cpu_list::CpuId;
use crate::speed::{Target, Targets};
use crate::status::{Asked, Delivered, Status};
use crate::sys::time::{self, Nanos};

/// The number of stretches kept until they are taken: a day of steps of a second.
const KEPT: usize = 100_000;

/// A time in which the targets stayed the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Stretch {
    /// Its begin, from when the session began.
    #[serde(rename = "from_ns", with = "AsNs")]
    pub from: Duration,
    /// Its end, when the next targets were set. They are in force within two periods.
    #[serde(rename = "until_ns", with = "AsNs")]
    pub until: Duration,
    /// What the tasks were given by the kernel's account, without the first two periods; `None` where that cannot be told,
    /// because they did not want all that they could get, or because the method moves the clock.
    pub delivered: Option<Delivered>,
    /// The same for each CPU.
    pub cpus: Vec<CpuStretch>,
}

/// What was asked and delivered on one CPU in a [`Stretch`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct CpuStretch {
    /// Which CPU.
    pub cpu: CpuId,
    /// What was asked for.
    #[serde(flatten, with = "Asked")]
    pub asked: Target,
    /// What tasks were given on it; `None` where that cannot be told.
    pub delivered: Option<Delivered>,
}

impl Stretch {
    /// The one that ends with the emulation, which [`Session::take_stretches`](crate::Session::take_stretches) does not have.
    pub fn last(status: &Status, from: Duration, until: Duration) -> Self {
        let cpus = status.cpus.iter();
        let cpus = cpus.map(|one| CpuStretch { cpu: one.cpu, asked: one.asked, delivered: one.delivered });
        Self { from, until, delivered: status.delivered, cpus: cpus.collect() }
    }
}

#[derive(Debug)]
pub(super) struct Stretches {
    zero: Nanos,
    from: Nanos,
    asked: Targets,
    done: Vec<Stretch>,
    /// The latest to have ended, with the account of its last window to come.
    ended: Option<(u64, Stretch, Account)>,
}

impl Stretches {
    pub(super) fn begin(asked: Targets) -> Self {
        let now = time::now();
        Self { zero: now, from: now, asked, done: Vec::new(), ended: None }
    }

    /// `before` is the account of the targets until now.
    pub(super) fn next(&mut self, targets: &Targets, generation: u64, before: Account) {
        self.finish();
        self.ended = Some((generation, self.cut(targets.clone()), before));
    }

    /// The account of windows whose targets have just been replaced.
    pub(super) fn account_of(&mut self, generation: u64) -> Option<&mut Account> {
        self.ended.as_mut().filter(|(of, ..)| *of == generation).map(|(_, _, account)| account)
    }

    /// A method that moves the clock has no account of its stretches.
    pub(super) fn take(&mut self, moves_clock: bool) -> Vec<Stretch> {
        self.finish();
        let mut done = std::mem::take(&mut self.done);
        if moves_clock {
            for stretch in &mut done {
                stretch.delivered = None;
                stretch.cpus.iter_mut().for_each(|cpu| cpu.delivered = None);
            }
        }
        done
    }

    fn cut(&mut self, next: Targets) -> Stretch {
        let now = time::now();
        let asked = std::mem::replace(&mut self.asked, next);
        let from = std::mem::replace(&mut self.from, now);
        let [from, until] = [from, now].map(|at| time::span(at - self.zero));
        let cpus = asked.into_iter().map(|(cpu, asked)| CpuStretch { cpu, asked, delivered: None });
        Stretch { from, until, delivered: None, cpus: cpus.collect() }
    }

    fn finish(&mut self) {
        if let Some((_, stretch, account)) = self.ended.take()
            && self.done.len() < KEPT
        {
            self.done.push(told(stretch, &account));
        }
    }
}

fn told(mut stretch: Stretch, account: &Account) -> Stretch {
    stretch.delivered = account.zone();
    stretch.cpus.iter_mut().for_each(|cpu| cpu.delivered = account.cpu(cpu.cpu));
    stretch
}

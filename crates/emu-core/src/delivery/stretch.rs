//! What was delivered between two changes of targets.

use std::collections::BTreeMap;
use std::time::Duration;

use super::account::Account;
use crate::cpu_list::CpuId;
use crate::speed::Targets;
use crate::status::Delivered;
use crate::sys::time::{self, Nanos};

/// The number of stretches kept until they are taken: a day of steps of a second.
const KEPT: usize = 100_000;

/// A time in which the targets stayed the same.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Stretch {
    /// Its begin, from when the session began.
    pub from: Duration,
    /// Its end, when the next targets were set. They are in force within two periods.
    pub until: Duration,
    /// What was asked for.
    pub asked: Targets,
    /// What the tasks were given by the kernel's account, without the first two periods; `None` where that cannot be told,
    /// because they did not want all that they could get, or because the method moves the clock.
    pub delivered: Option<Delivered>,
    /// The same for each CPU for which it can be told.
    pub cpus: BTreeMap<CpuId, Delivered>,
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
                (stretch.delivered, stretch.cpus) = (None, BTreeMap::new());
            }
        }
        done
    }

    fn cut(&mut self, next: Targets) -> Stretch {
        let now = time::now();
        let asked = std::mem::replace(&mut self.asked, next);
        let from = std::mem::replace(&mut self.from, now);
        let [from, until] = [from, now].map(|at| time::span(at - self.zero));
        Stretch { from, until, asked, delivered: None, cpus: BTreeMap::new() }
    }

    fn finish(&mut self) {
        if let Some((_, stretch, account)) = self.ended.take()
            && self.done.len() < KEPT
        {
            self.done.push(told(stretch, &account));
        }
    }
}

fn told(stretch: Stretch, account: &Account) -> Stretch {
    let cpus = stretch.asked.keys().filter_map(|&cpu| Some((cpu, account.cpu(cpu)?))).collect();
    Stretch { delivered: account.zone(), cpus, ..stretch }
}

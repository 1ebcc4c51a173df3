//! Which knob of the machine makes rates that are not proportional to the quota: each is changed, and all is measured again.

use emu_bench::numbers::signed;
use emu_bench::stats::{Interval, Level};
use emu_core::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::Model;
use super::{Analysis, Measured};
use crate::doctor::effects::Switch;

/// The knobs that may do so, by what they do to the core clock and to CPUs that wake up; see [`KNOBS`](crate::doctor::KNOBS).
pub const CAUSES: [&str; 4] = ["governor", "epp", "turbo", "c-states"];

/// What was found by changing knobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explained {
    /// Each knob that was changed.
    pub tests: Vec<Tested>,
    /// What it means, in words.
    pub words: String,
}

/// A knob, and how far the rate at a quota is from being proportional, as a share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tested {
    /// Its name.
    pub knob: String,
    /// The quota that was furthest off with all knobs as found.
    pub quota: f64,
    /// With it as found, before and after all others were changed.
    pub found: [Interval; 2],
    /// With it changed.
    pub changed: Interval,
    /// Whether the rate is nearer to being proportional then, by more than chance and drift explain.
    pub is_cause: bool,
}

impl Tested {
    fn words(&self) -> String {
        let share =
            |of: &Interval| format!("{} ({} to {})", signed(of.estimate), signed(of.low), signed(of.high));
        let Self { knob, quota, found: [before, after], changed, is_cause } = self;
        let verdict = if *is_cause { "it is a cause" } else { "that it is a cause is not shown" };
        format!(
            "Tested: {knob}. The rate at {quota:.1} CPUs is {} from being proportional with it changed, {} and {} with it \
             as found, before and after: {verdict}.",
            share(changed),
            share(before),
            share(after)
        )
    }
}

/// Changes each knob while `measure` calibrates once more under a name; the last time all are as found. Every knob is as
/// found when this returns, whatever it returns. `why_none` is why there may be no knob.
pub fn explain(
    found: &Measured,
    switches: &mut [Box<dyn Switch + '_>],
    why_none: &str,
    measure: &mut dyn FnMut(&str) -> Result<Measured>,
) -> Result<Explained> {
    let untested = |words: String| Ok(Explained { tests: Vec::new(), words });
    let is_odd = |model: &Model| !(model.is_linear() && model.is_proportional() && model.bands.len() < 2);
    let off = |one: &&Analysis| one.measured.proportional_worst.abs();
    let odd = found.analyses.iter().filter(|one| is_odd(&one.measured));
    let Some(worst) = odd.max_by(|one, other| off(one).total_cmp(&off(other))) else {
        return untested("There is nothing to explain: the rate is proportional to the quota.".into());
    };
    let (quota, level) = (worst.measured.worst_quota, Level::of_each(switches.len()));
    let off = |of: &Measured| {
        let same = of.analyses.iter().find(|one| one.threads == worst.threads)?;
        same.measured.off_at(quota, level)
    };
    let Some(before) = off(found) else {
        return untested(
            "No knob is tested, as too few quotas have two undisturbed samples: take more --reps, or calm the \
             machine."
                .into(),
        );
    };
    if switches.is_empty() {
        return untested(format!("No cause is named, as none can be tested: {why_none}."));
    }
    let mut changed = Vec::new();
    for switch in switches.iter_mut() {
        switch.tune()?;
        let measured = measure(switch.name());
        // Also after a failure: what was changed is put back first.
        switch.put_back()?;
        changed.push((switch.name().to_owned(), off(&measured?)));
    }
    let after = off(&measure("as found")?);
    let (mut tests, mut untold) = (Vec::new(), Vec::new());
    for (knob, changed) in changed {
        let Some((changed, after)) = changed.zip(after) else {
            untold.push(format!("Not told: {knob}, as too few samples were undisturbed."));
            continue;
        };
        let found = [before, after];
        let is_apart = |found: &Interval| changed.high < found.low || changed.low > found.high;
        let is_nearer = |found: &Interval| changed.estimate.abs() < found.estimate.abs();
        let is_cause = found.iter().all(|found| is_apart(found) && is_nearer(found));
        tests.push(Tested { knob, quota, found, changed, is_cause });
    }
    let threads = format!("Threads {}.", worst.threads.name());
    let words: Vec<_> = [threads].into_iter().chain(tests.iter().map(Tested::words)).chain(untold).collect();
    Ok(Explained { words: words.join(" "), tests })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::testing::{measurement, sweep, twice};
    use super::super::{Order, Threads};
    use super::*;

    struct Fake<'a>(&'a Cell<bool>);

    impl Switch for Fake<'_> {
        fn name(&self) -> &'static str {
            "turbo"
        }

        fn tune(&mut self) -> Result<()> {
            self.0.set(true);
            Ok(())
        }

        fn put_back(&mut self) -> Result<()> {
            self.0.set(false);
            Ok(())
        }
    }

    /// Of a machine whose rates are so much higher at low quotas, each measured twice.
    fn measured(more: f64, times: usize) -> Measured {
        let rate = |quota: f64| 60.0 * quota * if quota < 0.75 { 1.0 + more } else { 1.0 };
        let once = sweep(Order::Random, rate);
        let samples = if times == 1 { once } else { twice(&once, 0.005) };
        measurement(samples, Threads::All, 2)
    }

    /// What is explained of it, and how often it was measured again; a changed knob leaves this much.
    fn explained(found: &Measured, left: f64, drifted: f64) -> (Explained, usize) {
        let (is_changed, mut times) = (Cell::new(false), 0);
        let mut measure = |_: &str| {
            times += 1;
            Ok(measured(if is_changed.get() { left } else { drifted }, 2))
        };
        let mut switches: [Box<dyn Switch + '_>; 1] = [Box::new(Fake(&is_changed))];
        let explained = explain(found, &mut switches, "", &mut measure).unwrap();
        assert!(!is_changed.get());
        (explained, times)
    }

    #[test]
    fn a_knob_is_a_cause_only_where_its_change_is_seen() {
        let found = measured(0.2, 2);
        let (cause, times) = explained(&found, 0.0, 0.2);
        assert!(cause.tests[0].is_cause && times == 2, "{cause:?}");
        assert!(
            cause.words.contains("Tested: turbo.") && cause.words.ends_with(": it is a cause."),
            "{cause:?}"
        );
        let (other, _) = explained(&found, 0.2, 0.2);
        assert!(!other.tests[0].is_cause && other.words.ends_with("is not shown."), "{other:?}");
        let (drifted, _) = explained(&found, 0.0, 0.0);
        assert!(!drifted.tests[0].is_cause, "the machine changed by itself: {drifted:?}");
    }

    #[test]
    fn what_cannot_be_tested_is_said_and_nothing_is_measured() {
        for (found, words) in
            [(measured(0.0, 2), "nothing to explain"), (measured(0.2, 1), "take more --reps")]
        {
            let (explained, times) = explained(&found, 0.0, 0.2);
            assert!(explained.words.contains(words) && times == 0, "{explained:?}");
        }
        let mut measure = |_: &str| panic!("there is no knob");
        let none = explain(&measured(0.2, 2), &mut [], "it is a guest", &mut measure).unwrap();
        assert_eq!(none.words, "No cause is named, as none can be tested: it is a guest.");
    }

    #[test]
    fn a_knob_is_put_back_where_measuring_fails() {
        let is_changed = Cell::new(false);
        let mut switches: [Box<dyn Switch + '_>; 1] = [Box::new(Fake(&is_changed))];
        let mut measure = |_: &str| Err(emu_core::Error::unavailable("ended"));
        assert!(explain(&measured(0.2, 2), &mut switches, "", &mut measure).is_err() && !is_changed.get());
    }
}

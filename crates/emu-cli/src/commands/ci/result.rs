//! What runs at several speeds came to.

use std::collections::BTreeMap;

use emu_core::{CpuList, Delivered};
use serde::Serialize;

use super::junit::{Came, Tests};
use crate::exit::Exit;
use crate::zone::record::ExitRecord;

/// Everything that `emu ci` has found.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Report {
    /// Version of the form.
    pub(super) schema: u32,
    /// The version of emu.
    pub(super) emu: &'static str,
    /// When emu began, RFC 3339 in UTC.
    pub(super) started: String,
    /// The command and its arguments.
    pub(super) command: Vec<String>,
    /// The CPUs that the runs had.
    pub(super) cpus: CpuList,
    /// Runs at each speed.
    pub(super) repetitions: u16,
    /// How long a run may take at full speed; at half the speed it is twice as long.
    pub(super) timeout_ns: Option<u64>,
    /// The speeds in the order of the command line. The first is what the others are compared with.
    pub(super) speeds: Vec<String>,
    /// Whether emu came to its end; false where it was interrupted or could not go on.
    pub(super) is_complete: bool,
    /// Each run, in the order in which they were.
    pub(super) runs: Vec<Run>,
    /// The command as a whole.
    pub(super) verdict: Verdict,
    /// At each speed, how the runs ended.
    pub(super) by_speed: Vec<Tally>,
    /// Each test of the JUnit XML, by its class and name.
    pub(super) tests: BTreeMap<String, Judged>,
}

/// One run of the command.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Run {
    /// As on the command line.
    pub(super) speed: String,
    /// How it ended.
    pub(super) outcome: Outcome,
    /// How the command ended; null where that is not known.
    pub(super) exit: Option<ExitRecord>,
    /// How long it took, with the start and the end of the emulation.
    pub(super) wall_ns: u64,
    /// By which method it was slowed; null where that is not known.
    pub(super) method: Option<String>,
    /// What it was given while it wanted all that it could get; null where that cannot be told.
    pub(super) delivered: Option<Delivered>,
    /// Whether it wrote JUnit XML that could be read.
    pub(super) has_tests: bool,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// The command ended with 0.
    Passed,
    /// It ended with another code, or by a signal.
    Failed,
    /// It took longer than it may, or stopped with nobody to continue it, and was ended.
    TimedOut,
}

/// How often the command or a test passed and failed at one speed. A test that times out has failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub(crate) struct Tally {
    /// How often it passed.
    pub(super) passed: u32,
    /// How often it failed.
    pub(super) failed: u32,
    /// How often emu ended it for its time; 0 for a test.
    pub(super) timed_out: u32,
    /// How often it was skipped; 0 for the command.
    pub(super) skipped: u32,
}

/// Where something fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// At slower speeds, and never at the first one.
    OnlyWhenSlow,
    /// At the first speed, too.
    AtFullSpeed,
    /// At slower speeds; it was not run at the first one.
    Unknown,
    /// Nowhere.
    Nowhere,
}

/// A test.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Judged {
    /// Where it fails.
    pub(super) verdict: Verdict,
    /// At each speed, how it ended.
    pub(super) by_speed: Vec<Tally>,
    /// The first line of what it failed with, the first time.
    pub(super) message: Option<String>,
}

impl Tally {
    pub(super) fn fails(self) -> u32 {
        self.failed + self.timed_out
    }

    pub(super) fn runs(self) -> u32 {
        self.passed + self.fails()
    }

    fn add_run(&mut self, outcome: Outcome) {
        *match outcome {
            Outcome::Passed => &mut self.passed,
            Outcome::Failed => &mut self.failed,
            Outcome::TimedOut => &mut self.timed_out,
        } += 1;
    }

    fn add_test(&mut self, came: Came) {
        *match came {
            Came::Passed => &mut self.passed,
            Came::Failed => &mut self.failed,
            Came::Skipped => &mut self.skipped,
        } += 1;
    }
}

impl Verdict {
    fn of(by_speed: &[Tally]) -> Self {
        let Some((first, slower)) = by_speed.split_first() else { return Self::Nowhere };
        match (first.fails() > 0, slower.iter().any(|tally| tally.fails() > 0)) {
            (true, _) => Self::AtFullSpeed,
            (false, false) => Self::Nowhere,
            (false, true) if first.passed > 0 => Self::OnlyWhenSlow,
            (false, true) => Self::Unknown,
        }
    }
}

impl Report {
    pub(super) fn add(&mut self, speed: usize, run: Run, tests: Option<Tests>) {
        if let Some(tally) = self.by_speed.get_mut(speed) {
            tally.add_run(run.outcome);
        }
        self.verdict = Verdict::of(&self.by_speed);
        self.runs.push(run);
        for (name, test) in tests.into_iter().flatten() {
            let judged = self.tests.entry(name).or_insert_with(|| Judged {
                verdict: Verdict::Nowhere,
                by_speed: vec![Tally::default(); self.speeds.len()],
                message: None,
            });
            if let Some(tally) = judged.by_speed.get_mut(speed) {
                tally.add_test(test.came);
            }
            judged.verdict = Verdict::of(&judged.by_speed);
            judged.message = judged.message.take().or(test.message);
        }
    }

    pub(super) fn tests_that_fail(&self, verdict: Verdict) -> impl Iterator<Item = (&String, &Judged)> {
        self.tests.iter().filter(move |(_, judged)| judged.verdict == verdict)
    }

    pub(super) fn exit(&self) -> Exit {
        let verdicts = || self.tests.values().map(|judged| judged.verdict).chain([self.verdict]);
        match verdicts().min() {
            Some(Verdict::OnlyWhenSlow) => Exit::FailsWhenSlow,
            Some(Verdict::AtFullSpeed | Verdict::Unknown) => Exit::Fails,
            Some(Verdict::Nowhere) | None => Exit::Success,
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use std::time::Duration;

    use super::super::junit::Test;
    use super::*;
    use emu_core::as_ns::nanos;

    /// Nothing was run yet, of two speeds.
    pub(crate) fn report() -> Report {
        Report {
            schema: 1,
            emu: "0.1.0",
            started: "2026-01-01T00:00:00Z".into(),
            command: vec!["make".into(), "a|b".into()],
            cpus: [0].into_iter().collect(),
            repetitions: 2,
            timeout_ns: None,
            speeds: vec!["100%".into(), "25%".into()],
            is_complete: true,
            runs: vec![],
            verdict: Verdict::Nowhere,
            by_speed: vec![Tally::default(); 2],
            tests: BTreeMap::new(),
        }
    }

    /// A run with these tests.
    pub(crate) fn add(report: &mut Report, speed: usize, outcome: Outcome, tests: &[(&str, Came)]) {
        let run = Run {
            speed: report.speeds[speed].clone(),
            outcome,
            exit: None,
            wall_ns: nanos(Duration::from_millis(1500)),
            method: None,
            delivered: None,
            has_tests: !tests.is_empty(),
        };
        let test = |&(name, came): &(&str, Came)| {
            let message = (came == Came::Failed).then(|| "too <late>".to_owned());
            (name.to_owned(), Test { came, message })
        };
        report.add(speed, run, Some(tests.iter().map(test).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{add, report};
    use super::*;

    const SLOW: usize = 1;

    #[test]
    fn what_never_fails_at_the_first_speed_fails_only_when_slow() {
        use Outcome::{Failed, Passed, TimedOut};
        for (first, slow, verdict, exit) in [
            ([Passed, Passed], [Passed, Passed], Verdict::Nowhere, Exit::Success),
            ([Passed, Passed], [Passed, TimedOut], Verdict::OnlyWhenSlow, Exit::FailsWhenSlow),
            ([Passed, Failed], [Failed, Failed], Verdict::AtFullSpeed, Exit::Fails),
            ([Failed, Failed], [Passed, Passed], Verdict::AtFullSpeed, Exit::Fails),
        ] {
            let mut report = report();
            for (speed, outcomes) in [(0, first), (SLOW, slow)] {
                for outcome in outcomes {
                    add(&mut report, speed, outcome, &[]);
                }
            }
            assert_eq!((report.verdict, report.exit()), (verdict, exit), "{first:?} {slow:?}");
        }
    }

    #[test]
    fn each_test_has_a_verdict_of_its_own() {
        let mut report = report();
        let (passed, failed) = (Came::Passed, Came::Failed);
        let first = [("race", passed), ("broken", failed), ("skipped", Came::Skipped)];
        add(&mut report, 0, Outcome::Failed, &first);
        add(&mut report, SLOW, Outcome::Failed, &[("race", failed), ("broken", failed), ("new", failed)]);
        let verdicts: Vec<_> = report.tests.iter().map(|(name, test)| (&**name, test.verdict)).collect();
        assert_eq!(
            verdicts,
            [
                ("broken", Verdict::AtFullSpeed),
                ("new", Verdict::Unknown),
                ("race", Verdict::OnlyWhenSlow),
                ("skipped", Verdict::Nowhere),
            ]
        );
        // The command fails anyway; that a test of it fails only when slow is what was asked for.
        assert_eq!((report.verdict, report.exit()), (Verdict::AtFullSpeed, Exit::FailsWhenSlow));
    }
}

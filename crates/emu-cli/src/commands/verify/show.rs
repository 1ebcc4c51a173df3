//! How faithful methods are: as tables or as JSON, and the progress until then.

use std::collections::BTreeMap;
use std::time::Duration;

use emu_bench::numbers::{percent, signed, span};
use emu_bench::record::About;
use emu_bench::stats::{Band, Interval, Verdict};
use emu_bench::table;
use emu_bench::table::{paragraph, wrap};
use emu_bench::verify::{
    Doubt, Emulated, Fairness, Finding, Outcome, Outliers, Plan, SessionEmulated, Spectrum,
};
use emu_core::as_ns::nanos;
use emu_core::{CpuList, MethodId, SpeedSpec, Unavailable};
use serde::Serialize;

use crate::exit::Exit;
use crate::output::SCHEMA;
use crate::values::PAIRS_MOST;

/// What holds for a whole run.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub(crate) struct Settings {
    /// Start of the random numbers.
    pub(crate) seed: u64,
    /// Pairs for each row, at least.
    pub(crate) pairs: usize,
    /// What error passes.
    pub(crate) tolerance: Band,
    #[serde(skip)]
    pub(crate) window: Duration,
}

/// What was found.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Report {
    /// Version of the form.
    schema: u32,
    /// What was measured, when and on what.
    about: About,
    #[serde(flatten)]
    pub(crate) settings: Settings,
    /// What was found by method and speed.
    pub(crate) sections: Vec<Section>,
    /// Methods that cannot do a speed here, and why.
    pub(crate) refused: Vec<Refused>,
}

/// A method that cannot do a speed.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Refused {
    /// The method.
    pub(crate) method: MethodId,
    /// The speed.
    pub(crate) speed: String,
    /// The CPUs.
    pub(crate) cpus: CpuList,
    /// What is missing.
    pub(crate) unavailable: Unavailable,
}

/// One method at one speed, on the CPUs of one zone.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Section {
    /// The method.
    method: MethodId,
    /// The speed.
    speed: String,
    /// The CPUs.
    cpus: CpuList,
    /// Length of an on/off cycle; 0 without one.
    period_ns: u64,
    /// Length of a sample.
    window_ns: u64,
    /// How even the work of a long run is; null where that was not measured.
    spectrum: Option<Spectrum>,
    /// What was found of each kind of work.
    outcomes: Vec<Outcome>,
}

impl Section {
    pub(crate) fn new(
        method: MethodId,
        speed: &SpeedSpec,
        emulated: &SessionEmulated,
        plan: &Plan,
        spectrum: Option<Spectrum>,
        outcomes: Vec<Outcome>,
    ) -> Self {
        Self {
            method,
            speed: speed.to_string(),
            cpus: emulated.demand().cpus(),
            period_ns: nanos(emulated.cycle()),
            window_ns: nanos(plan.window_of(emulated)),
            spectrum,
            outcomes,
        }
    }

    fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.outcomes.iter().flat_map(|outcome| &outcome.findings)
    }

    fn text(&self) -> String {
        let title = title(self.method, &self.speed, &self.cpus);
        let period = match self.period_ns {
            0 => String::new(),
            period => format!(", period {}", span(Duration::from_nanos(period))),
        };
        let error = |ratio: f64| signed(ratio - 1.0);
        let table = table! {
            for finding in self.findings();
            text "WORK" = name(finding),
            percent "IDEAL" = finding.ideal,
            percent "SPEED" = finding.ratio.estimate,
            change "ERROR" = finding.relative.estimate - 1.0,
            number "95% INTERVAL" = {
                let Interval { low, high, .. } = finding.relative;
                format!("{} to {}", error(low).trim_end_matches('%'), error(high))
            },
            percent "NOISE" = finding.floor,
            number "STALL" = span(Duration::from_nanos(finding.longest_stall_ns)),
            verdict "VERDICT" = finding.verdict,
        };
        let notes: String = self.notes().iter().map(paragraph).collect();
        format!("{title}{period}\n\n{}{notes}", table.text())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(Spectrum { granularity, taint }) = &self.spectrum {
            let smooth = match granularity.smooth_from_ms {
                Some(length) => format!("Progress is smooth in windows of {length} ms and longer"),
                None => "Progress is not smooth in any window that was looked at".to_owned(),
            };
            let doubt = taint.map_or(String::new(), |taint| format!(" ({taint})"));
            notes.push(format!("{smooth}{doubt}."));
        }
        let own = self.findings().filter_map(|finding| finding.own_cpu).reduce(f64::max);
        if let Some(own) = own {
            notes.push(format!("emu itself takes up to {} of each CPU.", percent(own)));
        }
        let trials = self.outcomes.iter().filter_map(|outcome| outcome.findings.first());
        let missed = trials.fold((0, 0), |sum, one| (sum.0 + one.missed, sum.1 + one.periods));
        if missed.0 > 0 {
            notes.push(format!("{} of {} periods were missed.", missed.0, missed.1));
        }
        for finding in self.findings() {
            notes.extend(notes_of(finding).into_iter().map(|note| format!("{}: {note}", name(finding))));
        }
        notes.extend(self.disturbances());
        notes
    }

    fn disturbances(&self) -> Option<String> {
        let pairs = self.outcomes.iter().flat_map(|outcome| &outcome.pairs);
        let disturbed: Vec<_> = pairs.filter(|pair| !pair.taints.is_empty()).collect();
        let kept = disturbed.iter().filter(|pair| pair.kept).count();
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for taint in disturbed.iter().flat_map(|pair| &pair.taints) {
            *kinds.entry(taint.kind()).or_default() += 1;
        }
        let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let (kinds, again) = (kinds.join(", "), disturbed.len() - kept);
        (!disturbed.is_empty()).then(|| {
            format!(
                "The machine was not quiet ({kinds}): {again} pairs were taken again, {kept} stayed disturbed and do not count."
            )
        })
    }
}

fn notes_of(finding: &Finding) -> Vec<String> {
    let mut notes = Vec::new();
    if let Verdict::NotEnoughData { pairs_needed } = finding.verdict {
        let why = match (finding.doubt, pairs_needed.filter(|&pairs| pairs <= PAIRS_MOST.into())) {
            (Some(doubt), _) => doubt.to_string(),
            (None, Some(pairs)) => format!("{pairs} pairs would decide (--pairs)"),
            (None, None) => "the error is too near the tolerance to be decided".into(),
        };
        notes.push(format!("not enough data: {why}."));
    }
    let (Outliers { pairs, beyond }, all, late) = (finding.outliers, finding.pairs, finding.late);
    if pairs > 0 && !matches!(finding.doubt, Some(Doubt::Outliers { .. })) {
        let beyond = percent(beyond);
        notes.push(format!("{pairs} of {all} pairs differ from the median by more than {beyond}."));
    }
    if late > 0 {
        notes.push(format!(
            "in {late} windows the emulation stopped the work for longer than the time before them."
        ));
    }
    if let Some(Fairness { emulated, native, .. }) = finding.fairness.filter(Fairness::is_lost) {
        notes.push(format!("shared less evenly, fairness {emulated:.2}, natively {native:.2}."));
    }
    notes
}

/// `cpu-lim at 50% on CPU 0`.
pub(crate) fn title(method: MethodId, speed: &str, cpus: &CpuList) -> String {
    format!("{method} at {speed} on {cpus:#}")
}

fn name(finding: &Finding) -> String {
    finding.cpu.map_or_else(|| finding.workload.clone(), |cpu| format!("{} {cpu}", finding.workload))
}

impl Report {
    pub(crate) fn new(about: About, settings: Settings) -> Self {
        Self { schema: SCHEMA, about, settings, sections: Vec::new(), refused: Vec::new() }
    }

    pub(crate) fn exit(&self) -> Exit {
        let findings = || self.sections.iter().flat_map(Section::findings);
        if findings().any(|finding| finding.verdict == Verdict::Fail) {
            Exit::NotVerified
        } else if findings().any(Finding::is_undecided) {
            Exit::Undecided
        } else {
            Exit::Success
        }
    }

    pub(crate) fn text(&self) -> String {
        let sections = self.sections.iter().map(|section| section.text() + "\n");
        let refused = self.refused.iter().map(|Refused { method, speed, cpus, unavailable }| {
            let refusal = format!("{method} cannot do {speed} on {cpus:#} here: {unavailable}");
            format!("{}{}\n\n", paragraph(refusal), wrap(&format!("hint: {}", unavailable.hint), 2))
        });
        let tolerance = percent(self.settings.tolerance.high() - 1.0);
        let legend = format!(
            "SPEED: median of emulated by native, {} pairs or more. ERROR: against the ideal.\n\
             NOISE: what two native samples differ by. pass: interval and mean are within\n\
             ±{tolerance}, and few windows far off; FAIL: the interval is outside; ?: undecided.\n",
            self.settings.pairs
        );
        sections.chain(refused).chain([legend]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_bench::record::Machine;
    use emu_bench::stats::Interval;
    use emu_bench::table::WIDTH;
    use emu_core::{Host, Roots};

    fn finding(verdict: Verdict) -> Finding {
        let interval =
            |estimate: f64| Interval { estimate, low: estimate * 0.9, high: estimate * 1.1, level: 0.95 };
        Finding {
            workload: "sleep-compute".into(),
            cpu: Some(127),
            asked: 0.5,
            ideal: 0.6667,
            ratio: interval(0.6543),
            relative: interval(0.9814),
            mean: 0.9801,
            clock: Some(1.0),
            verdict,
            doubt: None,
            pairs: 15,
            repeated: 3,
            tainted: 2,
            floor: Some(0.0123),
            detectable: None,
            control_bias: None,
            outliers: Outliers { pairs: 4, beyond: 0.1 },
            longest_stall_ns: 12_300_000,
            late: 2,
            periods: 4000,
            missed: 3,
            own_cpu: Some(0.0042),
            fairness: Some(Fairness { native: 0.99, emulated: 0.5 }),
        }
    }

    fn report(verdicts: &[Verdict]) -> Report {
        let host = Host::detect(&Roots::system()).unwrap();
        let settings = Settings { seed: 1, pairs: 15, tolerance: Band::FIVE_PERCENT, window: Duration::ZERO };
        let mut report = Report::new(About::new(Machine::of(&host), "emu verify --seed 1", 1), settings);
        let outcome = |verdict: &Verdict| Outcome {
            trial: emu_bench::verify::Trial { job: job(), shares: vec![], clocks: vec![] },
            pairs: vec![],
            findings: vec![finding(*verdict)],
        };
        report.sections.push(Section {
            method: MethodId::new("cpu-freeze"),
            speed: "50%".into(),
            cpus: "0".parse().unwrap(),
            period_ns: 20_000_000,
            window_ns: 200_000_000,
            spectrum: None,
            outcomes: verdicts.iter().map(outcome).collect(),
        });
        report
    }

    fn job() -> emu_bench::workload::Job {
        let setting = emu_bench::workload::Setting {
            cpus: "0".parse().unwrap(),
            period: Duration::ZERO,
            share: 0.5,
            window: Duration::ZERO,
        };
        emu_bench::workload::workload("cpu-loop").unwrap().job(&setting)
    }

    #[test]
    fn the_table_keeps_to_its_width_and_tells_what_is_undecided() {
        let undecided = Verdict::NotEnoughData { pairs_needed: Some(41) };
        let text = report(&[Verdict::Pass, Verdict::Fail, undecided]).text();
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("12.3ms ?"), "{text}");
        for part in [
            "cpu-freeze at 50% on CPU 0, period 20ms",
            "66.7%",
            "-1.9%",
            "pass",
            "FAIL",
            "not enough data: 41 pairs would decide",
            "in 2 windows the emulation stopped the work",
            "4 of 15 pairs differ from the median by more than 10%.",
            "shared less evenly, fairness 0.50, natively 0.99.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn where_there_is_doubt_it_is_told_instead_of_more_pairs() {
        let outliers = Outliers { pairs: 4, beyond: 0.1 };
        for (doubt, words) in [
            (Doubt::Disturbed { disturbed: 10, pairs: 15 }, "10 of 15 pairs were disturbed"),
            (Doubt::Controls(0.06), "native against native is off by +6.0%"),
            (Doubt::Outliers { outliers, pairs: 15 }, "4 of 15 windows are off by more than 10%"),
            (Doubt::Mean(-0.06), "the mean is off by -6.0%"),
        ] {
            let mut report = report(&[Verdict::NotEnoughData { pairs_needed: None }]);
            report.sections[0].outcomes[0].findings[0].doubt = Some(doubt);
            let text = report.text().replace('\n', " ");
            assert!(text.contains(words) && !text.contains("would decide"), "{text}");
        }
    }

    #[test]
    fn what_is_undecided_is_neither_a_pass_nor_a_fail() {
        let undecided = Verdict::NotEnoughData { pairs_needed: None };
        for (verdicts, exit) in [
            (&[Verdict::Pass][..], Exit::Success),
            (&[Verdict::Pass, undecided], Exit::Undecided),
            (&[undecided, Verdict::Pass, Verdict::Fail], Exit::NotVerified),
        ] {
            assert_eq!(report(verdicts).exit(), exit, "{verdicts:?}");
        }
    }

    #[test]
    fn json_has_the_schema_the_seed_and_the_unrounded_findings() {
        let json: serde_json::Value =
            serde_json::from_str(&crate::output::json(&report(&[Verdict::Pass])).unwrap()).unwrap();
        assert_eq!((json["schema"].as_u64(), json["seed"].as_u64()), (Some(1), Some(1)));
        assert_eq!(json["about"]["command"], "emu verify --seed 1");
        for field in ["date", "version"] {
            assert!(json["about"][field].is_string(), "{field}");
        }
        assert!(json["about"]["machine"]["kernel"].is_string());
        assert_eq!(json["sections"][0]["cpus"], "0");
        assert_eq!(json["sections"][0]["outcomes"][0]["findings"][0]["ideal"].as_f64(), Some(0.6667));
    }
}

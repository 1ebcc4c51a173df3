//! The methods: as a table, one in full, or as JSON.

use std::fmt::Write as _;

use emu_bench::columns;
use emu_bench::numbers::{percent, span};
use emu_bench::table::{Table, wrap};
use emu_core::{About, CpuList, Demand, Expected, MethodId, SpeedSpec, Unavailable};
use serde::Serialize;

use crate::hints;
use crate::zone::options::Options;
use crate::zone::record::FORM;

/// Every method judged by one demand.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Listing {
    /// Version of the form.
    schema: u32,
    /// The speed by which they were judged.
    speed: String,
    /// The CPUs by which they were judged.
    cpus: CpuList,
    #[serde(flatten)]
    options: Options,
    /// What `auto` would take of all methods; null when none works.
    auto: Option<MethodId>,
    /// Each method.
    methods: Vec<Verdict>,
}

/// One method and what it can do.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Verdict {
    /// Its name.
    method: MethodId,
    /// Whether it can do what is asked here.
    works: bool,
    /// What to expect, where it works.
    expected: Option<Expected>,
    /// What is to be known of it here, in words.
    notes: Vec<String>,
    /// What is missing, where it does not.
    unavailable: Option<Unavailable>,
    /// What it is, the same on every host.
    about: About,
}

impl Verdict {
    pub(crate) fn new(method: MethodId, about: About, judged: Result<Expected, Unavailable>) -> Self {
        let works = judged.is_ok();
        let notes = judged.as_ref().map(|expected| expected.notes.clone()).unwrap_or_default();
        let (expected, unavailable) = match judged {
            Ok(expected) => (Some(expected), None),
            Err(unavailable) => (None, Some(hints::worded(unavailable))),
        };
        Self { method, works, expected, notes, unavailable, about }
    }
}

impl Listing {
    pub(crate) fn new(
        speed: &SpeedSpec,
        demand: &Demand,
        auto: Option<MethodId>,
        methods: Vec<Verdict>,
    ) -> Self {
        Self {
            schema: FORM,
            speed: speed.to_string(),
            cpus: demand.cpus(),
            options: Options::of(demand),
            auto,
            methods,
        }
    }

    pub(crate) fn table(&self) -> String {
        let mut table = Table::new(columns![
            text "METHOD", text "HERE", number "ERROR", number "PERIOD", number "STALL",
            text "WHAT IT DOES",
        ]);
        for verdict in &self.methods {
            let name = verdict.method.to_string();
            let summary = verdict.about.summary.to_owned();
            table.row(match &verdict.expected {
                Some(expected) => {
                    let cycle = |value| if expected.period.is_zero() { "-".to_owned() } else { span(value) };
                    let (period, stall) = (cycle(expected.period), cycle(expected.longest_stall));
                    [name, "yes".into(), percent(expected.error), period, stall, summary]
                }
                None => [name, "no".into(), String::new(), String::new(), String::new(), summary],
            });
        }
        let mut text = format!("{}\n\n{}", self.heading(), table.text());
        for verdict in &self.methods {
            if let Some(unavailable) = &verdict.unavailable {
                let _ = write!(text, "\n{}", reason(verdict.method, unavailable));
            }
        }
        for verdict in &self.methods {
            for note in &verdict.notes {
                let _ = write!(text, "\n{}\n", wrap(&format!("{}: {note}", verdict.method), 0));
            }
        }
        text.push_str(
            "\nERROR: expected error of the speed of CPU-bound work. STALL: longest time at a\n\
             stretch in which a task gets nothing. `emu methods --method NAME` tells more.\n",
        );
        text
    }

    pub(crate) fn in_full(&self) -> String {
        let mut text = String::new();
        for Verdict { method, about, expected, notes, unavailable, .. } in &self.methods {
            let line = |text: &mut String, key: &str, value: &str| {
                let _ = writeln!(text, "  {key:<9}{}", wrap(value, 11).trim_start());
            };
            let _ = writeln!(text, "{method}");
            line(&mut text, "what", about.summary);
            line(&mut text, "acts on", about.acts_on);
            line(&mut text, "speeds", if about.continuous { "any" } else { "those that the hardware has" });
            line(&mut text, "needs", about.needs);
            line(&mut text, "source", about.source);
            for (index, limit) in about.limits.iter().enumerate() {
                line(&mut text, if index == 0 { "limits" } else { "" }, &format!("- {limit}"));
            }
            let _ = writeln!(text, "\n{}", self.heading());
            line(&mut text, "works", if expected.is_some() { "yes" } else { "no" });
            if let Some(expected) = expected {
                line(&mut text, "error", &format!("{} expected", percent(expected.error)));
                if !expected.period.is_zero() {
                    line(&mut text, "period", &span(expected.period));
                    line(&mut text, "stall", &format!("{} at a stretch", span(expected.longest_stall)));
                }
            }
            for note in notes {
                line(&mut text, "note", note);
            }
            if let Some(unavailable) = unavailable {
                line(&mut text, "reason", &unavailable.detail);
                line(&mut text, "hint", &unavailable.hint.to_string());
            }
        }
        text
    }

    fn heading(&self) -> String {
        format!("On this host, for {} on {:#}:", self.speed, self.cpus)
    }
}

fn reason(method: MethodId, unavailable: &Unavailable) -> String {
    format!(
        "{}\n{}\n",
        wrap(&format!("{method} does not work here: {}", unavailable.detail), 0),
        wrap(&format!("hint: {}", unavailable.hint), 2)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_bench::table::WIDTH;
    use emu_core::Reason;
    use std::time::Duration;

    const ABOUT: About = {
        let mut about = About::new("burners on each CPU take away what a slower CPU would not have");
        about.acts_on = "CPU";
        about.needs = "CAP_SYS_NICE";
        about.limits = &["everything else on the zone's CPUs is slowed too", "burns power"];
        about.source = "a paper";
        about
    };

    fn listing() -> Listing {
        let expected = Expected {
            error: 0.0042,
            period: Duration::from_millis(10),
            longest_stall: Duration::from_millis(6),
            notes: vec!["CPUs 2-3 share a core with the zone".into()],
        };
        let refusal =
            Unavailable::new(Reason::NoCpufreq, "there is no cpufreq here", "use a host that has one");
        let speed: SpeedSpec = "40%".parse().unwrap();
        let targets = [0, 1].map(|cpu| (cpu, emu_core::Target { share: 0.4, clock: None }));
        Listing::new(
            &speed,
            &Demand::new(targets.into()),
            Some(MethodId::new("cpu-hogs")),
            vec![
                Verdict::new(MethodId::new("cpu-freq"), ABOUT, Err(refusal)),
                Verdict::new(MethodId::new("cpu-hogs"), ABOUT, Ok(expected)),
            ],
        )
    }

    #[test]
    fn the_table_tells_what_works_and_what_is_missing() {
        let expected = "\
On this host, for 40% on CPUs 0-1:

METHOD    HERE  ERROR  PERIOD  STALL  WHAT IT DOES
cpu-freq  no                          burners on each CPU take away what a
                                      slower CPU would not have
cpu-hogs  yes   0.42%    10ms    6ms  burners on each CPU take away what a
                                      slower CPU would not have

cpu-freq does not work here: there is no cpufreq here
  hint: use a host that has one

cpu-hogs: CPUs 2-3 share a core with the zone

ERROR: expected error of the speed of CPU-bound work. STALL: longest time at a
stretch in which a task gets nothing. `emu methods --method NAME` tells more.
";
        assert_eq!(listing().table(), expected);
    }

    #[test]
    fn one_in_full_has_its_source_and_every_limit() {
        let mut listing = listing();
        listing.methods.remove(0);
        let expected = "\
cpu-hogs
  what     burners on each CPU take away what a slower CPU would not have
  acts on  CPU
  speeds   any
  needs    CAP_SYS_NICE
  source   a paper
  limits   - everything else on the zone's CPUs is slowed too
           - burns power

On this host, for 40% on CPUs 0-1:
  works    yes
  error    0.42% expected
  period   10ms
  stall    6ms at a stretch
  note     CPUs 2-3 share a core with the zone
";
        assert_eq!(listing.in_full(), expected);
    }

    #[test]
    fn no_line_of_a_real_listing_is_wider_than_the_table() {
        let demand = Demand::new([(0, emu_core::Target { share: 0.5, clock: None })].into());
        let refusal = || Unavailable::new(Reason::NoController, "word ".repeat(40), "word ".repeat(40));
        let verdicts = emu_core::METHODS.iter().map(|m| Verdict::new(m.id(), *m.about(), Err(refusal())));
        let listing = Listing::new(&"50%".parse().unwrap(), &demand, None, verdicts.collect());
        for line in (listing.table() + &listing.in_full()).lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn json_has_the_reason_by_name() {
        let json = serde_json::to_value(listing()).unwrap();
        assert_eq!((&json["schema"], &json["auto"]), (&3.into(), &"cpu-hogs".into()));
        assert_eq!(json["methods"][0]["unavailable"]["reason"], "no-cpufreq");
        assert_eq!(json["methods"][1]["expected"]["longest_stall_ns"], 6_000_000);
    }
}

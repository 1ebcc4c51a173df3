//! The methods: as a table, one in full, or as JSON.

use emu_bench::numbers::{percent, span};
use emu_bench::table;
use emu_bench::table::{facts, paragraph, wrap};
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
        let cycle = |expected: &Expected, value| {
            if expected.period.is_zero() { "-".to_owned() } else { span(value) }
        };
        let table = table! {
            for Verdict { method, about, expected, .. } in &self.methods;
            text "METHOD" = *method,
            text "HERE" = if expected.is_some() { "yes" } else { "no" },
            number "ERROR" = expected.as_ref().map_or(String::new(), |is| percent(is.error)),
            number "PERIOD" = expected.as_ref().map_or(String::new(), |is| cycle(is, is.period)),
            number "STALL" = expected.as_ref().map_or(String::new(), |is| cycle(is, is.longest_stall)),
            text "WHAT IT DOES" = about.summary,
        };
        let mut text = format!("{}\n\n{}", self.heading(), table.text());
        for Verdict { method, unavailable, .. } in &self.methods {
            text.extend(unavailable.iter().map(|unavailable| format!("\n{}", reason(*method, unavailable))));
        }
        for Verdict { method, notes, .. } in &self.methods {
            text.extend(notes.iter().map(|note| format!("\n{}", paragraph(format!("{method}: {note}")))));
        }
        text.push_str(
            "\nERROR: expected error of the speed of CPU-bound work. STALL: longest time at a\n\
             stretch in which a task gets nothing. `emu methods --method NAME` tells more.\n",
        );
        text
    }

    pub(crate) fn in_full(&self) -> String {
        let of_method = |Verdict { method, about, expected, notes, unavailable, .. }: &Verdict| {
            let limits = about.limits.iter().map(|limit| format!("- {limit}"));
            let names = std::iter::once("  limits").chain(std::iter::repeat(""));
            let always = [
                ("  what", about.summary),
                ("  acts on", about.acts_on),
                ("  speeds", if about.continuous { "any" } else { "those that the hardware has" }),
                ("  needs", about.needs),
                ("  source", about.source),
            ];
            let always = facts(11, always) + &facts(11, names.zip(limits));
            let mut here = vec![("  works", if expected.is_some() { "yes" } else { "no" }.to_owned())];
            if let Some(expected) = expected {
                here.push(("  error", format!("{} expected", percent(expected.error))));
                if !expected.period.is_zero() {
                    here.push(("  period", span(expected.period)));
                    here.push(("  stall", format!("{} at a stretch", span(expected.longest_stall))));
                }
            }
            here.extend(notes.iter().map(|note| ("  note", note.clone())));
            if let Some(Unavailable { detail, hint, .. }) = unavailable {
                here.extend([("  reason", detail.clone()), ("  hint", hint.to_string())]);
            }
            format!("{method}\n{always}\n{}\n{}", self.heading(), facts(11, here))
        };
        self.methods.iter().map(of_method).collect()
    }

    fn heading(&self) -> String {
        format!("On this host, for {} on {:#}:", self.speed, self.cpus)
    }
}

fn reason(method: MethodId, unavailable: &Unavailable) -> String {
    let detail = paragraph(format!("{method} does not work here: {}", unavailable.detail));
    format!("{detail}{}\n", wrap(&format!("hint: {}", unavailable.hint), 2))
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

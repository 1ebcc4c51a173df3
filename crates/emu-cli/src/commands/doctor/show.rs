//! The knobs of the machine: as a table, in full, as JSON; what was tuned; what each does to the noise.

use emu_bench::numbers::percent;
use emu_bench::report::{Axis, Chart, Point, Series};
use emu_bench::stats::Interval;
use emu_bench::table::{facts, paragraph};
use emu_bench::{data, distinct, table};
use emu_core::CpuList;
use emu_machine::doctor::effects::{Effect, Measured};
use emu_machine::doctor::{Change, Examined, Finding, Load, Machine, State, Takes, Tuned, Tuning};
use serde::Serialize;

use crate::output::{SCHEMA, Shown};

/// Changes of one knob that are spelled out; a machine may have hundreds of interrupts.
const SPELLED_OUT: usize = 3;

/// Everything that `emu doctor show` shows.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Report {
    /// Version of the form.
    schema: u32,
    /// Whether runs are repeatable as the machine is.
    ready: bool,
    /// The name of the processor.
    model: String,
    /// The release of the kernel.
    kernel: String,
    /// What the machine is a guest of; null on hardware.
    hypervisor: Option<String>,
    /// The CPUs that were looked at.
    cpus: CpuList,
    /// What else runs on them; null where that cannot be told.
    load: Option<Load>,
    /// The core clock of each; null where it cannot be measured.
    clocks_hz: Option<Vec<f64>>,
    /// What was looked at, and what was found.
    knobs: Vec<Examined>,
}

impl Report {
    pub(crate) fn new(machine: &Machine, knobs: Vec<Examined>) -> Self {
        let Machine { host, cpus, load, clocks } = machine;
        Self {
            schema: SCHEMA,
            ready: !knobs.iter().any(|knob| knob.finding.state.is_disturbing()),
            model: host.model.clone(),
            kernel: host.kernel.clone(),
            hypervisor: host.hypervisor.clone(),
            cpus: cpus.clone(),
            load: *load,
            clocks_hz: clocks.as_ref().ok().cloned(),
            knobs,
        }
    }

    /// Whether nothing disturbs that could be put right without a reboot.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready
    }

    pub(crate) fn table(&self) -> String {
        let table = table! {
            for knob in &self.knobs;
            text "KNOB" = knob.about.name,
            text "STATE" = word(knob.finding.state),
            text "FOUND" = &knob.finding.found,
        };
        let is_told =
            |knob: &&Examined| matches!(knob.finding.state, State::Tune | State::Hand | State::Advice);
        let told = self.knobs.iter().filter(is_told).map(|knob| {
            let (name, better) = (knob.about.name, knob.about.better);
            format!("{name}: better {better}. {}", capital(&change(knob)))
        });
        let more = "`emu doctor show --knobs NAME` tells why, and who says so.";
        let all = told.chain([format!("{} {more}", self.conclusion())]);
        table.text() + &all.map(|words| "\n".to_owned() + &paragraph(words)).collect::<String>()
    }

    pub(crate) fn in_full(&self) -> String {
        let in_full = |knob: &Examined| {
            let (about, change) = (knob.about, change(knob));
            let lines = [
                ("  state", word(knob.finding.state)),
                ("  found", knob.finding.found.as_str()),
                ("  better", about.better),
                ("  why", about.why),
                ("  source", about.source),
                ("  change", change.as_str()),
            ];
            format!("{}\n{}\n", about.name, facts(10, lines))
        };
        self.knobs.iter().map(in_full).collect::<String>() + &paragraph(self.conclusion())
    }

    fn conclusion(&self) -> String {
        let names = |state: State| {
            let knobs = self.knobs.iter().filter(|knob| knob.finding.state == state);
            knobs.map(|knob| knob.about.name).collect::<Vec<_>>()
        };
        let (tune, hand) = (names(State::Tune), names(State::Hand));
        let mut text = match (tune.is_empty(), hand.is_empty()) {
            (true, true) => "Ready for repeatable runs, as far as can be seen.".to_owned(),
            (false, true) => format!("Not tuned: `emu doctor tune` changes {}.", tune.join(", ")),
            (true, false) => format!("Not ready: put right by hand {}.", hand.join(", ")),
            (false, false) => format!(
                "Not tuned: `emu doctor tune` changes {}; put right by hand {}.",
                tune.join(", "),
                hand.join(", ")
            ),
        };
        let unseen = names(State::Unseen);
        if !unseen.is_empty() {
            text = format!("{text} What is n/a cannot be seen from here ({}).", unseen.len());
        }
        text
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Ready => "ready",
        State::Tune => "tune",
        State::Hand => "by hand",
        State::Advice => "advice",
        State::Fact => "-",
        State::Unseen => "n/a",
    }
}

/// How the knob is changed, whether that needs a reboot, and whether a tuning does it.
fn change(knob: &Examined) -> String {
    let Finding { state, hint, changes, .. } = &knob.finding;
    let hint = hint.as_deref().unwrap_or_default();
    match (state, knob.about.takes) {
        (State::Tune | State::Advice, _) if !changes.is_empty() => {
            let spelled = spelled(changes);
            match &knob.not_permitted {
                Some(why) => format!("without a reboot, but not by this user: {why}; run as root"),
                None if hint.is_empty() => format!("`emu doctor tune` does it without a reboot: {spelled}"),
                None => format!("`emu doctor tune` does it without a reboot: {spelled}; {hint}"),
            }
        }
        (State::Advice, Takes::Reboot) => format!("needs a reboot: {hint}"),
        (State::Hand | State::Advice, Takes::Nothing) => hint.to_owned(),
        (State::Hand | State::Advice, _) => format!("by hand, without a reboot: {hint}"),
        (State::Tune | State::Ready, _) if hint.is_empty() => "nothing to change".to_owned(),
        (State::Fact | State::Unseen, Takes::Reboot) => "only by a reboot, and not needed".to_owned(),
        (State::Fact | State::Unseen, _) if hint.is_empty() => "not from here".to_owned(),
        (State::Tune | State::Ready | State::Fact | State::Unseen, _) => hint.to_owned(),
    }
}

fn spelled(changes: &[Change]) -> String {
    let some: Vec<_> = changes.iter().take(SPELLED_OUT).map(ToString::to_string).collect();
    match changes.len().saturating_sub(SPELLED_OUT) {
        0 => some.join(", "),
        more => format!("{}, and {more} more", some.join(", ")),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

pub(crate) fn begun(tuning: &Tuning) -> Vec<String> {
    let tuned = tuning.tuned().iter().map(|Tuned { name, found, changes, refused }| {
        let but = match refused.len() {
            0 => String::new(),
            count => format!("; the kernel refused {count} more"),
        };
        format!("{name}: found {found}; now {}{but}", spelled(changes))
    });
    let refused = tuning.refused().iter().map(|knob| format!("{} is left as it is: {}", knob.name, knob.why));
    let lines: Vec<_> = tuned.chain(refused).collect();
    if lines.is_empty() { vec!["there is nothing to tune here".to_owned()] } else { lines }
}

pub(crate) fn shown(measured: &Measured) -> Shown {
    Shown { text: effects(measured), csv: csv(measured), figures: vec![("", chart(measured))] }
}

fn effects(measured: &Measured) -> String {
    let table = table! {
        for effect in &measured.effects;
        text "KNOB" = &effect.knob,
        text "WORK" = effect.kind.name(),
        percent "FOUND" = effect.found_range,
        percent "TUNED" = effect.tuned_range,
        number "NOISE RATIO" = interval(&effect.noise_ratio),
        number "TIME RATIO" = interval(&effect.time_ratio),
    };
    let first = measured.effects.first();
    let (pairs, level) = first.map_or((0, 0.0), |effect| (effect.pairs.len(), effect.noise_ratio.level));
    let note = format!(
        "FOUND, TUNED: (max-min)/median of 25 runs, the middle of {pairs} windows. Ratios: tuned / found, the middle of \
         the pairs with its {} interval; below 1 is calmer, or faster.",
        percent(level)
    );
    format!("{}\n{}\n{}", table.text(), paragraph(note), paragraph(&measured.conclusion))
}

fn interval(ratio: &Interval) -> String {
    format!("{:.2} ({:.2} to {:.2})", ratio.estimate, ratio.low, ratio.high)
}

fn csv(measured: &Measured) -> String {
    let table = data! {
        for effect in &measured.effects;
        knob = &effect.knob, work = effect.kind.name(), pairs = effect.pairs.len(), found_noise = effect.found_range,
        tuned_noise = effect.tuned_range, interval noise_ratio, interval time_ratio,
    };
    table.csv()
}

fn chart(measured: &Measured) -> Chart {
    let names = distinct(measured.effects.iter().map(|effect| effect.knob.as_str()));
    let series = emu_machine::doctor::effects::KINDS.iter().map(|kind| {
        let of_kind = measured.effects.iter().filter(|effect| effect.kind == *kind);
        let point = |effect: &Effect| {
            let place = names.iter().position(|name| *name == effect.knob).unwrap_or(0);
            Point::of_interval((place + 1) as f64, &effect.noise_ratio)
        };
        Series::points(kind.name(), of_kind.map(point).collect())
    });
    let series = series.collect();
    let ends = [0.5, names.len() as f64 + 0.5];
    let x = Axis::of_names("knob", names.iter().map(|name| (*name).to_owned()).collect());
    let y = Axis::log("noise tuned / noise found");
    Chart::new("what each knob does to the noise", x, y, series)
        .with_ideal("no effect", ends.map(|end| (end, 1.0)).to_vec())
}

#[cfg(test)]
mod tests {
    use emu_core::Roots;
    use emu_machine::doctor::{KNOBS, examine};

    use super::*;

    /// This machine, with findings of every state that the tests make up.
    fn report(states: &[State]) -> Report {
        let machine = Machine::of_files(&Roots::system(), None).unwrap();
        let knobs = examine(&machine, &[])
            .unwrap()
            .into_iter()
            .zip(states.iter().copied().chain(std::iter::repeat(State::Ready)));
        let knobs = knobs.map(|(mut knob, state)| {
            knob.finding.state = state;
            knob.not_permitted = None;
            knob
        });
        Report::new(&machine, knobs.collect())
    }

    #[test]
    fn ready_is_what_neither_a_tuning_nor_a_hand_could_better() {
        for (states, ready) in [
            (vec![], true),
            (vec![State::Advice, State::Fact, State::Unseen], true),
            (vec![State::Tune], false),
            (vec![State::Ready, State::Hand], false),
        ] {
            let report = report(&states);
            assert_eq!(report.is_ready(), ready, "{states:?}");
            assert_eq!(report.table().contains("Ready for repeatable runs"), ready, "{}", report.table());
        }
    }

    #[test]
    fn what_a_tuning_gives_its_command_alone_leaves_a_host_ready() {
        let mut report = report(&[State::Advice]);
        report.knobs[0].finding.changes = vec![Change::TimerSlack { value: 1 }];
        assert!(report.is_ready());
        let text = report.table().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("without a reboot: timer slack of the command 1 ns"), "{text}");
        assert!(text.contains("Ready for repeatable runs"), "{text}");
    }

    #[test]
    fn the_conclusion_names_what_to_do() {
        let text = report(&[State::Tune, State::Hand, State::Unseen]).conclusion();
        let [first, second] = [0, 1].map(|place| KNOBS[place].name);
        let expected = format!(
            "Not tuned: `emu doctor tune` changes {first}; put right by hand {second}. What is n/a cannot be seen from \
             here (1)."
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn tables_keep_to_the_width_and_have_a_row_for_each_knob() {
        let report = report(&[State::Tune, State::Hand, State::Unseen, State::Fact, State::Advice]);
        for text in [report.table(), report.in_full()] {
            assert!(text.lines().all(|line| line.chars().count() <= emu_bench::table::WIDTH), "{text}");
            assert!(KNOBS.iter().all(|knob| text.contains(knob.name)));
        }
        let json = crate::output::json(&report).unwrap();
        assert!(json.contains("\"ready\": false") && json.contains("\"takes\": \"tuning\""), "{json}");
    }

    #[test]
    fn of_many_changes_some_are_spelled_out() {
        let change = |number| Change::File { path: format!("/proc/irq/{number}").into(), value: "0".into() };
        let changes: Vec<_> = (0..5).map(change).collect();
        assert_eq!(
            spelled(&changes),
            "`0` to /proc/irq/0, `0` to /proc/irq/1, `0` to /proc/irq/2, and 2 more"
        );
        assert_eq!(spelled(&changes[..1]), "`0` to /proc/irq/0");
    }

    #[test]
    fn effects_are_shown_with_their_intervals() {
        let ratio = |estimate| Interval { estimate, low: estimate / 2.0, high: estimate * 2.0, level: 0.95 };
        let effect = Effect {
            knob: "c-states".into(),
            kind: emu_machine::noise::Kind::Sleep1Ms,
            found_range: 0.2,
            tuned_range: 0.05,
            noise_ratio: ratio(0.24),
            time_ratio: ratio(0.9),
            pairs: vec![],
        };
        let measured = Measured { effects: vec![effect], conclusion: "Calmer.".into() };
        let shown = shown(&measured);
        let row = "c-states  sleep-1ms    20%     5%  0.24 (0.12 to 0.48)  0.90 (0.45 to 1.80)\n";
        assert!(shown.text.contains(row), "{}", shown.text);
        assert!(shown.text.contains("95% interval"), "{}", shown.text);
        assert!(shown.text.lines().all(|line| line.chars().count() <= 80), "{}", shown.text);
        assert!(
            shown.csv.contains("c-states,sleep-1ms,0,0.2,0.05,0.24,0.12,0.48,0.9,0.45,1.8"),
            "{}",
            shown.csv
        );
        assert!(shown.figures[0].1.svg().unwrap().contains("c-states"));
    }
}

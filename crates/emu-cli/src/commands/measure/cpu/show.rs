//! What CPUs calculate, as tables and figures.

use emu_bench::numbers::{nanos, percent, rate};
use emu_bench::report::{Axis, Chart, Series};
use emu_bench::stats::Interval;
use emu_bench::table::{Column, Table, Value, paragraph};
use emu_bench::{fields, row, table};
use emu_machine::cpu::{Cpu, Peak, Units};
use emu_machine::kernel::arithmetic::Work;
use emu_machine::tools::{Figure, What};

use crate::commands::measure::of_samples;
use crate::output::Shown;

/// Columns of threads that fit beside the others: the fewest, and the most.
const FEWEST_SHOWN: usize = 1;
const MOST_SHOWN: usize = 2;

const COLUMNS: &str = "what,operation,threads,operations_per_s,wait_ns,wait_cycles,theoretical_per_s,share,samples,\
theoretical_from";

pub(crate) fn shown(cpu: &Cpu) -> Shown {
    Shown { text: text(cpu), csv: csv(cpu), figures: vec![("", chart(cpu))] }
}

fn text(cpu: &Cpu) -> String {
    let mut threads = threads(cpu);
    if threads.len() > FEWEST_SHOWN + MOST_SHOWN {
        threads.drain(FEWEST_SHOWN..threads.len() - MOST_SHOWN);
    }
    let header = threads.iter().map(|count| match count {
        1 => "1 THREAD".to_owned(),
        count => format!("{count} THREADS"),
    });
    let header = header.map(Column::number);
    let last = ["ONE AFTER ANOTHER", "CYCLES"].map(Column::number);
    let mut table = Table::new([Column::text("OPERATION")].into_iter().chain(header).chain(last));
    for wait in &cpu.waits {
        let of = |threads: &usize| {
            let found = cpu.rates.iter().find(|rate| rate.work == wait.work && rate.threads == *threads);
            Value::from(found.map(|is| rate(is.operations_per_s, "op")))
        };
        let rates = threads.iter().map(of);
        let last = row![nanos(wait.wait_ns), wait.wait_cycles.map(|cycles| format!("{cycles:.1}"))];
        table.row(row![wait.work.name()].into_iter().chain(rates).chain(last));
    }
    let note = format!(
        "Many at a time: numbers of 64 bits, {} in a vector ({}). ×+ is one instruction and counts as two operations. One \
         after another: until the next operation can begin{}.",
        cpu.lanes,
        cpu.instruction_set,
        cpu.clock.map_or_else(String::new, |clock| format!(", at {clock}"))
    );
    let mut text = format!("{}\n{}", table.text(), paragraph(note));
    if !cpu.peaks.is_empty() {
        text = format!("{text}\n{}", peaks(&cpu.peaks).text());
    }
    for note in &cpu.notes {
        text = format!("{text}\n{}", paragraph(note));
    }
    format!("{text}\n{}", paragraph(conclusion(cpu)))
}

fn threads(cpu: &Cpu) -> Vec<usize> {
    let mut threads: Vec<usize> = cpu.rates.iter().map(|rate| rate.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    threads
}

fn peaks(peaks: &[Peak]) -> Table {
    table! {
        for peak in peaks;
        number "THREADS" = peak.threads,
        number "CORES" = peak.cores,
        number "UNITS" = peak.units.count,
        number "PEAK" = peak.theoretical_per_s.map(|theoretical| rate(theoretical, "op")),
        number "BEST" = rate(peak.best_per_s, "op"),
        percent "SHARE" = peak.share,
        text "UNITS AND PEAK FROM" = if peak.units.documented { "the CPU's model" } else { "what was measured" },
    }
}

fn conclusion(cpu: &Cpu) -> String {
    let mut text = match cpu.peaks.iter().max_by_key(|peak| peak.threads) {
        Some(Peak { share: Some(share), threads, cores, units, .. }) => format!(
            "At best {threads} thread(s) reach {} of the peak: {cores} cores x clock x {} units x {} doubles x 2.",
            percent(*share),
            units.count,
            cpu.lanes
        ),
        Some(Peak { units: Units { refuted, count, .. }, threads, best_per_s, alike, .. }) => {
            let why = match refuted {
                Some(documented) => format!(
                    ", which takes {count} units. The model that /proc/cpuinfo names has {documented}: it is wrong here, as it \
                     may be in a virtual machine, and the peak is not known."
                ),
                None if !alike => {
                    "; they run on CPUs of different kinds, so that their peak is not known.".to_owned()
                }
                None => {
                    "; how many units this CPU has is not documented here, so that its peak is not known."
                        .to_owned()
                }
            };
            format!("{threads} thread(s) make {} at best{why}", rate(*best_per_s, "op"))
        }
        None => "The core clock could not be measured, so that the peak is not known.".to_owned(),
    };
    let most = threads(cpu).last().copied().unwrap_or(1);
    if let (Some(1), true) = (threads(cpu).first(), most > 1) {
        let growth = match cpu.growth(most) {
            Some(Interval { estimate, low, high, .. }) => {
                format!("{most} threads do {estimate:.2} ({low:.2} to {high:.2}) times the work of one.")
            }
            None => {
                format!("How many times the work of one {most} threads do is not told: others disturbed it.")
            }
        };
        text.extend([" ", &growth]);
    }
    text
}

/// How the work of another tool grows with threads beside that of integers here; empty for one number of threads.
pub(crate) fn growth(cpu: &Cpu, others: &[Figure]) -> String {
    let events = others.iter().filter_map(|figure| match figure.what {
        What::Primes(threads) => Some((threads, figure.per_second)),
        _ => None,
    });
    let mut events: Vec<_> = events.collect();
    events.sort_by_key(|(threads, _)| *threads);
    let (Some(&(fewest, least)), Some(&(most, all))) = (events.first(), events.last()) else {
        return String::new();
    };
    if fewest == most {
        return String::new();
    }
    let rate = |threads: usize| {
        let of = Work::MIXED_INTEGERS;
        let found = cpu.rates.iter().find(|rate| (rate.work, rate.threads) == (of, threads));
        found.filter(|rate| !rate.disturbed).map(|rate| rate.operations_per_s)
    };
    let here = rate(most).zip(rate(fewest)).map_or_else(
        || "that many were not measured here undisturbed".to_owned(),
        |(all, least)| format!("those of {} here {:.2} times", Work::MIXED_INTEGERS.name(), all / least),
    );
    paragraph(format!(
        "From {fewest} to {most} threads sysbench's events become {:.2} times as many, {here}.",
        all / least
    ))
}

fn csv(cpu: &Cpu) -> String {
    let mut table = Table::data(COLUMNS);
    for rate in &cpu.rates {
        let peak = cpu.peaks.iter().find(|peak| rate.work == Work::PEAK && peak.threads == rate.threads);
        let theoretical = peak.and_then(|peak| peak.theoretical_per_s);
        fields!(table;
            what = "rate", operation = rate.work.name(), threads = rate.threads,
            operations_per_s = rate.operations_per_s, theoretical_per_s = theoretical,
            share = peak.and_then(|peak| peak.share), samples = rate.samples.len(),
            theoretical_from = theoretical.map(|_| "model"),
        );
    }
    for wait in &cpu.waits {
        fields!(table;
            what = "wait", operation = wait.work.name(), threads = 1_u64, wait_ns = wait.wait_ns,
            wait_cycles = wait.wait_cycles, samples = wait.samples.len(),
        );
    }
    table.csv()
}

fn chart(cpu: &Cpu) -> Chart {
    let series = threads(cpu).into_iter().map(|threads| {
        let points = cpu.waits.iter().enumerate().filter_map(|(place, wait)| {
            let rate = cpu.rates.iter().find(|rate| rate.work == wait.work && rate.threads == threads)?;
            let point = of_samples((place + 1) as f64, rate.operations_per_s, &rate.samples, 1e9);
            Some(point.open(rate.disturbed))
        });
        Series::points(format!("{threads} thread(s)"), points.collect())
    });
    // Eleven whole names would not fit side by side.
    let short = |work: Work| work.name().replace("integer", "i").replace("double", "d");
    let names = cpu.waits.iter().map(|wait| short(wait.work)).collect();
    let x = Axis::of_names("operation on integers (i) or doubles (d)", names);
    Chart::new("cpu: operations many at a time", x, Axis::log("10⁹ operations/s"), series.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::Hertz;
    use emu_machine::cpu::{Rate, Wait};
    use emu_machine::tools::Tool;

    fn cpu(documented: bool) -> Cpu {
        let rate = |work, threads: usize| {
            let operations_per_s = 123.4e9 * threads as f64;
            Rate { work, threads, operations_per_s, samples: vec![operations_per_s; 5], disturbed: false }
        };
        let rates = Work::ALL.iter().flat_map(|&work| [1, 2, 4, 8, 16].map(|threads| rate(work, threads)));
        let waits = Work::ALL.map(|work| Wait {
            work,
            wait_ns: 1.234,
            wait_cycles: Some(4.0),
            samples: vec![1.234],
            disturbed: false,
        });
        let peak = |threads: usize| Peak {
            threads,
            cores: threads,
            alike: true,
            units: Units { count: 2, documented, refuted: None },
            clock: Hertz(3_200_000_000),
            theoretical_per_s: documented.then_some(130e9 * threads as f64),
            best_per_s: 123.4e9 * threads as f64,
            share: documented.then_some(123.4 / 130.0),
        };
        Cpu {
            instruction_set: "AVX-512".into(),
            lanes: 8,
            optimised: true,
            clock: Some(Hertz(3_200_000_000)),
            rates: rates.collect(),
            waits: waits.into(),
            peaks: [1, 2, 4, 8, 16].map(peak).into(),
            notes: vec!["Disturbed: double +.".into()],
        }
    }

    #[test]
    fn tables_are_narrow_and_the_conclusion_names_the_share() {
        let text = text(&cpu(true));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let text = text.replace('\n', " ");
        assert!(text.contains("At best 16 thread(s) reach 94.9% of the peak"), "{text}");
        assert!(text.contains("16 threads do 16.00 (16.00 to 16.00) times the work of one"), "{text}");
    }

    #[test]
    fn what_is_not_documented_is_not_called_a_peak() {
        let text = text(&cpu(false));
        let row = text.lines().find(|line| line.ends_with("what was measured")).unwrap();
        assert!(row.split_whitespace().any(|cell| cell == "-") && !text.contains("94.9%"), "{text}");
        let text = text.replace('\n', " ");
        assert!(text.contains("its peak is not known") && text.contains("Disturbed: double +."), "{text}");
        assert!(csv(&cpu(false)).contains(",,,5,\r\n"), "{}", csv(&cpu(false)));
        assert!(!csv(&cpu(false)).contains("130000000000"));
        assert!(csv(&cpu(true)).contains(",5,model\r\n"));
        let mut refuted = cpu(false);
        refuted.peaks.iter_mut().for_each(|peak| peak.units.refuted = Some(1));
        assert!(self::text(&refuted).replace('\n', " ").contains("has 1: it is wrong here"));
        let mut mixed = cpu(false);
        mixed.peaks.iter_mut().for_each(|peak| peak.alike = peak.threads == 1);
        assert!(self::text(&mixed).replace('\n', " ").contains("CPUs of different kinds"));
        let unknown = Cpu { clock: None, peaks: vec![], ..cpu(true) };
        assert!(self::text(&unknown).replace('\n', " ").contains("clock could not be measured"));
    }

    #[test]
    fn other_events_are_compared_by_how_they_grow() {
        let figure =
            |threads, per_second| Figure { tool: Tool::Sysbench, what: What::Primes(threads), per_second };
        let words = |others: &[Figure]| growth(&cpu(true), others).replace('\n', " ");
        let grown = words(&[figure(4, 3900.0), figure(1, 1000.0)]);
        assert!(grown.contains("From 1 to 4 threads sysbench's events become 3.90 times as many"), "{grown}");
        assert!(grown.contains("integer mixed here 4.00 times"), "{grown}");
        assert!(words(&[figure(3, 2.0), figure(1, 1.0)]).contains("were not measured here"));
        assert_eq!(words(&[figure(1, 1.0)]) + &words(&[]), "");
    }

    #[test]
    fn what_was_disturbed_is_hollow_and_concludes_nothing() {
        let mut cpu = cpu(true);
        let calm = chart(&cpu).svg().unwrap();
        for rate in &mut cpu.rates {
            rate.disturbed = rate.threads == 16;
            rate.samples[0] *= 0.5;
        }
        let text = text(&cpu).replace('\n', " ");
        assert!(
            text.contains("is not told: others disturbed it") && !text.contains("times the work of one.")
        );
        let svg = chart(&cpu).svg().unwrap();
        let lines = |svg: &str| svg.matches("<polyline").count();
        // A bar with two ends at each of 55 points, and an outline around eleven of them and around their mark in the legend.
        assert_eq!(lines(&svg) - lines(&calm), 55 * 3 + 11 + 1);
    }

    #[test]
    fn every_line_of_the_csv_has_all_columns() {
        let csv = csv(&cpu(true));
        assert_eq!(csv.lines().count(), 1 + 11 * 5 + 11);
        assert!(csv.lines().all(|line| line.split(',').count() == 10), "{csv}");
        assert!(chart(&cpu(true)).svg().unwrap().contains("d mixed"));
    }
}

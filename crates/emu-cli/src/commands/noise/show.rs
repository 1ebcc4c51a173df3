//! The noise of a machine as tables and figures.

use emu_bench::numbers::{nanos, percent};
use emu_bench::report::{Axis, Chart, Point, Series};
use emu_bench::stats::{Bootstrap, Interval, Level, Noise, Sample};
use emu_bench::table::{Table, notes, paragraph};
use emu_bench::{fields, table};
use emu_machine::noise::{CpuGaps, Measured, NotAvailable, OfKind, Period};

use crate::output::Shown;

const DRAWN: usize = 500;

/// The columns of the CSV. Times are per operation for kinds of work, of gaps for CPUs.
const COLUMNS: &str = "what,name,runs,operations,median_ns,range,iqr,mad,preempted_count,span_ns,threshold_ns,gaps,\
lost_share,preempted_share,periodic_share,stolen_share,longest_ns,period_ns,period_covered,not_available";

pub(crate) fn shown(measured: &Measured) -> Shown {
    Shown {
        text: text(measured),
        csv: csv(measured),
        figures: vec![
            ("", runs_chart(measured)),
            ("ranges", ranges_chart(measured)),
            ("gaps", gaps_chart(measured)),
        ],
    }
}

fn text(measured: &Measured) -> String {
    let mut kinds = table! {
        for of in &measured.kinds;
        text "WORK" = of.kind.name(),
        number "RUNS" = count(of),
        time "TIME" = of.median_ns,
        percent "(MAX-MIN)/MEDIAN" = of.noise.range,
        percent "IQR/MEDIAN" = of.noise.iqr,
        percent "MAD/MEDIAN" = of.noise.mad,
    };
    for NotAvailable { kind, .. } in &measured.not_available {
        kinds.row([kind.name()].into_iter().chain(["n/a"; 5]));
    }
    let cpus = table! {
        for cpu in &measured.cpus;
        number "CPU" = cpu.cpu,
        fixed(0) "GAPS/S" = cpu.rate_hz(),
        time "MEDIAN" = cpu.median_ns(),
        time "LONGEST" = cpu.longest_ns,
        percent "LOST" = cpu.lost,
        percent "TO TASKS" = cpu.preempted,
        percent "STOLEN" = cpu.stolen,
        text "PERIOD" = cpu.period.as_ref().map_or_else(|| "none".into(), |period| periodic(cpu, period)),
    };
    let thresholds = measured.cpus.iter().map(|cpu| cpu.threshold_ns).fold(0.0, f64::max);
    let note = format!(
        "A gap is a moment of more than {} at which a loop on that CPU did not run. Stolen, by the kernel's account: {} \
         during the runs.",
        nanos(thresholds),
        percent(measured.stolen)
    );
    let server = measured.server.map(|address| {
        format!("-server: each operation ends with a way to the server at {address} and back, by TCP.")
    });
    let reason = |NotAvailable { kind, why }: &NotAvailable| format!("n/a, {}: {why}.", kind.name());
    let reasons: Vec<_> = server.into_iter().chain(measured.not_available.iter().map(reason)).collect();
    let notes = notes(&reasons) + &notes(&measured.notes);
    let end = paragraph(&measured.conclusion);
    format!("{}\n{}\n{}{notes}\n{end}", kinds.text(), cpus.text(), paragraph(note))
}

/// `4ms (tick 250 Hz), 0.12%`: a period and the share of time that it takes.
fn periodic(cpu: &CpuGaps, period: &Period) -> String {
    let tick = period.tick_hz().map_or_else(String::new, |hz| format!(" (tick, {hz} Hz)"));
    format!("{}{tick}, {}", nanos(period.length_ns), percent(cpu.periodic))
}

fn count(of: &OfKind) -> usize {
    of.blocks.iter().map(Vec::len).sum()
}

fn csv(measured: &Measured) -> String {
    let mut table = Table::data(COLUMNS);
    for of in &measured.kinds {
        let Noise { range, iqr, mad } = of.noise;
        fields!(table;
            what = "work", name = of.kind.name(), runs = count(of), operations = of.operations,
            median_ns = of.median_ns, range = range, iqr = iqr, mad = mad, preempted_count = of.preempted,
        );
    }
    for NotAvailable { kind, why } in &measured.not_available {
        fields!(table; what = "work", name = kind.name(), not_available = why);
    }
    for cpu in &measured.cpus {
        fields!(table;
            what = "cpu", name = cpu.cpu, median_ns = cpu.median_ns(),
            preempted_count = cpu.gaps.iter().filter(|gap| gap.preempted).count(), span_ns = cpu.span_ns,
            threshold_ns = cpu.threshold_ns, gaps = cpu.gaps.len(), lost_share = cpu.lost,
            preempted_share = cpu.preempted, periodic_share = cpu.periodic, stolen_share = cpu.stolen,
            longest_ns = cpu.longest_ns, period_ns = cpu.period.map(|period| period.length_ns),
            period_covered = cpu.period.map(|period| period.covered),
        );
    }
    table.csv()
}

/// Every run by its distance from the median of its kind, process by process.
fn runs_chart(measured: &Measured) -> Chart {
    let series = measured.kinds.iter().map(|of| {
        let median = of.median_ns * of.operations as f64;
        let runs = of.blocks.iter().flatten().enumerate();
        let point = |(place, run): (usize, &emu_machine::noise::Run)| {
            Point::new((place + 1) as f64, (run.wall_ns as f64 / median - 1.0) * 100.0)
        };
        Series::curve(of.kind.name(), runs.map(point).collect())
    });
    let x = Axis::linear("run, five in each of five processes");
    let y = Axis::linear("time above the median of its kind, %");
    Chart::new("noise: how far runs lie apart", x, y, series.collect())
}

/// The published figure of each kind, over all runs, beside that of one process, with the interval of its median.
fn ranges_chart(measured: &Measured) -> Chart {
    let process = |of: &OfKind| {
        let ranges = of.blocks.iter().filter_map(|runs| {
            let times: Vec<_> = runs.iter().map(|run| run.wall_ns as f64).collect();
            Some(Noise::of(&Sample::new(times).ok()?).ok()?.range * 100.0)
        });
        Interval::of_median(&Sample::new(ranges.collect::<Vec<_>>()).ok()?, Level::P95, &Bootstrap::new(0))
            .ok()
    };
    let alone = || measured.kinds.iter().filter(|of| !of.kind.is_through_server());
    let is_beside = measured.server.is_some();
    let sides: &[_] =
        if is_beside { &[(false, -0.15, ""), (true, 0.15, "server, ")] } else { &[(false, 0.0, "")] };
    let mut series = Vec::new();
    for &(through_server, shift, side) in sides {
        let of_side = measured.kinds.iter().filter(|of| of.kind.is_through_server() == through_server);
        let place = |of: &OfKind| alone().position(|other| other.kind == of.kind.alone());
        let places: Vec<_> = of_side.filter_map(|of| Some((place(of)? as f64 + 1.0 + shift, of))).collect();
        let all = places.iter().map(|(x, of)| Point::new(x - 0.05, of.noise.range * 100.0)).collect();
        let within: Vec<_> = places.iter().filter_map(|(x, of)| Some((x + 0.05, process(of)?))).collect();
        // Of as many processes on either side: told once, where there is room for it.
        let level = within.iter().map(|(_, range)| range.level).fold(1.0, f64::min);
        let level = if through_server { String::new() } else { format!(", {}", percent(level)) };
        let within = within.iter().map(|(x, range)| Point::of_interval(*x, range)).collect();
        series.push(Series::points(format!("{side}all runs"), all));
        series.push(Series::points(format!("{side}one process{level}"), within));
    }
    let names = alone().map(|of| of.kind.name().to_owned());
    let x = Axis::of_names("work", names.collect()).from(0.5);
    Chart::new("noise: the range of runs", x, Axis::log("(max − min) / median, %"), series)
}

fn gaps_chart(measured: &Measured) -> Chart {
    let series = measured.cpus.iter().map(|cpu| {
        let mut gaps: Vec<_> = cpu.gaps.iter().collect();
        gaps.sort_by_key(|gap| std::cmp::Reverse(gap.length_ns));
        let point =
            |gap: &&emu_machine::noise::Gap| Point::new(gap.at_ns as f64 / 1e9, gap.length_ns as f64 / 1e3);
        Series::points(format!("CPU {}", cpu.cpu), gaps.iter().take(DRAWN).map(point).collect())
    });
    let x = Axis::linear("time, s");
    let y = Axis::log("length of a gap, µs");
    Chart::new(format!("gaps: the {DRAWN} longest of each CPU"), x, y, series.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_bench::table::WIDTH;
    use emu_machine::noise::{Kind, Run};

    /// Of one kind of work, with the runs of these processes.
    fn measured(blocks: Vec<Vec<Run>>) -> Measured {
        let of = OfKind {
            kind: Kind::NoOp,
            operations: 10,
            median_ns: 100.0,
            noise: Noise { range: 0.5, iqr: 0.05, mad: 0.02 },
            preempted: 0,
            blocks,
        };
        Measured {
            kinds: vec![of],
            not_available: vec![],
            server: None,
            cpus: vec![],
            clocks_hz: vec![],
            stolen: 0.0,
            notes: vec![],
            conclusion: String::new(),
        }
    }

    #[test]
    fn the_range_of_a_process_has_the_interval_of_its_median() {
        let runs =
            |spread: u64| (0..5).map(|run| Run { wall_ns: 1000 + run * spread, preempted: 0 }).collect();
        let measured = measured((1..=5).map(|spread| runs(spread * 10)).collect());
        let of = |spread: f64| 40.0 * spread / (1000.0 + 20.0 * spread) * 100.0;
        let [all, within] = &ranges_chart(&measured).series[..] else { panic!() };
        assert_eq!(*all, Series::points("all runs", vec![Point::new(0.95, 50.0)]));
        let point = Point::between(1.05, of(3.0), of(1.0), of(5.0));
        assert_eq!(*within, Series::points("one process, 93.8%", vec![point]));
    }

    #[test]
    fn work_through_a_server_stands_beside_the_same_alone() {
        let mut measured = measured(vec![vec![Run { wall_ns: 1000, preempted: 0 }; 5]; 5]);
        let through = OfKind { kind: Kind::NoOpServer, ..measured.kinds[0].clone() };
        measured.kinds.push(through);
        measured.server = Some(([192, 0, 2, 7], 7).into());
        let [alone, _, server, _] = &ranges_chart(&measured).series[..] else { panic!() };
        assert_eq!(*alone, Series::points("all runs", vec![Point::new(1.0 - 0.15 - 0.05, 50.0)]));
        assert_eq!(*server, Series::points("server, all runs", vec![Point::new(1.0 + 0.15 - 0.05, 50.0)]));
        let text = text(&measured);
        assert!(text.contains("no-op-server") && text.contains("192.0.2.7:7"), "{text}");
    }

    #[test]
    fn what_cannot_be_had_is_a_row_with_its_reason() {
        let why = "no loopback, as it seems".to_owned();
        let measured = Measured {
            not_available: vec![NotAvailable { kind: Kind::UdpPingPong, why }],
            notes: vec!["The figures mean little.".into()],
            conclusion: "On this machine no-op may not be trusted at all.".into(),
            ..measured(vec![vec![Run { wall_ns: 1000, preempted: 0 }; 5]; 5])
        };
        let text = text(&measured);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        let row = text.lines().find(|line| line.starts_with("udp-ping-pong")).unwrap();
        assert_eq!(row.matches("n/a").count(), 5, "{text}");
        let words =
            "\nn/a, udp-ping-pong: no loopback, as it seems.\nThe figures mean little.\n\nOn this machine";
        assert!(text.contains(words), "{text}");
        let csv = csv(&measured);
        assert!(csv.ends_with(",\"no loopback, as it seems\"\r\n"), "{csv}");
        let columns = |line: &str| line.split(',').count();
        assert_eq!(csv.lines().map(columns).collect::<Vec<_>>(), [20, 20, 21], "one comma is in the reason");
        assert!(runs_chart(&measured).svg().unwrap().contains("no-op"));
    }
}

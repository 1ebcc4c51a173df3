//! The kernels of the HPC Challenge as tables and figures.

mod series;

use emu_bench::report::{Axis, Chart, Point, Series};
use emu_bench::table::{notes, paragraph};
use emu_bench::{data, distinct, grouped, table};
use emu_machine::hpcc::{Measured, Row, Share};

use super::Reference;
use crate::output::Shown;

pub(super) fn shown(measured: &Measured, reference: Option<&Reference>) -> Shown {
    let is_series = measured.rows.iter().any(|row| row.order.is_some());
    let mut figures = if is_series { series::charts(measured) } else { vec![("", chart(measured))] };
    let mut text = text(measured);
    if let Some(reference) = reference {
        figures.push(("reference", series::reference_chart(reference)));
        text += &series::reference_text(reference);
    }
    Shown { text, csv: csv(measured, reference), figures }
}

fn text(measured: &Measured) -> String {
    let table = table! {
        for row in &measured.rows;
        text "KERNEL" = row.kernel.name(),
        number "THREADS" = row.threads,
        number "SIZE" = size(row.size),
        number "BEST" = billions(row.best),
        number "MEDIAN" = billions(row.median),
        text "UNIT" = row.kernel.unit(),
        fixed(3) "ERROR" = row.worst(),
        text "RESULT" = if row.passed { "passed" } else { "WRONG" },
    };
    let note = "ERROR: scaled residual, to be below 16; of random-access words that are wrong, of which 1% may be; \
                STREAM has a rule for every element. FFT: one transform for each thread. PTRANS: HPCC itself reports \
                the least of its runs, which is in the CSV.";
    let end = paragraph(&measured.conclusion);
    format!("{}\n{}{}\n{end}", table.text(), paragraph(note), notes(&measured.notes))
}

/// `6000`, `2^24`.
fn size(size: usize) -> String {
    if size.is_power_of_two() { format!("2^{}", size.ilog2()) } else { size.to_string() }
}

fn billions(rate: f64) -> String {
    let value = rate / 1e9;
    let decimals = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

fn csv(measured: &Measured, reference: Option<&Reference>) -> String {
    let share = |row: &Row| {
        let of = |share: &Share| (share.kernel, share.threads, share.order);
        reference?.shares.iter().find(|share| of(share) == (row.kernel, row.threads, row.order))
    };
    let table = data! {
        for row in &measured.rows;
        kernel = row.kernel.name(), threads, size, unit = row.kernel.unit(), best = row.best / 1e9,
        median = row.median / 1e9, least = row.least() / 1e9, runs = row.runs.len(), worst_error = row.worst(),
        passed, order, sd = row.sd() / 1e9,
        percent_of_reference = share(row).map(|share| share.share * 100.0),
        percent_sd = share(row).map(|share| share.sd * 100.0),
        percent_low = share(row).and_then(|share| Some(share.of_means?.low * 100.0)),
        percent_high = share(row).and_then(|share| Some(share.of_means?.high * 100.0)),
        disturbed = row.runs.iter().filter(|run| run.disturbed).count(),
    };
    table.csv()
}

fn chart(measured: &Measured) -> Chart {
    let kernels = distinct(measured.rows.iter().map(|row| row.kernel));
    let point_of = |row: &&Row| {
        let place = kernels.iter().position(|kernel| *kernel == row.kernel)?;
        Some(point(place as f64 + 1.0, row))
    };
    let of_threads = |rows: Vec<&Row>| {
        let threads = rows.first().map_or(0, |row| row.threads);
        Series::points(format!("threads: {threads}"), rows.iter().filter_map(point_of).collect())
    };
    let rows = grouped(&measured.rows, |one, other| one.threads == other.threads);
    let series = rows.into_iter().map(of_threads).collect();
    let names = kernels.iter().map(|kernel| format!("{}, {}", kernel.name(), kernel.unit())).collect();
    let y = Axis::log("best of the runs, and all of them");
    Chart::new("Kernels of the HPC Challenge", Axis::of_names("", names), y, series)
}

/// The best of the runs that count, and all of them; hollow where all were disturbed.
fn point(x: f64, row: &Row) -> Point {
    let best = row.best / 1e9;
    Point::between(x, best, row.least() / 1e9, best).open(row.is_disturbed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_bench::stats::Interval;
    use emu_bench::table::WIDTH;
    use emu_machine::hpcc::{Kernel, Run};
    use emu_machine::kernel::stream;

    fn measured() -> Measured {
        let row = |kernel, threads, error, passed| Row {
            kernel,
            threads,
            order: None,
            size: 1 << 27,
            runs: [1.234e10, 1.1e10]
                .map(|rate| Run { seconds: 1.0, rate, error, passed, disturbed: false })
                .into(),
            best: 1.234e10,
            median: 1.2e10,
            passed,
        };
        let rows = vec![
            row(Kernel::RandomAccess, 128, Some(1_000_000.0), false),
            row(Kernel::Linpack, 1, Some(0.002_34), true),
            row(Kernel::Linpack, 128, Some(0.002_34), true),
            row(Kernel::Stream(stream::Kernel::Triad), 128, None, true),
        ];
        let (notes, conclusion) = (vec!["These fit a cache: fft.".into()], "Every result is right.".into());
        Measured { rows, stream_obeys_rule: true, notes, conclusion }
    }

    #[test]
    fn the_table_keeps_to_its_width_and_names_what_is_wrong() {
        let text = text(&measured());
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        for part in
            ["linpack", "2^27", "12.3", "GUPS", "WRONG", "passed", "0.002", "\nThese fit", "\n\nEvery"]
        {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(text.replace('\n', " ").contains("HPCC itself reports the least of its runs"), "{text}");
    }

    #[test]
    fn the_csv_has_a_line_for_each_row_and_is_not_rounded() {
        let csv = csv(&measured(), None);
        let columns = "kernel,threads,size,unit,best,median,least,runs,worst_error,passed,order,sd,percent_of_reference,\
                       percent_sd,percent_low,percent_high,disturbed";
        assert_eq!(csv.lines().next(), Some(columns));
        let sd = measured().rows[1].sd() / 1e9;
        let line = format!("linpack,1,134217728,GFLOPS,12.34,12,11,2,0.00234,true,,{sd},,,,,0");
        assert_eq!(csv.lines().nth(2), Some(line.as_str()));
    }

    /// The same kernels at two sizes, and what they are of a reference.
    fn series() -> (Measured, Reference) {
        let at = |order: usize| {
            measured().rows.into_iter().map(move |row| Row { order: Some(order), size: order, ..row })
        };
        let measured = Measured { rows: at(1000).chain(at(5000)).collect(), ..measured() };
        let share = |row: &Row| Share {
            kernel: row.kernel,
            threads: row.threads,
            order: row.order,
            size: row.size,
            there: row.best / 0.97,
            share: 0.97,
            sd: 0.012,
            of_means: Some(Interval { estimate: 0.97, low: 0.95, high: 0.99, level: 0.95 }),
        };
        let shares = measured.rows.iter().map(share).collect();
        let reference = Reference {
            model: "a processor".into(),
            shares,
            without_counterpart: vec!["fft 300 (2 threads)".into()],
            disturbed: vec!["Disturbed: dgemm.".into()],
        };
        (measured, reference)
    }

    #[test]
    fn a_series_has_a_figure_for_each_unit_and_one_of_percents() {
        let (measured, reference) = series();
        let shown = shown(&measured, Some(&reference));
        assert!(shown.text.lines().all(|line| line.chars().count() <= WIDTH), "{}", shown.text);
        for part in ["a processor", "97.0%", "95.0 to 99.0%", "fft 300 (2 threads)", "Disturbed: dgemm."] {
            assert!(shown.text.replace('\n', " ").contains(part), "{part}\n{}", shown.text);
        }
        let names: Vec<_> = shown.figures.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["gflops", "bandwidth", "updates", "reference"]);
        for (name, chart) in &shown.figures {
            let svg = chart.svg().unwrap();
            assert!(svg.contains("LINPACK"), "{name}");
        }
        assert!(shown.csv.lines().nth(4).unwrap().contains(",1000,"), "{}", shown.csv);
        assert!(shown.csv.lines().nth(1).unwrap().ends_with(",97,1.2,95,99,0"), "{}", shown.csv);
    }

    #[test]
    fn the_figure_has_a_series_for_each_number_of_threads() {
        let chart = chart(&measured());
        assert_eq!(chart.series.len(), 2);
        assert!(chart.svg().unwrap().contains("threads: 128"));
    }
}

//! What a disk does, as tables and figures.

use emu_bench::numbers::{nanos, percent, rate, size};
use emu_bench::report::{Axis, Chart, Series};
use emu_bench::table::{self, Table, Value, paragraph};
use emu_bench::{distinct, row};
use emu_machine::disk::{Cell, Column, Disk, Latency, Measured, Operation, Order, Outcome, PACE, Transfer};

use crate::commands::measure::of_samples;
use crate::output::Shown;

/// The columns of the CSV. `latency` counts from when an operation was meant to begin, at half rate; `back_to_back` at
/// full rate. What is written back has neither.
const COLUMNS: &str = "block_bytes,operation,order,threads,column,bytes_per_s,operations_per_s,samples,\
latency_operations,latency_mean_ns,latency_p50_ns,latency_p90_ns,latency_p99_ns,latency_p99_9_ns,latency_max_ns,\
latency_not_made,back_to_back_operations,back_to_back_mean_ns,back_to_back_p50_ns,back_to_back_p90_ns,\
back_to_back_p99_ns,back_to_back_p99_9_ns,back_to_back_max_ns,not_available";

pub(crate) fn shown(disk: &Disk) -> Shown {
    let figures = vec![("", chart(disk, Order::Random)), ("sequential", chart(disk, Order::Sequential))];
    Shown { text: text(disk), csv: csv(disk), figures }
}

fn text(disk: &Disk) -> String {
    let header = ["BLOCK", "WHAT", "THREADS"].map(table::Column::text).into_iter();
    let names = Column::ALL.map(|column| table::Column::number(column.name().to_uppercase()));
    let columns = || names.clone().into_iter();
    let mut rates = Table::new(header.chain(columns()));
    let first = ["BLOCK", "WHAT"].map(table::Column::text);
    let mut times = Table::new(first.into_iter().chain(columns()));
    let fewest = disk.cells.iter().map(|cell| cell.transfer.threads).min();
    for row in disk.cells.chunks(Column::ALL.len()) {
        let Some(Cell { transfer, .. }) = row.first() else { continue };
        let key = [size(transfer.block_bytes), kind(transfer)];
        let threads = [transfer.threads.to_string()];
        let of = |cell: &Cell| cell.measured().map_or_else(not_available, |is| rate(is.bytes_per_s, "B"));
        rates.row(key.iter().cloned().chain(threads).chain(row.iter().map(of)));
        if Some(transfer.threads) == fewest {
            let of = |cell: &Cell| cell.measured()?.latency.map(usual_and_slow);
            times.row(key.into_iter().chain(row.iter().map(|cell| of(cell).unwrap_or_else(not_available))));
        }
    }
    let threads = match fewest {
        Some(1) | None => "one thread".to_owned(),
        Some(count) => format!("{count} threads"),
    };
    let note = format!(
        "Times of single operations of {threads} at {} of the rate above, from when each was meant to begin: the \
         median, and what 99 in 100 do not exceed (n/a for fewer than 100).",
        percent(PACE)
    );
    let notes = reasons(disk).into_iter().chain(left_out(disk)).chain(disk.notes.iter().cloned());
    let notes: String = notes.map(paragraph).collect();
    let end = paragraph(conclusion(disk));
    format!("{}\n{}\n{}\n{notes}\n{end}", rates.text(), paragraph(note), times.text())
}

/// `random write`
fn kind(transfer: &Transfer) -> String {
    let order = if transfer.order == Order::Random { "random" } else { "seq" };
    let operation = if transfer.operation == Operation::Write { "write" } else { "read" };
    format!("{order} {operation}")
}

fn not_available() -> String {
    "n/a".into()
}

/// `61.2µs 190µs`
fn usual_and_slow(latency: Latency) -> String {
    let time = |ns: Option<u64>| ns.map_or_else(not_available, |ns| nanos(ns as f64));
    format!("{} {}", time(latency.p50_ns), time(latency.p99_ns))
}

fn reasons(disk: &Disk) -> Vec<String> {
    distinct(disk.cells.iter().filter_map(|Cell { transfer, outcome }| {
        let name = transfer.column.name();
        match outcome {
            Outcome::NotAvailable(why) => Some(format!("n/a, {name}: {why}.")),
            Outcome::Measured(measured) if measured.latency.is_none() => {
                Some(format!("n/a, times of {name}: operations end in the page cache, before the sync."))
            }
            Outcome::Measured(_) => None,
        }
    }))
}

/// Where times are too short because operations that would have been slower were not made.
fn left_out(disk: &Disk) -> Vec<String> {
    let cells = disk.cells.iter().filter_map(|cell| Some((cell.transfer.name(), cell.measured()?.not_made)));
    let told = cells.filter(|(_, not_made)| *not_made > 0).map(|(name, not_made)| {
        format!("{name}: {not_made} operations were not made, as the disk had fallen too far behind; its times are too short.")
    });
    told.collect()
}

fn conclusion(disk: &Disk) -> String {
    let find = |operation, column| {
        let all = disk.cells.iter().filter_map(|cell| Some((cell.transfer, cell.measured()?)));
        all.filter(move |(of, _)| (of.operation, of.column) == (operation, column))
            .filter(|(_, measured)| !measured.is_disturbed())
    };
    let fastest = |operation, column| {
        find(operation, column).max_by(|(_, a), (_, b)| a.bytes_per_s.total_cmp(&b.bytes_per_s))
    };
    let read = fastest(Operation::Read, Column::Direct);
    let mut text = match read.zip(fastest(Operation::Write, Column::Direct)) {
        Some(((_, read), (_, write))) => {
            let [read, write] = [read, write].map(|is| rate(is.bytes_per_s, "B"));
            format!("Past the page cache this disk reads {read} and writes {write} at best")
        }
        None => "What this disk does without the page cache cannot be told here".into(),
    };
    let small =
        |(transfer, _): &(Transfer, &Measured)| transfer.order == Order::Random && transfer.threads == 1;
    // Of the size that file systems and databases write, or the nearest to it.
    let far = |bytes: u64| (bytes as f64 / 4096.0).log2().abs();
    let durable = find(Operation::Write, Column::Durable)
        .filter(small)
        .min_by(|(a, _), (b, _)| far(a.block_bytes).total_cmp(&far(b.block_bytes)));
    if let Some((transfer, Measured { operations_per_s, .. })) = durable {
        let blocks = size(transfer.block_bytes);
        text = format!(
            "{text}; one thread makes {operations_per_s:.0} random writes of {blocks} durable in a second"
        );
    }
    if let (Some((_, cached)), Some((_, direct))) = (fastest(Operation::Read, Column::Cached), read) {
        let times = cached.bytes_per_s / direct.bytes_per_s;
        text =
            format!("{text}. What is cached, memory does: up to {times:.1} times as fast as the disk reads");
    }
    text + "."
}

fn csv(disk: &Disk) -> String {
    let mut table = Table::data(COLUMNS);
    for Cell { transfer, outcome } in &disk.cells {
        let (operation, order, column) =
            (transfer.operation.name(), transfer.order.name(), transfer.column.name());
        let mut row = row![transfer.block_bytes, operation, order, transfer.threads, column];
        match outcome {
            Outcome::Measured(measured) => {
                row.extend(row![measured.bytes_per_s, measured.operations_per_s, measured.samples.len()]);
                row.extend(times(measured.latency.as_ref()));
                row.push(measured.not_made.into());
                row.extend(times(measured.back_to_back.as_ref()));
            }
            Outcome::NotAvailable(why) => {
                row.resize(COLUMNS.split(',').count() - 1, Value::Missing);
                row.push(why.into());
            }
        }
        table.row(row);
    }
    table.csv()
}

fn times(latency: Option<&Latency>) -> Vec<Value> {
    let Some(latency) = latency else { return vec![Value::Missing; 7] };
    let Latency { operations, mean_ns, p50_ns, p90_ns, p99_ns, p99_9_ns, max_ns } = *latency;
    row![operations, mean_ns, p50_ns, p90_ns, p99_ns, p99_9_ns, max_ns]
}

fn chart(disk: &Disk, order: Order) -> Chart {
    let fewest = disk.cells.iter().map(|cell| cell.transfer.threads).min().unwrap_or(1);
    let kinds = [Operation::Read, Operation::Write].into_iter();
    let kinds = kinds.flat_map(|operation| Column::ALL.map(|column| (operation, column)));
    let series = kinds.filter_map(|(operation, column)| {
        let points = disk.cells.iter().filter_map(|Cell { transfer: of, outcome }| {
            let is_of_it =
                (of.operation, of.column, of.order, of.threads) == (operation, column, order, fewest);
            let Outcome::Measured(is) = outcome else { return None };
            let rates: Vec<_> = is.counting().map(|sample| sample.bytes_per_s).collect();
            let point = of_samples(of.block_bytes as f64, is.bytes_per_s, &rates, 1e6);
            is_of_it.then(|| point.open(is.is_disturbed()))
        });
        let points: Vec<_> = points.collect();
        let name = format!("{}, {}", operation.name(), column.name());
        (!points.is_empty()).then(|| Series::curve(name, points))
    });
    let title = format!("disk: {} transfers, {fewest} thread(s)", order.name());
    Chart::new(title, Axis::log("block, bytes"), Axis::log("MB/s"), series.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_bench::report::Point;
    use emu_machine::disk::Sample;

    fn disk() -> Disk {
        let latency = Latency {
            operations: 5000,
            mean_ns: 61e3,
            p50_ns: Some(60_000),
            p90_ns: Some(80_000),
            p99_ns: Some(190_000),
            p99_9_ns: Some(1_900_000),
            max_ns: 12_345_678,
        };
        let cell = |block_bytes, operation, order, column: Column| {
            let transfer = Transfer { block_bytes, operation, order, threads: 1, column };
            let outcome = if column == Column::Durable && operation == Operation::Read {
                Outcome::NotAvailable("reading makes nothing durable".into())
            } else {
                let bytes_per_s = 123_456_789.0 * block_bytes as f64;
                let latency = (column != Column::WriteBack).then_some(latency);
                Outcome::Measured(Measured {
                    bytes_per_s,
                    operations_per_s: 123_456_789.0,
                    latency,
                    not_made: if column == Column::Durable && order == Order::Random { 5 } else { 0 },
                    back_to_back: latency,
                    samples: vec![Sample { operations: 5000, seconds: 0.5, bytes_per_s, disturbed: false }],
                })
            };
            Cell { transfer, outcome }
        };
        let rows = [4096, 1 << 20].into_iter().flat_map(|block| {
            [Operation::Read, Operation::Write].into_iter().flat_map(move |operation| {
                [Order::Sequential, Order::Random].map(|order| (block, operation, order))
            })
        });
        let cells = rows.flat_map(|(block, operation, order)| {
            Column::ALL.map(|column| cell(block, operation, order, column))
        });
        let notes = vec!["Cannot tell what the files lie on.".into()];
        Disk { file_bytes: 64 << 20, direct_block_bytes: Some(512), cells: cells.collect(), notes }
    }

    #[test]
    fn tables_are_narrow_and_tell_why_something_is_missing() {
        let text = text(&disk());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("n/a, durable: reading makes nothing durable."), "{text}");
        assert!(text.contains("60µs 190µs"), "{text}");
        assert!(text.contains("\nCannot tell what the files lie on.\n"), "{text}");
        let text = text.replace('\n', " ");
        assert!(text.contains("n/a, times of write-back: operations end in the page cache"), "{text}");
        assert!(
            text.contains("4096 B random write, 1 threads, durable: 5 operations were not made"),
            "{text}"
        );
        assert!(text.contains("123456789 random writes of 4 KiB durable"), "{text}");
        assert!(text.contains("Past the page cache this disk reads 129 TB/s"), "{text}");
    }

    #[test]
    fn every_line_of_the_csv_has_all_columns() {
        let csv = csv(&disk());
        let columns = COLUMNS.split(',').count();
        assert_eq!(csv.lines().count(), 1 + 2 * 2 * 2 * 4);
        assert!(csv.lines().all(|line| line.split(',').count() == columns), "{csv}");
        let place = COLUMNS.split(',').position(|name| name == "latency_not_made").unwrap();
        let durable = csv.lines().find(|line| line.contains("write,random,1,durable")).unwrap();
        assert_eq!(durable.split(',').nth(place), Some("5"));
        let written_back = csv.lines().find(|line| line.contains("write,random,1,write-back")).unwrap();
        assert!(written_back.split(',').skip(8).all(|field| matches!(field, "" | "0")), "{written_back}");
    }

    #[test]
    fn a_cell_that_others_disturbed_is_hollow_and_all_have_bars() {
        let mut disk = disk();
        for cell in &mut disk.cells {
            let Outcome::Measured(is) = &mut cell.outcome else { continue };
            let first = is.samples[0];
            is.samples.push(Sample { bytes_per_s: first.bytes_per_s * 2.0, ..first });
            is.samples.push(Sample { bytes_per_s: first.bytes_per_s * 9.0, disturbed: true, ..first });
        }
        let rate = 123_456_789.0 * 4096.0 / 1e6;
        let cached = |disk: &Disk| chart(disk, Order::Random).series.swap_remove(0);
        let of = |high, is_open| {
            let point =
                |x, scale| Point::between(x, rate * scale, rate * scale, rate * high * scale).open(is_open);
            Series::curve(
                "read, cached",
                vec![point(4096.0, 1.0), point(f64::from(1 << 20), 256.0).open(false)],
            )
        };
        assert_eq!(cached(&disk), of(2.0, false));
        let Outcome::Measured(is) = &mut disk.cells[4].outcome else { panic!() };
        is.samples.truncate(2);
        is.samples.iter_mut().for_each(|sample| sample.disturbed = true);
        let Outcome::Measured(is) = &mut disk.cells[20].outcome else { panic!() };
        is.samples.truncate(2);
        assert_eq!(cached(&disk), of(2.0, true));
    }

    #[test]
    fn the_figures_have_a_series_for_each_column_that_was_measured() {
        let chart = chart(&disk(), Order::Random);
        assert_eq!(chart.series.len(), 3 + 4);
        assert!(chart.svg().unwrap().contains("write, direct"));
    }
}

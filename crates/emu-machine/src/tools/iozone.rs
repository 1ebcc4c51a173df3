//! The table of iozone (<https://www.iozone.org/docs/IOzone_msword_98.pdf>).
//!
//! Columns of tests that were not made are blank, so that a number is known by its place alone: each column but the first
//! two is nine characters wide.

use emu_core::Result;

use super::{Figure, Tool, What, truncated};
use crate::disk::{Column, Operation, Order, Transfer};

const WIDTH: usize = 9;

/// The first columns of rates; those of other patterns and of the C library's buffers come after them. The first write
/// makes the file, which none here does: the second one counts, and the first read.
const COLUMNS: [Option<(Operation, Order)>; 6] = [
    None,
    Some((Operation::Write, Order::Sequential)),
    Some((Operation::Read, Order::Sequential)),
    None,
    Some((Operation::Read, Order::Random)),
    Some((Operation::Write, Order::Random)),
];

/// What it prints last.
const END: &str = "iozone test complete";

pub(super) fn read(text: &str) -> Result<Vec<Figure>> {
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("kB  reclen"));
    let header = lines.next().ok_or_else(|| {
        truncated(Tool::Iozone, "table").hint("take its single mode, without -t, and keep all that it prints")
    })?;
    let first = header.find("reclen").map_or(0, |at| at + "reclen".len());
    let has = |line: &str| text.lines().any(|one| one.trim_start().starts_with(line));
    let column = |operation| match operation {
        Operation::Write if has("SYNC Mode") => Column::Durable,
        _ if has("O_DIRECT feature enabled") => Column::Direct,
        Operation::Write if has("Include fsync in write timing") => Column::WriteBack,
        _ => Column::Cached,
    };
    if !has(END) {
        return Err(truncated(Tool::Iozone, "end of its table"));
    }
    let mut figures = Vec::new();
    for line in lines {
        let Some(row) = row(line, first) else { break };
        let [_, record, rates @ ..] = row.as_slice() else { break };
        let block_bytes = record.1 * 1024;
        for (end, rate) in rates {
            let number = (end - first) / WIDTH;
            let Some(&Some((operation, order))) = number.checked_sub(1).and_then(|place| COLUMNS.get(place))
            else {
                continue;
            };
            let transfer = Transfer { block_bytes, operation, order, threads: 1, column: column(operation) };
            figures.push(Figure {
                tool: Tool::Iozone,
                what: What::Disk(transfer),
                per_second: *rate as f64 * 1024.0,
            });
        }
    }
    if figures.is_empty() { Err(truncated(Tool::Iozone, "rate of a rewrite or a read")) } else { Ok(figures) }
}

/// The numbers of a row with where each ends; `None` for a line that is none, as what follows the table.
fn row(line: &str, first: usize) -> Option<Vec<(usize, u64)>> {
    let mut numbers = Vec::new();
    let mut at = 0;
    for word in line.split(' ') {
        let end = at + word.len();
        if !word.is_empty() {
            numbers.push((end, word.trim_end().parse().ok()?));
        }
        at = end + 1;
    }
    let is_in_place = |(place, (end, _)): (usize, &(usize, u64))| match place {
        0 => *end < first,
        1 => *end == first,
        _ => *end > first && (end - first).is_multiple_of(WIDTH),
    };
    (numbers.len() > 2 && numbers.iter().enumerate().all(is_in_place)).then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(figures: &[Figure]) -> Vec<String> {
        figures.iter().map(|one| format!("{}: {}", one.what, one.per_second / 1024.0)).collect()
    }

    /// The form is that of iozone 3.492 as users have published it, for instance in
    /// <https://github.com/ThomasKaiser/Knowledge>; the numbers are made up.
    #[test]
    fn a_table_is_read_by_the_places_of_its_columns() {
        let figures = super::super::read(include_str!("testdata/iozone.txt")).unwrap();
        assert_eq!(
            words(&figures),
            [
                "4096 B sequential write, 1 threads, direct: 3145",
                "4096 B sequential read, 1 threads, direct: 10337",
                "4096 B random read, 1 threads, direct: 9761",
                "4096 B random write, 1 threads, direct: 5744",
                "1048576 B sequential write, 1 threads, direct: 20124",
                "1048576 B random read, 1 threads, direct: 22904",
                "1048576 B random write, 1 threads, direct: 18276",
            ]
        );
    }

    #[test]
    fn a_table_without_its_end_is_refused() {
        let text = include_str!("testdata/iozone.txt").replace(END, "");
        assert!(super::super::read(&text).unwrap_err().to_string().contains("no end of its table"));
    }

    #[test]
    fn modes_are_told_apart() {
        let text = include_str!("testdata/iozone.txt");
        let of = |text: &str| words(&super::super::read(text).unwrap()).join("\n");
        let buffered = text.replace("O_DIRECT feature enabled", "");
        assert!(
            of(&buffered).contains("write, 1 threads, write-back")
                && of(&buffered).contains("read, 1 threads, cached")
        );
        let cached = buffered.replace("Include fsync in write timing", "");
        assert!(of(&cached).contains("write, 1 threads, cached"));
        assert!(of(&buffered.replace("Auto Mode", "SYNC Mode.")).contains("write, 1 threads, durable"));
    }

    #[test]
    fn its_throughput_mode_is_refused_with_a_hint() {
        let text =
            "Iozone: Performance Test of File I/O\n\tChildren see throughput for 2 readers = 9 kB/sec\n";
        let error = super::super::read(text).unwrap_err();
        assert!(error.hint_text().unwrap().contains("without -t"), "{error:?}");
    }
}

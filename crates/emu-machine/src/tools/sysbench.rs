//! What sysbench 1.0 prints (<https://github.com/akopytov/sysbench>).

use emu_bench::numbers::parsed_size;
use emu_core::Result;

use super::lines::{after, number_after};
use super::{Domain, Figure, Tool, What, other, truncated};
use crate::disk::{Column, Operation, Order, Transfer};

pub(super) fn read(text: &str) -> Result<Vec<Figure>> {
    let missing = |what: &str| truncated(Tool::Sysbench, what);
    let threads =
        number_after(text, "Number of threads:").ok_or_else(|| missing("number of threads"))? as usize;
    let (what, per_second) = if text.contains("Prime numbers limit:") {
        let events = number_after(text, "events per second:").ok_or_else(|| missing("events per second"))?;
        (What::Primes(threads), events)
    } else if text.contains("memory speed test") {
        let rate = text.split_once("MiB transferred (").and_then(|(_, rest)| rest.split_once(" MiB/sec)"));
        let rate = rate.and_then(|(rate, _)| rate.parse::<f64>().ok()).ok_or_else(|| missing("MiB/sec"))?;
        let [operation, block] = ["operation:", "block size:"].map(|name| after(text, name).unwrap_or("?"));
        let words = format!("{operation} of one {block} block again and again, {threads} threads");
        (What::Other(Domain::Memory, words), rate * f64::from(1 << 20))
    } else {
        file(text, threads)?
    };
    // Its statistics are printed at the end of a run that was not stopped.
    after(text, "total number of events:").ok_or_else(|| missing("statistics"))?;
    Ok(vec![Figure { tool: Tool::Sysbench, what, per_second }])
}

/// What it did to files, and bytes each second.
fn file(text: &str, threads: usize) -> Result<(What, f64)> {
    let missing = |what: &str| truncated(Tool::Sysbench, what);
    let block_bytes = after(text, "Block size")
        .and_then(parsed_size)
        .ok_or_else(|| missing("block size of a test that is read: cpu, memory or fileio"))?;
    let kind = after(text, "Doing").ok_or_else(|| missing("kind of test"))?;
    let order = if kind.contains("random") { Order::Random } else { Order::Sequential };
    let operation = if kind.contains("read") { Operation::Read } else { Operation::Write };
    let name = if operation == Operation::Read { "reads/s:" } else { "writes/s:" };
    let per_second = number_after(text, name).ok_or_else(|| missing(name))? * block_bytes as f64;
    let flags = after(text, "Extra file open flags:").unwrap_or_default();
    let has = |words: &str| text.contains(words);
    let is_write = operation == Operation::Write;
    let column = if is_write && (flags.contains("sync") || has("Calling fsync() after each write")) {
        Some(Column::Durable)
    } else if is_write && has("Periodic FSYNC enabled") {
        None
    } else if flags.contains("directio") {
        Some(Column::Direct)
    } else {
        Some(Column::Cached)
    };
    let why = if kind.starts_with("combined") {
        "mixed with writes"
    } else if has("Using asynchronous I/O mode") {
        "several at once in each"
    } else if let Some(column) = column {
        return Ok((What::Disk(Transfer { block_bytes, operation, order, threads, column }), per_second));
    } else {
        "synced now and then"
    };
    Ok((other(operation, order, block_bytes, threads, why), per_second))
}

#[cfg(test)]
mod tests {
    fn one(text: &str) -> (String, f64) {
        let figures = super::super::read(text).unwrap();
        let [figure] = figures.as_slice() else { panic!("{figures:?}") };
        (figure.what.to_string(), figure.per_second)
    }

    #[test]
    fn recorded_outputs_of_sysbench_1_0_20_are_read() {
        let close = |(what, rate): (String, f64), words: &str, must: f64| {
            assert_eq!(what, words);
            assert!((rate / must - 1.0).abs() < 1e-9, "{what}: {rate}");
        };
        close(one(include_str!("testdata/sysbench-cpu.txt")), "prime numbers, 2 threads", 893.74);
        close(
            one(include_str!("testdata/sysbench-memory.txt")),
            "write of one 1024KiB block again and again, 1 threads",
            15_575.62 * 1_048_576.0,
        );
        let read = include_str!("testdata/sysbench-fileio-read.txt");
        close(one(read), "4096 B random read, 1 threads, cached", 466_411.96 * 4096.0);
        let direct = read.replace("flags: (none)", "flags: directio");
        close(one(&direct), "4096 B random read, 1 threads, direct", 466_411.96 * 4096.0);
        let write = include_str!("testdata/sysbench-fileio-write.txt");
        close(one(write), "16384 B sequential write, 1 threads, synced now and then", 13_121.97 * 16_384.0);
        let never = write.replace("Periodic FSYNC enabled", "");
        close(one(&never), "16384 B sequential write, 1 threads, direct", 13_121.97 * 16_384.0);
    }

    #[test]
    fn a_test_that_is_none_of_ours_is_refused() {
        let error = super::super::read("sysbench 1.0.20\nNumber of threads: 1\nthreads test\n").unwrap_err();
        assert!(error.to_string().contains("cpu, memory or fileio"), "{error}");
    }
}

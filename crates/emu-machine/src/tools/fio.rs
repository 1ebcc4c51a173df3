//! fio's JSON (<https://fio.readthedocs.io/en/latest/fio_doc.html#json-output>).

use std::collections::BTreeMap;

use emu_bench::distinct;
use emu_bench::numbers::parsed_size;
use emu_core::{Error, Result};
use serde::Deserialize;

use super::{Domain, Figure, Tool, What, other, truncated};
use crate::disk::{Column, Operation, Order, Transfer};

/// fio's block where none is given.
const BLOCK: &str = "4k";

type Options = BTreeMap<String, String>;

#[derive(Debug, Deserialize)]
struct Output {
    #[serde(rename = "global options", default)]
    options: Options,
    jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
struct Job {
    jobname: String,
    #[serde(default)]
    error: i64,
    #[serde(rename = "job options", default)]
    options: Options,
    read: Direction,
    write: Direction,
}

#[derive(Debug, Deserialize)]
struct Direction {
    total_ios: u64,
    bw_bytes: f64,
}

/// The results of all jobs. Those of one name are together, as they run at once.
pub(super) fn read(text: &str) -> Result<Vec<Figure>> {
    // What follows the document is fio's, too: warnings.
    let mut documents = serde_json::Deserializer::from_str(text).into_iter::<Output>();
    let output = match documents.next() {
        Some(Ok(output)) => output,
        Some(Err(cause)) => {
            return Err(Error::usage("it is of fio, but cannot be understood as its JSON")
                .caused_by(cause)
                .hint("it may be truncated; run fio again with --output-format=json"));
        }
        None => return Err(truncated(Tool::Fio, "jobs")),
    };
    let names = distinct(output.jobs.iter().map(|job| job.jobname.as_str()));
    let mut figures = Vec::new();
    for name in names {
        let is_alone = is_alone(&output, name);
        let jobs: Vec<&Job> = output.jobs.iter().filter(|job| job.jobname == name).collect();
        if let Some(job) = jobs.iter().find(|job| job.error != 0) {
            return Err(Error::usage(format!("its job {name} has failed with error {}", job.error)));
        }
        let Some(first) = jobs.first() else { continue };
        let mut options = output.options.clone();
        options.extend(first.options.clone());
        for operation in [Operation::Read, Operation::Write] {
            let done =
                || jobs.iter().map(|job| if operation == Operation::Read { &job.read } else { &job.write });
            let per_second = done().map(|one| one.bw_bytes).sum();
            if done().any(|one| one.total_ios > 0) {
                let what = what(&options, operation, jobs.len(), is_alone);
                figures.push(Figure { tool: Tool::Fio, what, per_second });
            }
        }
    }
    if figures.is_empty() { Err(truncated(Tool::Fio, "job that reads or writes")) } else { Ok(figures) }
}

/// Whether jobs of a name run beside no others: fio starts all at once, but for those that wait.
fn is_alone(output: &Output, name: &str) -> bool {
    let waits = |job: &Job| {
        let is_set = |name: &&str| job.options.contains_key(*name) || output.options.contains_key(*name);
        ["stonewall", "wait_for_previous", "wait_for"].iter().any(is_set)
    };
    let is_next = |one: &Job, next: &Job| one.jobname == next.jobname || !waits(next);
    let mut at_once = output.jobs.chunk_by(is_next);
    at_once
        .all(|jobs| jobs.iter().all(|job| job.jobname != name) || jobs.iter().all(|job| job.jobname == name))
}

fn what(options: &Options, operation: Operation, jobs: usize, is_alone: bool) -> What {
    let option = |names: &[&str]| names.iter().find_map(|name| options.get(*name)).map(String::as_str);
    let number = |name: &str| option(&[name]).and_then(|text| text.parse::<usize>().ok());
    // An option without a value is set, as in `direct`.
    let is_set = |name: &str| option(&[name]).is_some_and(|text| text != "0" && text != "none");
    let kind = option(&["rw", "readwrite"]).unwrap_or("read");
    let order = if kind.starts_with("rand") { Order::Random } else { Order::Sequential };
    let blocks: Vec<&str> = option(&["bs", "blocksize"]).unwrap_or(BLOCK).split(',').collect();
    let block = blocks.get(usize::from(operation == Operation::Write)).or(blocks.last());
    if let Some(several) = option(&["bssplit", "bsrange", "blocksize_range"]) {
        return What::Other(Domain::Disk, format!("{kind} of blocks of several sizes, {several}"));
    }
    let Some(block_bytes) = block.and_then(|text| parsed_size(text)) else {
        return What::Other(Domain::Disk, format!("{kind} of blocks of {}", blocks.join(",")));
    };
    let threads = jobs.max(number("numjobs").unwrap_or(1));
    let is_write = operation == Operation::Write;
    let column = if is_write && ["fdatasync", "fsync", "sync"].into_iter().any(is_set) {
        // One sync for each write; fewer are something else.
        let often = ["fdatasync", "fsync"].iter().filter_map(|name| number(name)).find(|often| *often > 1);
        often.is_none().then_some(Column::Durable)
    } else if is_set("direct") {
        Some(Column::Direct)
    } else if is_write {
        let at_end = ["end_fsync", "fsync_on_close"].into_iter().any(is_set);
        Some(if at_end { Column::WriteBack } else { Column::Cached })
    } else {
        // fio drops the file from the page cache before it begins, unless told otherwise.
        option(&["invalidate"]).is_some_and(|text| text == "0").then_some(Column::Cached)
    };
    let why = if matches!(kind, "rw" | "readwrite" | "randrw") {
        "mixed with the other"
    } else if !is_alone {
        "beside jobs of other names"
    } else if number("iodepth").is_some_and(|depth| depth > 1) {
        "several at once in each"
    } else if let Some(column) = column {
        return What::Disk(Transfer { block_bytes, operation, order, threads, column });
    } else if is_write {
        "synced now and then"
    } else {
        "page cache dropped before"
    };
    other(operation, order, block_bytes, threads, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_outputs_of_fio_3_33_are_read() {
        let of = |text| super::super::read(text).unwrap();
        let read = of(include_str!("testdata/fio-randread.json"));
        let transfer = Transfer {
            block_bytes: 4096,
            operation: Operation::Read,
            order: Order::Random,
            threads: 1,
            column: Column::Direct,
        };
        assert_eq!((read.len(), &read[0].what), (1, &What::Disk(transfer)));
        assert!(read[0].per_second > 1e6);
        let write = of(include_str!("testdata/fio-write.json"));
        let durable = Transfer {
            block_bytes: 1 << 20,
            operation: Operation::Write,
            order: Order::Sequential,
            threads: 2,
            column: Column::Durable,
        };
        assert_eq!(
            (write.len(), &write[0].what, write[0].per_second),
            (1, &What::Disk(durable), 1_121_756_777.0)
        );
    }

    #[test]
    fn what_has_no_counterpart_is_told_as_such() {
        let of = |kind: &str, more: &[(&str, &str)], operation| {
            let given = [("rw", kind), ("bs", "4k,8k")];
            let options = given.iter().chain(more).map(|(name, value)| ((*name).into(), (*value).into()));
            what(&options.collect(), operation, 1, true).to_string()
        };
        for (kind, more, part) in [
            (
                "randread",
                &[("iodepth", "32"), ("direct", "1")][..],
                "4096 B random read, 1 threads, several at once",
            ),
            ("read", &[], "page cache dropped before"),
            ("read", &[("invalidate", "0")], "1 threads, cached"),
            ("readwrite", &[("direct", "1")], "mixed"),
            ("read", &[("bs", "huge")], "read of blocks of huge"),
            ("read", &[("bssplit", "4k/50:64k/50")], "blocks of several sizes"),
            ("read", &[("bsrange", "4k-64k")], "blocks of several sizes"),
        ] {
            assert!(of(kind, more, Operation::Read).contains(part), "{kind} {more:?}");
        }
        for (more, part) in [
            (&[("fsync", "32")][..], "8192 B random write, 1 threads, synced now and then"),
            (&[("sync", "dsync")], "1 threads, durable"),
            (&[("direct", "")], "1 threads, direct"),
            (&[("end_fsync", "1")], "write-back"),
            (&[("numjobs", "4")], "4 threads, cached"),
        ] {
            assert!(of("randwrite", more, Operation::Write).contains(part), "{more:?}");
        }
    }

    #[test]
    fn jobs_that_run_at_once_are_not_compared_as_if_alone() {
        let job = |name: &str, waits: &str| {
            format!(
                r#"{{"jobname": "{name}", "job options": {{"rw": "read", "direct": "1"{waits}}},
                "read": {{"total_ios": 9, "bw_bytes": 4096}}, "write": {{"total_ios": 0, "bw_bytes": 0}}}}"#
            )
        };
        let of = |jobs: &[(&str, &str)]| {
            let jobs: Vec<_> = jobs.iter().map(|(name, waits)| job(name, waits)).collect();
            let text = format!(r#"{{"fio version": "fio-3.33", "jobs": [{}]}}"#, jobs.join(","));
            let figures = read(&text).unwrap();
            figures.iter().map(|one| one.what.to_string().contains("beside jobs")).collect::<Vec<_>>()
        };
        let waits = r#", "stonewall": "1""#;
        assert_eq!(of(&[("a", ""), ("b", "")]), [true, true]);
        assert_eq!(of(&[("a", ""), ("b", waits)]), [false, false]);
        assert_eq!(of(&[("a", ""), ("b", waits), ("c", "")]), [false, true, true]);
        assert_eq!(of(&[("a", ""), ("a", ""), ("b", waits)]), [false, false]);
        assert_eq!(of(&[("a", ""), ("b", ""), ("a", "")]), [true, true], "each name once");
    }

    #[test]
    fn jobs_that_failed_or_did_nothing_are_refused() {
        let job = |error: i64, count: u64| {
            format!(
                r#"{{"fio version": "fio-3.33", "jobs": [{{"jobname": "a", "error": {error}, "job options": {{}},
                "read": {{"total_ios": {count}, "bw_bytes": 4096}}, "write": {{"total_ios": 0, "bw_bytes": 0}}}}]}}"#
            )
        };
        assert!(read(&job(5, 9)).unwrap_err().to_string().contains("job a has failed with error 5"));
        assert!(read(&job(0, 0)).unwrap_err().to_string().contains("no job that reads or writes"));
        assert_eq!(read(&job(0, 9)).unwrap().len(), 1);
        assert_eq!(read(&(job(0, 9) + "\nfio: a warning")).unwrap().len(), 1);
    }
}

//! Results of other tools, read from what they print: fio (as JSON), iozone, STREAM and sysbench.
//!
//! A result has a counterpart here only where both do the same work. What does not is kept under its name, so that a
//! comparison can say so.

mod fio;
mod iozone;
mod lines;
mod stream;
mod sysbench;

use std::fmt;
use std::ops::RangeInclusive;

use emu_bench::numbers::rounded_size;
use emu_core::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::disk::{Operation, Order, Transfer};
use crate::kernel::stream::Kernel;

/// One result of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The tool.
    pub tool: Tool,
    /// What it did.
    pub what: What,
    /// How much of it each second: bytes, or for [`What::Primes`] events.
    pub per_second: f64,
}

/// A tool whose results can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// The flexible I/O tester, with `--output-format=json`.
    Fio,
    /// The file system benchmark, in its single mode.
    Iozone,
    /// STREAM, the memory benchmark.
    Stream,
    /// sysbench 1.0: cpu, memory, fileio.
    Sysbench,
}

impl Tool {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fio => "fio",
            Self::Iozone => "iozone",
            Self::Stream => "STREAM",
            Self::Sysbench => "sysbench",
        }
    }
}

/// What a tool did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A transfer of blocks of a file.
    Disk(Transfer),
    /// A kernel of STREAM with so many threads, and arrays of so many bytes, where that is told.
    Stream(Kernel, usize, Option<u64>),
    /// Search for prime numbers with so many threads.
    Primes(usize),
    /// Work of a kind that no measurement here does, in words.
    Other(Domain, String),
}

/// What a result is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Domain {
    /// Calculating.
    Cpu,
    /// Moving data in memory.
    Memory,
    /// Moving data to and from files.
    Disk,
}

impl What {
    /// What it is of.
    pub fn domain(&self) -> Domain {
        match self {
            Self::Disk(_) => Domain::Disk,
            Self::Stream(..) => Domain::Memory,
            Self::Primes(_) => Domain::Cpu,
            Self::Other(domain, _) => *domain,
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(transfer) => f.write_str(&transfer.name()),
            Self::Stream(kernel, threads, bytes) => {
                write!(f, "STREAM {}, {threads} threads", kernel.name())?;
                bytes.map_or(Ok(()), |bytes| write!(f, ", arrays of {}", rounded_size(bytes)))
            }
            Self::Primes(threads) => write!(f, "prime numbers, {threads} threads"),
            Self::Other(_, words) => f.write_str(words),
        }
    }
}

/// Bytes or events each second that a tool can have measured.
const PLAUSIBLE: RangeInclusive<f64> = 1e-6..=1e15;

/// The results in what a tool has printed.
///
/// # Errors
/// Usage, for text of no such tool, and for one that has failed or was stopped before its result.
pub fn read(text: &str) -> Result<Vec<Figure>> {
    let is_json = text.find('{').filter(|_| text.contains("\"fio version\""));
    let figures = if let Some(begin) = is_json {
        fio::read(text.get(begin..).unwrap_or_default())
    } else if text.contains("Iozone: Performance Test of File I/O") {
        iozone::read(text)
    } else if text.contains("STREAM version") {
        stream::read(text)
    } else if text.trim_start().starts_with("sysbench ") {
        sysbench::read(text)
    } else {
        Err(Error::usage("it is no output of fio, iozone, STREAM or sysbench").hint(
            "keep what the tool prints: fio --output-format=json --output FILE …, or TOOL … > FILE with its first lines",
        ))
    }?;
    if let Some(figure) = figures.iter().find(|figure| !PLAUSIBLE.contains(&figure.per_second)) {
        let Figure { what, per_second, .. } = figure;
        let rate = format!("its rate of {what} is {per_second:e} each second, which none can be");
        let hint = "the file is damaged, or the tool has failed: run it again, and keep all that it prints";
        return Err(Error::usage(rate).hint(hint));
    }
    Ok(figures)
}

fn truncated(tool: Tool, what: &str) -> Error {
    Error::usage(format!("it is of {}, but has no {what}", tool.name()))
        .hint("it may be truncated, or the tool was stopped: run it again, and keep all that it prints")
}

/// A transfer with no counterpart here, and why.
fn other(operation: Operation, order: Order, block_bytes: u64, threads: usize, why: &str) -> What {
    let (order, operation) = (order.name(), operation.name());
    What::Other(Domain::Disk, format!("{block_bytes} B {order} {operation}, {threads} threads, {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::ErrorKind;

    #[test]
    fn what_is_of_no_known_tool_is_refused_with_a_hint() {
        for text in ["", "{}", "Copy: 12345.6", "hello", "\0\u{1}", "{\"fio version\"", "sysbenchmark"] {
            let error = read(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{text}");
        }
        assert!(read("hello").unwrap_err().hint_text().unwrap().contains("--output-format=json"));
    }

    #[test]
    fn a_rate_that_none_can_be_is_refused_with_a_hint() {
        let text = include_str!("testdata/stream.txt");
        let line = text.lines().find(|line| line.starts_with("Copy:")).unwrap();
        for bad in ["NaN", "inf", "0", "-5", "1e300", "1e-300"] {
            let error = read(&text.replace(line, &format!("Copy: {bad}"))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{bad}");
            assert!(error.hint_text().is_some() && error.to_string().len() < 100, "{bad}: {error}");
        }
    }

    #[test]
    fn an_output_cut_anywhere_is_refused_or_whole() {
        for text in [
            include_str!("testdata/fio-randread.json"),
            include_str!("testdata/sysbench-cpu.txt"),
            include_str!("testdata/sysbench-memory.txt"),
            include_str!("testdata/sysbench-fileio-read.txt"),
            include_str!("testdata/iozone.txt"),
            include_str!("testdata/stream.txt"),
        ] {
            let whole = read(text).unwrap();
            assert!(!whole.is_empty());
            for end in (0..text.len()).step_by(7) {
                match read(&text[..end]) {
                    Ok(figures) => assert_eq!(figures, whole, "{end}"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Usage),
                }
            }
        }
    }
}

//! Results as text: how they are printed and written to files. Formatting reads and changes nothing.

pub(crate) mod errors;
pub(crate) mod progress;

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use emu_bench::report::Chart;
use emu_bench::table::set_width;
use emu_core::{Error, Result};
use serde::Serialize;

pub(crate) const PREFIX: &str = "emu: ";

/// The version of the JSON forms that have none of their own; it changes when a field changes its meaning or goes.
pub(crate) const SCHEMA: u32 = 1;

#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) csv: String,
    /// The figures. The name of the first is usually empty: its file is called after the subcommand alone.
    pub(crate) figures: Vec<(&'static str, Chart)>,
}

/// Makes tables and paragraphs as wide as the terminal that they go to.
pub(crate) fn fit_terminal() {
    if let Ok(size) = rustix::termios::tcgetwinsize(io::stdout())
        && size.ws_col > 0
    {
        set_width(size.ws_col.into());
    }
}

impl Shown {
    pub(crate) fn followed_by(mut self, text: &str) -> Self {
        self.text += text;
        self
    }
}

/// Writes text to stdout. A reader that has seen enough (`emu methods | head`) is no failure.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Error::io("cannot write to stdout", e)),
        _ => Ok(()),
    }
}

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| Error::file("write", path, e))
}

pub(crate) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|e| Error::io("cannot write JSON", e.into()))
}

/// A span as JSON has it, in whole nanoseconds; 584 years fit.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

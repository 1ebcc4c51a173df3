//! Results as text: how they are printed and written to files. Formatting reads and changes nothing.

pub(crate) mod errors;
pub(crate) mod file;
pub(crate) mod progress;
pub(crate) mod stderr;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use emu_bench::report::Chart;
use emu_bench::table::set_width;
use emu_core::{Error, Result};
use nix::libc;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use serde::Serialize;

pub(crate) const PREFIX: &str = "emu: ";

/// The version of the JSON forms that have none of their own; it changes when a field changes its meaning or goes.
pub(crate) const SCHEMA: u32 = 1;

/// The version of the forms that tell how emulations go at the moment. In 1 the units of a status were not in its names.
pub(crate) const LIVE: u32 = 2;

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

/// Writes text to stdout; tells whether anybody still reads it. One who has seen enough (`emu methods | head`) is no failure.
pub(crate) fn print(text: &str) -> Result<bool> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Error::io("cannot write to stdout", e)),
    }
}

pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    open(path, OpenOptions::new().write(true).create(true).truncate(true))
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| Error::file("write", path, e))
}

/// Opens a file to write to. It fails for a FIFO that nobody reads: an `open(2)` that waits for a reader could not be ended, as
/// emu takes its signals from a descriptor, between two steps.
pub(crate) fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let opened = options.custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|e| match e.raw_os_error() {
        Some(libc::ENXIO) => io::Error::other("nobody reads from it"),
        _ => e,
    })?;
    // What is written waits for a slow reader.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

pub(crate) fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(value)
        .map(|text| text + "\n")
        .map_err(|e| Error::io("cannot write JSON", e.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::io::Read;

    #[test]
    fn a_fifo_is_written_to_where_somebody_reads() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let error = write(&fifo, "text").unwrap_err();
        assert!(error.in_words().ends_with("nobody reads from it"), "{}", error.in_words());
        let mut options = OpenOptions::new();
        let mut reader = options.read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).unwrap();
        write(&fifo, "text").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
    }
}

//! `emu man`: manual pages.

use std::io;
use std::path::PathBuf;

use clap::{Args, Command};
use emu_core::{Error, ErrorKind};

use crate::exit::{Exit, Failure};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  emu man | man -l -
  emu man --dir ~/.local/share/man/man1";

/// Write the manual page of emu, or all pages into a folder
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// Write emu.1, emu-run.1 and so on into this folder
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

pub(crate) fn man(args: &ManArgs, whole: Command) -> Result<Exit, Failure> {
    if let Some(dir) = &args.dir {
        clap_mangen::generate_to(whole, dir).map_err(|e| {
            let is_missing = matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
            let error = Error::file("write manual pages to", dir, e);
            let kind = if is_missing { ErrorKind::Usage } else { error.kind() };
            error.with_kind(kind).hint("name a folder that is there and can be written")
        })?;
        return Ok(Exit::Success);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(whole)
        .render(&mut page)
        .map_err(|e| Error::io("cannot write the manual page", e))?;
    output::print(&String::from_utf8_lossy(&page))?;
    Ok(Exit::Success)
}

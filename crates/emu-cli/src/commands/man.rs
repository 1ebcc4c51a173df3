//! `emu man`: manual pages.

use std::io;

use clap::CommandFactory;
use emu_core::{Error, ErrorKind};

use crate::args::{Cli, ManArgs};
use crate::exit::{Exit, Failure};
use crate::output;

/// Writes the main page to stdout, or every page into a folder.
pub(crate) fn man(args: &ManArgs) -> Result<Exit, Failure> {
    if let Some(dir) = &args.dir {
        clap_mangen::generate_to(Cli::command(), dir).map_err(|e| {
            let is_missing = matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
            let error = Error::file("write manual pages to", dir, e);
            let kind = if is_missing { ErrorKind::Usage } else { error.kind() };
            error.with_kind(kind).hint("name a folder that is there and can be written")
        })?;
        return Ok(Exit::Success);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .render(&mut page)
        .map_err(|e| Error::io("cannot write the manual page", e))?;
    output::print(&String::from_utf8_lossy(&page))?;
    Ok(Exit::Success)
}

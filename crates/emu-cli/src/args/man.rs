use std::path::PathBuf;

use clap::Args;

/// Write the manual page of emu, or all pages into a folder
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write emu.1, emu-run.1 and so on into this folder
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

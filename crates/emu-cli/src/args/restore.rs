use clap::Args;

/// Undo what killed emus have left
///
/// Any other emu command that starts an emulation does the same first.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {}

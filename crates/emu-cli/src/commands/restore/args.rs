use clap::Args;

/// Undo what killed emus have left
///
/// Any other command of emu that looks at the machine does the same first.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Write JSON to stdout instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  emu restore
  emu restore --json";

/// Undo what killed emus have left
///
/// Any other command of emu that looks at the machine does the same first.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RestoreArgs {
    /// Write JSON to stdout instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

use clap::Args;
use clap_complete::Shell;

/// Write a completion script for a shell
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// For which shell
    pub(crate) shell: Shell,
}

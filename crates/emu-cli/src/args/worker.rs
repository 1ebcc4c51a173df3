use clap::Args;

/// Work through measuring windows, for `emu verify`
///
/// Reads an order from stdin for each window and answers it with a line of JSON.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// What to work at, and for which parent, as JSON
    pub(crate) spec: String,
}

use clap::Args;

/// Do a task for another emu
///
/// Answers each request on stdin, a line of JSON, with one on stdout.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The task
    pub(crate) task: String,

    /// The process that it must not outlive
    pub(crate) parent: i32,
}

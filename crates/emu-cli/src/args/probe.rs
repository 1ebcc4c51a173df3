use clap::Args;

/// Measure the clock delivered on each CPU, for `--verify`
///
/// Reads `CPUS NANOSECONDS` lines from stdin and answers each with a line of JSON.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {}

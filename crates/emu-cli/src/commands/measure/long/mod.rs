//! A long series of one kind of work: what `--for` means to every measurement that has it.

mod show;

use std::time::Duration;

use emu_core::{Error, Host, Result};
use emu_machine::Watch;
use emu_machine::series::{Series, SeriesPlan};

use crate::exit::{Exit, Failure};
use crate::measuring::{MeasureArgs, Task, measured};
use crate::options::option;
use crate::values::exact;

/// The one value of an option that takes several without `--for`; the usual one where none is given.
pub(super) fn only<T: Copy>(name: &str, values: &[T], usual: T) -> Result<T> {
    match values {
        [] => Ok(usual),
        [one] => Ok(*one),
        several => Err(Error::usage(format!(
            "a long series has one value of --{name}, and {} are given",
            several.len()
        ))
        .hint(format!("give --{name} one value, or leave out --for"))),
    }
}

/// Takes a series, and shows where less was done. The options of the task are those of its work alone; `run` makes
/// the work, once signals are blocked, and takes the series.
pub(super) fn take(
    host: &Host,
    args: &MeasureArgs,
    task: Task<'_, SeriesPlan>,
    run: impl FnOnce(SeriesPlan, Watch<'_>) -> Result<Series>,
) -> Result<Exit, Failure> {
    let plan = *task.plan;
    let [length, every] = [plan.length_ns, plan.every_ns].map(|ns| exact(Duration::from_nanos(ns)));
    let task = Task { options: task.options + &option("for", [length]) + &option("every", [every]), ..task };
    measured(host, args, &task, |watch| run(plan, watch), show::shown)?;
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_has_one_value_of_each_option() {
        assert_eq!(only("threads", &[], 7).unwrap(), 7);
        assert_eq!(only("threads", &[3], 7).unwrap(), 3);
        let error = only("threads", &[1, 2], 7).unwrap_err();
        assert!(error.to_string().contains("--threads, and 2 are given"), "{error}");
        assert!(error.hint_text().is_some());
    }
}

//! What all measurements of the machine share: signals, progress, the record, and how a result is shown.

mod args;

pub(crate) use args::{MeasureArgs, SeriesArgs};

use std::path::{Path, PathBuf};
use std::time::Duration;

use emu_bench::record::{About, Machine, Measurement, Record};
use emu_core::{Error, ErrorKind, Host, Result, input_file};
use emu_machine::{Event, Watch};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ending::Ending;
use crate::exit::Failure;
use crate::output::progress::Progress;
use crate::output::{self, Shown};
use crate::reporter::Reporter;
use crate::signals::Signals;

#[derive(Debug)]
pub(crate) struct Task<'a, P> {
    /// The subcommand: `noise`, `measure cpu`. Files of the record are called after it.
    pub(crate) name: &'a str,
    /// Options of its own, as they are to be written to measure the same again: ` --threshold 5us`.
    pub(crate) options: String,
    pub(crate) seed: u64,
    pub(crate) plan: &'a P,
}

/// Has `measure` measure what is planned, shows what came of it, and returns that.
pub(crate) fn measured<R: Serialize>(
    host: &Host,
    args: &MeasureArgs,
    task: &Task<'_, impl Serialize>,
    measure: impl FnOnce(Watch<'_>) -> Result<R>,
    show: impl FnOnce(&R) -> Shown,
) -> Result<R, Failure> {
    let mut measuring = Measuring::begin(host, args, task)?;
    let measured = measure(&mut |event| measuring.watch(event));
    measuring.finish(measured, show)
}

/// [`begin`](Self::begin) comes first, before any thread is made. The measurement then calls [`watch`](Self::watch)
/// between samples, and [`finish`](Self::finish) shows the result, whatever came of it.
struct Measuring {
    name: String,
    about: About,
    ending: Ending<Signals>,
    progress: Progress,
    record: Option<Record>,
    json: bool,
}

impl Measuring {
    /// Blocks signals, and makes the record where one is wanted: a folder that cannot be made is told before measuring.
    fn begin(host: &Host, args: &MeasureArgs, task: &Task<'_, impl Serialize>) -> Result<Self> {
        let ending = Ending::new(Signals::block()?);
        let Task { name, options, seed, plan } = task;
        let quick = if args.quick { " --quick" } else { "" };
        let command = format!("emu {name}{quick}{options} --seed {seed}");
        let plan = serde_json::to_value(plan).map_err(|cause| {
            Error::new(ErrorKind::Failed, "cannot write the plan as JSON").caused_by(cause)
        })?;
        let measurement = Some(Measurement { name: (*name).to_owned(), plan });
        let about = About { measurement, ..About::new(Machine::of(host), command, *seed) };
        let made = |out: &PathBuf| {
            let hint = "a record is never written over; name a new folder";
            Record::check(out).map_err(|error| error.hint(hint))?;
            Record::at(out, &about)
        };
        let record = args.out.as_ref().map(made).transpose()?;
        let progress = Progress::new(Duration::ZERO);
        Ok(Self { name: (*name).to_owned(), about, ending, progress, record, json: args.json })
    }

    /// Tells what comes next and how much time is left in all, where that is known, or keeps a sample.
    fn watch(&mut self, event: Event<'_>) -> Result<()> {
        match event {
            Event::Next { what, left } => {
                self.ending.go_on()?;
                if left.is_zero() {
                    self.progress.show_alone(what);
                } else {
                    self.progress.expect(left);
                    self.progress.show(what);
                }
                Ok(())
            }
            Event::Sample { row, sample } => {
                self.record.as_mut().map_or(Ok(()), |record| record.sample(row, &sample))
            }
        }
    }

    /// Shows what was measured, adds it to the record, and returns it. Where a file cannot be written, or a signal came when
    /// all was measured, the result is shown first.
    fn finish<R: Serialize>(
        mut self,
        measured: Result<R>,
        show: impl FnOnce(&R) -> Shown,
    ) -> Result<R, Failure> {
        self.progress.clear();
        let result = match measured {
            Ok(result) => result,
            Err(error) => {
                let ended = self.ending.by_signal(Some(&error));
                self.keep();
                return Err(ended.err().unwrap_or_else(|| error.into()));
            }
        };
        let shown = show(&result);
        let document = Document { schema: output::SCHEMA, about: self.about, result };
        let json = output::json(&document)?;
        let write = |record| write(record, &self.name, &json, &shown);
        let written = self.record.as_ref().map_or(Ok(()), write);
        output::print(if self.json { &json } else { &shown.text })?;
        written?;
        if let Some(record) = &self.record {
            Reporter::new(false).say(&format!("the record is in {}", record.folder().display()));
        }
        self.ending.by_signal(None)?;
        Ok(document.result)
    }

    fn keep(&mut self) {
        if let Some(record) = self.record.take() {
            let folder = record.folder().display().to_string();
            if record.discard_if_empty() {
                Reporter::new(false).say(&format!("what was measured is kept in {folder}"));
            }
        }
    }
}

/// Adds a result to its record: `noise.json`, `noise.csv`, `noise.svg` and further figures such as `noise-gaps.svg`.
fn write(record: &Record, name: &str, json: &str, shown: &Shown) -> Result<()> {
    let stem = name.replace(' ', "-");
    record.add(&format!("{stem}.json"), json)?;
    record.add(&format!("{stem}.csv"), &shown.csv)?;
    for (of, chart) in &shown.figures {
        let dash = if of.is_empty() { "" } else { "-" };
        record.add(&format!("{stem}{dash}{of}.svg"), &chart.svg()?)?;
    }
    Ok(())
}

/// The JSON of a measurement: what was measured on what, and the result.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub(crate) struct Document<R> {
    /// Version of the form: [`output::SCHEMA`].
    schema: u32,
    /// What was measured, when and on what.
    pub(crate) about: About,
    /// What came of it, with every sample.
    pub(crate) result: R,
}

impl<R: DeserializeOwned> Document<R> {
    /// Reads a measurement of this name back, from a record or from the file that `--json` has written.
    pub(crate) fn read(path: &Path, name: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Form {
            schema: u32,
            about: About,
        }
        let file =
            if path.is_dir() { path.join(format!("{}.json", name.replace(' ', "-"))) } else { path.into() };
        let hint = format!("name a record of `emu {name} --out DIR`, or a file of `emu {name} --json`");
        let unusable = |what: String| {
            Error::usage(format!("cannot use the measurement {}: {what}", file.display())).hint(hint.clone())
        };
        let text = input_file::read_any(&file, input_file::TRACE_MAX).map_err(|cause| {
            Error::file("read", &file, cause).with_kind(ErrorKind::Usage).hint(hint.clone())
        })?;
        let damaged = |cause| unusable("it cannot be understood".into()).caused_by(cause);
        let form: Form = serde_json::from_str(&text).map_err(damaged)?;
        if form.schema != output::SCHEMA {
            let ours = output::SCHEMA;
            return Err(unusable(format!("its form is version {}, this emu reads {ours}", form.schema)));
        }
        match form.about.measurement {
            Some(measurement) if measurement.name == name => serde_json::from_str(&text).map_err(damaged),
            Some(other) => Err(unusable(format!("it is one of emu {}", other.name))),
            None => Err(unusable("it is of no measurement".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use emu_core::Roots;
    use nix::sys::signal::{Signal, raise};

    use super::*;
    use crate::exit::Exit;

    /// A measurement that came to `measured` when its thread got a signal.
    fn ended(measured: Result<u32>, folder: &Path) -> Result<u32, Failure> {
        let args = MeasureArgs { quick: true, json: true, out: Some(folder.into()), seed: Some(1) };
        let measure = move || {
            let task = Task { name: "test", options: String::new(), seed: 1, plan: &() };
            let host = Host::detect(&Roots::system()).unwrap();
            let mut measuring = Measuring::begin(&host, &args, &task).unwrap();
            measuring.watch(Event::Sample { row: "row", sample: 7.into() }).unwrap();
            raise(Signal::SIGTERM).unwrap();
            let text = String::new;
            measuring.finish(measured, |_| Shown { text: text(), csv: text(), figures: vec![] })
        };
        // On a thread of its own, whose signals may be blocked.
        thread::spawn(measure).join().unwrap()
    }

    #[test]
    fn a_signal_that_comes_at_the_end_leaves_the_result() {
        let dir = tempfile::tempdir().unwrap();
        let whole = dir.path().join("whole");
        assert_eq!(ended(Ok(5), &whole).unwrap_err().exit, Exit::Signal(Signal::SIGTERM as i32));
        assert_eq!(Document::<u32>::read(&whole, "test").unwrap().result, 5);
    }

    #[test]
    fn a_signal_that_ends_a_measurement_leaves_its_samples() {
        let dir = tempfile::tempdir().unwrap();
        let part = dir.path().join("part");
        let failure = ended(Err(Error::new(ErrorKind::Failed, "ended")), &part).unwrap_err();
        assert_eq!(failure.exit, Exit::Signal(Signal::SIGTERM as i32));
        assert!(part.join("samples.jsonl").exists() && !part.join("test.json").exists());
    }
}

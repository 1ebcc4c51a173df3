//! `--compare`: results of other tools beside those that were measured.

use std::path::PathBuf;

use clap::Args;
use emu_bench::numbers::rate;
use emu_bench::table;
use emu_bench::table::paragraph;
use emu_core::{Error, ErrorKind, Result, input_file};
use emu_machine::tools::{self, Domain, Figure, Tool, What};
use serde::Serialize;

/// Results of other tools.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Show beside it what another tool has printed into this file: fio (as JSON), iozone, STREAM or sysbench
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    compare: Vec<PathBuf>,
}

impl CompareArgs {
    pub(super) fn read(&self, domain: Domain) -> Result<Vec<Figure>> {
        let mut all = Vec::new();
        for path in &self.compare {
            let text = input_file::read_any(path, input_file::SIZE_MAX)
                .map_err(|cause| Error::file("read", path, cause).with_kind(ErrorKind::Usage))?;
            let cannot = format!("cannot compare with {}", path.display());
            let figures = tools::read(&text).map_err(|error| {
                let hint = error.hint_text();
                let refused = Error::usage(cannot.clone()).caused_by(error);
                hint.into_iter().fold(refused, Error::hint)
            })?;
            if let Some(figure) = figures.iter().find(|figure| figure.what.domain() != domain) {
                return Err(Error::usage(format!("{cannot}: {} is measured by another subcommand", figure.what))
                    .hint("emu measure cpu takes sysbench cpu; memory and hpcc STREAM and sysbench memory; disk fio, iozone and sysbench fileio"));
            }
            all.extend(figures);
        }
        Ok(all)
    }
}

/// A result of another tool beside that of emu.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub(crate) struct Beside {
    tool: Tool,
    what: String,
    /// Bytes or events each second, there.
    there: f64,
    unit: &'static str,
    /// The same here; `None` where that was not measured.
    here: Option<f64>,
}

/// A result with those of other tools, as the JSON has them.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub(crate) struct Compared<R> {
    #[serde(flatten)]
    pub(super) result: R,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) compared: Vec<Beside>,
}

impl<R> Compared<R> {
    /// The result with those of other tools; `here` is what was measured of the same work.
    pub(super) fn of(result: R, figures: &[Figure], here: impl Fn(&R, &What) -> Option<f64>) -> Self {
        let beside = |figure: &Figure| Beside {
            tool: figure.tool,
            what: figure.what.to_string(),
            there: figure.per_second,
            unit: if figure.what.domain() == Domain::Cpu { "events" } else { "B" },
            here: here(&result, &figure.what),
        };
        Self { compared: figures.iter().map(beside).collect(), result }
    }

    pub(super) fn text(&self) -> String {
        if self.compared.is_empty() {
            return String::new();
        }
        let table = table! {
            for one in &self.compared;
            text "TOOL" = one.tool.name(),
            number "THERE" = rate(one.there, one.unit),
            number "HERE" = one.here.map(|here| rate(here, one.unit)),
            fixed(2) "HERE/THERE" = one.here.map(|here| here / one.there),
            text "WHAT" = &one.what,
        };
        let is_missing = self.compared.iter().any(|one| one.here.is_none());
        let note = is_missing.then(|| paragraph("-: emu has not measured that, or measures no such work."));
        format!("\n{}{}", table.text(), note.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use emu_machine::kernel::stream::Kernel;

    fn figures() -> Vec<Figure> {
        let figure = |what, per_second| Figure { tool: Tool::Stream, what, per_second };
        vec![
            figure(What::Stream(Kernel::Copy, 1, None), 10e9),
            figure(What::Stream(Kernel::Triad, 64, None), 12e9),
            figure(
                What::Other(Domain::Memory, "write of one 1024KiB block again and again, 16 threads".into()),
                1e9,
            ),
        ]
    }

    #[test]
    fn results_stand_beside_those_of_the_same_work() {
        let here = |measured: &[f64; 1], what: &What| match what {
            What::Stream(Kernel::Copy, 1, None) => Some(measured[0]),
            _ => None,
        };
        let compared = Compared::of([9e9], &figures(), here);
        let text = compared.text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let rows: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert!(rows.contains(&"STREAM 10 GB/s 9 GB/s 0.90 STREAM copy, 1 threads".to_owned()), "{text}");
        assert!(text.contains("-: emu has not measured that"), "{text}");
        assert_eq!(Compared::of([9e9], &[], here).text(), "");
    }

    #[test]
    fn the_json_has_them_only_where_there_are_some() {
        #[derive(Serialize)]
        struct Result {
            rate: f64,
        }
        let of = |figures: &[Figure]| {
            let compared = Compared::of(Result { rate: 2.0 }, figures, |result, _| Some(result.rate));
            serde_json::to_value(compared).unwrap()
        };
        assert_eq!(of(&[]), serde_json::json!({"rate": 2.0}));
        assert_eq!(of(&figures())["compared"][1]["here"], 2.0);
    }

    #[test]
    fn files_of_something_else_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str, domain| {
            let path = dir.path().join("a,b.txt");
            fs::write(&path, text).unwrap();
            CompareArgs { compare: vec![path] }.read(domain).unwrap_err()
        };
        let primes = "sysbench 1.0.20\nNumber of threads: 1\nPrime numbers limit: 10\nevents per second: 5\ntotal number of events: 5\n";
        let other = read(primes, Domain::Disk);
        assert!(
            other.to_string().contains("b.txt: prime numbers, 1 threads is measured by another"),
            "{other}"
        );
        assert!(other.hint_text().unwrap().contains("disk fio"));
        let nothing = read("hello", Domain::Disk);
        assert!(nothing.in_words().contains("no output of fio"), "{nothing:?}");
        assert!(nothing.hint_text().unwrap().contains("json"));
        let endless = CompareArgs { compare: vec!["/dev/zero".into()] }.read(Domain::Cpu).unwrap_err();
        assert!(endless.in_words().contains("more than 16 MiB"), "{endless:?}");
        let missing = CompareArgs { compare: vec![dir.path().join("none")] }.read(Domain::Cpu).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::Usage);
    }
}

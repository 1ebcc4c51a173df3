//! What the measuring benches share: options, the record, and a table of cases with what they must reach.

// Each bench is a crate of its own and uses its part of this.
#![allow(dead_code)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use emu_bench::record::{About, Machine, Record, seed_from_clock};
use emu_bench::stats::{Bootstrap, Centre, Interval, Level, Pair, PairedRatios};
use emu_bench::worker::serve_if_asked;
use emu_bench::workload::TASK;
use emu_core::{CpuList, Error, ErrorKind, Host, Result, Roots};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The first argument by which an executable does what is ours.
const OURS: &str = "ours";

/// Pairs unless given.
const PAIRS: usize = 15;

/// The folder of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Options of every measuring bench.
#[derive(Debug)]
pub(crate) struct Options {
    /// Only the rows whose names contain one of these; all when there is none.
    rows: Vec<String>,
    /// Only the cases whose names contain one of these; all when there is none.
    cases: Vec<String>,
    pub(crate) pairs: usize,
    out: Option<PathBuf>,
    pub(crate) seed: u64,
}

impl Options {
    /// Reads the command line, and `--bench`, which cargo adds.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut options =
            Self { rows: Vec::new(), cases: Vec::new(), pairs: PAIRS, out: None, seed: seed_from_clock() };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| Error::usage(format!("{word} needs a value")));
            match word.as_str() {
                "--bench" => {}
                "--row" => options.rows.push(value()?),
                "--case" => options.cases.push(value()?),
                "--pairs" => options.pairs = number(&word, &value()?)? as usize,
                "--seed" => options.seed = number(&word, &value()?)?,
                // Cargo runs a bench in the folder of its crate; whoever calls it is in that of the repository.
                "--out" => options.out = Some(Path::new(ROOT).join(value()?)),
                _ => {
                    return Err(Error::usage(format!("unknown option {word}"))
                        .hint("--row NAME, --case NAME, --pairs N, --seed N, --out DIR"));
                }
            }
        }
        if options.pairs < 2 {
            return Err(Error::usage("--pairs must be at least 2"));
        }
        Ok(options)
    }

    /// The command that takes the same measurements again; where results go is left out.
    fn command(&self, bench: &str) -> String {
        let mut words = String::new();
        for (option, values) in [("--row", &self.rows), ("--case", &self.cases)] {
            for value in values {
                let _ = write!(words, " {option} '{value}'");
            }
        }
        let (package, pairs, seed) = (env!("CARGO_PKG_NAME"), self.pairs, self.seed);
        format!("cargo bench -p {package} --bench {bench} --{words} --pairs {pairs} --seed {seed}")
    }
}

fn matches(wanted: &[String], name: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()))
}

fn number(option: &str, text: &str) -> Result<u64> {
    text.parse().map_err(|cause| Error::usage(format!("{option} {text} is not a number")).caused_by(cause))
}

/// Whether a case reached what it must.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Met {
    Yes,
    No,
    /// It could not be measured here, and why.
    Not(String),
}

impl From<bool> for Met {
    fn from(met: bool) -> Self {
        if met { Self::Yes } else { Self::No }
    }
}

impl Met {
    /// Whether a figure is at most `most`; one that nothing was measured of is no figure.
    pub(crate) fn at_most(figure: Option<f64>, most: f64) -> Self {
        figure.map_or_else(|| Self::Not("nothing was measured".into()), |figure| (figure <= most).into())
    }
}

/// One line of the result.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) case: String,
    pub(crate) measured: String,
    pub(crate) must: String,
    pub(crate) met: Met,
}

/// A run under way.
pub(crate) struct Run {
    pub(crate) host: Host,
    pub(crate) options: Options,
    record: Option<Record>,
    signals: Signals,
    lines: Vec<(&'static str, Line)>,
}

/// The signals that ask to end, kept for a descriptor: what is under way is undone before the bench ends.
struct Signals(SignalFd);

impl Signals {
    fn set() -> SigSet {
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect()
    }

    fn block() -> Result<Self> {
        let failed = |cause: nix::Error| Error::io("cannot take over signals", cause.into());
        Self::set().thread_block().map_err(failed)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        SignalFd::with_flags(&Self::set(), flags).map(Self).map_err(failed)
    }

    /// Fails when one has come.
    fn check(&self) -> Result<()> {
        let info = self.0.read_signal().map_err(|cause| Error::io("cannot read signals", cause.into()))?;
        info.map_or(Ok(()), |info| {
            let signal = Signal::try_from(info.ssi_signo as i32).map_or("a signal", Signal::as_str);
            Err(Error::new(ErrorKind::Failed, format!("ended by {signal}")))
        })
    }
}

impl Run {
    /// Whether a row is asked for.
    pub(crate) fn wants(&self, row: &str) -> bool {
        matches(&self.options.rows, row)
    }

    /// Whether a case of a row is asked for.
    pub(crate) fn wants_case(&self, case: &str) -> bool {
        matches(&self.options.cases, case)
    }

    /// Keeps a raw sample.
    ///
    /// # Errors
    /// It cannot be written, or a signal has come.
    pub(crate) fn sample(&mut self, row: &str, sample: &impl serde::Serialize) -> Result<()> {
        let kept = self.record.as_mut().map_or(Ok(()), |record| record.sample(row, sample));
        kept.and_then(|()| self.signals.check())
    }

    /// Prints a line and keeps it for the summary.
    pub(crate) fn line(&mut self, row: &'static str, line: Line) {
        let met = match &line.met {
            Met::Yes => "yes".to_owned(),
            Met::No => "NO".to_owned(),
            Met::Not(why) => format!("not here: {why}"),
        };
        println!("{row:<14} {:<34} {:<40} {:<10} {met}", line.case, line.measured, line.must);
        self.lines.push((row, line));
    }

    /// The CPUs of the host that may be used, at most `count`.
    pub(crate) fn cpus(&self, count: usize) -> CpuList {
        self.host.allowed.iter().take(count).collect()
    }

    fn summary(&self, bench: &str) -> String {
        let machine = Machine::of(&self.host);
        let hypervisor = machine.hypervisor.as_deref().unwrap_or("no hypervisor");
        let mut text = format!(
            "# {bench}\n\n{}, {} CPUs, Linux {}, {hypervisor}\n\n`{}`\n\n| row | case | measured | must | met |\n|---|---|---|---|---|\n",
            machine.model,
            machine.cpus,
            machine.kernel,
            self.options.command(bench)
        );
        for (row, line) in &self.lines {
            let met = match &line.met {
                Met::Yes => "yes",
                Met::No => "**no**",
                Met::Not(why) => why,
            };
            let _ = writeln!(text, "| {row} | {} | {} | {} | {met} |", line.case, line.measured, line.must);
        }
        text
    }
}

/// The `main` of a measuring bench.
pub(crate) fn main(bench: &str, measure: impl FnOnce(&mut Run) -> Result<()>) -> ExitCode {
    if let Some(code) = serve_if_asked(&[TASK]) {
        return code;
    }
    told(run(bench, measure))
}

/// The `main` of a bench beside other programs, in which a process of its own does what is [`ours`].
pub(crate) fn main_beside(
    bench: &str,
    ours: impl FnOnce(&[String]) -> Result<()>,
    measure: impl FnOnce(&mut Run) -> Result<()>,
) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        Some((first, words)) if first == OURS => told(ours(words)),
        _ => main(bench, measure),
    }
}

/// This executable as a program beside others.
pub(crate) fn ours() -> Result<Command> {
    let mut command = Command::new(this()?);
    command.arg(OURS);
    Ok(command)
}

fn this() -> Result<PathBuf> {
    std::env::current_exe().map_err(|cause| Error::io("cannot find this executable", cause))
}

fn told(done: Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                eprintln!("  caused by: {error}");
                cause = error.source();
            }
            error.hint_text().iter().for_each(|hint| eprintln!("  hint: {hint}"));
            ExitCode::FAILURE
        }
    }
}

fn run(bench: &str, measure: impl FnOnce(&mut Run) -> Result<()>) -> Result<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let signals = Signals::block()?;
    let host = Host::detect(&Roots::system())?;
    let command = options.command(bench);
    let machine = Machine::of(&host);
    let about = About::new(machine.clone(), command.as_str(), options.seed);
    let record = options.out.as_ref().map(|out| Record::below(out, &about)).transpose()?;
    println!("{command}\n{}, {} CPUs, Linux {}\n", machine.model, machine.cpus, machine.kernel);
    let mut run = Run { host, options, record, signals, lines: Vec::new() };
    let measured = measure(&mut run);
    if let Some(record) = &run.record {
        // What was measured before an error counts all the same.
        record.add("summary.md", &run.summary(bench))?;
    }
    measured
}

/// Middle value; `None` of nothing.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    emu_bench::stats::Sample::new(values).ok().map(|sample| sample.median())
}

/// A figure in its unit, or `-`.
pub(crate) fn figure(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.2}{unit}"))
}

/// One after the other; the order changes from pair to pair: ABBA.
pub(crate) fn in_turn<A, B>(
    number: usize,
    one: impl FnOnce() -> Result<A>,
    other: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    if number.is_multiple_of(2) {
        let one = one()?;
        Ok((one, other()?))
    } else {
        let other = other()?;
        Ok((one()?, other))
    }
}

/// The median of the ratios of pairs.
pub(crate) fn ratio(run: &Run, pairs: impl IntoIterator<Item = (f64, f64)>) -> Result<Interval> {
    let pairs = pairs.into_iter().map(|(one, other)| Pair::new(one, other)).collect::<Result<Vec<_>>>()?;
    PairedRatios::new(&pairs)?.ratio(Centre::Median(Bootstrap::new(run.options.seed)), Level::P95)
}

pub(crate) fn in_words(ratio: &Interval) -> String {
    format!("{:.3} [{:.3}, {:.3}]", ratio.estimate, ratio.low, ratio.high)
}

/// What a program writes; an error where it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.output().map_err(|cause| Error::io(format!("cannot run {program}"), cause))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(ErrorKind::Failed, format!("{command:?} failed: {}", why.trim())))
}

/// Wall time of a command in milliseconds.
pub(crate) fn timed(command: &mut Command) -> Result<f64> {
    let begin = Instant::now();
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|cause| Error::io(format!("cannot run {}", command.get_program().display()), cause))?;
    let time = begin.elapsed().as_secs_f64() * 1e3;
    if status.success() {
        Ok(time)
    } else {
        Err(Error::new(ErrorKind::Failed, format!("the command failed: {status}")))
    }
}

/// The command, built for release beside this bench.
pub(crate) fn emu() -> Result<PathBuf> {
    // target/release/deps/startup-… → target/release/emu
    let emu = this()?.ancestors().nth(2).map(|folder| folder.join("emu"));
    emu.filter(|path| path.exists()).ok_or_else(|| {
        Error::unavailable("the command emu has not been built")
            .hint("run `cargo build --release -p emu-cpu`")
    })
}

//! `emu calibrate`: how speed follows the quota; and what two calibrations make of each other.

mod args;
pub(crate) mod show;

pub(crate) use args::{
    CalibrateArgs, CalibrateCommand, CalibrateCompareArgs, CalibrateMapArgs, CalibratePreset,
};

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;

use emu_core::{Error, ErrorKind, Host, Result, input_file};
use emu_machine::calibrate::{self, CalibrationPlan, Explained, Measured, Other, Setting, Wanted};
use emu_machine::doctor::{Machine, Refused, examine};
use emu_machine::{Event, Watch};

use crate::commands::doctor::turnable;
use crate::exit::{Exit, Failure};
use crate::measuring::{Document, Task, measured};
use crate::options::{flag, option};
use crate::{host, output};

const NAME: &str = "calibrate";

pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<Exit, Failure> {
    match &args.command {
        Some(CalibrateCommand::Map(args)) => map(args),
        Some(CalibrateCommand::Compare(args)) => compare(args),
        None => measure(args),
    }
}

fn measure(args: &CalibrateArgs) -> Result<Exit, Failure> {
    let host = host::detect()?;
    let (seed, preset) = (args.measure.seed(), args.preset);
    let wanted = Wanted {
        quick: args.measure.quick,
        published: preset.is_some(),
        seed,
        step: args.step,
        reps: args.reps,
        sizes: args.sizes.clone(),
    };
    let plan = CalibrationPlan::new(&host, &wanted)?;
    let options = option("preset", preset.map(|CalibratePreset::Semode2021| "semode-2021"))
        + &option("step", args.step)
        + &option("reps", args.reps)
        + &option("size", &args.sizes)
        + &flag("explain", args.explain);
    let task = Task { name: NAME, options, seed, plan: &plan };
    let run = |watch: Watch<'_>| {
        let found = calibrate::measure(&host, &plan, watch)?;
        if !args.explain {
            return Ok(found);
        }
        let mut again = |name: &str| {
            calibrate::measure(&host, &plan, &mut |event| match event {
                Event::Sample { row, sample } => {
                    watch(Event::Sample { row: &format!("{row} {name}"), sample })
                }
                next @ Event::Next { .. } => watch(next),
            })
        };
        let explained = match explain(&host, &found, &mut again) {
            // What was measured before is worth telling all the same.
            Err(error) if error.kind() != ErrorKind::RestoreIncomplete => Explained {
                tests: Vec::new(),
                words: format!("No cause is named, as measuring again failed: {}.", error.in_words()),
            },
            explained => explained?,
        };
        Ok(Measured { explained: Some(explained), ..found })
    };
    let measured = measured(&host, &args.measure, &task, run, |it| show::shown(it, preset.is_some()))?;
    Ok(if measured.passed() { Exit::Success } else { Exit::NotVerified })
}

fn explain(
    host: &Host,
    found: &Measured,
    measure: &mut dyn FnMut(&str) -> Result<Measured>,
) -> Result<Explained> {
    let machine = Machine::of_files(&host.roots, None)?;
    let knobs = examine(&machine, &calibrate::CAUSES.map(str::to_owned))?;
    match turnable(&machine, &knobs, false) {
        Ok((mut switches, refused)) => {
            let mut explained = calibrate::explain(found, &mut switches, "", measure)?;
            for Refused { name, why } in refused {
                let _ = write!(explained.words, " Not tested: {name}: {why}.");
            }
            Ok(explained)
        }
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            calibrate::explain(found, &mut [], &error.in_words(), measure)
        }
        Err(error) => Err(error),
    }
}

fn map(args: &CalibrateMapArgs) -> Result<Exit, Failure> {
    let here = read(&args.local)?;
    let other = if args.other.extension() == Some(OsStr::new("csv")) {
        let unreadable = |cause| Error::file("read", &args.other, cause).with_kind(ErrorKind::Usage);
        Other::of_csv(&input_file::read_any(&args.other, input_file::SIZE_MAX).map_err(unreadable)?)?
    } else {
        Other::of(&read(&args.other)?)?
    };
    let found = calibrate::equivalent(&here, &other, args.setting)?;
    output::print(&if args.json { show::json(&found)? } else { show::text_of_map(&found) })?;
    Ok(Exit::Success)
}

fn compare(args: &CalibrateCompareArgs) -> Result<Exit, Failure> {
    let named = args.records.iter().map(|text| {
        let (name, record) = named(text);
        Ok((name, Document::<Measured>::read(record, NAME)?, record))
    });
    let named = named.collect::<Result<Vec<_>>>()?;
    let usable = named
        .into_iter()
        .map(|(name, document, record)| Ok((name, document.about.machine, usable(document.result, record)?)));
    let read = usable.collect::<Result<Vec<_>>>()?;
    let settings: Vec<_> = read.iter().map(|(name, _, measured)| Setting { name, measured }).collect();
    let compared = calibrate::compare(&settings)?;
    if let Some(figure) = &args.figure {
        output::write(figure, &show::chart_of_comparison(&compared).svg()?)?;
    }
    let machines: Vec<_> = read.iter().map(|(_, machine, _)| machine).collect();
    output::print(&if args.json {
        show::json(&show::Comparison { calibrations: &compared })?
    } else {
        show::text_of_comparison(&compared, &machines)
    })?;
    Ok(Exit::Success)
}

/// A record with its name: the one before `=`, else that of its file or folder without its ending. A path with `=` in its
/// first part is given as `./a=b`.
fn named(text: &str) -> (String, &Path) {
    match text.split_once('=') {
        Some((name, record)) if !name.is_empty() && !name.contains('/') => {
            (name.to_owned(), Path::new(record))
        }
        _ => {
            let path = Path::new(text);
            let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
            (name.map_or_else(|| text.to_owned(), |name| name.to_string_lossy().into_owned()), path)
        }
    }
}

fn read(record: &Path) -> Result<Measured> {
    usable(Document::<Measured>::read(record, NAME)?.result, record)
}

/// The calibration, analysed by the rules of this emu.
fn usable(measured: Measured, record: &Path) -> Result<Measured> {
    measured.check_solutions(record)?;
    measured.analysed_again().map_err(|cause| {
        Error::usage(format!("cannot use the calibration {}", record.display())).caused_by(cause)
    })
}

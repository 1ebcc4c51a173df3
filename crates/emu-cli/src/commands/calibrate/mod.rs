//! `emu calibrate`: how speed follows the quota; and what two calibrations make of each other.

mod args;
pub(crate) mod show;

pub(crate) use args::{CalibrateArgs, CalibrateCommand, CalibrateMapArgs, CalibratePreset};

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use emu_core::{Error, ErrorKind, Result};
use emu_machine::calibrate::{self, CalibrationPlan, Measured, Other};

use crate::exit::{Exit, Failure};
use crate::measuring::{Document, Measuring, Task};
use crate::options::option;
use crate::{host, output};

const NAME: &str = "calibrate";

/// Measures, and shows what it means; or composes two calibrations.
pub(crate) fn calibrate(args: &CalibrateArgs) -> Result<Exit, Failure> {
    if let Some(CalibrateCommand::Map(args)) = &args.command {
        return map(args);
    }
    let host = host::detect()?;
    let (quick, seed, preset) = (args.measure.quick, args.measure.seed(), args.preset);
    let mut plan = CalibrationPlan::new(&host, quick, seed, args.step)?;
    if preset.is_some() && !quick {
        plan = plan.as_published(&host)?;
    }
    let options = option("preset", preset.map(|CalibratePreset::Semode2021| "semode-2021"))
        + &option("step", args.step);
    let mut measuring =
        Measuring::begin(&host, &args.measure, &Task { name: NAME, options, seed, plan: &plan })?;
    let measured = calibrate::measure(&host, &plan, &mut |event| measuring.watch(event));
    let show = |measured: &Measured| Ok(show::shown(measured, preset.is_some()));
    let measured = measuring.finish(measured, show)?;
    Ok(if measured.passed() { Exit::Success } else { Exit::NotVerified })
}

fn map(args: &CalibrateMapArgs) -> Result<Exit, Failure> {
    let here = read(&args.local)?;
    let other = if args.other.extension() == Some(OsStr::new("csv")) {
        let unreadable = |cause| Error::file("read", &args.other, cause).with_kind(ErrorKind::Usage);
        Other::of_csv(&fs::read_to_string(&args.other).map_err(unreadable)?)?
    } else {
        Other::of(&read(&args.other)?)?
    };
    let found = calibrate::equivalent(&here, &other, args.setting)?;
    output::print(&if args.json { show::json(found)? } else { show::text_of_map(&found) })?;
    Ok(Exit::Success)
}

/// A calibration from its record, of which every solution is right.
fn read(record: &Path) -> Result<Measured> {
    let measured = Document::<Measured>::read(record, NAME)?.result;
    measured.check_solutions(record)?;
    Ok(measured)
}

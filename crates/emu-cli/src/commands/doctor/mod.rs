//! `emu doctor`: what makes runs differ on this machine, and holding it still.

mod args;
mod measure;
pub(crate) mod show;
mod tune;

pub(crate) use args::{DoctorAction, DoctorArgs, DoctorShowArgs, DoctorTuneArgs};
pub(crate) use measure::turnable;

use std::time::Duration;

use emu_machine::doctor::{Machine, examine};

use self::show::Report;
use crate::commands::restore;
use crate::exit::{Exit, Failure};
use crate::{host, output};

pub(crate) fn doctor(args: &DoctorArgs) -> Result<Exit, Failure> {
    match &args.action {
        DoctorAction::Show(args) => show(args),
        DoctorAction::Tune(args) if args.measure => measure::measure(args),
        DoctorAction::Tune(args) => tune::tune(args),
        DoctorAction::Reset(args) => restore::restore(args),
    }
}

/// How long other load and steal are looked at: a little over a hundred ticks of the kernel's account of each CPU, of
/// which a single one is within what is allowed of either.
const LOOK: Duration = Duration::from_millis(1050);

fn show(args: &DoctorShowArgs) -> Result<Exit, Failure> {
    let machine = Machine::look(&host::roots(), args.knobs.cpus.as_ref(), LOOK)?;
    let report = Report::new(&machine, examine(&machine, &args.knobs.knobs)?);
    let text = match (args.json, args.knobs.knobs.is_empty()) {
        (true, _) => output::json(&report)?,
        (false, true) => report.table(),
        (false, false) => report.in_full(),
    };
    output::print(&text)?;
    Ok(if report.is_ready() { Exit::Success } else { Exit::NotTuned })
}

//! `emu doctor`: what makes runs differ on this machine, and holding it still.

mod measure;
mod show;
mod tune;

use emu_core::Result;
use emu_machine::doctor::{self, Examined, KNOBS, Machine};

use super::restore;
use crate::args::{DoctorAction, DoctorArgs};
use crate::exit::{Exit, Failure};

/// Does what is asked for.
pub(crate) fn doctor(args: &DoctorArgs) -> Result<Exit, Failure> {
    match &args.action {
        DoctorAction::Show(args) => show::show(args),
        DoctorAction::Tune(args) if args.measure => measure::measure(args),
        DoctorAction::Tune(args) => tune::tune(args),
        DoctorAction::Reset(args) => restore::restore(args),
    }
}

/// The knobs of these names, all without any, as found on the machine.
fn examine(machine: &Machine, names: &[String]) -> Result<Vec<Examined>> {
    // In the order in which they are changed, whatever the order in which they are named.
    names.iter().try_for_each(|name| doctor::knob(name).map(drop))?;
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let knobs = KNOBS.iter().filter(|knob| wanted(knob.name));
    Ok(knobs.map(|knob| Examined::new(knob, machine)).collect())
}

//! `emu doctor show`: every knob as found.

use std::time::Duration;

use emu_machine::doctor::Machine;

use super::examine;
use crate::args::DoctorShowArgs;
use crate::exit::{Exit, Failure};
use crate::host;
use crate::output;
use crate::output::doctor::Report;

/// How long other load and steal are looked at: a little over a hundred ticks of the kernel's account of each CPU, of
/// which a single one is within what is allowed of either.
const LOOK: Duration = Duration::from_millis(1050);

/// Looks at the machine, and shows it.
pub(super) fn show(args: &DoctorShowArgs) -> Result<Exit, Failure> {
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

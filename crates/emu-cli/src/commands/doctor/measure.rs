//! `emu doctor tune --measure`: what each knob does to the noise here.

use emu_core::{Error, ErrorKind, Result};
use emu_machine::Watch;
use emu_machine::doctor::effects::{self, EffectsPlan, Switch};
use emu_machine::doctor::{Examined, Machine, Refused, Tuning, examine};

use crate::commands::doctor::{DoctorTuneArgs, show};
use crate::exit::{Exit, Failure};
use crate::host;
use crate::measuring::{Task, measured};
use crate::options::{flag, option};
use crate::reporter::Reporter;

pub(super) fn measure(args: &DoctorTuneArgs) -> Result<Exit, Failure> {
    let machine = Machine::of_files(&host::roots(), args.knobs.cpus.as_ref())?;
    let examined = examine(&machine, &args.knobs.knobs)?;
    let seed = args.measuring.seed();
    let mut plan = EffectsPlan::new(args.measuring.quick, seed);
    plan.pairs = args.pairs.unwrap_or(plan.pairs);
    plan.cpus = args.knobs.cpus.clone().unwrap_or_default();
    let options = flag("measure", true)
        + &option("pairs", args.pairs)
        + &option("knobs", &args.knobs.knobs)
        + &option("cpus", &args.knobs.cpus);
    let task = Task { name: "doctor tune", options, seed, plan: &plan };
    // Signals are blocked by now, before anything is changed.
    let run = |watch: Watch<'_>| {
        let (mut switches, refused) = turnable(&machine, &examined, !args.knobs.knobs.is_empty())?;
        for Refused { name, why } in refused {
            Reporter::new(args.quiet).say(&format!("{name} is left out: {why}"));
        }
        effects::measure(&machine.host, &mut switches, &plan, watch)
    };
    measured(&machine.host, &args.measuring, &task, run, show::shown)?;
    Ok(Exit::Success)
}

/// A knob, and the tuning while it is tuned.
struct One<'a> {
    machine: &'a Machine,
    knob: &'a Examined,
    tuning: Option<Tuning>,
}

impl Switch for One<'_> {
    fn name(&self) -> &str {
        self.knob.about.name
    }

    fn tune(&mut self) -> Result<()> {
        let only = std::slice::from_ref(self.knob);
        self.tuning = Some(Tuning::begin(self.machine, only, "a measurement", true)?);
        Ok(())
    }

    fn put_back(&mut self) -> Result<()> {
        self.tuning.take().map_or(Ok(()), |tuning| tuning.end().map(drop))
    }
}

/// Whether a knob's failure ends all: where something stays changed, the owner must be told, and no measurement counts.
fn ends_all(error: &Error) -> bool {
    error.kind() == ErrorKind::RestoreIncomplete
}

pub(crate) type Switches<'a> = Vec<Box<dyn Switch + 'a>>;

/// Tries each knob once. Fails where none can be turned, a named one cannot be, or one cannot be put back.
pub(crate) fn turnable<'a>(
    machine: &'a Machine,
    examined: &'a [Examined],
    named: bool,
) -> Result<(Switches<'a>, Vec<Refused>)> {
    let (mut switches, mut refused): (Switches<'a>, Vec<_>) = Default::default();
    for knob in examined {
        if knob.finding.changes.is_empty() {
            if named {
                refused.push(Refused { name: knob.about.name, why: knob.finding.found.clone() });
            }
            continue;
        }
        let mut one = One { machine, knob, tuning: None };
        match one.tune().and_then(|()| one.put_back()) {
            Ok(()) => switches.push(Box::new(one)),
            Err(error) if named || ends_all(&error) => return Err(error),
            Err(error) => refused.push(Refused { name: knob.about.name, why: error.in_words() }),
        }
    }
    if switches.is_empty() {
        let whys: Vec<_> = refused.iter().map(|knob| format!("{}: {}", knob.name, knob.why)).collect();
        let whys = if whys.is_empty() { String::new() } else { format!(": {}", whys.join("; ")) };
        return Err(Error::unavailable(format!("no knob can be changed here{whys}"))
            .hint("`emu doctor show` tells what was found of each"));
    }
    Ok((switches, refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_not_put_back_ends_all_and_a_refused_one_is_left_out() {
        assert!(ends_all(&Error::new(ErrorKind::RestoreIncomplete, "cannot write `1`")));
        assert!(!ends_all(&Error::not_permitted("cannot tune aslr")));
    }
}

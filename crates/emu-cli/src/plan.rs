//! From what was asked for to a demand, and the method that meets it.

use emu_core::{
    Demand, Expected, Host, MethodId, Result, Roots, SpeedSpec, Tasks, Variant, Zone, choose, method,
};

use crate::args::{DemandArgs, MethodChoice, ZoneArgs};

/// The host, when what killed emus have left is undone, and what that was: a clock that one of them has set would pass for
/// the CPU's own.
///
/// # Errors
/// As [`Host::detect`].
pub(crate) fn host() -> Result<(Host, Vec<String>)> {
    let roots = Roots::system();
    // An emulation that is engaged meets the same errors, and what was kept for them.
    let report = emu_core::restore(&roots).unwrap_or_default();
    let restored = report.restored.iter().map(|what| format!("restored {what}"));
    let notes = restored.chain(report.notes).collect();
    Ok((Host::detect(&roots)?, notes))
}

/// What will be emulated, and how.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The speed as asked for.
    pub(crate) speed: SpeedSpec,
    /// What is wanted of each CPU.
    pub(crate) demand: Demand,
    /// The method.
    pub(crate) method: MethodId,
    /// Whether emu has picked the method.
    pub(crate) automatic: bool,
    /// What to expect of it.
    pub(crate) expected: Expected,
}

impl Plan {
    /// Picks CPUs, targets and method. Changes nothing.
    ///
    /// # Errors
    /// A CPU cannot be used, a speed is out of reach, or the method (with `auto`: no method) can do it.
    pub(crate) fn new(host: &Host, args: &ZoneArgs) -> Result<Self> {
        let demand = demand(host, &args.speed, &args.demand)?;
        let (method, expected) = match args.method {
            MethodChoice::Auto => {
                let choice = choose(host, &demand)?;
                (choice.method, choice.expected)
            }
            MethodChoice::Named(id) => (id, check(host, &demand, id)?),
        };
        let automatic = args.method == MethodChoice::Auto;
        Ok(Self { speed: args.speed.clone(), demand, method, automatic, expected })
    }

    /// The zone of these tasks.
    pub(crate) fn zone(&self, name: String, tasks: Tasks) -> Zone {
        Zone { name, demand: self.demand.clone(), tasks }
    }
}

/// What is wanted of each CPU.
///
/// # Errors
/// As [`Demand::measured`].
pub(crate) fn demand(host: &Host, speed: &SpeedSpec, args: &DemandArgs) -> Result<Demand> {
    Ok(Demand {
        targets: Demand::measured(host, speed, args.cpus.as_ref())?.targets,
        period: args.period,
        variant: args.variant,
        lift_rt_limit: args.lift_rt_limit,
        spare_others: args.spare_others,
        round: args.round,
        widen_policies: args.widen,
    })
}

fn check(host: &Host, demand: &Demand, id: MethodId) -> Result<Expected> {
    let known = method(id).ok_or_else(|| emu_core::Error::unavailable(format!("{id} is not built in")))?;
    known.check(host, demand).map_err(|why| why.into_error(id))
}

/// The variant by its name on the command line, where it is not the usual one.
pub(crate) fn variant_name(variant: Variant) -> Option<&'static str> {
    match variant {
        Variant::Best => None,
        Variant::Published => Some("published"),
        Variant::Shares => Some("shares"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use emu_core::{Roots, Round};
    use std::time::Duration;

    #[test]
    fn every_option_reaches_the_demand() {
        let host = Host::detect(&Roots::system()).unwrap();
        let first = host.allowed.iter().take(1).collect();
        let args = DemandArgs {
            variant: Variant::Published,
            cpus: Some(first),
            period: Some(Duration::from_millis(10)),
            lift_rt_limit: true,
            spare_others: true,
            round: Round::Up,
            widen: true,
        };
        let demand = demand(&host, &"40%".parse().unwrap(), &args).unwrap();
        assert_eq!((Some(demand.cpus()), demand.uniform_share()), (args.cpus, Some(0.4)));
        assert_eq!((demand.variant, demand.period), (args.variant, args.period));
        assert!(demand.spare_others);
        assert_eq!((demand.lift_rt_limit, demand.round, demand.widen_policies), (true, Round::Up, true));
    }
}

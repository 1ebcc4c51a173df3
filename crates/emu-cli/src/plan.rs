//! From what was asked for to a demand, and the method that meets it.

use emu_core::{
    Choice, Demand, Error, Expected, Host, METHODS, Method, MethodId, Result, SpeedSpec, Tasks, Zone, find,
};

use crate::args::{DemandArgs, MethodChoice, ZoneArgs};

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

/// As [`emu_core::choose`].
///
/// # Errors
/// No method can; each says why on a line of its own.
pub(crate) fn choose(host: &Host, demand: &Demand) -> Result<Choice> {
    emu_core::choose(host, demand).map_err(|error| {
        let why = |method: &&dyn Method| {
            Some(format!("\n  {}: {}", method.id(), method.check(host, demand).err()?))
        };
        let reasons: String = METHODS.iter().filter_map(why).collect();
        let hint = error.hint_text().unwrap_or_default().to_owned();
        Error::new(error.kind(), format!("no method can do this here:{reasons}")).hint(hint)
    })
}

/// What is wanted of each CPU.
///
/// # Errors
/// As [`Demand::measured`].
pub(crate) fn demand(host: &Host, speed: &SpeedSpec, args: &DemandArgs) -> Result<Demand> {
    Ok(Demand {
        targets: Demand::measured(host, speed, args.cpus.as_ref())?.targets,
        period: args.period,
        lift_rt_limit: args.lift_rt_limit,
        spare_others: args.spare_others,
        round: args.round,
        widen_policies: args.widen,
    })
}

fn check(host: &Host, demand: &Demand, id: MethodId) -> Result<Expected> {
    find(id.as_str())?.check(host, demand).map_err(|why| why.into_error(id))
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
            variant: None,
            cpus: Some(first),
            period: Some(Duration::from_millis(10)),
            lift_rt_limit: true,
            spare_others: true,
            round: Round::Up,
            widen: true,
        };
        let speed = "40%".parse().unwrap();
        let demand = demand(&host, &speed, &args).unwrap();
        assert_eq!((Some(demand.cpus()), demand.uniform_share()), (args.cpus, Some(0.4)));
        assert_eq!((demand.spare_others, demand.period), (true, args.period));
        assert_eq!((demand.lift_rt_limit, demand.round, demand.widen_policies), (true, Round::Up, true));
    }
}

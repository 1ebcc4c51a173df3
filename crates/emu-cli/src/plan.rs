//! From what was asked for to a demand, and the method that meets it.

use emu_core::{
    Choice, Demand, Error, Expected, Host, METHODS, Method, MethodId, Result, SpeedSpec, Tasks, Variant,
    Zone, method,
};

use crate::args::{DemandArgs, MethodChoice, Named, ZoneArgs};

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
        let demand = demand(host, &args.speed, &args.demand, args.method.variant())?;
        let (method, expected) = match args.method {
            MethodChoice::Auto => {
                let choice = choose(host, &demand)?;
                (choice.method, choice.expected)
            }
            MethodChoice::Named(Named { id, .. }) => (id, check(host, &demand, id)?),
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

/// What is wanted of each CPU. `named` is the variant in the method's name, if that has one.
///
/// # Errors
/// As [`Demand::measured`]; or two variants are asked for.
pub(crate) fn demand(
    host: &Host,
    speed: &SpeedSpec,
    args: &DemandArgs,
    named: Option<Variant>,
) -> Result<Demand> {
    let variant = match (named, args.variant) {
        (Some(named), Some(given)) if named != given => {
            return Err(Error::usage(format!(
                "--method asks for the variant {named}, --variant for {given}"
            ))
            .hint("leave out one of them"));
        }
        (named, given) => named.or(given).unwrap_or_default(),
    };
    Ok(Demand {
        targets: Demand::measured(host, speed, args.cpus.as_ref())?.targets,
        period: args.period,
        variant,
        lift_rt_limit: args.lift_rt_limit,
        spare_others: args.spare_others,
        round: args.round,
        widen_policies: args.widen,
    })
}

fn check(host: &Host, demand: &Demand, id: MethodId) -> Result<Expected> {
    let known = method(id).ok_or_else(|| Error::unavailable(format!("{id} is not built in")))?;
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
            variant: Some(Variant::Published),
            cpus: Some(first),
            period: Some(Duration::from_millis(10)),
            lift_rt_limit: true,
            spare_others: true,
            round: Round::Up,
            widen: true,
        };
        let speed = "40%".parse().unwrap();
        let demand = |named| super::demand(&host, &speed, &args, named);
        let error = demand(Some(Variant::Shares)).unwrap_err();
        assert_eq!(error.to_string(), "--method asks for the variant shares, --variant for published");
        let demand = demand(None).unwrap();
        assert_eq!((Some(demand.cpus()), demand.uniform_share()), (args.cpus, Some(0.4)));
        assert_eq!((Some(demand.variant), demand.period), (args.variant, args.period));
        assert!(demand.spare_others);
        assert_eq!((demand.lift_rt_limit, demand.round, demand.widen_policies), (true, Round::Up, true));
    }
}

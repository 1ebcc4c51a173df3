//! From what was asked for to a demand, and the method that meets it.

use emu_core::{Demand, Host, Prepared, Result, SpeedSpec, choose};

use crate::values::MethodChoice;
use crate::zone::{DemandArgs, ZoneArgs};

/// What will be emulated, and how.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The speed as asked for.
    pub(crate) speed: SpeedSpec,
    /// Whether emu has picked the method.
    pub(crate) automatic: bool,
    /// The method, and what is asked of it.
    pub(crate) prepared: Prepared,
}

impl Plan {
    /// Picks CPUs, targets and method. Changes nothing.
    ///
    /// # Errors
    /// A CPU cannot be used, a speed is out of reach, or the method (with `auto`: no method) can do it.
    pub(crate) fn new(host: &Host, args: &ZoneArgs) -> Result<Self> {
        let demand = demand(host, &args.speed, &args.demand)?;
        let prepared = match args.method {
            MethodChoice::Auto => choose(host, &demand)?,
            MethodChoice::Named(id) => Prepared::named(id, host, &demand)?,
        };
        let automatic = args.method == MethodChoice::Auto;
        Ok(Self { speed: args.speed.clone(), automatic, prepared })
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
        lift_rt_limit: args.lift_rt_limit,
        spare_others: args.spare_others,
        round: args.round,
        widen_policies: args.widen,
    })
}

#[cfg(test)]
pub(crate) mod testing {
    //! A method that is only told of.

    use emu_core::{About, Expected, Host, Method, MethodId, Roots, Unavailable};

    use super::*;

    pub(crate) struct Told {
        pub(crate) name: &'static str,
        pub(crate) expected: fn() -> Expected,
    }

    impl Method for Told {
        fn id(&self) -> MethodId {
            MethodId::new(self.name)
        }

        fn about(&self) -> &'static About {
            const ABOUT: &About = &About::new("told of");
            ABOUT
        }

        fn check(&self, _: &Host, _: &Demand) -> Result<emu_core::Plan, Unavailable> {
            let refuse = |_: &Host, _: &emu_core::Zone, _: &emu_core::Journal| {
                Err(emu_core::Error::unavailable("it is only told of"))
            };
            Ok(emu_core::Plan::new((self.expected)(), refuse))
        }
    }

    /// What the method is prepared for.
    pub(crate) fn prepared(method: &'static Told, demand: &Demand) -> Prepared {
        Prepared::new(method, &Host::detect(&Roots::system()).unwrap(), demand).unwrap()
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

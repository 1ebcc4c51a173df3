//! From what was asked for to a demand, and the method that meets it.

use emu_core::{Demand, Error, ErrorKind, Host, MethodId, Prepared, Result, SpeedSpec, Targets, ranked};

use crate::exit::Failure;
use crate::signals::Signals;
use crate::values::MethodChoice;
use crate::zone::follow::Follow;
use crate::zone::like::Like;
use crate::zone::{DemandArgs, ZoneArgs};

#[derive(Debug)]
pub(crate) struct Plan {
    /// The speed as asked for; of a trace, that at its begin.
    pub(crate) speed: SpeedSpec,
    pub(crate) trace: Option<Follow>,
    /// How the speed was found, where it is that of another machine.
    pub(crate) like: Option<Like>,
    pub(crate) automatic: bool,
    pub(crate) prepared: Prepared,
    /// Where emu picks the method: the others that can, the most faithful first.
    pub(crate) others: Vec<Prepared>,
}

impl Plan {
    /// Picks CPUs, targets and method. Changes nothing.
    pub(crate) fn new(host: &Host, args: &ZoneArgs, signals: &Signals) -> Result<Self, Failure> {
        let trace = Follow::read(host, args)?;
        if let Some(like) = Like::find(host, args, signals)? {
            let demand = args.demand.demand(like.targets.clone());
            let prepared = Prepared::named(like.method, host, &demand)?;
            let automatic = args.method == MethodChoice::Auto;
            let speed = SpeedSpec::of_targets(&like.targets);
            let others = Vec::new();
            return Ok(Self { speed, trace: None, like: Some(like), automatic, prepared, others });
        }
        let (speed, demand) = match (&trace, &args.wanted.speed) {
            (Some(follow), _) => {
                let demand = args.demand.demand(follow.player.first()?);
                let shortest_step = follow.player.trace().shortest_step();
                (follow.player.speed(), Demand { shortest_step, ..demand })
            }
            (None, Some(speed)) => (speed.clone(), demand(host, speed, &args.demand)?),
            (None, None) => {
                let hint = "pass --speed, --trace or --like";
                return Err(Error::usage("no speed is asked for").hint(hint).into());
            }
        };
        let able = able(host, &demand, args.method)?;
        let extremes = trace.as_ref().map(|follow| follow.player.extremes()).transpose()?;
        let (prepared, others) = all_along(able, extremes.as_slice().as_flattened())?;
        let automatic = args.method == MethodChoice::Auto;
        Ok(Self { speed, trace, like: None, automatic, prepared, others })
    }

    /// Engages the method. Where emu picks it, and the host refuses what the check could not see, the next one takes its
    /// place. Returns what the user should know of that.
    pub(crate) fn engage<T>(
        &mut self,
        mut engage: impl FnMut(&Prepared) -> Result<T>,
    ) -> Result<(T, Option<String>)> {
        let mut refused: Vec<(MethodId, Error)> = Vec::new();
        loop {
            let method = self.prepared.method().id();
            match engage(&self.prepared) {
                Ok(engaged) => {
                    let why =
                        |(id, e): &(MethodId, Error)| format!("cannot begin by {id}: {}; ", e.in_words());
                    let whys: String = refused.iter().map(why).collect();
                    let other = (!whys.is_empty()).then(|| format!("{whys}it is done by {method}"));
                    return Ok((engaged, other));
                }
                // The same for every method; or no state to begin another one from.
                Err(error) if matches!(error.kind(), ErrorKind::Usage | ErrorKind::RestoreIncomplete) => {
                    return Err(error);
                }
                Err(error) => refused.push((method, error)),
            }
            if self.others.is_empty() {
                return Err(refused.swap_remove(0).1);
            }
            self.prepared = self.others.remove(0);
        }
    }

    /// Leaves out the other methods: what was verified is the first.
    pub(crate) fn settle(&mut self) {
        self.others.clear();
    }
}

pub(crate) fn demand(host: &Host, speed: &SpeedSpec, args: &DemandArgs) -> Result<Demand> {
    Ok(args.demand(Demand::measured(host, speed, args.cpus.as_ref())?.targets))
}

/// The methods that may be taken and can meet the demand, the most faithful first.
pub(crate) fn able(host: &Host, demand: &Demand, method: MethodChoice) -> Result<Vec<Prepared>> {
    match method {
        MethodChoice::Auto => {
            let (best, others) = ranked(host, demand)?;
            Ok([best].into_iter().chain(others).collect())
        }
        MethodChoice::Named(id) => Ok(vec![Prepared::named(id, host, demand)?]),
    }
}

/// The first of the methods that can do these speeds too, and the others.
fn all_along(able: Vec<Prepared>, speeds: &[Targets]) -> Result<(Prepared, Vec<Prepared>)> {
    let mut refused = None;
    let can = |prepared: &Prepared| {
        let can = speeds.iter().try_for_each(|targets| {
            let demand = Demand { targets: targets.clone(), ..prepared.demand().clone() };
            let method = prepared.method();
            Prepared::new(method, prepared.host(), &demand)
                .map(drop)
                .map_err(|why| why.into_error(method.id()))
        });
        can.map_err(|why| refused.get_or_insert(why)).is_ok()
    };
    let mut able: Vec<_> = able.into_iter().filter(can).collect();
    match refused {
        Some(why) if able.is_empty() => Err(why),
        _ => Ok((able.remove(0), able)),
    }
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

    fn expected() -> emu_core::Expected {
        emu_core::Expected::new(0.01, Duration::from_millis(1), Duration::from_millis(1))
    }

    #[test]
    fn where_a_method_is_refused_the_next_one_takes_its_place() {
        const fn told(name: &'static str) -> testing::Told {
            testing::Told { name, expected }
        }
        static METHODS: [testing::Told; 3] = [told("one"), told("two"), told("three")];
        let demand = Demand::new([].into());
        let plan = || {
            let mut methods = METHODS.iter().map(|method| testing::prepared(method, &demand));
            let (speed, prepared) = ("40%".parse().unwrap(), methods.next().unwrap());
            Plan { speed, trace: None, like: None, automatic: true, prepared, others: methods.collect() }
        };
        let until = |last: &'static str, kind: ErrorKind| {
            move |prepared: &Prepared| match prepared.method().id() {
                id if id.as_str() == last => Ok(id),
                id => Err(Error::new(kind, format!("no {id}"))),
            }
        };
        let mut first = plan();
        assert_eq!(first.engage(until("one", ErrorKind::Failed)).unwrap().1, None);
        let mut third = plan();
        let (id, told) = third.engage(until("three", ErrorKind::NotPermitted)).unwrap();
        assert_eq!((id.as_str(), third.prepared.method().id()), ("three", id));
        let told = told.unwrap();
        assert!(
            told.contains("by one: no one") && told.contains("by two: no two") && told.ends_with("by three")
        );
        // The first is what the user can do most about.
        let none = plan().engage(until("none", ErrorKind::Unavailable)).unwrap_err();
        assert_eq!(none.in_words(), "no one");
        for kind in [ErrorKind::Usage, ErrorKind::RestoreIncomplete] {
            assert_eq!(plan().engage(until("two", kind)).unwrap_err().kind(), kind);
        }
        let mut settled = plan();
        settled.settle();
        assert!(settled.engage(until("two", ErrorKind::Failed)).is_err());
    }

    #[test]
    fn every_option_reaches_the_demand() {
        let host = Host::detect(&Roots::system()).unwrap();
        let first = host.allowed.iter().take(1).collect();
        let args = DemandArgs {
            variant: None,
            cpus: Some(first),
            period: Some(Duration::from_millis(10)),
            lift_rt_limit: true,
            exclude_background: true,
            spare_others: None,
            round: Round::Up,
            widen: true,
            no_hold_clock: true,
        };
        let speed = "40%".parse().unwrap();
        let demand = demand(&host, &speed, &args).unwrap();
        assert_eq!((Some(demand.cpus()), demand.uniform_share()), (args.cpus, Some(0.4)));
        assert_eq!((demand.exclude_background, demand.period), (true, args.period));
        assert_eq!((demand.lift_rt_limit, demand.round, demand.widen_policies), (true, Round::Up, true));
        assert!(!demand.hold_clock);
    }
}

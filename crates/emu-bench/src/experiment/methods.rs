//! Who takes part in an experiment: methods by name, other tools, and [`NONE`].

use emu_core::{Demand, Host, METHODS, MethodId, Result, Trait, method};

use crate::external::{EXTERNALS, external};
use crate::verify::{Emulated, Nothing, SessionEmulated};

/// No emulation at all: what it seems to change is the error of the measurement (A/A).
pub const NONE: MethodId = Nothing::ID;

/// All that can take part, in the order of lists.
pub fn all() -> Vec<MethodId> {
    let methods = METHODS.iter().map(|method| method.id());
    methods.chain(EXTERNALS.iter().map(|one| one.id)).chain([NONE]).collect()
}

/// Every method at its best.
pub fn best() -> Vec<MethodId> {
    let best = METHODS.iter().filter(|method| !method.about().has(Trait::Published));
    best.map(|method| method.id()).collect()
}

/// What it does, in one line.
pub fn summary(id: MethodId) -> &'static str {
    if id == NONE {
        return "no emulation: native against native, which shows the noise";
    }
    let of_external = || external(id).map_or("", |one| one.summary);
    method(id).map_or_else(of_external, |method| method.about().summary)
}

/// The emulation, not yet engaged.
pub fn emulated(id: MethodId, host: &Host, demand: &Demand) -> Result<Box<dyn Emulated>> {
    if id == NONE {
        return Ok(Box::new(Nothing));
    }
    if let Some(external) = external(id) {
        return external.emulated(host, demand);
    }
    Ok(Box::new(SessionEmulated::named(host, demand, id)?))
}

pub(super) fn moves_clock(id: MethodId) -> bool {
    method(id).is_some_and(|method| method.about().has(Trait::MovesClock))
}

pub(crate) fn in_order(ids: impl Iterator<Item = MethodId>) -> Vec<MethodId> {
    let all = all();
    let place = |id: &MethodId| (all.iter().position(|one| one == id).unwrap_or(all.len()), *id);
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable_by_key(place);
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_records_name_is_in_the_order_of_the_list() {
        let ids = ["slow-mo", "none", "cpu-lim:published", "cpu-hogs", "none"].map(MethodId::new);
        let ordered = in_order(ids.into_iter()).into_iter().map(MethodId::as_str).collect::<Vec<_>>();
        assert_eq!(ordered, ["cpu-hogs", "cpu-lim:published", "none", "slow-mo"]);
    }

    #[test]
    fn all_that_can_take_part_tell_what_they_do() {
        assert!(all().into_iter().all(|id| !summary(id).is_empty()));
        assert!(best().iter().all(|id| !id.as_str().contains(':')));
    }
}

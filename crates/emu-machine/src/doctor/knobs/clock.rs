//! The core clock, measured: what a guest can see of frequency control, and the proof of it elsewhere.

use emu_core::Hertz;

use crate::doctor::{Finding, Knob, Machine, Takes};

/// Readings that lie further apart, as a share of their middle, show a clock that moves: a steady one is within 0.1 %.
const SPREAD_MAX: f64 = 0.01;

pub(in crate::doctor) static CLOCK: Knob = Knob {
    name: "clock",
    better: "the same at every reading, on every CPU",
    why: "measured by chains of dependent instructions, which needs no counter and works in a guest. Where it \
          moves, something above changes the frequency, or a hypervisor does",
    source: "McVoy & Staelin, lmbench, USENIX 1996",
    takes: Takes::Nothing,
    look,
};

fn look(machine: &Machine) -> Finding {
    let clocks = match &machine.clocks {
        Ok(clocks) => clocks,
        Err(why) => return Finding::unseen(why.clone()),
    };
    let low = clocks.iter().copied().fold(f64::INFINITY, f64::min);
    let high = clocks.iter().copied().fold(0.0, f64::max);
    if !(low > 0.0 && low.is_finite()) {
        return Finding::unseen("no reading of the clock could be taken");
    }
    let spread = (high - low) / f64::midpoint(high, low);
    let found = format!(
        "{} to {} in {} readings, {:.2}% apart",
        Hertz(low as u64),
        Hertz(high as u64),
        clocks.len(),
        spread * 100.0
    );
    if spread <= SPREAD_MAX {
        return Finding::ready(found);
    }
    Finding::advice(
        found,
        "the clock moves: by turbo, heat, other load or the hypervisor; take pairs, not single runs",
    )
}

//! Windows and pairs for tests.

use emu_core::{Demand, Target};

use super::pair::Pair;
use super::window::{Delivery, Side, Window};
use crate::workload::Done;

/// What asks these shares of CPUs from 0 on.
pub(crate) fn demand(shares: &[f64]) -> Demand {
    let target = |(cpu, &share): (usize, &f64)| (cpu, Target { share, clock: None });
    Demand::new(shares.iter().enumerate().map(target).collect())
}

/// A window of a second, in which each part did so much.
pub(super) fn window(side: Side, parts: &[f64], slept_ns: u64) -> Window {
    let done = Done {
        ended_ns: 1_000_000_000,
        parts: parts.to_vec(),
        slept_ns,
        longest_stall_ns: 7,
        quantum_ns: 1.0,
        cpu_ns: 500_000_000,
        ..Done::default()
    };
    let delivery = (side == Side::Emulated).then(|| Delivery {
        wall_s: 2.0,
        periods: 200,
        missed: 1,
        own_cpu_s: 0.02,
        process_cpu_s: 0.02,
        longest_stall_s: 0.0,
        effective: vec![],
    });
    Window {
        side,
        done,
        clock: None,
        settled_s: 0.0,
        harness_cpu_s: 0.0,
        steal: 0.0,
        throttled: 0.0,
        foreign: None,
        delivery,
    }
}

/// An undisturbed pair of these windows.
pub(super) fn pair_of(windows: [Window; 2]) -> Pair {
    Pair { number: 0, windows, taints: vec![], kept: true }
}

/// An undisturbed pair whose windows lie in the order of its number.
pub(crate) fn pair(number: usize, native: &[f64], emulated: &[f64]) -> Pair {
    let (native, emulated) = (window(Side::Native, native, 0), window(Side::Emulated, emulated, 0));
    let windows = if number.is_multiple_of(2) { [native, emulated] } else { [emulated, native] };
    Pair { number, windows, taints: vec![], kept: true }
}

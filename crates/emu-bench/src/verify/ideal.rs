//! What a perfect emulation gives each pair.

use emu_core::Hertz;

use super::pair::Pair;
use super::window::Window;
use crate::stats::Sample;
use crate::workload::Workload;

/// The ratio of the emulated and the native speed that a perfect emulation gives each pair. Where a clock is wanted, the share
/// is this clock by the CPU's own in the native window: a perfect emulation holds the wanted clock while that moves.
pub(super) struct Ideals<'a> {
    workload: &'a dyn Workload,
    /// As it was planned by the clock that the CPU had then.
    share: f64,
    wanted: Option<Hertz>,
    /// Core cycles of a quantum times 10⁹, where both a quantum and the meter are known of some windows.
    cycles: Option<f64>,
}

impl<'a> Ideals<'a> {
    pub(super) fn new(
        workload: &'a dyn Workload,
        share: f64,
        wanted: Option<Hertz>,
        pairs: &[&Pair],
    ) -> Self {
        let windows = pairs.iter().filter_map(|pair| pair.sides()).map(|(native, _)| native);
        let cycles: Vec<f64> = windows
            .filter(|window| workload.follows_clock() && window.done.quantum_ns > 0.0)
            .filter_map(|window| Some(window.clock?.mean_hz() * window.done.quantum_ns))
            .collect();
        let cycles = Sample::new(cycles).ok().map(|cycles| cycles.median());
        Self { workload, share, wanted, cycles }
    }

    /// Where the clock of the window is not known, the planned share stands for it.
    pub(super) fn of(&self, native: &Window) -> f64 {
        let by_clock = self.wanted.zip(self.core_hz(native)).map(|(wanted, own)| wanted.as_f64() / own);
        // No emulation makes a CPU faster.
        let share = by_clock.filter(|share| *share > 0.0).map_or(self.share, |share| share.min(1.0));
        self.workload.ideal(share, &native.done)
    }

    /// A quantum tells the clock of the whole window, the meter of both ends.
    fn core_hz(&self, window: &Window) -> Option<f64> {
        let by_quantum = self.cycles.map(|cycles| cycles / window.done.quantum_ns);
        by_quantum.filter(|hz| hz.is_finite()).or_else(|| window.clock.map(|clock| clock.mean_hz()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::CoreClock;
    use super::super::testing;
    use super::*;
    use crate::verify::Side;
    use crate::workload::workload;

    /// A native window at a clock, which the meter sees with an error.
    fn at(ghz: f64, meter_error: f64) -> Window {
        let metered = ghz * 1e9 * (1.0 + meter_error);
        let mut window = testing::window(Side::Native, &[ghz * 1e8], 0);
        window.clock = Some(CoreClock { before_hz: metered, after_hz: metered });
        window.done.quantum_ns = 1000.0 / ghz;
        window
    }

    fn pair(native: Window) -> Pair {
        testing::pair_of([native, testing::window(Side::Emulated, &[1e8], 0)])
    }

    #[test]
    fn a_wanted_clock_is_a_share_of_the_native_windows_clock() {
        let cpu_loop = workload("cpu-loop").unwrap();
        let pairs = [pair(at(3.0, 0.01)), pair(at(3.5, -0.02)), pair(at(4.0, 0.0))];
        let pairs: Vec<_> = pairs.iter().collect();
        let ideals = Ideals::new(cpu_loop, 0.4, Some(Hertz(1_200_000_000)), &pairs);
        for (ghz, ideal) in [(3.0, 0.4), (4.0, 0.3), (1.0, 1.0)] {
            assert!((ideals.of(&at(ghz, 0.1)) - ideal).abs() < 1e-9, "{ghz}: {}", ideals.of(&at(ghz, 0.1)));
        }
        let by_share = Ideals::new(cpu_loop, 0.4, None, &pairs);
        assert!((by_share.of(&at(4.0, 0.0)) - 0.4).abs() < 1e-9);
    }

    #[test]
    fn the_clock_comes_from_quanta_then_the_meter_then_the_plan() {
        let cpu_loop = workload("cpu-loop").unwrap();
        let mut metered = at(4.0, 0.0);
        metered.done.quantum_ns = 0.0;
        let unknown = Window { clock: None, ..metered.clone() };
        let ideals = Ideals::new(cpu_loop, 0.4, Some(Hertz(1_200_000_000)), &[]);
        assert!((ideals.of(&metered) - 0.3).abs() < 1e-9);
        assert!((ideals.of(&unknown) - 0.4).abs() < 1e-9);
    }
}

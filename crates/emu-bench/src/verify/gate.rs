//! Whether a pair was disturbed by something that is not the emulation.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clock;
use super::window::{Side, Window};
use crate::workload::Job;

/// Share of a window that the hypervisor may take.
pub const STEAL_MAX: f64 = 0.01;

/// Share of the CPUs' time for which limits of our own cgroups may keep tasks waiting.
pub const THROTTLED_MAX: f64 = 0.01;

/// The largest change of the core clock between the two windows of a pair that is no disturbance. Ratios are taken at equal
/// mean clocks, and the mean does not tell whether a clock was higher while tasks ran than while they were stopped.
pub const CLOCK_CHANGE_MAX: f64 = 0.06;

/// Native work that gets less than this share of the CPU time that it could use is disturbed by other tasks.
const UNDISTURBED: f64 = 0.97;

/// It is not while it waits for less than this share of the window: work that nearly always sleeps can use so little
/// CPU time that a short wait is a large share of it.
const WAITING_MAX: f64 = 0.01;

/// Share of messages that may be lost.
const LOST_MAX: f64 = 0.01;

/// Share of the CPUs' time that other tasks may have had.
pub const FOREIGN_MAX: f64 = 0.03;

/// What was wrong with a pair.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Taint {
    /// The hypervisor gave this share of a window to others.
    Steal(f64),
    /// A limit on the CPU time of our own cgroup, or of one above it, throttled tasks for this share of the CPUs' time.
    Throttled(f64),
    /// The core clock differed by this share between the windows.
    Clock(f64),
    /// Other tasks left the native work only this share of the CPU time that it could use.
    Contended(f64),
    /// Other tasks had this share of the CPUs' time.
    Foreign(f64),
    /// This share of messages did not arrive.
    Lost(f64),
    /// Native work began this many nanoseconds after its window.
    Late(u64),
}

impl Taint {
    /// Its kind, in a word or two.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Steal(_) => "steal",
            Self::Throttled(_) => "outer throttling",
            Self::Clock(_) => "clock changes",
            Self::Contended(_) | Self::Foreign(_) => "other tasks",
            Self::Lost(_) => "lost messages",
            Self::Late(_) => "late start",
        }
    }
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steal(share) => write!(f, "{:.1}% stolen by the hypervisor", share * 100.0),
            Self::Throttled(share) => {
                write!(
                    f,
                    "our own cgroup's limit throttled tasks for {:.1}% of the CPUs' time",
                    share * 100.0
                )
            }
            Self::Clock(change) => write!(f, "core clock changed by {:.1}%", change * 100.0),
            Self::Contended(share) => write!(f, "other tasks left {:.1}% of the CPU", share * 100.0),
            Self::Foreign(share) => write!(f, "other tasks had {:.1}% of the CPUs", share * 100.0),
            Self::Lost(share) => write!(f, "{:.1}% of the messages were lost", share * 100.0),
            Self::Late(ns) => write!(f, "work began {:.1} ms late", *ns as f64 / 1e6),
        }
    }
}

pub(super) fn taints(job: &Job, windows: &[Window; 2]) -> Vec<Taint> {
    let mut taints: Vec<_> = windows.iter().filter_map(|window| taint(job, window)).collect();
    taints.extend(clock_change(windows).filter(|change| *change > CLOCK_CHANGE_MAX).map(Taint::Clock));
    taints
}

/// An uninterrupted quantum takes as long as the clock says, emulated or not, and quanta are spread over the window; without
/// them the meter tells, which looks at both ends only.
fn clock_change([a, b]: &[Window; 2]) -> Option<f64> {
    if a.done.quantum_ns > 0.0 && b.done.quantum_ns > 0.0 {
        return Some(clock::change(a.done.quantum_ns, b.done.quantum_ns));
    }
    Some(clock::change(a.clock?.mean_hz(), b.clock?.mean_hz()))
}

pub(super) fn taint(job: &Job, window: &Window) -> Option<Taint> {
    let done = &window.done;
    if window.steal > STEAL_MAX {
        return Some(Taint::Steal(window.steal));
    }
    if window.throttled > THROTTLED_MAX {
        return Some(Taint::Throttled(window.throttled));
    }
    if let Some(share) = window.foreign.filter(|share| *share > FOREIGN_MAX) {
        return Some(Taint::Foreign(share));
    }
    if let Some(lost) = done.messages.map(|messages| messages.lost_share()).filter(|lost| *lost > LOST_MAX) {
        return Some(Taint::Lost(lost));
    }
    // With more tasks than CPUs some task always waits for its turn.
    let crowded = job.active > job.cpus.len();
    // An emulated window that opens late was stopped by the emulation, which is what is measured.
    if done.late_ns > 0 && !crowded && window.side == Side::Native {
        return Some(Taint::Late(done.late_ns));
    }
    if window.side == Side::Native {
        let parallel = job.active.min(job.cpus.len()) as f64;
        let usable = (done.wall_s() - done.slept_ns as f64 / 1e9) * parallel;
        let used = done.cpu_ns as f64 / 1e9;
        let few = used / usable < UNDISTURBED && usable - used > WAITING_MAX * done.wall_s() * parallel;
        // CPU time is that between a part's own first stamp and its last: not the window, for parts that wait for a turn.
        if few && !crowded {
            return Some(Taint::Contended(used / usable));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::CoreClock;
    use crate::workload::{Done, Messages};

    fn window(side: Side, cpu_ns: u64, quantum_ns: f64) -> Window {
        let window = crate::verify::testing::window(side, &[1.0], 0);
        let done = Done { cpu_ns, quantum_ns, ..window.done };
        Window { done, foreign: Some(0.01), delivery: None, ..window }
    }

    fn job() -> Job {
        Job::new("cpu-loop", &"0".parse().unwrap())
    }

    #[test]
    fn a_good_pair_has_no_taint() {
        let windows = [window(Side::Native, 995_000_000, 20e3), window(Side::Emulated, 400_000_000, 20.2e3)];
        assert!(taints(&job(), &windows).is_empty());
    }

    #[test]
    fn each_disturbance_is_named() {
        let good = || window(Side::Emulated, 400_000_000, 20e3);
        let mut stolen = good();
        stolen.steal = 0.02;
        let mut throttled = good();
        throttled.throttled = 0.3;
        let mut shared = good();
        shared.foreign = Some(0.2);
        let mut late = window(Side::Native, 995_000_000, 20e3);
        late.done.late_ns = 5;
        for (other, taint) in [
            (stolen, Taint::Steal(0.02)),
            (throttled, Taint::Throttled(0.3)),
            (shared, Taint::Foreign(0.2)),
            (late, Taint::Late(5)),
            (window(Side::Native, 900_000_000, 20e3), Taint::Contended(0.9)),
        ] {
            assert_eq!(taints(&job(), &[good(), other]), [taint]);
        }
        let slower = window(Side::Native, 1_000_000_000, 22e3);
        assert!(
            matches!(taints(&job(), &[good(), slower])[..], [Taint::Clock(change)] if (change - 0.1).abs() < 1e-9)
        );
    }

    #[test]
    fn a_late_start_disturbs_native_windows_only() {
        let late = |side| {
            let mut late = window(side, 995_000_000, 20e3);
            late.done.late_ns = 700_000_000;
            late
        };
        assert_eq!(taint(&job(), &late(Side::Native)), Some(Taint::Late(700_000_000)));
        assert_eq!(taint(&job(), &late(Side::Emulated)), None, "its emulation stopped it");
        let mut stolen = late(Side::Emulated);
        stolen.steal = 0.02;
        assert_eq!(
            taint(&job(), &stolen),
            Some(Taint::Steal(0.02)),
            "what others take disturbs all the same"
        );
    }

    #[test]
    fn without_quanta_the_meter_tells_of_a_changed_clock() {
        let at = |hz: f64, quantum_ns| Window {
            clock: Some(CoreClock { before_hz: hz * 0.99, after_hz: hz * 1.01 }),
            ..window(Side::Native, 1_000_000_000, quantum_ns)
        };
        assert!(taints(&job(), &[at(3e9, 0.0), at(3.05e9, 0.0)]).is_empty());
        assert!(matches!(
            taints(&job(), &[at(3e9, 0.0), at(3.3e9, 0.0)])[..],
            [Taint::Clock(change)] if (change - 0.1).abs() < 1e-9
        ));
        assert!(taints(&job(), &[at(3e9, 20e3), at(3.3e9, 20e3)]).is_empty(), "quanta know better");
        let unknown = Window { clock: None, ..at(3e9, 0.0) };
        assert!(taints(&job(), &[at(3e9, 0.0), unknown]).is_empty());
    }

    #[test]
    fn lost_messages_are_a_taint() {
        let mut lossy = window(Side::Emulated, 0, 0.0);
        lossy.done.messages = Some(Messages { first: 100, end: 1100, lost: 9 });
        assert_eq!(taint(&job(), &lossy), None);
        lossy.done.messages = Some(Messages { first: 100, end: 1100, lost: 50 });
        assert_eq!(taint(&job(), &lossy), Some(Taint::Lost(0.05)));
    }

    #[test]
    fn work_that_sleeps_nearly_always_may_wait_a_little() {
        let paced = |waited_ns: u64| {
            let mut window = window(Side::Native, 15_000_000, 0.0);
            window.done.slept_ns = 1_000_000_000 - 15_000_000 - waited_ns;
            taint(&job(), &window)
        };
        assert_eq!(paced(9_000_000), None);
        assert!(matches!(paced(20_000_000), Some(Taint::Contended(_))));
    }
}
